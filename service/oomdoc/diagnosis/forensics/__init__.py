"""Which tensor has the size that was asked for."""
