"""The sdist and the wheels."""
