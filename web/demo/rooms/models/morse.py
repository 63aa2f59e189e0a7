"""Makes the model of the room "Listen": it reads Morse code. Nothing in it is learned.

The loudness of the loudest band of frequencies is compared with the pattern of every sign at eight
speeds; where one fits best, and well, the frames of its marks get its token. A silence of more than
four short marks after a sign becomes a space. Inputs and outputs are those of wav2vec2 with a head
for CTC, so that it runs as `automatic-speech-recognition`.

    python web/demo/rooms/models/morse.py web/dist/demo/morse.edge
"""

from __future__ import annotations

import json
import math
import sys

from edgewise.compiler.declare.dtypes import FLOAT
from edgewise.onnx import BytesSource
from edgewise.task_package import compile_task
from graphs import Model

RATE = 16000
HOP, WINDOW = 160, 480  # samples of a frame, and of its window
BANDS = [350.0 + 66 * i for i in range(14)]  # Hz
UNITS = [4.8 * 1.08**i for i in range(13)]  # frames of a short mark: 25 to 10 words a minute
GAP = 2  # short marks of silence around a sign that are compared
PAUSE = 4.5  # short marks of silence that are a space
AROUND = 401  # frames that say how loud a beep is, and how loud a silence
CONTRAST = 2.5  # between both, as a logarithm of power
FITS = 0.66  # from -1 to 1; 1: all frames of a pattern are as they should be
SURE = 0.7  # a fit from which on it says something about the speed
STEADY = 0.8  # how much worse a fit counts at a speed without any other
CODES = {
    "A": ".-", "B": "-...", "C": "-.-.", "D": "-..", "E": ".", "F": "..-.", "G": "--.",
    "H": "....", "I": "..", "J": ".---", "K": "-.-", "L": ".-..", "M": "--", "N": "-.",
    "O": "---", "P": ".--.", "Q": "--.-", "R": ".-.", "S": "...", "T": "-", "U": "..-",
    "V": "...-", "W": ".--", "X": "-..-", "Y": "-.--", "Z": "--..", "0": "-----",
    "1": ".----", "2": "..---", "3": "...--", "4": "....-", "5": ".....", "6": "-....",
    "7": "--...", "8": "---..", "9": "----.", ".": ".-.-.-", ",": "--..--", "?": "..--..",
}  # fmt: skip
VOCABULARY = ["<pad>", "|", *CODES]


def pattern(code: str, unit: float) -> list[float]:
    """A sign with silence around it, for each frame 1 or -1; their number is odd."""
    short: list[float] = [-1.0] * GAP
    for i, sign in enumerate(code):
        short += [-1.0] * (i > 0) + [1.0] * (3 if sign == "-" else 1)
    short += [-1.0] * GAP
    size = round(len(short) * unit) // 2 * 2 + 1
    return [short[min(int((i + 0.5) / size * len(short)), len(short) - 1)] for i in range(size)]


def inside(pattern: list[float]) -> int:
    """Frames from the first mark to the last one, an odd number."""
    last = len(pattern) - 1 - pattern[::-1].index(1.0)
    return (last - pattern.index(1.0)) // 2 * 2 + 1


def centred(values: list[float], size: int) -> list[float]:
    """Values with zeros around them."""
    before = (size - len(values)) // 2
    return [0.0] * before + values + [0.0] * (size - len(values) - before)


def waves() -> list[float]:
    """[2 * bands, 1, WINDOW]: cosines and sines under a bell."""
    bell = [0.5 - 0.5 * math.cos(2 * math.pi * i / (WINDOW - 1)) for i in range(WINDOW)]
    return [
        bell[i] * wave(2 * math.pi * band * i / RATE) / WINDOW
        for wave in (math.cos, math.sin)
        for band in BANDS
        for i in range(WINDOW)
    ]


def model() -> BytesSource:
    """The .onnx file: input_values [1, samples] to logits [1, frames, tokens]."""
    m = Model()
    audio = m.op("Unsqueeze", m.input("input_values", FLOAT, ["batch", "samples"]), m.integers(1))
    found = m.op("Conv", audio, m.floats(waves(), 2 * len(BANDS), 1, WINDOW), strides=[HOP])
    squares = m.op("Mul", found, found)
    both = [1.0 if j % len(BANDS) == i else 0.0 for i in range(len(BANDS))
            for j in range(2 * len(BANDS))]  # fmt: skip
    power = m.op("Conv", squares, m.floats(both, len(BANDS), 2 * len(BANDS), 1))
    loudest = m.op("ReduceMax", power, m.integers(1), keepdims=1)
    level = m.op("Log", m.op("Add", loudest, m.floats([1e-4], 1)))
    every = scores(m, level)
    m.op("Transpose", every, name="logits", perm=[0, 2, 1])
    return m.source("model.onnx", "logits", ["batch", "frames", len(VOCABULARY)])


# long: the nodes of the graph, in their order
def scores(m: Model, level: str) -> str:
    """Adds the nodes that read.

    Args:
        level: [1, 1, frames], logarithm of the power of each frame, of HOP samples.

    Returns:
        Name of [1, tokens, frames]: 0.5 for the first token; 1 where another one is.
    """

    def widest(x: str, size: int) -> str:
        return m.op("MaxPool", x, kernel_shape=[size], strides=[1], pads=[size // 2] * 2)

    def negative(x: str) -> str:
        return m.op("Neg", x)

    high = widest(level, AROUND)
    low = negative(widest(negative(level), AROUND))
    half = m.floats([0.5], 1)
    middle = m.op("Mul", m.op("Add", high, low), half)
    range_ = m.op("Sub", high, low)
    clear = m.op("Sigmoid", m.op("Mul", m.op("Sub", range_, m.floats([CONTRAST], 1)),
                                 m.floats([20], 1)))  # fmt: skip
    on = m.op("Sigmoid", m.op("Mul", m.op("Sub", level, middle), m.floats([4], 1)))
    on = m.op("Mul", on, clear)
    key = m.op("Sub", m.op("Mul", on, m.floats([2], 1)), m.floats([1], 1))  # -1 to 1

    patterns = [pattern(code, unit) for code in CODES.values() for unit in UNITS]
    size = max(map(len, patterns))
    scaled = [v / len(p) for p in patterns for v in centred(p, size)]
    count = len(patterns)
    # beyond its ends a recording is silent
    padded = m.op("Pad", key, m.integers(0, 0, size // 2, 0, 0, size // 2), m.floats([-1]))
    fit = m.op("Conv", padded, m.floats(scaled, count, 1, size))  # [1, patterns, frames]

    # One speed: that of the signs which fit well, long ones before all.
    good = m.op("Relu", m.op("Sub", fit, m.floats([SURE], 1)))
    total = m.op("ReduceSum", good, m.integers(2), keepdims=1)  # [1, patterns, 1]
    weights = [
        (len(p) / unit) ** 2 / 100 * (i % len(UNITS) == u)
        for u in range(len(UNITS))
        for i, (p, unit) in enumerate(zip(patterns, UNITS * len(CODES)))
    ]
    speeds = m.op("Conv", total, m.floats(weights, len(UNITS), count, 1))
    most = m.op("Add", m.op("ReduceMax", speeds, m.integers(1), keepdims=1), m.floats([1e-6], 1))
    share = m.op("Div", speeds, most)
    less = m.op("Mul", m.op("Sub", share, m.floats([1.0], 1)), m.floats([STEADY], 1))
    fit = m.op("Add", fit, m.op("Tile", less, m.integers(1, len(CODES), 1)))

    # A sign stands where no other that reaches there fits better.
    groups: dict[tuple[float, int], list[int]] = {}
    for i, p in enumerate(patterns):
        groups.setdefault((UNITS[i % len(UNITS)], len(p)), []).append(i)
    reaching = []
    for (unit, length), members in groups.items():
        own = m.op("Gather", fit, m.integers(*members), axis=1)
        width = int(length - 2 * (GAP - 1) * unit) // 2 * 2 + 1
        reaching.append(widest(m.op("ReduceMax", own, m.integers(1), keepdims=1), width))
    best = m.op("Max", *reaching)
    edge = m.op("Max", m.op("Sub", best, m.floats([1e-4], 1)), m.floats([FITS], 1))
    chosen = m.op("Cast", m.op("Greater", fit, edge), to=FLOAT)

    # Each chosen pattern marks its frames, without the silence around it.
    marks = []
    for p in patterns:
        marks += centred([1.0] * inside(p), size)
    half_size = size // 2
    spread = m.op("Conv", chosen, m.floats(marks, count, 1, size), group=count,
                  pads=[half_size] * 2)  # fmt: skip
    by_sign = [
        1.0 if i // len(UNITS) == sign else 0.0 for sign in range(len(CODES)) for i in range(count)
    ]
    signs = m.op("Conv", spread, m.floats(by_sign, len(CODES), count, 1))
    signs = m.op("Min", signs, m.floats([1.0], 1))

    # Spaces: silence after a sign, as long as its speed says.
    spaces = []
    for u, unit in enumerate(UNITS):
        of_unit = [1.0 if i % len(UNITS) == u else 0.0 for i in range(count)]
        said = m.op("Conv", spread, m.floats(of_unit, 1, count, 1))
        reach = int(4 * unit)  # from a sign's end to the middle of a silence
        before = m.op("Pad", said, m.integers(0, 0, reach, 0, 0, 0), m.floats([0]))
        recent = m.op("MaxPool", before, kernel_shape=[reach + 1], strides=[1])
        window = int(PAUSE * unit) // 2 * 2 + 1
        silent = m.op("Pad", key, m.integers(0, 0, window // 2, 0, 0, window // 2), m.floats([-1]))
        loud = m.op("MaxPool", silent, kernel_shape=[window], strides=[1])
        quiet = m.op("Cast", m.op("Less", loud, m.floats([0.0], 1)), to=FLOAT)
        spaces.append(m.op("Mul", m.op("Min", recent, m.floats([1.0], 1)), quiet))
    space = m.op("Max", *spaces)
    blank = m.op("Add", m.op("Mul", space, m.floats([0.0], 1)), half)
    return m.op("Concat", blank, space, signs, axis=1)


CONFIGS = {
    "config.json": {
        "model_type": "wav2vec2",
        "architectures": ["Wav2Vec2ForCTC"],
        "conv_kernel": [WINDOW],
        "conv_stride": [HOP],
        "vocab_size": len(VOCABULARY),
        "pad_token_id": 0,
    },
    "preprocessor_config.json": {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor",
        "feature_size": 1,
        "sampling_rate": RATE,
        "do_normalize": True,
        "padding_value": 0.0,
        "return_attention_mask": False,
    },
    "tokenizer_config.json": {
        "tokenizer_class": "Wav2Vec2CTCTokenizer",
        "pad_token": "<pad>",
        "unk_token": "<pad>",
        "word_delimiter_token": "|",
    },
    "vocab.json": {token: i for i, token in enumerate(VOCABULARY)},
}


def main(path: str) -> None:
    """Writes the package."""
    files = {name: BytesSource(json.dumps(text).encode(), name) for name, text in CONFIGS.items()}
    files["model.onnx"] = model()
    with open(path, "wb") as file:
        compile_task(files, "automatic-speech-recognition").write(file)


if __name__ == "__main__":
    main(sys.argv[1])
