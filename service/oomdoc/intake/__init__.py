"""From text and files to evidence: facts with source and line."""
