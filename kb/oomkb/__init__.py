"""What is known: the memory model, the catalogues, the case records and the retrieval index.

Never imports ``oomdoc``; knows no web, no terminal and no network.
"""
