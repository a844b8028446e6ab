"""Case records: the schema, the loader and the lint."""
