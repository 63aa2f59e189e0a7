"""Random graphs in one session over several shapes, against onnxruntime: see fuzz_graphs.py."""
