"""Models of a hub, by their id."""
