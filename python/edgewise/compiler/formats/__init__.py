"""Formats of other libraries that trained models and adapters are written in: Hugging Face's folder
with safetensors, GGUF of llama.cpp, MLX.
"""
