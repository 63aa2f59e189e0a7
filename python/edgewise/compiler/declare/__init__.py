"""The language in which operators and kernels are declared: element types, symbolic lengths,
operands.
"""
