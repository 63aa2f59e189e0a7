"""Test cases of the ops of this family. They are not part of the wheel."""
