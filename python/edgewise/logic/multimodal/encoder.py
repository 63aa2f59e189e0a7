"""Encoders of pictures of any size: which of their inputs and outputs is what, and how their
outputs become features.

A decoder can take features of inner layers of the encoder, too (DeepStack, of Qwen3-VL): its first
layers add them to those of the last layer. A feature is then as wide as all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InputError, UnsupportedOp
from ..images.batches import MAX_PIXELS, Batch, Stretch, pixel_batches
from ..images.views import Form, Further, Seen, further_inputs

PIXELS = "pixel_values"
FEATURES = (
    "image_features",
    "audio_features",
    "image_embeds",
    "pooled_embeds",
    "last_hidden_state",
    "pooler_output",
)
"""Names of the encoder's output, the first that it has; else its first output."""
INNER = "deepstack"
"""In the names of outputs with features of inner layers, in order."""


def pixels_of(names: Sequence[str], file: str) -> str:
    """The input of an encoder that takes the numbers of a picture. Raises UnsupportedOp.

    Args:
        names: of its inputs.
        file: its name, for the error.
    """
    if not names:
        raise UnsupportedOp("it has no inputs", file, "Export it with pixel_values.")
    return PIXELS if PIXELS in names else names[0]


def others_of(names: Sequence[str], what: Seen, file: str) -> list[Further]:
    """The inputs of an encoder beside the numbers of a picture.

    Args:
        names: of the inputs.
        what: the encoder sees of the picture.
        file: its name, for the error.

    Raises:
        UnsupportedOp: an input is none that pictures give.
    """
    given = further_inputs(names, what)
    known = [one.name for one in given]
    for name in names:
        if name not in known:
            raise UnsupportedOp(
                f"its input '{name}' is none that pictures give",
                file,
                "Export the encoder of pictures alone.",
            )
    return given


def features_of(names: Sequence[str]) -> list[str]:
    """The outputs of an encoder that have features: of the last layer, then of inner ones.

    Args:
        names: of its outputs.
    """
    last = names[0]
    for name in FEATURES:
        if name in names:
            last = name
            break
    return [last, *[name for name in names if INNER in name and name != last]]


def pieces_at_once(form: Form, what: Seen) -> int:
    """How many pieces of a picture have their numbers computed at once; of a picture that is not
    cut, how many pixels.
    """
    high, wide = what.piece
    return MAX_PIXELS if form == "planes" else max(1, MAX_PIXELS // (high * wide))


def batches(form: Form, temporal: int, what: Seen) -> list[Batch]:
    """The runs of "pre" that give a picture's numbers.

    Args:
        form: of the processor.
        temporal: how often each patch is there.
        what: the encoder sees of the picture.
    """
    high, wide = what.piece
    most, size = pieces_at_once(form, what), high * wide
    if form == "planes":
        return pixel_batches(size)
    out: list[Batch] = []
    row, room, start = 3 * temporal * size, 0, 0
    for view in what.views:
        pieces = (view.height // high) * (view.width // wide)
        for at in range(0, pieces, most):
            count = min(most, pieces - at)
            whole = Stretch(0, (room + at) * row, count * row)
            out.append(Batch(start + at, [count, high, wide, 3], [whole]))
        start += pieces
        room += what.room if what.room else pieces
    return out


@dataclass
class Strip:
    """A part of each feature: numbers [at + i * step, at + i * step + size) of an output are
    numbers [to, to + size) of feature i.
    """

    output: int
    at: int
    step: int
    size: int
    to: int


def strips(dims: Sequence[Sequence[int]], width: int, file: str) -> list[Strip]:
    """How the outputs of an encoder are joined to features.

    Args:
        dims: of the outputs, that of the last layer first.
        width: numbers of a feature, as the decoder takes them.
        file: of the encoder, for the error.

    Raises:
        InputError: they are not so wide.
    """
    hidden = dims[0][-1] if dims[0] else 0
    count = _product(dims[0]) // hidden if hidden else 0
    out: list[Strip] = []
    wide = 0
    for i, shape in enumerate(dims):
        layers = _product(shape) // (hidden * count) if hidden * count and shape else 0
        if wide == width:
            break  # of a decoder that takes none of inner layers
        if not layers or shape[-1] != hidden or _product(shape) != layers * hidden * count:
            wide = 0
            break
        # [layers, count, hidden], or [count, layers, hidden]
        turned = layers > 1 and len(shape) > 2 and shape[-2] == layers and shape[-3] == count
        for layer in range(layers):
            at, step = (layer, layers) if turned and layers != count else (layer * count, 1)
            out.append(Strip(i, at * hidden, step * hidden, hidden, wide))
            wide += hidden
    if wide != width:
        raise InputError(
            f"its features have {' and '.join([str(list(shape)) for shape in dims])} numbers,"
            f" the embeddings of the decoder {width}",
            file,
            "Take all files of one model.",
        )
    return out


def _product(dims: Sequence[int]) -> int:
    out = 1
    for size in dims:
        out *= size
    return out
