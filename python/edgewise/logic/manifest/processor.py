"""What a package says of the processor of a pipeline: the field `processor` of its manifest.

As in schema.py, the annotations are what both readers check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from .nodes import NAME, RULED, Entries, Range

MAX_COUNT = 1 << 26
"""Largest Count and Amount: samples, pixels of a side, tokens."""
MAX_SPEECH_TOKENS = 1 << 16
MAX_SPEAKERS = 1 << 20
MAX_RATE = 1 << 20

Count = Annotated[int, Range(1, MAX_COUNT)]
Amount = Annotated[int, Range(0, MAX_COUNT)]
Pixels = Annotated[int, Range(1, 1 << 31)]
Some = Entries(1)
Pair = tuple[Count, Count]
Channels = tuple[float, float, float]


# ---- pictures: the steps of `layout` (logic/images/geometry.py), by operation and rule
class Sides(TypedDict):
    """In pixels."""

    height: Count
    width: Count


class Shortest(TypedDict):
    """The length of the shorter side, and limits of the result."""

    size: Count
    longest: NotRequired[Count | None]
    divisor: NotRequired[Count | None]


class Divided(TypedDict):
    """Sides are multiples of a number."""

    divisor: Count


class Resize(TypedDict):
    """To another size, with a filter."""

    op: Literal["resize"]
    filter: str


class ResizeExact(Resize, Sides):
    rule: Literal["exact"]


class ResizeShortest(Resize, Shortest):
    rule: Literal["shortest"]


class ResizeLongest(Resize):
    rule: Literal["longest"]
    size: Count
    least: NotRequired[Count | None]


class ResizeLongestHalfUp(Resize):
    rule: Literal["longest_half_up"]
    size: Count


class ResizeAspect(Resize, Shortest):
    rule: Literal["aspect"]


class ResizeFit(Resize, Sides):
    rule: Literal["fit"]


class ResizeLetterbox(Resize, Sides):
    rule: Literal["letterbox"]


class ResizeMultiple(Resize, Sides):
    rule: Literal["multiple"]
    multiple: Count
    keep: NotRequired[bool | None]


class ResizeFloor(Resize, Divided):
    rule: Literal["floor"]


class ResizeBounded(Resize, Divided):
    rule: Literal["bounded"]
    size: Count
    longest: Count


class ResizeThumbnail(Resize, Sides):
    rule: Literal["thumbnail"]


class ResizeNearest(Resize):
    """The one of `sizes` that is nearest to the result of `of`."""

    rule: Literal["nearest"]
    of: AnyResize
    sizes: Annotated[list[Pair], Some]


class ResizeText(Resize, Shortest):
    rule: Literal["text"]


class ResizeLine(Resize, Sides):
    rule: Literal["line"]


AnyResize = (
    ResizeExact
    | ResizeShortest
    | ResizeLongest
    | ResizeLongestHalfUp
    | ResizeAspect
    | ResizeFit
    | ResizeLetterbox
    | ResizeMultiple
    | ResizeFloor
    | ResizeBounded
    | ResizeThumbnail
    | ResizeNearest
    | ResizeText
    | ResizeLine
)


class CropCenter(Sides):
    op: Literal["crop"]
    rule: Literal["center"]


class CropFraction(TypedDict):
    op: Literal["crop"]
    rule: Literal["fraction"]
    height: float
    width: float


class CropSplit(Sides):
    op: Literal["crop"]
    rule: Literal["split"]


class PadSymmetric(Divided):
    op: Literal["pad"]
    rule: Literal["symmetric"]


class Colored(Sides):
    color: NotRequired[Channels | None]


class PadLetterbox(Colored):
    op: Literal["pad"]
    rule: Literal["letterbox"]


class PadMiddle(Colored):
    op: Literal["pad"]
    rule: Literal["middle"]


class PadCorner(Colored):
    op: Literal["pad"]
    rule: Literal["corner"]


class PadWithin(TypedDict):
    op: Literal["pad"]
    rule: Literal["within"]
    color: NotRequired[Channels | None]


class PadSquare(TypedDict):
    op: Literal["pad"]
    rule: Literal["square"]
    color: NotRequired[Channels | None]


class PadStrip(TypedDict):
    op: Literal["pad"]
    rule: Literal["strip"]


class PadAmong(TypedDict):
    op: Literal["pad"]
    rule: Literal["among"]
    sizes: Annotated[list[Pair], Some]


class FrameAmong(TypedDict):
    op: Literal["frame"]
    rule: Literal["among"]
    sizes: Annotated[list[Pair], Some]


class FrameDivisor(Divided):
    op: Literal["frame"]
    rule: Literal["divisor"]


class FrameCorner(Sides):
    op: Literal["frame"]
    rule: Literal["corner"]


class Rotate(Sides):
    op: Literal["rotate"]


class WarpBox(Sides):
    op: Literal["warp"]
    rule: Literal["box"]
    factor: Annotated[float, Range(1e-6, 1e6)]


Step = (
    AnyResize
    | CropCenter
    | CropFraction
    | CropSplit
    | PadSymmetric
    | PadLetterbox
    | PadMiddle
    | PadCorner
    | PadSquare
    | PadWithin
    | PadAmong
    | PadStrip
    | FrameAmong
    | FrameDivisor
    | FrameCorner
    | Rotate
    | WarpBox
)


class ImageFields(TypedDict):
    """See processors.images.Description."""

    type: str
    steps: list[Step]
    scale: Channels
    bias: Channels
    flip: bool
    frame: bool
    mask: bool
    gray: NotRequired[bool]


class OcrFields(TypedDict):
    """What happens to pictures before the models of PP-OCR, and the characters of the recognizer's
    numbers from 1 on.
    """

    det: ImageFields
    rec: ImageFields
    cls: NotRequired[ImageFields]
    characters: Annotated[list[str], Entries(0, 1 << 20)]


# ---- pictures that a language model sees: the rules of `seen` (logic/images/views.py)
class SeeWhole(TypedDict):
    rule: Literal["whole"]
    steps: list[Step]


class SeeSplit(TypedDict):
    rule: Literal["split"]
    filter: str
    resize: bool
    split: bool
    longest: Count
    tile: Count


class SeeSmart(TypedDict):
    rule: Literal["smart"]
    filter: str
    resize: bool
    patch: Count
    merge: Count
    least: Pixels
    most: Pixels
    frames: Amount


class SeePatches(TypedDict):
    rule: Literal["patches"]
    filter: str
    resize: bool
    patch: Count
    longest: Count


class SeeTiles(TypedDict):
    rule: Literal["tiles"]
    filter: str
    split: bool
    thumbnail: bool
    tile: Count
    patch: Count
    unit: Count
    least: Pixels
    most: Pixels
    limit: float
    room: Count
    grids: Annotated[list[Pair], Some]


class SeeScan(Sides):
    rule: Literal["scan"]
    filter: str
    scan: bool
    ratio: float
    tiles: Annotated[int, Range(1, 64)]
    shortest: Count


class SeeNaflex(TypedDict):
    rule: Literal["naflex"]
    filter: str
    patch: Count
    room: Count


class SeeAnyres(TypedDict):
    rule: Literal["anyres"]
    filter: str
    tile: Count
    sizes: Annotated[list[Pair], Some]


class VisionFields(TypedDict):
    """See processors.images.vision.VisionDescription."""

    type: str
    rule: SeeWhole | SeeSplit | SeeSmart | SeePatches | SeeTiles | SeeScan | SeeNaflex | SeeAnyres
    form: Literal["planes", "patches", "rows"]
    scale: Channels
    bias: Channels
    temporal: Count


class PromptFields(TypedDict):
    """See multimodal.families.pictures.PictureRule."""

    rule: Literal["one", "tiles", "lines", "anyres"]
    placeholder: str
    token: str
    first: str
    last: str
    count: Amount
    unit: Amount
    extra: Annotated[int, Range(-1, MAX_COUNT)]
    cell: tuple[str, str, str]
    line: str
    whole: str
    single: str
    parts: tuple[str, str, str]
    most: Amount
    sizes: list[Pair]
    ends: tuple[str, str]


class VideoFields(TypedDict):
    """See multimodal.families.videos.VideoRule."""

    placeholder: str
    longest: Count
    filter: str
    rate: float
    most: Count
    together: Count
    pixels: tuple[Pixels, Pixels]
    interval: float
    family: Literal["smolvlm", "qwen2", "qwen3", "glm4v", "glm46v"]
    ends: tuple[str, str]
    fewest: Count
    cap: Amount


class AnyLengthFields(TypedDict):
    """See multimodal.families.sounds.AnyLength."""

    unit: Count
    extra: Amount
    least: Count
    most: Amount
    block: Amount


class SoundPromptFields(TypedDict):
    """See multimodal.families.sounds.SoundRule."""

    placeholder: str
    token: str
    first: str
    last: str
    size: Amount
    several: bool
    count: Amount
    steps: list[tuple[Count, Annotated[int, Range(-MAX_COUNT, MAX_COUNT)], Amount]]
    any_length: NotRequired[AnyLengthFields]
    flat: NotRequired[bool]


# ---- sounds: processors/audio/processor.py
class SoundLength(TypedDict):
    """See processors.audio.processor.Length."""

    exact: NotRequired[Count | None]
    multiple: Count
    least: Amount
    chunk: Amount
    stride: Amount
    truncate: bool
    repeat: str


class SoundMask(TypedDict):
    """See processors.audio.processor.Mask."""

    name: str
    hop: Count
    base: float
    valid: float
    more: float
    group: Count


class SoundWindows(TypedDict):
    """See processors.audio.processor.Windows."""

    size: Count
    before: Amount
    span: Count
    unit: Count
    hop: Count
    coverage: float


class AudioFields(TypedDict):
    """See processors.audio.AudioProcessor. any_length: least and most samples of plans for all."""

    type: str
    sampling_rate: Count
    channels: Count
    length: SoundLength
    mask: NotRequired[SoundMask]
    frames: NotRequired[Pair]
    lengths: NotRequired[Annotated[list[Count], Some]]
    any_length: NotRequired[Pair]
    windows: NotRequired[SoundWindows]


class VoiceActivityFields(TypedDict):
    """Of a model that hears where somebody speaks."""

    sampling_rates: Annotated[list[Count], Some]


class TextFields(TypedDict):
    """max_length: tokens that there are plans for."""

    max_length: NotRequired[Count | None]


class CTCFields(TypedDict):
    """See task_package.ctc.ctc_description."""

    tokens: Annotated[list[str | None], Some]
    blank: str
    unknown: str
    delimiter: str
    space: str
    lower: bool
    clean_up: bool
    samples: Count
    windows: list[Pair]


class HearingFields(TypedDict):
    """A model that hears pieces of words; see task_package/hearing.py.

    Fields:
        tokens: by id; see logic.speech.pieces.Pieces.
        blank: id of the token that is none.
        hidden: ids of tokens that are no text.
        samples: of a frame of the encoder's output.
        durations: frames that a token may sound, of TDT; none for others.
        symbols: most tokens of a frame, or of a decoder's text with its prompt.
        context: tokens that a transducer's predictor gets; 0: one, and it has states.
        states: their shapes.
    """

    kind: Literal["ctc", "transducer", "prompted"]
    tokens: Annotated[list[str], Some]
    blank: Annotated[int, Range(0, MAX_SPEAKERS)]
    hidden: list[int]
    samples: Count
    durations: list[int]
    symbols: Count
    context: Annotated[int, Range(0, 64)]
    states: list[list[Count]]


class SpeechModel(TypedDict):
    """A model that speaks; see task_package/synthesis.py.

    Fields:
        speakers: how many; 0: the model has one voice.
        tokens: name of an input.
        vocabulary: ids of characters or phonemes; Piper's are lists.
        voices: the first row of each, and how many it has.
    """

    type: Literal["vits", "piper", "kokoro"]
    sampling_rate: Annotated[int, Range(1, MAX_RATE)]
    speakers: Annotated[int, Range(0, MAX_SPEAKERS)]
    speaker_names: NotRequired[Mapping[str, int]]
    tokens: Annotated[str, NAME]
    vocabulary: Annotated[Mapping[str, int | list[int]], RULED]
    is_text: NotRequired[bool]
    scales: NotRequired[Channels]
    voices: NotRequired[Mapping[str, tuple[int, Count]]]
    unknown: NotRequired[str | None]
    language: NotRequired[str]
    add_blank: NotRequired[bool]
    normalize: NotRequired[bool]
    phonemize: NotRequired[bool]
    is_uroman: NotRequired[bool]


class SpeechLengths(TypedDict):
    """Of the plans of such a model.

    Fields:
        least, most: tokens.
        length: name of the number of frames, where the model is in two parts.
        frames: the least and the most.
    """

    least: Annotated[int, Range(1, MAX_SPEECH_TOKENS)]
    most: Annotated[int, Range(1, MAX_SPEECH_TOKENS)]
    length: NotRequired[Annotated[str, NAME]]
    frames: NotRequired[tuple[int, int]]


class SpeechFields(SpeechModel, SpeechLengths):
    """A model that speaks, and its plans. output: name of it."""

    output: Annotated[str, NAME]


class DiffusionFields(TypedDict):
    """See logic.diffusion.options.Facts. size: of latents; length: of texts, in tokens; pad: id
    of padding for the second text encoder.
    """

    kind: str
    scheduler: dict[str, Any]
    size: tuple[int, int]
    channels: int
    scale: int
    factor: float
    shift: float
    cond: int | None
    checked: bool
    length: int
    inputs: NotRequired[int]
    xl: NotRequired[bool]
    zeros: NotRequired[bool]
    pad: NotRequired[int | None]


class FeaturesFields(TypedDict):
    """The features of inputs, of which heads are trained: see task_package/personal.py.

    Fields:
        output: of the program "model".
        size: numbers of an input's features.
        model: digest.
        lora: logic.personal.layout.LoraLayout.
    """

    output: str
    pooling: str
    size: int
    model: str
    lora: NotRequired[dict[str, Any]]


class Processor(TypedDict):
    """`labels`, `diffusion` and `features` are checked by the pipelines that use them. `encoder` is
    the file of an encoder of pictures of any size, of which there are no plans: hosts compile one
    for each size. `session` likewise is the file of the graph "model" where its shapes depend on
    the picture.
    """

    image: NotRequired[ImageFields]
    ocr: NotRequired[OcrFields]
    vision: NotRequired[VisionFields]
    pictures: NotRequired[PromptFields]
    videos: NotRequired[VideoFields]
    encoder: NotRequired[Annotated[str, NAME]]
    session: NotRequired[Annotated[str, NAME]]
    sounds: NotRequired[SoundPromptFields]
    audio: NotRequired[AudioFields]
    voice_activity: NotRequired[VoiceActivityFields]
    text: NotRequired[TextFields]
    ctc: NotRequired[CTCFields]
    hearing: NotRequired[HearingFields]
    speech: NotRequired[SpeechFields]
    moonshine: NotRequired[bool]
    places: NotRequired[bool]
    labels: NotRequired[Annotated[Mapping[str, str], RULED]]
    diffusion: NotRequired[Annotated[DiffusionFields, RULED]]
    features: NotRequired[Annotated[FeaturesFields, RULED]]
