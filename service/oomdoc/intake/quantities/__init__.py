"""What each number of a text is of: a context, a batch, a card's memory, users, a file's size, or something else."""

from oomdoc.intake.quantities.reader import Quantity, quantities_in

__all__ = ["Quantity", "quantities_in"]
