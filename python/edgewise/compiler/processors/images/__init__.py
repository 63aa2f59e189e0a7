"""Image processors: from preprocessor_config.json to a description of resizing, cropping and
padding, and a graph for the arithmetic on numbers.
"""

from ....logic.images.geometry import MAX_PIXELS, Layout, layout
from .description import Description
from .reader import read_description

__all__ = ["MAX_PIXELS", "Description", "Layout", "layout", "read_description"]
