"""The sandbox of chat templates: permitted calls, and a budget of work."""
