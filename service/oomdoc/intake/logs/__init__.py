"""One file per error family."""
