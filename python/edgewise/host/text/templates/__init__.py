"""The sandbox of chat templates: what they may call, and a budget of their work."""
