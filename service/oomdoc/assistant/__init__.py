"""Conversations led by a language model, which calls oomdoc's functions; what it says is checked against their results."""
