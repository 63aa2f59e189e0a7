"""Classification by any labels, of pictures and of sounds."""
