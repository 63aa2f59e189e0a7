"""Random numbers, dropout and initial values."""
