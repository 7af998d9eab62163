"""Measurements, one module each: python -m benchmarks.NAME prints a table of ratios."""
