"""Pure logic of speech."""
