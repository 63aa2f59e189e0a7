"""Subcommands of `edgewise` that belong to extras: one module each."""
