"""Modules with the names of onnxruntime.capi, for scripts that import from them."""
