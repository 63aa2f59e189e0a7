"""Features of sounds of any length for language models that hear: Whisper's, which Ultravox,
Granite Speech and Qwen3-ASR have with filters, frames and blocks of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import BOOL, FLOAT, INT64
from ...ir import Info, Node, Tensor
from ..resampling import MAX_RATE
from . import spectrum
from .build import Builder
from .fields import Fields
from .filters import hann, mel_filters
from .heard import Wanted, around, below
from .processor import AudioProcessor, Length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...ir import Graph

PER_LN = 1 / math.log(10)


@dataclass(frozen=True)
class Told:
    """How samples become features.

    Attributes:
        rate: Hz.
        mels: number of filters.
        fft, frame, hop: samples of the transform, of a window and from one to the next.
        scale: of filters: "slaney", whose filters have one area, or "htk".
        block: frames of which there is a multiple: zeros follow those of the sound.
        pairs: whether two frames are one row; a last one that is alone only counts for the maximum.
        least: samples that there must be.
    """

    rate: int = 16000
    mels: int = 80
    fft: int = 400
    frame: int = 400
    hop: int = 160
    scale: str = "slaney"
    block: int = 1
    pairs: bool = False
    least: int = 400

    @property
    def unit(self) -> int:
        """Samples of a row of the graph's input."""
        return self.hop * (2 if self.pairs else self.block)

    @property
    def extra(self) -> int:
        """Samples that are added before they are divided into rows."""
        return self.hop if self.pairs else self.hop * (self.block - 1)

    def blocks(self, *inner: int) -> list[int | str]:
        """The shape of features in blocks."""
        return ["blocks", self.block, *inner]


def told_graph(told: Told, wanted: Wanted) -> Graph:
    """The graph from `audio` [rows, told.unit] and `valid` [1], the number of samples of the sound,
    to the inputs of an encoder, where there are blocks as `in_blocks` has them. The last row is
    beyond the frames.
    """
    b = Builder("features")
    per_row = told.unit // told.hop
    audio = b.input("audio", ["rows", told.unit])
    valid = b.input("valid", [1], INT64)
    rows = b.op("Sub", b.op("Shape", audio, start=0, end=1), b.indices(1))
    size = b.op("Mul", rows, b.indices(per_row))
    whole = b.op("Add", size, b.indices(1)) if told.pairs else size  # with the one that is alone
    left = told.frame // 2
    flat = around(b, b.op("Reshape", audio, b.indices(1, -1)), valid, left, left, 0)
    table = spectrum.frames(b, flat, told.frame, told.hop)
    table = b.op("Slice", table, b.indices(0), whole, b.indices(0))
    power = spectrum.power(b, table, hann(told.frame, True), told.fft)
    norm = told.scale == "slaney"
    bins, top = told.fft // 2 + 1, told.rate / 2
    filters = mel_filters(bins, told.mels, 0, top, told.rate, told.scale, slaney_norm=norm)
    mel = b.op("Max", spectrum.mel(b, power, filters), b.scalar(1e-10))
    log = b.op("Mul", b.op("Log", mel), b.scalar(PER_LN))
    count = b.op("Div", valid, b.indices(told.hop))
    if told.pairs:
        count = b.op("Add", count, b.indices(1))
    inside = b.op("Unsqueeze", below(b, whole, count), b.indices(1))
    shown = b.op("Where", b.op("Cast", inside, to=BOOL), log, b.scalar(-10.0))
    maximum = b.op("ReduceMax", shown, keepdims=0)
    above = b.op("Max", log, b.op("Sub", maximum, b.scalar(8.0)))
    out = b.op("Mul", b.op("Mul", b.op("Add", above, b.scalar(4.0)), b.scalar(0.25)), inside)
    width, frames = told.mels, size
    if told.pairs:
        out = b.op("Slice", out, b.indices(0), size, b.indices(0))
        width, frames = 2 * told.mels, rows
        out = b.op("Reshape", out, b.indices(-1, width))
    out = b.op("Unsqueeze", out, b.indices(0))
    shape: list[int | str] = [1, "frames", width]
    if told.block > 1:
        out, shape = b.op("Reshape", out, b.indices(-1, told.block, width)), told.blocks(width)
    elif wanted.turned:
        out, shape = b.op("Transpose", out, perm=[0, 2, 1]), [1, width, "frames"]
    name, dtype = wanted.features
    b.output(name, out if dtype == FLOAT else b.op("Cast", out, to=dtype), shape, dtype)
    if wanted.mask is not None:
        name, dtype = wanted.mask
        valid_frames = rows if told.pairs else count
        inside = below(b, frames, valid_frames)
        dims = b.indices(-1, told.block) if told.block > 1 else b.indices(1, -1)
        shape = told.blocks() if told.block > 1 else [1, "frames"]
        ones = b.op("Cast", b.op("Reshape", inside, dims), to=dtype)
        b.output(name, ones, shape, dtype)
    return b.graph


def in_blocks(graph: Graph, told: Told, features: Info, mask: Info | None) -> Graph:
    """An encoder whose features are [blocks, frames, mels], and its mask [blocks, frames], so that
    the number of blocks is the size of a dimension.
    """
    constants, nodes = dict(graph.constants), []
    inputs = [i for i in graph.inputs if i.name not in (features.name, mask and mask.name)]
    for info, inner in ((features, [told.mels]), (mask, [])):
        if info is None:
            continue
        name, dims = f"{info.name}/blocks", [1, -1, *inner]
        inputs.append(Info(name, info.dtype, told.blocks(*inner)))
        constants[f"{name}/dims"] = Tensor.of(f"{name}/dims", INT64, [len(dims)], dims)
        rows = f"{name}/rows" if inner else info.name
        nodes.append(Node("Reshape", [name, f"{name}/dims"], [rows], name=rows))
        if inner:
            perm = {"perm": [0, 2, 1]}
            nodes.append(Node("Transpose", [rows], [info.name], perm, name=info.name))
    nodes = [*nodes, *graph.nodes]
    return replace(graph, nodes=nodes, inputs=inputs, constants=constants, values=None)


def granite_speech(config: Mapping[str, Any]) -> AudioProcessor:
    """GraniteSpeechFeatureExtractor.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    inner = config.get("melspec_kwargs")
    merged = {**config, **(inner if isinstance(inner, dict) else {})}
    f = Fields(merged, "GraniteSpeechFeatureExtractor")
    f.common()
    rate = f.integer("sampling_rate", 16000, 1000, MAX_RATE)
    f.only("sample_rate", rate)
    fft, hop = f.integer("n_fft", 512, 16, 1 << 14), f.integer("hop_length", 160)
    frame, mels = f.integer("win_length", 400, 2, fft), f.integer("n_mels", 80, 1, 1024)
    f.unused("melspec_kwargs", "feature_size", "return_attention_mask", "audio_processor_type")
    f.unused("projector_window_size", "projector_downsample_rate")
    f.finish()
    told = Told(rate, mels, fft, frame, hop, "htk", pairs=True, least=max(fft, 2 * hop))
    return _processor("GraniteSpeech", told)


def qwen3_asr(config: Mapping[str, Any]) -> AudioProcessor:
    """Qwen3ASRFeatureExtractor.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "Qwen3ASRFeatureExtractor")
    f.common()
    f.only("dither", 0, 0.0)
    rate = f.integer("sampling_rate", 16000, 1000, MAX_RATE)
    fft, hop = f.integer("n_fft", 400, 16, 1 << 14), f.integer("hop_length", 160)
    mels, window = f.integer("feature_size", 128, 1, 1024), f.integer("n_window", 50, 1, 1 << 12)
    least = f.integer("min_length", 8000, 0)
    f.unused("return_attention_mask", "chunk_length", "n_samples", "nb_max_frames")
    f.finish()
    told = Told(rate, mels, fft, fft, hop, block=2 * window, least=max(least, fft))
    return _processor("Qwen3ASR", told)


def _processor(kind: str, told: Told) -> AudioProcessor:
    shape = told.block > 1
    wanted = Wanted(("input_features", FLOAT), shape, None, None)
    length = Length(least=told.least, multiple=told.unit)
    return AudioProcessor(kind, told.rate, length, lambda: told_graph(told, wanted), told=told)
