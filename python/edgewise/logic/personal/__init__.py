"""Pure logic of personal."""
