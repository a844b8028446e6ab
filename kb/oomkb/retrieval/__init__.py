"""Finding the known cases that look like a failure: embedding, lexical index, FAISS index, fusion."""
