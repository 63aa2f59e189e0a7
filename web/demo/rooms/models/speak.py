"""Makes the model of the room "Speak": a formant synthesizer, as machines spoke in the 1970s.
Nothing in it is learned.

Each phoneme has one to three segments with a length, three formants (resonances of the vocal
tract), a loudness of the voice and loudnesses of noise in six bands. Frames of 5 ms follow them
smoothly. The voice is a sum of sines at the multiples of its pitch, as loud as the formants make
them. Inputs and outputs are those of Piper's voices, and so are the phonemes, so that it runs as
`text-to-speech`. Formants are those of Peterson and Barney (1952) and Klatt (1980), rounded.

    python web/demo/rooms/models/speak.py web/dist/demo/speak.edge
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence

from edgewise.compiler.declare.dtypes import BOOL, FLOAT, INT64
from edgewise.onnx import BytesSource
from edgewise.task_package import compile_task
from graphs import Model

RATE = 16000
HOP = 80  # samples of a frame
PARTS = 3  # segments of a phoneme, at most
HARMONICS = 36
PITCH = 118.0  # Hz, at the beginning of a text
FALL = 26.0  # Hz that it falls to its end
STRESS = 22.0  # Hz of a stressed vowel
BANDWIDTHS = (70.0, 100.0, 160.0, 250.0)  # Hz of the formants
FOURTH = 3400.0  # Hz, of all phonemes
BANDS = ((300, 1000), (1000, 2000), (2000, 3000), (3000, 4500), (4500, 6500), (6500, 7900))  # Hz
TAPS = 65
SMOOTH = 17  # frames over which formants move
QUICK = 5  # frames over which loudness does

QUIET = (0.0,) * len(BANDS)
Segment = tuple[float, float, float, float, float, Sequence[float]]


def vowel(ms: float, f1: float, f2: float, f3: float, level: float = 1.0) -> list[Segment]:
    """A phoneme with a voice."""
    return [(ms, f1, f2, f3, level, QUIET)]


def hiss(ms: float, f2: float, noise: Sequence[float], level: float = 0.0) -> list[Segment]:
    """A phoneme of noise, with a voice if there is a level."""
    return [(ms, 280 if level else 400, f2, 2500, level, noise)]


def stop(
    ms: float, f2: float, f3: float, burst: Sequence[float], breath: float = 0.0, level: float = 0.0
) -> list[Segment]:
    """Silence, a burst, and for `breath` ms a breath."""
    made: list[Segment] = [(ms, 220, f2, f3, level, QUIET), (12, 300, f2, f3, level, burst)]
    if breath:
        made.append((breath, 420, f2, f3, 0, (0.03, 0.07, 0.07, 0.05, 0.03, 0.01)))
    return made


def silence(ms: float) -> list[Segment]:
    """Nothing."""
    return [(ms, 450, 1400, 2450, 0, QUIET)]


LIP, TEETH, BACK = (0.15, 0.1, 0.06, 0.04, 0.03, 0.02), (0.02, 0.05, 0.1, 0.25, 0.3, 0.2), (
    0.05, 0.25, 0.3, 0.1, 0.05, 0.02)  # fmt: skip
S, SH = (0, 0, 0.02, 0.12, 0.5, 0.5), (0, 0.04, 0.35, 0.45, 0.25, 0.1)
F, TH = (0.01, 0.03, 0.04, 0.05, 0.07, 0.09), (0.01, 0.02, 0.03, 0.04, 0.07, 0.06)
PHONEMES: dict[str, list[Segment]] = {
    "_": silence(0), "^": silence(40), "$": silence(120), " ": silence(0),
    ",": silence(180), ".": silence(260), "!": silence(260), "?": silence(260), ";": silence(220),
    ":": silence(220), "—": silence(220), "…": silence(260),
    "ˈ": silence(0), "ˌ": silence(0), "ː": vowel(60, 500, 1500, 2500),
    "i": vowel(85, 280, 2250, 2950), "ɪ": vowel(75, 400, 1950, 2550),
    "e": vowel(85, 480, 1950, 2550), "ɛ": vowel(100, 560, 1800, 2480),
    "æ": vowel(130, 690, 1700, 2420), "ɑ": vowel(95, 730, 1100, 2440),
    "ɔ": vowel(95, 590, 880, 2500), "o": vowel(85, 500, 900, 2400),
    "ʊ": vowel(75, 440, 1030, 2280), "u": vowel(85, 310, 900, 2240),
    "ʌ": vowel(90, 640, 1200, 2400), "ə": vowel(60, 500, 1450, 2450, 0.8),
    "ɐ": vowel(60, 560, 1400, 2450, 0.8), "ᵻ": vowel(60, 400, 1850, 2550, 0.8),
    "ɜ": vowel(100, 480, 1330, 1680), "ɚ": vowel(95, 490, 1340, 1690, 0.9),
    "a": vowel(100, 740, 1250, 2450), "w": vowel(65, 290, 620, 2200, 0.6),
    "j": vowel(60, 270, 2250, 2950, 0.6), "ɹ": vowel(65, 330, 1070, 1420, 0.6),
    "l": vowel(65, 350, 1000, 2700, 0.6), "m": vowel(75, 240, 1050, 2200, 0.32),
    "n": vowel(70, 240, 1550, 2550, 0.32), "ŋ": vowel(80, 240, 2100, 2600, 0.32),
    "ɾ": vowel(25, 320, 1700, 2600, 0.35),
    "b": stop(55, 900, 2150, LIP, level=0.1), "d": stop(50, 1700, 2650, TEETH, level=0.1),
    "ɡ": stop(55, 1900, 2300, BACK, level=0.1), "p": stop(70, 900, 2150, LIP, 25),
    "t": stop(60, 1700, 2650, TEETH, 30), "k": stop(65, 1800, 2300, BACK, 35),
    "ʔ": silence(40), "f": hiss(95, 1100, F), "θ": hiss(90, 1400, TH), "s": hiss(105, 1700, S),
    "ʃ": hiss(105, 1900, SH), "h": hiss(60, 1450, (0.08, 0.12, 0.09, 0.05, 0.02, 0.01)),
    "v": hiss(65, 1100, F, 0.35), "ð": hiss(50, 1400, TH, 0.35),
    "z": hiss(80, 1700, [0.6 * x for x in S], 0.25),
    "ʒ": hiss(80, 1900, [0.6 * x for x in SH], 0.25),
}  # fmt: skip
NAMES = list(PHONEMES)
VOWELS = "iɪeɛæɑɔoʊuʌəɐᵻɜɚa"


def column(of: int) -> list[float]:
    """[phonemes * PARTS]: a number of all segments."""
    return [
        float(segment[of])  # type: ignore[arg-type]
        for segments in PHONEMES.values()
        for segment in [*segments, *[(0.0, *segments[-1][1:])] * (PARTS - len(segments))]
    ]


def loudnesses(band: int) -> list[float]:
    """[phonemes * PARTS]: the loudness of noise in a band."""
    return [
        float(segment[5][band])
        for segments in PHONEMES.values()
        for segment in [*segments, *[segments[-1]] * (PARTS - len(segments))]
    ]


def band_pass(low: float, high: float) -> list[float]:
    """[TAPS]: a filter, of the same loudness whatever its width."""
    middle = TAPS // 2

    def sinc(f: float, i: int) -> float:
        return 2 * f / RATE if i == middle else math.sin(
            2 * math.pi * f * (i - middle) / RATE) / (math.pi * (i - middle))  # fmt: skip

    taps = [
        (sinc(high, i) - sinc(low, i)) * (0.54 - 0.46 * math.cos(2 * math.pi * i / (TAPS - 1)))
        for i in range(TAPS)
    ]
    size = math.sqrt(sum(t * t for t in taps))
    return [t / size for t in taps]


def bell(size: int) -> list[float]:
    """[size]: weights whose sum is 1."""
    made = [0.5 - 0.5 * math.cos(2 * math.pi * (i + 1) / (size + 1)) for i in range(size)]
    return [x / sum(made) for x in made]


class Voice(Model):
    """The graph, with helpers."""

    def f(self, value: float) -> str:
        """A constant [1]."""
        return self.floats([value], 1)

    def flag(self, ids: str, names: str, values: Sequence[float]) -> str:
        """[n]: a number for each phoneme that is one of some; 0 for others."""
        table = [values[names.index(n)] if n in names else 0.0 for n in NAMES]
        return self.op("Gather", self.floats(table, len(table)), ids)

    def before(self, x: str) -> str:
        """[n]: the value of the phoneme before; there is a `_` between them."""
        kept = self.op("Slice", x, self.integers(0), self.integers(-2))
        return self.op("Concat", self.floats([0, 0], 2), kept, axis=0)

    def smooth(self, x: str, size: int) -> str:
        """[k, frames]: means of near frames, at the ends those of the last one."""
        lone = self.op("Unsqueeze", x, self.integers(1))
        pads = self.integers(0, 0, size // 2, 0, 0, size // 2)
        wide = self.op("Pad", lone, pads, mode="edge")
        found = self.op("Conv", wide, self.floats(bell(size), 1, 1, size))
        return self.op("Squeeze", found, self.integers(1))

    def samples(self, x: str) -> str:
        """[k, frames] to [k, samples], in straight lines from frame to frame."""
        lone = self.op("Unsqueeze", x, self.integers(1))
        rise = [(i + 0.5) / HOP for i in range(HOP)]
        kernel = self.floats([*rise, *rise[::-1]], 1, 1, 2 * HOP)
        pads = [HOP // 2] * 2
        found = self.op("ConvTranspose", lone, kernel, strides=[HOP], pads=pads)
        return self.op("Squeeze", found, self.integers(1))


# long: the nodes of the graph, in their order
def model() -> BytesSource:
    """The .onnx file: phonemes to sound."""
    m = Voice()
    given = m.input("input", INT64, ["batch", "phonemes"])
    m.input("input_lengths", INT64, ["batch"])
    scales = m.input("scales", FLOAT, [3])
    ids = m.op("Reshape", given, m.integers(-1))

    # Segments of the phonemes: [n, PARTS] each. A sign of length repeats the phoneme before.
    count = len(NAMES)
    long = m.op("Cast", m.flag(ids, "ː", [1]), to=BOOL)
    shift = m.op("Cast", m.before(m.op("Cast", ids, to=FLOAT)), to=INT64)
    sounds = m.op("Where", long, shift, ids)

    def each(values: list[float]) -> str:
        found = m.op("Gather", m.floats(values, count, PARTS), sounds)
        return m.op("Reshape", found, m.integers(1, -1))

    own = m.op("Gather", m.floats(column(0), count, PARTS), ids)
    stress = m.before(m.flag(ids, "ˈˌ", [1, 0.4]))
    is_vowel = m.flag(ids, VOWELS, [1.0] * len(VOWELS))
    weak = m.op("Mul", is_vowel, m.op("Sub", m.f(1), stress))
    longer = m.op("Sub", m.f(1.15), m.op("Mul", weak, m.f(0.3)))
    lengths = m.op("Mul", own, m.op("Unsqueeze", longer, m.integers(1)))
    speed = m.op("Slice", scales, m.integers(1), m.integers(2))
    ms = m.op("Mul", m.op("Reshape", lengths, m.integers(1, -1)), speed)
    frames = m.op("Round", m.op("Mul", ms, m.f(RATE / HOP / 1000)))
    ends = m.op("CumSum", frames, m.scalar(1))
    begins = m.op("Sub", ends, frames)
    whole = m.op("ReduceSum", frames, m.integers(0, 1), keepdims=0)
    total = m.op("Cast", whole, to=INT64)

    # From here on there are as many frames as the phonemes are long.
    ticks = m.op("Range", m.scalar(0), total, m.scalar(1))
    times = m.op("Unsqueeze", m.op("Cast", ticks, to=FLOAT), m.integers(1))
    began = m.op("Cast", m.op("GreaterOrEqual", times, begins), to=FLOAT)
    ended = m.op("Cast", m.op("GreaterOrEqual", times, ends), to=FLOAT)
    inside = m.op("Sub", began, ended)  # [frames, segments]
    lifted = m.op("Mul", stress, is_vowel)
    lifts = m.op("Expand", m.op("Unsqueeze", lifted, m.integers(1)), m.integers(1, PARTS))
    rows = [each(column(i)) for i in range(1, 5)]
    rows += [each(loudnesses(band)) for band in range(len(BANDS))]
    rows.append(m.op("Reshape", lifts, m.integers(1, -1)))
    table = m.op("Concat", *rows, axis=0)  # [numbers, segments]
    now = m.op("MatMul", table, m.op("Transpose", inside, perm=[1, 0]))

    def cut(x: str, first: int, last: int) -> str:
        return m.op("Slice", x, m.integers(first), m.integers(last), m.integers(0))

    formants = m.smooth(cut(now, 0, 3), SMOOTH)
    loud = m.smooth(cut(now, 3, 4), QUICK)
    noise = m.smooth(cut(now, 4, 4 + len(BANDS)), QUICK)
    lift = m.smooth(cut(now, 4 + len(BANDS), 5 + len(BANDS)), SMOOTH)

    # The pitch falls; that of questions rises at the end.
    time = m.op("Reshape", times, m.integers(1, -1))
    part = m.op("Div", time, m.op("Max", whole, m.f(1)))
    left = m.op("Sub", whole, time)
    last = m.op("Relu", m.op("Sub", m.f(1), m.op("Div", left, m.f(110))))
    asks = m.op("ReduceMax", m.flag(ids, "?", [1]), m.integers(0), keepdims=1)
    move = m.op("Sub", m.op("Mul", asks, m.f(110)), m.f(22))
    pitch = m.op("Sub", m.f(PITCH), m.op("Mul", part, m.f(FALL)))
    pitch = m.op("Add", pitch, m.op("Mul", lift, m.f(STRESS)))
    pitch = m.op("Add", pitch, m.op("Mul", last, move))  # [1, frames]

    # Loudness of each multiple of the pitch: [HARMONICS, frames].
    numbers = m.floats([float(k + 1) for k in range(HARMONICS)], HARMONICS, 1)
    hertz = m.op("Mul", numbers, pitch)
    square = m.op("Mul", hertz, hertz)
    level = m.op("Div", loud, numbers)
    for i, width in enumerate(BANDWIDTHS):
        middle = cut(formants, i, i + 1) if i < 3 else m.floats([FOURTH], 1, 1)
        own_square = m.op("Mul", middle, middle)
        away = m.op("Sub", own_square, square)
        across = m.op("Mul", hertz, m.f(width))
        size = m.op("Add", m.op("Mul", away, away), m.op("Mul", across, across))
        level = m.op("Mul", level, m.op("Div", own_square, m.op("Sqrt", size)))
    phase = m.op("CumSum", m.op("Div", m.samples(pitch), m.f(RATE)), m.scalar(1))
    waves = m.op("Sin", m.op("Mul", m.op("Mul", phase, numbers), m.f(2 * math.pi)))
    voiced = m.op("Mul", waves, m.samples(level))
    voice = m.op("ReduceSum", voiced, m.integers(0), keepdims=1)

    hissing = m.op("RandomNormalLike", voice, mean=0.0, scale=1.0)
    taps = [tap for low, high in BANDS for tap in band_pass(low, high)]
    filters = m.floats(taps, len(BANDS), 1, TAPS)
    lone = m.op("Unsqueeze", hissing, m.integers(0))
    found = m.op("Conv", lone, filters, pads=[TAPS // 2] * 2)
    each_band = m.op("Mul", m.op("Squeeze", found, m.integers(0)), m.samples(noise))
    breath = m.op("ReduceSum", each_band, m.integers(0), keepdims=1)
    amount = m.op("Slice", scales, m.integers(0), m.integers(1))
    sound = m.op("Add", m.op("Mul", voice, m.f(0.035)), m.op("Mul", breath, amount))
    m.op("Unsqueeze", sound, m.integers(0, 1), name="output")
    return m.source("model.onnx", "output", ["batch", 1, 1, "samples"])


CONFIG = {
    "audio": {"sample_rate": RATE},
    "inference": {"noise_scale": 0.12, "length_scale": 1, "noise_w": 0},
    "phoneme_type": "espeak",
    "phoneme_id_map": {name: [i] for i, name in enumerate(NAMES)},
    "num_speakers": 1,
    "speaker_id_map": {},
}


def main(path: str) -> None:
    """Writes the package."""
    files = {
        "model.onnx": model(),
        "model.onnx.json": BytesSource(json.dumps(CONFIG).encode(), "model.onnx.json"),
    }
    with open(path, "wb") as file:
        compile_task(files, "text-to-speech").write(file)


if __name__ == "__main__":
    main(sys.argv[1])
