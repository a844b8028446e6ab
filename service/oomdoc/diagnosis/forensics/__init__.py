"""Which tensor has the size that was asked for."""

from oomdoc.diagnosis.forensics.matching import tensors_for, tensors_of_unknown_model

__all__ = ["tensors_for", "tensors_of_unknown_model"]
