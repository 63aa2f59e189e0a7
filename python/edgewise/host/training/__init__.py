"""Runs training: the loop, its data and what it leaves."""
