"""From evidence to ranked causes, plans and patches."""
