"""ONNX Runtime Training's API and its files."""
