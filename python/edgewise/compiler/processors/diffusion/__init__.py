"""What is known of diffusion models before they run: their configuration and small graphs."""
