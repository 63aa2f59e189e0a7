"""The graphs of transducers and of Canary among the files of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TYPES = ("int8", "uint8", "fp16", "q4f16", "q8", "q4", "quantized", "bnb4")
"""Last words of names that say a type."""
ENDS = "._-"
CANARY = "coder-model"


PARTS = ("encoder", "decoder", "joiner")
"""Graphs that may have types of their own; a decoder may have the joiner in it."""


def hearing_files(
    names: Sequence[str],
    suffixes: Sequence[str] | None = None,
    own: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, str] | None:
    """The graphs of a transducer among a model's files, by words in their names: an encoder, and a
    decoder with a joiner or a decoder and a joiner.

    Args:
        names: of files.
        suffixes: which follow a name, such as "_int8"; "": those that say no type. Default: any.
        own: those of some of PARTS.

    Returns:
        {"encoder", "predictor", "joiner"?: file}, of Canary {"encoder", "decoder"}; None: there are
        none
    """
    found: dict[str, str] = {}
    graphs = [(len(name), name) for name in names if name.endswith(".onnx")]
    for _, name in sorted(graphs):
        words = _words(_stem(name))
        kind = words[-1] if len(words) > 1 and words[-1] in TYPES else ""
        joins = "joiner" in words or "joint" in words
        part = ""
        if "decoder" in words:
            part = "both" if joins else "decoder"
        elif joins:
            part = "joiner"
        elif "encoder" in words:
            part = "encoder"
        named = "decoder" if part == "both" else part
        asked: Sequence[str] | None = None if own is None else own.get(named)
        allowed: Sequence[str] | None = suffixes if asked is None else asked
        if allowed is not None and kind not in [_bare(one) for one in allowed]:
            continue
        if part and part not in found:
            found[part] = name
    if "encoder" not in found:
        return None
    encoder = found["encoder"]
    if "both" in found:
        return {"encoder": encoder, "predictor": found["both"]}
    if "decoder" not in found:
        return None
    decoder = found["decoder"]
    if _is_canary(encoder) and _is_canary(decoder):
        return {"encoder": encoder, "decoder": decoder}
    if "joiner" not in found:
        return None
    return {"encoder": encoder, "predictor": decoder, "joiner": found["joiner"]}


def _stem(name: str) -> str:
    """A name without folders and extension."""
    file = name.split("/")[-1]
    return file[: len(file) - len(".onnx")]


def _words(stem: str) -> list[str]:
    return stem.replace("_", "-").replace(".", "-").split("-")


def _bare(suffix: str) -> str:
    """A suffix without what divides it from the name."""
    start = 0
    while start < len(suffix) and suffix[start] in ENDS:
        start += 1
    return suffix[start:]


def _is_canary(name: str) -> bool:
    """Whether a name ends with "coder-model", but for a type."""
    stem = _stem(name)
    at = stem.find(CANARY)
    if at < 0:
        return False
    after = stem[at + len(CANARY) :]
    return after == "" or after[0] in ".-"
