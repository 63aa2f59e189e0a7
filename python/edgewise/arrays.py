"""Public names of compiler/arrays.py."""

from .compiler.arrays import (
    Array,
    Input,
    as_input,
    as_output,
    as_strings,
    copy_into,
    dtype_code,
    empty,
    holds_strings,
    strings_as_output,
    view_of,
)

__all__ = [
    "Array",
    "Input",
    "as_input",
    "as_output",
    "as_strings",
    "copy_into",
    "dtype_code",
    "empty",
    "holds_strings",
    "strings_as_output",
    "view_of",
]
