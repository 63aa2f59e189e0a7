"""Generated: the shaders."""
