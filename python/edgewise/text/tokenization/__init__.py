"""A tokenizer in Python for tokenizer.json, for Pyodide and where the `tokenizers` library is not
installed.
"""

from .backend import PythonTokenizer
from .component import NotSupported

__all__ = ["NotSupported", "PythonTokenizer"]
