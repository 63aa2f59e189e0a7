"""Pictures and sound: files, and resampling in the engine."""
