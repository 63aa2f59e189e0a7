"""Features that the rest does not know: each can be left out."""
