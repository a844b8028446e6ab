"""The command's doors: parse, call, print."""
