"""Working with case records: list, show, start, check and add them. The doors translate; nothing here prints."""

from oomdoc.casework.adding import Added, add, check_text
from oomdoc.casework.listing import found, listed
from oomdoc.casework.starting import from_diagnosis, scaffold, write_new

__all__ = ["Added", "add", "check_text", "found", "from_diagnosis", "listed", "scaffold", "write_new"]
