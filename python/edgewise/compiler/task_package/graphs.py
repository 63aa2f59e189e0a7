"""Which .onnx files a task's model consists of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...errors import InputError
from ...logic.manifest.limits import GRAPHS, SUFFIX_OF
from ...logic.speech import codecs, kinds
from ...logic.speech.hearing_files import PARTS, hearing_files
from ..compile.model_file import PREFERRED, pick_model_file
from .hearing import SPEECH

WORDS = ("det", "rec", "cls")
"""Graphs whose files have any names with these words in them: the models of PP-OCR."""
_VOCODER = "decoder_postnet_and_vocoder?"
RULED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    kinds.TASK: (
        ("model",),
        *(tuple(names) for kind, names in kinds.GRAPHS.items() if kind != "speecht5"),
        ("encoder_model", "decoder_model_merged", _VOCODER),
        ("encoder_model", "decoder_model", "decoder_with_past_model?", _VOCODER),
    ),
    codecs.TASK: (tuple(f"{name}?" for name in codecs.NAMES),),
}
"""As limits.GRAPHS, of models that rules of logic/speech run, which pages compile file by file."""
Dtype = str | Mapping[str, str] | None


def folders_of(task: str) -> list[str]:
    """Folders of a model that have files of a task."""
    names = [name for names in GRAPHS.get(task, ()) for name in names]
    inner = {n.rsplit("/", 1)[0] for n in names if "/" in n}
    if inner:  # as diffusers divides a model
        inner |= {"scheduler", "tokenizer", "tokenizer_2", "feature_extractor"}
    if task == "text-to-speech":
        inner |= {"voices"}
    return ["onnx", "1_Pooling", "1_LogitScore", *sorted(inner)]


def choose_graphs(names: Iterable[str], task: str, dtype: Dtype = None) -> dict[str, str]:
    """The .onnx files of a task's model.

    Args:
        names: of the model's files, with folders.
        task: name of the task.
        dtype: "fp32", "q8", ...; for all files, or for each: {"encoder_model": "fp32", ...}.
            Default: fp32, else the first of PREFERRED that exists.

    Returns:
        {name of limits.GRAPHS or "model": file}

    Raises:
        InputError: there are no such files.
    """
    names = list(names)
    alternatives = GRAPHS.get(task) or RULED.get(task)
    known = {n.rstrip("?") for each in alternatives or [["model"]] for n in each}
    if isinstance(dtype, Mapping):  # a file that is alone in its folder has the folder's name, too
        dtype = {f"{n}/model" if f"{n}/model" in known else n: d for n, d in dtype.items()}
    if isinstance(dtype, Mapping):
        for stem in dtype:
            if stem not in known:
                raise InputError(
                    f"the task has no file {stem!r}",
                    "dtype",
                    f"It has: {', '.join(sorted(known))}.",
                )
    if alternatives is None:
        one = dtype.get("model") if isinstance(dtype, Mapping) else dtype
        return {"model": pick_model_file(names, one)}
    graphs = sorted(n for n in names if n.endswith(".onnx"))
    if task == SPEECH:
        own, one = own_suffixes(dtype), None if isinstance(dtype, Mapping) else dtype
        suffixes = PREFERRED if one in (None, "auto") else SUFFIX_OF.get(str(one), ())
        for suffix in suffixes:
            parts = hearing_files(graphs, (suffix,), own)
            if parts is not None:
                return parts
    for each in alternatives:
        found: dict[str, str] = {}
        for name in each:
            stem = name.rstrip("?")
            file = _find(graphs, stem, dtype.get(stem) if isinstance(dtype, Mapping) else dtype)
            if file is not None:
                found[stem] = file
            elif not name.endswith("?"):
                break
        else:
            if found:
                return found
    if alternatives[0] == ("model",) or (
        task == codecs.TASK and len(graphs) == 1
    ):  # it may have another name
        one = dtype.get("model") if isinstance(dtype, Mapping) else dtype
        return {"model": pick_model_file(names, one)}
    raise InputError(
        "its files are not those of this task",
        ", ".join(graphs[:12]) or "empty folder",
        "It needs "
        + " or ".join(", ".join(f"{n}.onnx" for n in each if n[-1] != "?") for each in alternatives)
        + (f" of dtype {dtype!r}." if dtype else "."),
    )


def own_suffixes(dtype: Dtype) -> dict[str, tuple[str, ...]]:
    """Suffixes of the graphs of a transducer for which the caller names a dtype."""
    given = dtype if isinstance(dtype, Mapping) else {}
    return {n: SUFFIX_OF[d] for n, d in given.items() if n in PARTS and d in SUFFIX_OF}


def _find(graphs: list[str], stem: str, dtype: str | None) -> str | None:
    """The file of a name and a dtype."""
    if dtype not in (None, "auto", *SUFFIX_OF):
        raise InputError(f"{dtype!r} is not a dtype", "dtype", f"Give {', '.join(SUFFIX_OF)}.")
    for suffix in PREFERRED if dtype in (None, "auto") else SUFFIX_OF[str(dtype)]:
        wanted = f"{stem}{suffix}.onnx"
        for name in graphs:
            if name == wanted or name.endswith("/" + wanted):
                return name
    return by_word(graphs, stem)


def by_word(graphs: Iterable[str], stem: str) -> str | None:
    """The only file with a word of WORDS in its path, such as ch_PP-OCRv4_det_infer.onnx."""
    if stem not in WORDS:
        return None
    found = [name for name in graphs if stem in re.split("[^a-z]+", name.lower())]
    return found[0] if len(found) == 1 else None
