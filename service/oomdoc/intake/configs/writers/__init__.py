"""One writer per written form: where a new value goes, to the character. None knows any framework."""
