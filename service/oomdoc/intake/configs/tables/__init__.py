"""The tables, one file per framework."""
