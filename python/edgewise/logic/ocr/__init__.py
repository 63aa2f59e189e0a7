"""Recognition of text in pictures."""
