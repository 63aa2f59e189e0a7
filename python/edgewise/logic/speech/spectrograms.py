"""SpeechT5: an encoder of text, a decoder that makes a spectrogram by frames, and a vocoder."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from typing import Any

from ...errors import InputError, ModelError
from ..options import read_within
from .graphs import (
    FLOATS,
    INTEGERS,
    Answers,
    Append,
    Feed,
    Numbers,
    Part,
    Port,
    Request,
    Run,
    Signature,
    Slot,
    named,
    ports_of,
)

TASK = "text-to-speech"
ENCODER = "encoder_model"
MERGED = "decoder_model_merged"
FIRST = "decoder_model"
LATER = "decoder_with_past_model"
VOCODER = "decoder_postnet_and_vocoder"
SPEAKER = "speaker_embeddings"  # the slot of a speaker's vector, [1, size]
SPECTROGRAM = "spectrogram"  # the result of the decoder, and the slot of the vocoder's input
WAVEFORM = "waveform"
MAX_FRAMES = 1 << 16
OPTIONS = ["threshold", "minlenratio", "maxlenratio"]


def present_of(name: str, outputs: list[Port]) -> Port | None:
    """The output that replaces a state."""
    for p in outputs:
        if p.name == name.replace("past_key_values", "present"):
            return p
    return None


def spectrogram(
    graphs: Mapping[str, Signature],
    ids: list[int],
    config: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Generator[Request, Answers, int]:
    """Makes the result "spectrogram" of a text, [frames, bins] in rows of the last axis.

    Args:
        graphs: the signatures of the graphs that there are.
        ids: of the text.
        config: of config.json.
        options: "threshold" (the frames end where the probability of it reaches this; default:
            0.5), "minlenratio" and "maxlenratio" (frames for a token; defaults: 0 and 20).

    Returns:
        the number of bins

    Raises:
        InputError: the text is empty, or an option is not valid.
        ModelError: a graph is not as exporters make it.
    """
    threshold = read_within(options, "threshold", 0.5, 0, 1)
    shortest = read_within(options, "minlenratio", 0.0, 0, 1000)
    longest = read_within(options, "maxlenratio", 20.0, 0, 1000)
    if not ids:
        raise InputError("the text has no tokens", TASK, "Give a text.")
    encoder = graphs[ENCODER]
    ports = ports_of(encoder.inputs, INTEGERS)
    feeds: dict[str, Feed] = {}
    for p in ports:
        data = [1.0 for i in ids] if "mask" in p.name else ids
        feeds[p.name] = Numbers([1, len(ids)], data, p.dtype)
    hidden = ports_of(encoder.outputs, FLOATS)[0]
    masks = ports_of(encoder.outputs, INTEGERS)
    keep = {hidden.name: "hidden"}
    for p in masks:
        keep[p.name] = "mask"
    made = yield Run(ENCODER, feeds, keep, [])
    length = made[hidden.name].dims[1]
    factor = config.get("reduction_factor")
    step = factor if isinstance(factor, int) and factor > 0 else 2
    most = min(MAX_FRAMES, math.floor(length * longest / step))
    least = math.floor(length * shortest / step)
    return (yield from _decoded(graphs, len(ids), bool(masks), threshold, least, most))


def _decoded(
    graphs: Mapping[str, Signature],
    tokens: int,
    masked: bool,
    threshold: float,
    least: int,
    most: int,
) -> Generator[Request, Answers, int]:
    """Frame after frame, until the decoder says that it is over. Gives the number of bins."""
    merged = MERGED in graphs
    bins, at = 0, 0
    while True:
        at += 1
        name = MERGED if merged else FIRST if at == 1 or LATER not in graphs else LATER
        signature = graphs[name]
        feeds: dict[str, Feed] = {}
        keep: dict[str, str] = {}
        for p in signature.inputs:
            feeds[p.name] = _fed(p, at, tokens, masked, bins)
        for p in signature.inputs:
            present = present_of(p.name, signature.outputs)
            if present is not None and (at == 1 or "encoder" not in p.name):
                keep[present.name] = p.name
        if not merged and at == 1:  # its outputs are the inputs of the other graph
            for p in signature.outputs:
                if p.name.startswith("present"):
                    keep[p.name] = p.name.replace("present", "past_key_values")
        frame = named(signature.outputs, ["spectrum"])
        chance = named(signature.outputs, ["prob"])
        whole = named(signature.outputs, ["output_sequence_out"])
        if frame is None or chance is None or whole is None:
            raise ModelError(
                f"its outputs are {', '.join([p.name for p in signature.outputs])}",
                name,
                "It has to have output_sequence_out, spectrum and prob, as optimum exports them.",
            )
        keep[frame.name] = "spectrum"
        keep[whole.name] = "output_sequence"
        made = yield Run(name, feeds, keep, [chance.name])
        rows, bins = made[frame.name].dims[-2], made[frame.name].dims[-1]
        yield Append(SPECTROGRAM, Part("spectrum", 0, bins, [rows, bins]), "first")
        total = 0.0
        for x in made[chance.name].data:
            total += x
        if at >= most or (at >= least and total >= threshold):
            return bins


def _fed(port: Port, at: int, tokens: int, masked: bool, bins: int) -> Feed:
    """An input of the decoder in a step."""
    name = port.name
    if name == "use_cache_branch":
        return Numbers([1], [0.0 if at == 1 else 1.0], "bool")
    if name.startswith("past_key_values"):
        if at > 1:
            return Slot(name)
        dims = [d if d > 0 else 1 if i == 0 else 0 for i, d in enumerate(port.shape)]
        return Numbers(dims, [], port.dtype)
    if name == "output_sequence":
        if at > 1:
            return Slot(name)
        size = port.shape[-1] if port.shape and port.shape[-1] > 0 else 80
        return Numbers([1, 1, size], [0.0 for i in range(size)], port.dtype)
    if name == SPEAKER:
        return Slot(name)
    if "mask" in name:
        if masked:
            return Slot("mask")
        return Numbers([1, tokens], [1.0 for i in range(tokens)], port.dtype)
    if port.dtype in FLOATS:
        return Slot("hidden")
    raise ModelError(f"it has an input '{name}'", "decoder", "Export it again with optimum.")


def vocoded(signature: Signature) -> Generator[Request, Answers, None]:
    """Makes the result "waveform" of the spectrogram, which is in a slot."""
    port = ports_of(signature.inputs, FLOATS)[0]
    output = ports_of(signature.outputs, FLOATS)[0]
    made = yield Run(VOCODER, {port.name: Slot(SPECTROGRAM)}, {output.name: WAVEFORM}, [])
    dims = made[output.name].dims
    if math.prod(dims) != max(dims):
        raise ModelError(f"its output of shape {dims} is no sound", VOCODER, "Give a vocoder.")
    yield Append(WAVEFORM, Part(WAVEFORM, 0, dims[-1], [dims[-1]]))
