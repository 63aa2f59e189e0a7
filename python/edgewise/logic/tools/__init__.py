"""Tools of chats: their definitions, the calls in answers, and text that is no template."""
