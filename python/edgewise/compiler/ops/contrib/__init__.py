"""ONNX Runtime's contrib ops (domain com.microsoft)."""
