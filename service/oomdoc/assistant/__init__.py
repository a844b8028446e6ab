"""Conversations led by a language model: it calls oomdoc, and what it says is checked against the results."""
