"""Heads on a frozen model's features: fitting and exports."""
