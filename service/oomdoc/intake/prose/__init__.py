"""What people say in their own words, in English and Chinese."""
