"""Pure logic of images."""
