"""What families of models write for pictures, and their positions."""
