"""Fourier transforms, window functions and the mel scale."""
