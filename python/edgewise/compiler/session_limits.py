"""Limits of sessions, in Python and in pages: of models, and of one run unless its caller sets
another.

`make gen` writes them to web/src/gen/session.ts.
"""

from __future__ import annotations

from ..element_types import ELEMENT_BITS

MAX_SHAPE_NUMBERS = 1 << 16
MAX_NESTING = 32
LATEST_OPSET = 23
MAX_LOOP_TRIPS = 1 << 20
MAX_COMPILATIONS = 1 << 14
MEMORY_SHARE = 0.25
MAX_HOST_BYTES = 1 << 30
MAX_COPIED_ITEMS = 1 << 30
MAX_NGRAMS = 1 << 25
INPUTS_PER_COMPILATION = 32

CONSTANTS = (
    (
        "ELEMENT_BITS",
        ELEMENT_BITS,
        "Bits of an element, by the names that NumPy and ml_dtypes give to element types.",
    ),
    (
        "MAX_SHAPE_NUMBERS",
        MAX_SHAPE_NUMBERS,
        (
            "Maximum number of elements of a tensor that a shape depends on: they become part of a"
            " plan's key."
        ),
    ),
    ("MAX_NESTING", MAX_NESTING, "How deep functions and subgraphs may be nested."),
    (
        "LATEST_OPSET",
        LATEST_OPSET,
        "Version of the operator set of the nodes that Edgewise adds itself.",
    ),
    ("MAX_LOOP_TRIPS", MAX_LOOP_TRIPS, "Iterations of all loops of a run together."),
    (
        "MAX_COMPILATIONS",
        MAX_COMPILATIONS,
        "Plans that one run may compile, as for loops whose shapes change.",
    ),
    (
        "INPUTS_PER_COMPILATION",
        INPUTS_PER_COMPILATION,
        (
            "A plan of more inputs than this counts for several, since compiling it takes as much"
            " longer."
        ),
    ),
    (
        "MEMORY_SHARE",
        MEMORY_SHARE,
        (
            "Share of the memory for the values between nodes: of the machine's (in a page: of what"
            " the engine's may grow to)."
        ),
    ),
    (
        "MAX_HOST_BYTES",
        MAX_HOST_BYTES,
        "Bytes of these values that may be strings, lists and maps, which the host holds.",
    ),
    (
        "MAX_COPIED_ITEMS",
        MAX_COPIED_ITEMS,
        (
            "Items that operators of sequences may copy in one run, as a loop does that inserts"
            " before others."
        ),
    ),
    ("MAX_NGRAMS", MAX_NGRAMS, "N-grams that one TfIdfVectorizer may look up."),
)
