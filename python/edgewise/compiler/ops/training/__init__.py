"""Losses, optimizers and the updates of states."""
