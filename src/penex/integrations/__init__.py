"""Our losses in the frameworks people use: one module a framework, imported on demand."""
