"""One file per cause; the docstring is the cause's page."""
