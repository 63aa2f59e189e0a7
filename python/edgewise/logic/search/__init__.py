"""Search in vectors: memory, files, results."""
