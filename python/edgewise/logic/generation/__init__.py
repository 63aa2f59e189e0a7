"""Pure logic of generation."""
