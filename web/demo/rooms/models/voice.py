"""Makes the model of the room "Who speaks": statistics of a voice's spectrum and pitch. Nothing in
it is learned.

A voice's vector has the mean and the spread of cepstral coefficients (the shape of the spectrum, as
vocal tract and microphone make it) and a histogram of pitches (from the peaks of the spectrum at
multiples of a frequency), over the frames in which somebody speaks. They are taken relative to the
means of synthetic voices in voice-means.json (measure() makes it), so that vectors of different
voices point in different directions.

    python web/demo/rooms/models/voice.py web/dist/demo/voice.edge
    python web/demo/rooms/models/voice.py --measure 1.wav 2.wav ... # writes voice-means.json
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from edgewise.compiler.declare.dtypes import FLOAT
from edgewise.onnx import BytesSource
from edgewise.task_package import compile_task
from graphs import Model

RATE = 16000
FRAME, HOP = 1024, 256
BINS = FRAME // 2 + 1
BANDS, CEPSTRA = 30, 20
PITCHES = [75 * 2 ** (i / 24) for i in range(60)]  # Hz
SPREAD = 0.7  # weight of spreads beside means
PITCH = 4 * math.sqrt(30)  # weight of pitches
MEANS = Path(__file__).with_name("voice-means.json")


def mel_bands() -> list[float]:
    """[BINS, BANDS]: triangles of equal width on the scale of hearing."""

    def hertz(mel: float) -> float:
        return 700 * (10 ** (mel / 2595) - 1)

    low, high = (2595 * math.log10(1 + f / 700) for f in (80, 7600))
    edges = [hertz(low + (high - low) * i / (BANDS + 1)) for i in range(BANDS + 2)]
    return [
        max(0.0, min((f - a) / (b - a), (c - f) / (c - b))) * 2 / (c - a)
        for f in (i * RATE / FRAME for i in range(BINS))
        for a, b, c in zip(edges, edges[1:], edges[2:])
    ]


def cosines() -> list[float]:
    """[BANDS, CEPSTRA]: a discrete cosine transform without its first coefficient."""
    return [
        math.sqrt(2 / BANDS) * math.cos(math.pi * k * (band + 0.5) / BANDS)
        for band in range(BANDS)
        for k in range(1, CEPSTRA + 1)
    ]


def combs() -> list[float]:
    """[BINS, pitches]: peaks at the multiples of a pitch, dips between them."""

    def comb(pitch: float, f: float) -> float:
        total = 0.0
        for h in range(8):
            total += 0.84**h * math.exp(-0.5 * ((f - (h + 1) * pitch) / 12) ** 2)
            total -= 0.5 * 0.84**h * math.exp(-0.5 * ((f - (h + 0.5) * pitch) / 12) ** 2)
        return total

    return [comb(pitch, i * RATE / FRAME) for i in range(BINS) for pitch in PITCHES]


# long: the nodes of the graph, in their order
def model(means: dict[str, list[float]] | None) -> BytesSource:
    """The .onnx file: input_values [1, samples] to embeddings [1, 2 * CEPSTRA + pitches]. Without
    means: the statistics themselves.
    """
    m = Model()
    audio = m.input("input_values", FLOAT, ["batch", "samples"])
    window = [0.5 - 0.5 * math.cos(2 * math.pi * i / (FRAME - 1)) for i in range(FRAME)]
    [step, size] = [m.scalar(n) for n in (HOP, FRAME)]
    found = m.op("STFT", audio, step, m.floats(window, FRAME), size, onesided=1)
    power = m.op("ReduceSum", m.op("Mul", found, found), m.integers(0, 3), keepdims=0)

    def total(x: str, axis: int) -> str:
        return m.op("ReduceSum", x, m.integers(axis), keepdims=1)

    # Frames count as far as they are loud.
    energy = total(power, 1)
    least = m.op("Mul", m.op("ReduceMax", energy, keepdims=1), m.floats([0.03], 1))
    least = m.op("Add", least, m.floats([1e-9], 1))
    loud = m.op("Div", energy, m.op("Add", energy, least))
    loud = m.op("Mul", loud, loud)
    weight = m.op("Div", loud, m.op("Add", total(loud, 0), m.floats([1e-9], 1)))
    across = m.op("Transpose", weight, perm=[1, 0])

    bands = m.op("MatMul", power, m.floats(mel_bands(), BINS, BANDS))
    floor = m.op("Mul", m.op("ReduceMax", bands, keepdims=1), m.floats([1e-5], 1))
    bands = m.op("Log", m.op("Add", m.op("Add", bands, floor), m.floats([1e-12], 1)))
    cepstra = m.op("MatMul", bands, m.floats(cosines(), BANDS, CEPSTRA))
    mean = m.op("MatMul", across, cepstra)
    away = m.op("Sub", cepstra, mean)
    spread = m.op("Sqrt", m.op("MatMul", across, m.op("Mul", away, away)))

    root = m.op("Sqrt", m.op("Sqrt", power))
    squares = total(m.op("Mul", root, root), 1)
    even = m.op("Div", root, m.op("Sqrt", m.op("Add", squares, m.floats([1e-12], 1))))
    match = m.op("MatMul", even, m.floats(combs(), BINS, len(PITCHES)))
    chance = m.op("Softmax", m.op("Mul", match, m.floats([6], 1)), axis=1)
    pitch = m.op("Sqrt", m.op("MatMul", across, chance))

    parts = [mean, spread, pitch]
    if means:
        scales = [1 / s for s in means["mean_scale"]], [SPREAD / s for s in means["spread_scale"]]
        factors = [*scales, [PITCH] * len(PITCHES)]
        names = ("mean", "spread", "pitch")
        parts = [
            m.op(
                "Mul",
                m.op("Sub", part, m.floats(means[name], 1, len(factor))),
                m.floats(factor, 1, len(factor)),
            )
            for part, name, factor in zip(parts, names, factors)
        ]
    m.op("Concat", *parts, name="embeddings", axis=1)
    return m.source("model.onnx", "embeddings", ["batch", 2 * CEPSTRA + len(PITCHES)])


def measure(paths: list[str]) -> None:
    """Writes the means and deviations of recordings' statistics."""
    from edgewise import InferenceSession
    from edgewise.processors.audio.decode import read_sound

    session = InferenceSession(model(None))
    rows = []
    for path in paths:
        samples = read_sound(path, RATE).samples
        count = len(memoryview(samples.data).cast("B").cast("f"))
        values = memoryview(samples.data).cast("B").cast("f", [1, count])
        [made] = session.run(None, {"input_values": values})
        rows.append([float(v) for v in memoryview(made).cast("B").cast("f")])
    columns = list(zip(*rows))
    mean = [math.fsum(c) / len(c) for c in columns]
    deviation = [
        math.sqrt(math.fsum((v - mid) ** 2 for v in c) / len(c)) for c, mid in zip(columns, mean)
    ]
    n = CEPSTRA
    found = {
        "mean": mean[:n],
        "mean_scale": deviation[:n],
        "spread": mean[n : 2 * n],
        "spread_scale": deviation[n : 2 * n],
        "pitch": mean[2 * n :],
    }
    text = {name: [round(v, 4) for v in values] for name, values in found.items()}
    MEANS.write_text(json.dumps(text, indent=1) + "\n")


def main(path: str) -> None:
    """Writes the package."""
    settings = {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor",
        "feature_size": 1,
        "sampling_rate": RATE,
        "do_normalize": True,
        "padding_value": 0.0,
    }
    files = {
        "model.onnx": model(json.loads(MEANS.read_text())),
        "config.json": BytesSource(b'{"model_type": "statistics"}', "config.json"),
        "preprocessor_config.json": BytesSource(json.dumps(settings).encode(), "settings"),
    }
    with open(path, "wb") as file:
        compile_task(files, "speaker-verification").write(file)


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        measure(sys.argv[2:])
    else:
        main(sys.argv[1])
