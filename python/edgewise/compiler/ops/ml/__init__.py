"""Classical machine learning (domain ai.onnx.ml): trees, support vectors, label encoders."""
