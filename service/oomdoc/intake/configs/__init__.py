"""One two-way table per framework: what reads a key also writes it."""
