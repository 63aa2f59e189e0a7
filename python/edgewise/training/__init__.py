"""Training: losses, optimizers, schedules and adapters; the plans of a training step; the files that are kept."""
