"""Ops that the session runs between plans: control flow, sequences, strings."""
