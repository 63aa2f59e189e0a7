"""Runs packages: the engine, sessions, files, pipelines, the command line."""
