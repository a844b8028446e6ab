"""The diagnosis in words: terminal, Markdown, JSON."""
