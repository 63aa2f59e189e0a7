"""Matrix products: MatMul, Gemm, Einsum, Det, and products with weights quantized in blocks."""
