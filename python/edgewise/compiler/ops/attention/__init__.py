"""Attention in its variants, rotary embeddings and linear attention."""
