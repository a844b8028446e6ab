"""Which tensor has the size that was asked for."""

from oomdoc.diagnosis.forensics.matching import tensors_for

__all__ = ["tensors_for"]
