"""Pure logic of training."""
