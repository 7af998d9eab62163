"""The same mathematics made fast. Each kernel has the plain formula as its slow twin."""
