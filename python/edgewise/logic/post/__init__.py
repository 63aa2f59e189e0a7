"""Pure logic of post."""
