"""Codecs: graphs that make codes of sound, and sound of codes. EnCodec, DAC, SNAC, Mimi and others
like them; what a graph takes is found by its types and shapes.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError, ModelError
from ..native import listed
from .graphs import (
    FLOATS,
    INTEGERS,
    Answers,
    Append,
    Feed,
    Give,
    Numbers,
    Part,
    Port,
    Request,
    Run,
    Signature,
    ports_of,
    within,
)

TASK = "codec"
NAMES = ["encoder_model", "decoder_model", "encoder", "decoder", "encodec_encode", "encodec_decode"]
"""Names of files, without suffixes of element types."""
ENCODER = "encoder"
DECODER = "decoder"
SAMPLES = "samples"  # the slot of a sound, [1, channels, samples]
CODES = "audio_codes"
SCALES = "audio_scales"
AUDIO = "audio_values"
WHOLE = 30.0  # seconds that a graph gets at once; longer sound is divided
CONTEXT = 3.0  # seconds that a part gets of the sound on either side of it
MAX_CODEBOOKS = 256


@dataclass(frozen=True)
class Codec:
    """What a codec's configuration says. 0: it does not say.

    Attributes:
        sampling_rate: Hz.
        channels: of the sound.
        hop: samples of a code of the finest codebook.
        multiple: samples that the length of a sound has to be a multiple of.
        codebook_size: number of codes of a codebook.
        num_codebooks: number of codebooks.
        chunk: samples of the frames that the model encodes one by one; 0: it has none.
        stride: samples between the begins of such frames.
    """

    sampling_rate: int
    channels: int
    hop: int
    multiple: int
    codebook_size: int
    num_codebooks: int
    chunk: int
    stride: int


def _whole(fields: Mapping[str, Any], names: Sequence[str]) -> int:
    """The first of some fields that is a positive integer; 0 if there is none."""
    for name in names:
        value: object = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
            return value
    return 0


def _rates(fields: Mapping[str, Any], names: Sequence[str]) -> list[int]:
    """The first of some fields that is a list of positive integers."""
    for name in names:
        given: object = fields.get(name)
        found: list[Any] | None = listed(given)
        if found and all(isinstance(x, int) and 0 < x < 1 << 20 for x in found):
            return [int(x) for x in found]
    return []


def _number(fields: Mapping[str, Any], name: str) -> float:
    value: object = fields.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9:
        return value
    return 0.0


def codec_of(
    config: Mapping[str, Any], processor: Mapping[str, Any], sampling_rate: int | None
) -> Codec:
    """Reads a codec's configuration.

    Args:
        config: of config.json; {} if there is none.
        processor: of preprocessor_config.json; {} if there is none.
        sampling_rate: Hz, where the caller says so.

    Raises:
        InputError: nobody says what the sampling rate is.
    """
    fields = ["sampling_rate", "sample_rate"]
    said = [0 if sampling_rate is None else sampling_rate]
    said += [_whole(config, fields), _whole(processor, fields)]
    rate = next((hz for hz in said if hz > 0), 0)
    if rate == 0:
        raise InputError(
            "its sampling rate is not known", "config.json", "Give sampling_rate= with its Hz."
        )
    kind: object = config.get("model_type")
    strides = _rates(config, ["vq_strides"])
    hop = _hop(config, processor, rate, kind == "mimi")
    multiple = 0
    if strides:
        window = max(1, _whole(config, ["attn_window_size"]))
        multiple = hop * next(
            n for n in range(window, window * strides[0] + 1, window) if n % strides[0] == 0
        )
    if multiple == 0 and (kind == "dac" or _whole(processor, ["hop_length"]) > 0):
        multiple = hop
    seconds = _number(config, "chunk_length_s")
    chunk = int(seconds * rate)
    overlap = _number(config, "overlap")
    return Codec(
        rate,
        max(1, _whole(config, ["audio_channels"]), _whole(processor, ["feature_size"])),
        hop,
        multiple,
        _whole(config, ["codebook_size"]),
        len(strides) if strides else _whole(config, ["num_quantizers", "n_codebooks"]),
        chunk,
        max(1, int((1.0 - overlap) * chunk)),
    )


def _hop(config: Mapping[str, Any], processor: Mapping[str, Any], rate: int, is_mimi: bool) -> int:
    """Samples of a code; 0: nobody says."""
    frames = max(_number(config, "frame_rate"), _number(config, "_frame_rate"))
    if is_mimi and frames == 0:
        frames = 12.5
    if frames > 0:  # Mimi's codes are those of a further convolution
        return round(rate / frames)
    rates = _rates(config, ["upsampling_ratios", "downsampling_ratios", "encoder_rates"])
    if rates:
        return math.prod(rates)
    return max(_whole(config, ["hop_length"]), _whole(processor, ["hop_length"]))


def role_of(signature: Signature) -> Literal["encoder", "decoder", ""]:
    """What a graph of a codec does: it makes codes of sound, or sound of codes."""
    codes_in = ports_of(signature.inputs, INTEGERS)
    codes_out = ports_of(signature.outputs, INTEGERS)
    floats_in = [p for p in ports_of(signature.inputs, FLOATS) if len(p.shape) in (0, 2, 3)]
    floats_out = ports_of(signature.outputs, FLOATS)
    if floats_in and codes_out:
        return "encoder"
    return "decoder" if codes_in and floats_out else ""


# ---- encoding


def _sound_port(signature: Signature) -> Port:
    """The input that takes sound."""
    floats = ports_of(signature.inputs, FLOATS)
    for p in floats:
        if "mask" not in p.name:
            return p
    raise ModelError(
        f"its inputs are {', '.join([p.name for p in signature.inputs])}",
        "codec",
        "An encoder takes float samples: give the encoder's graph.",
    )


def _mask_feeds(signature: Signature, sound: Port, dims: list[int]) -> dict[str, Feed]:
    """Feeds of masks: all samples count."""
    feeds: dict[str, Feed] = {}
    for p in signature.inputs:
        if p.name == sound.name:
            continue
        if "mask" not in p.name:
            raise ModelError(
                f"it has an input '{p.name}', which codecs do not know",
                "codec",
                "Export the encoder with the samples alone.",
            )
        shape = dims if len(p.shape) == 3 else [1, dims[2]]
        feeds[p.name] = Numbers(shape, [1.0 for i in range(math.prod(shape))], p.dtype)
    return feeds


def _padded(count: int, multiple: int) -> int:
    return count if multiple < 2 else -(-count // multiple) * multiple


@dataclass(frozen=True)
class Window:
    """A part of a sound or of codes, in its units.

    Attributes:
        start, count: with its context.
        first, last: the part itself, from the window's start on.
    """

    start: int
    count: int
    first: int
    last: int


def windows_of(total: int, whole: int, context: int, fixed: bool) -> list[Window]:
    """Divides a length into windows.

    Args:
        total: the length.
        whole: most of a window.
        context: of a part on either side.
        fixed: whether all windows have the length `whole`, the last one beyond the end.
    """
    if total <= whole:
        return [Window(0, whole if fixed else total, 0, total)]
    context = min(context, whole // 4)
    step = whole - 2 * context
    found: list[Window] = []
    at = 0
    while at < total:
        start = max(0, at - context)
        end = min(total, at + step + context)
        if start == 0 and end < whole:
            end = min(total, whole)
        last = total if end >= total else end - context
        if fixed:
            start = max(0, min(start, total - whole))
        found.append(Window(start, whole if fixed else end - start, at - start, last - start))
        at = last
    return found


@dataclass(frozen=True)
class Encoded:
    """The results "audio_codes", "audio_codes.1", ... and "audio_scales" of an encoding.

    Attributes:
        streams: number of results of codes.
        length: samples of the sound.
        padding: codes that the last frame lacks, of models that encode frame by frame.
        scales: whether there are scales.
    """

    streams: int
    length: int
    padding: int
    scales: bool


def encoded(
    codec: Codec, signature: Signature, channels: int, count: int
) -> Generator[Request, Answers, Encoded]:
    """Makes codes of a sound that is in the slot "samples".

    Args:
        codec: its configuration.
        signature: of the graph "encoder".
        channels: of the sound.
        count: samples of a channel.

    Raises:
        InputError: there are no samples, or the number of channels is another one.
        ModelError: the graph is no encoder.
    """
    if count == 0:
        raise InputError("there are no samples", "codec", "Give a recording that is not empty.")
    sound = _sound_port(signature)
    takes = sound.shape[1] if len(sound.shape) == 3 and sound.shape[1] > 0 else codec.channels
    if takes != channels:
        raise InputError(
            f"the sound has {channels} channels, the codec takes {takes}",
            "codec",
            "Give samples of as many channels.",
        )
    fixed = max(0, sound.shape[-1]) if sound.shape else 0
    streams = len(ports_of(signature.outputs, INTEGERS))
    if codec.chunk > 0:
        return (yield from _by_frames(codec, signature, sound, channels, count))
    total = _padded(count, codec.multiple)
    unit = max(codec.multiple, codec.hop, 1)
    whole = max(1, int(WHOLE * codec.sampling_rate) // unit) * unit
    whole = within(sound, whole, 4 * unit)  # of which the context is at most a quarter
    if fixed > 0:
        whole = fixed
    context = int(CONTEXT * codec.sampling_rate) // unit * unit
    if codec.hop == 0 and total > whole:
        raise InputError(
            "the sound is long, and the codec's hop is not known",
            "config.json",
            "Give hop_length= with the samples of a code.",
        )
    for window in windows_of(total, whole, context // unit * unit, fixed > 0):
        codes, _ = yield from _frame(signature, sound, channels, window.start, window.count)
        for i, numbers in enumerate(codes):
            size = numbers.dims[-1]
            first = window.first * size // window.count
            last = -(-window.last * size // window.count)
            name = _result(i)
            yield Append(name, Part(name, first, last - first))
    return Encoded(streams, count, 0, False)


def _result(stream: int) -> str:
    """The name of the result of a stream of codes, and of the slot."""
    return CODES if stream == 0 else f"{CODES}.{stream}"


def _frame(
    signature: Signature, sound: Port, channels: int, start: int, count: int
) -> Generator[Request, Answers, tuple[list[Numbers], list[Numbers]]]:
    """Runs the encoder on a part. Gives codes and scales."""
    dims = [1, channels, count]
    shaped = [1, count] if len(sound.shape) == 2 else dims
    feeds = _mask_feeds(signature, sound, dims)
    feeds[sound.name] = Part(SAMPLES, start, count, shaped)
    codes = ports_of(signature.outputs, INTEGERS)
    scales = [p for p in ports_of(signature.outputs, FLOATS) if "scale" in p.name]
    keep = {p.name: _result(i) for i, p in enumerate(codes)}
    made = yield Run(ENCODER, feeds, keep, [p.name for p in scales])
    return [made[p.name] for p in codes], [made[p.name] for p in scales]


def _by_frames(
    codec: Codec, signature: Signature, sound: Port, channels: int, count: int
) -> Generator[Request, Answers, Encoded]:
    """Encodes frame by frame, as EnCodec of 48 kHz does. The codes are [frames, ...]."""
    longest, padding, has_scales = 0, 0, False
    for start in range(0, count, codec.stride):
        size = min(codec.chunk, count - start)
        codes, scales = yield from _frame(signature, sound, channels, start, size)
        length = codes[0].dims[-1]
        longest = max(longest, length)
        padding = longest - length
        yield Append(CODES, Part(CODES, 0, longest, [1, *codes[0].dims[-3:-1], longest]), "first")
        for numbers in scales:
            has_scales = True
            yield Give(SCALES, numbers)
    return Encoded(1, count, padding, has_scales)


# ---- decoding


def check_codes(codec: Codec, data: Sequence[float], where: str) -> None:
    """Raises InputError: a code is out of range."""
    size = codec.codebook_size
    for code in data:
        if code < 0 or (size > 0 and code >= size):
            most = f" to {size - 1}" if size else " on"
            raise InputError(f"there is a code {code:g}", where, f"Codes are 0{most}.")


def _codes_ports(signature: Signature) -> list[Port]:
    """The inputs that take codes. Raises ModelError."""
    found = [p for p in ports_of(signature.inputs, INTEGERS) if "mask" not in p.name]
    if not found or role_of(signature) != "decoder":
        raise ModelError(
            f"its inputs are {', '.join([p.name for p in signature.inputs])}",
            "codec",
            "A decoder takes integers: give the decoder's graph.",
        )
    return found


def streams_of(signature: Signature) -> int:
    """How many tensors of codes a decoder takes: one, or one of each codebook."""
    return len(_codes_ports(signature))


def books_of(codec: Codec, signature: Signature | None) -> int:
    """The number of codebooks: of the graph, or of the configuration; 0: nobody says."""
    if signature is not None:
        ports = _codes_ports(signature)
        if len(ports) > 1:
            return len(ports)
        shape = ports[0].shape
        if len(shape) > 2 and shape[-2] > 0:
            return shape[-2]
    return codec.num_codebooks


def _check_dims(codec: Codec, ports: Sequence[Port], dims: Sequence[Sequence[int]]) -> list[int]:
    """Codes of a stream for each code of the stream that has the fewest. Raises InputError."""
    if len(dims) != len(ports):
        raise InputError(
            f"there are {len(dims)} tensors of codes, the codec takes {len(ports)}",
            CODES,
            "Give those that the codec's encoder makes.",
        )
    lengths = [of[-1] for of in dims]
    least = min(lengths)
    if least == 0:
        raise InputError("there are no codes", CODES, "Give those of at least one frame.")
    if any(length % least for length in lengths):
        raise InputError(
            f"the codebooks have {', '.join([str(n) for n in lengths])} codes",
            CODES,
            "Give the codes of whole frames.",
        )
    for p, of in zip(ports, dims):
        books = p.shape[-2] if len(p.shape) > 2 else 0
        given = of[-2] if len(of) > 1 else 1
        if books > 0 and given != books or not 1 <= given <= MAX_CODEBOOKS:
            raise InputError(
                f"there are codes of {given} codebooks"
                + (f", the codec has {books}" if books > 0 else ""),
                CODES,
                "Give those that the codec's encoder makes.",
            )
    return [length // least for length in lengths]


def decoded(
    codec: Codec,
    signature: Signature,
    dims: Sequence[Sequence[int]],
    scales: Sequence[float],
    length: int | None,
    padding: int,
) -> Generator[Request, Answers, None]:
    """Makes the result "audio_values" of codes, which are in the slots "audio_codes",
    "audio_codes.1", ...

    Args:
        codec: its configuration.
        signature: of the graph "decoder".
        dims: of the codes in each slot.
        scales: of frames, of models that have them.
        length: samples of the sound that was encoded; None: as many as the codes give.
        padding: as of Encoded.

    Raises:
        InputError: the codes do not fit the codec.
        ModelError: the graph is no decoder.
    """
    ports = _codes_ports(signature)
    factors = _check_dims(codec, ports, dims)
    frames = dims[0][0] if len(dims[0]) == 4 else 1
    if codec.chunk > 0 and len(dims[0]) == 4:
        yield from _overlapped(codec, signature, dims[0], scales, length, padding)
        return
    if frames > 1:
        raise InputError(
            f"there are {frames} frames, and the codec does not say how they overlap",
            CODES,
            "Put the model's config.json beside it.",
        )
    total = dims[0][-1] // factors[0]
    hop = codec.hop * max(factors)
    whole = max(1, int(WHOLE * codec.sampling_rate) // hop) if hop > 0 else total
    for p, factor in zip(ports, factors):
        whole = within(p, whole * factor, factor) // factor
    context = -(-int(CONTEXT * codec.sampling_rate) // hop) if hop > 0 else 0
    fixed = [p.shape[-1] // f for p, f in zip(ports, factors) if p.shape and p.shape[-1] > 0]
    left = length
    for window in windows_of(total, fixed[0] if fixed else whole, context, len(fixed) > 0):
        feeds: dict[str, Feed] = {}
        for i, p in enumerate(ports):
            feeds[p.name] = _codes_feed(p, i, window, factors[i], dims[i])
        size = yield from _sound(signature, feeds, scales)
        per = hop if hop > 0 else size // window.count
        first = window.first * per
        last = size if window.last == window.count else window.last * per
        last = min(last, size)
        if left is not None:
            last = min(last, first + left)
            left -= max(0, last - first)
        if last > first:
            yield Append(AUDIO, Part(AUDIO, first, last - first))


def _codes_feed(port: Port, stream: int, window: Window, factor: int, dims: Sequence[int]) -> Feed:
    """A part of a stream of codes, with the rank that the graph declares."""
    count = window.count * factor
    rank = len(port.shape) if port.shape else max(2, len(dims))
    books = [] if len(dims) < 3 and rank < 3 else [dims[-2] if len(dims) > 1 else 1]
    inner = [*books, count]
    shaped = [*[1 for i in range(rank - len(inner))], *inner]
    return Part(_result(stream), window.start * factor, count, shaped)


def _scale(port: Port, value: float) -> Numbers:
    """The scale of a frame."""
    return Numbers([1 for i in range(len(port.shape) if port.shape else 2)], [value], port.dtype)


def _sound(
    signature: Signature, feeds: dict[str, Feed], scales: Sequence[float]
) -> Generator[Request, Answers, int]:
    """Runs the decoder: the slot "audio_values", [1, channels, samples]. Gives the samples."""
    for p in ports_of(signature.inputs, FLOATS):
        feeds[p.name] = _scale(p, scales[0] if scales else 1.0)
    output = ports_of(signature.outputs, FLOATS)[0]
    made = yield Run(DECODER, feeds, {output.name: AUDIO}, [])
    found = made[output.name].dims
    if not found or math.prod(found[:-1]) > 2:
        raise ModelError(
            f"its output '{output.name}' of shape {found} is no sound",
            "codec",
            "Give the decoder's graph.",
        )
    return found[-1]


def _overlapped(
    codec: Codec,
    signature: Signature,
    dims: Sequence[int],
    scales: Sequence[float],
    length: int | None,
    padding: int,
) -> Generator[Request, Answers, None]:
    """Decodes frame by frame, and adds the frames with weights that rise and fall."""
    (port,) = _codes_ports(signature)
    count, batch, books, size = dims
    if batch != 1 or (scales and len(scales) != count):
        raise InputError(
            f"there are {count} frames of {batch} sounds, and {len(scales)} scales",
            CODES,
            "Give those that the codec's encoder makes.",
        )
    output = ports_of(signature.outputs, FLOATS)[0]
    sums: list[list[float]] = []  # of each channel, from the next sample on that is not given
    weights: list[float] = []
    total: list[float] = []
    left = length
    for i in range(count):
        own = size - padding if i == count - 1 else size
        shaped = [*[1 for r in range(len(port.shape) - 2)], books, own]
        feeds: dict[str, Feed] = {port.name: Part(f"{CODES}/{i}", 0, own, shaped)}
        for p in ports_of(signature.inputs, FLOATS):
            feeds[p.name] = _scale(p, scales[i] if scales else 1.0)
        made = yield Run(DECODER, feeds, {}, [output.name])
        sound = made[output.name]
        here = sound.dims[-1]
        if i == 0:
            weights = [0.5 - abs((j + 1) / (here + 1) - 0.5) for j in range(here)]
            sums = [[] for c in range(math.prod(sound.dims[:-1]))]
        here = min(here, len(weights))
        total = _added(total, weights, weights, 0, here)
        sums = [
            _added(of, weights, sound.data, c * sound.dims[-1], here) for c, of in enumerate(sums)
        ]
        ready = len(total) if i == count - 1 else min(codec.stride, len(total))
        if left is not None:
            ready = min(ready, left)
            left -= ready
        flat = [x / w for of in sums for x, w in zip(of[:ready], total[:ready])]
        yield Give(AUDIO, Numbers([1, len(sums), ready], flat))
        total = total[ready:]
        sums = [of[ready:] for of in sums]


def _added(
    to: Sequence[float], weights: Sequence[float], data: Sequence[float], at: int, count: int
) -> list[float]:
    """The sum of what there is and a frame with its weights; weights alone for `data` of them."""
    made = list(to)
    for j in range(count):
        value = weights[j] if data is weights else weights[j] * data[at + j]
        if j < len(made):
            made[j] += value
        else:
            made.append(value)
    return made
