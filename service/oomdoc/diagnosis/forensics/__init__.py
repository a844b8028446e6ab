"""Which tensor has the size that was asked for."""

from oomdoc.diagnosis.forensics.matching import rounding_of, tensors_for, tensors_of_family, tensors_of_unknown_model

__all__ = ["rounding_of", "tensors_for", "tensors_of_family", "tensors_of_unknown_model"]
