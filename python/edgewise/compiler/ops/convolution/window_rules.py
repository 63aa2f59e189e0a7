"""Parameters and rules of all kernels with a window over three dimensions."""

from __future__ import annotations

# Parameters: the input, the output, the window, and how it moves.
WINDOW = "x_size[3] y_size[3] taps[3] stride[3] dilation[3] pad[3]"

# Each product of three values that a kernel computes is bounded, so that none overflows.
WINDOW_RULES = [
    f"volume({sizes}) >= 1" for sizes in ("x_size", "y_size", "taps", "stride", "dilation")
]
