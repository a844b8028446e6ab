"""How model families differ: rows of what their configurations do not say, read from their modelling files."""
