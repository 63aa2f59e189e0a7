"""The language that ops and kernels are declared in: element types, symbolic lengths, operands."""
