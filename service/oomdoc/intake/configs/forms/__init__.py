"""One reader per written form: text to settings with their places. None knows any framework."""
