"""Training as graphs and plans: losses, optimizers, programs, adapters."""
