"""Pure logic of diffusion."""
