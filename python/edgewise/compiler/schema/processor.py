"""What a package says of the processor of a pipeline: the types of the fields of `processor` in its
manifest. Both readers of packages check them by this table; `make gen` writes it for the page.

A type is "count" (an integer from 1 to MOST), "size" (from 0), "number" (finite), "text", "flag",
"rule" (a step of a picture's processing, one of RULES) or "resize" (a rule of that operation);
[type]: a list, of at least one entry unless "*" follows the type; several types: a list of as many;
{name: type}: an object, which may have further fields; {"?": type}: it may be null or missing.
"""

from __future__ import annotations

from typing import Any

MOST = 1 << 26
"""Largest "count" and "size": samples, pixels of a side, tokens."""

_SIDES = {"height": "count", "width": "count"}
_OPTIONAL = {"?": "count"}
_SHORTEST = {"size": "count", "longest": _OPTIONAL, "divisor": _OPTIONAL}
_SIZES = {"sizes": [["count", "count"]]}
_RESIZES: dict[str, dict[str, Any]] = {
    "exact": _SIDES,
    "shortest": _SHORTEST,
    "longest": {"size": "count"},
    "aspect": _SHORTEST,
    "fit": _SIDES,
    "letterbox": _SIDES,
    "multiple": {**_SIDES, "multiple": "count", "keep": {"?": "flag"}},
    "floor": {"divisor": "count"},
    "bounded": {"size": "count", "longest": "count", "divisor": "count"},
    "thumbnail": _SIDES,
    "nearest": {"of": "resize", **_SIZES},
}
_PAD = {**_SIDES, "color": {"?": ["number", "number", "number"]}}
RULES: dict[str, dict[str, Any]] = {
    **{f"resize {rule}": {"filter": "text", **types} for rule, types in _RESIZES.items()},
    "crop center": _SIDES,
    "crop fraction": {"height": "number", "width": "number"},
    "pad symmetric": {"divisor": "count"},
    "pad letterbox": _PAD,
    "pad middle": _PAD,
    "frame among": _SIZES,
    "frame divisor": {"divisor": "count"},
    "frame corner": _SIDES,
    "rotate": _SIDES,
}
"""Numbers of the steps of `layout` (processors/images/geometry.py), by operation and rule."""

PROCESSOR: dict[str, Any] = {
    "image": {
        "?": {
            "type": "text",
            "steps": ["rule", "*"],
            "scale": ["number", "number", "number"],
            "bias": ["number", "number", "number"],
            "flip": "flag",
            "frame": "flag",
            "mask": "flag",
        }
    },
    "audio": {
        "?": {
            "type": "text",
            "sampling_rate": "count",
            "channels": "count",
            "length": {
                "exact": _OPTIONAL,
                "multiple": "count",
                "least": "size",
                "chunk": "size",
                "stride": "size",
                "truncate": "flag",
                "repeat": "text",
            },
            "mask": {
                "?": {
                    "name": "text",
                    "hop": "count",
                    "base": "number",
                    "valid": "number",
                    "more": "number",
                    "group": "count",
                }
            },
            "frames": {"?": ["count", "count"]},
            "lengths": {"?": ["count"]},
            "any_length": {"?": ["count", "count"]},
            "windows": {
                "?": {
                    "size": "count",
                    "before": "size",
                    "span": "count",
                    "unit": "count",
                    "hop": "count",
                    "coverage": "number",
                }
            },
        }
    },
    "voice_activity": {"?": {"sampling_rates": ["count"]}},
    "text": {"?": {"max_length": _OPTIONAL}},
    "ctc": {
        "?": {
            "tokens": [{"?": "text"}],
            "blank": "text",
            "unknown": "text",
            "delimiter": "text",
            "space": "text",
            "lower": "flag",
            "clean_up": "flag",
            "samples": "count",
            "windows": [["count", "count"], "*"],
        }
    },
    "moonshine": {"?": "flag"},
}
"""The fields that are checked where a package is read; pipelines check those of "speech",
"diffusion" and "features" when they use them."""
