"""Pure logic of GPU programs."""
