"""Pure logic of text."""
