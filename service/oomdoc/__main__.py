"""``python -m oomdoc``."""

from oomdoc.cli.main import main

main()
