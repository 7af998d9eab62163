"""The networks that tasks train."""
