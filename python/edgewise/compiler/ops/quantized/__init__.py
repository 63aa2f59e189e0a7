"""Quantization, and products and elementwise ops on quantized tensors."""
