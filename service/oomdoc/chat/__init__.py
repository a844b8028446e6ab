"""Sessions and what-ifs."""
