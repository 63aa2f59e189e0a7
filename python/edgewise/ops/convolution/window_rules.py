"""What the contracts of all kernels with a window over three dimensions share."""

from __future__ import annotations

# Parameters: of the input and the output, of the window, and how it moves.
WINDOW = "x_size[3] y_size[3] taps[3] stride[3] dilation[3] pad[3]"

# Each product of three that a kernel computes is bounded, so that none overflows.
WINDOW_RULES = [
    f"volume({sizes}) >= 1" for sizes in ("x_size", "y_size", "taps", "stride", "dilation")
]
