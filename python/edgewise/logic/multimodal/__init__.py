"""Language models that see pictures and hear sounds: prompts, features and positions."""
