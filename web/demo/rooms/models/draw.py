"""Makes the model of the room "Draw": a diffusion model of simple shapes. Nothing in it is learned.

What a denoiser learns is the mean of all pictures that a noisy one may come from. For a set of
pictures that is known, the mean is a formula: the pictures, weighted by how well each explains the
noisy one (softmax of squared distances), and by whether its words are in the prompt. The graph
"unet" computes just that, for every shape, size, place and color. So it has the inputs and outputs
of Stable Diffusion, and takes its steps, but draws nothing that is not in this file.

    python web/demo/rooms/models/draw.py web/dist/demo/draw.edge
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from edgewise.compiler.declare.dtypes import FLOAT, INT64
from edgewise.onnx import BytesSource
from edgewise.task_package import compile_task
from graphs import Model

SIDE, SCALE = 32, 8  # latents of a side, and pixels of a latent's side
AREA = SIDE * SIDE
STEPS = 1000
SURE = 12.0  # logarithm of how much more likely pictures of the prompt's words are
TOKENS = 77
# What pages and Python make of latents for a preview: RGB of each channel.
PREVIEW = (
    (0.298, 0.207, 0.208),
    (0.187, 0.286, 0.173),
    (-0.158, 0.189, 0.264),
    (-0.184, -0.271, -0.473),
)
PAPER = (0.94, 0.91, 0.84)
DEPTH = 2.5  # latents from an edge within which a shape knows its distance
RELIEF = 2.0  # strength of that distance
SHAPES: dict[str, Callable[[float, float], float]]
COLORS = {
    "red": (0.82, 0.14, 0.13),
    "orange": (0.95, 0.52, 0.09),
    "yellow": (0.96, 0.79, 0.12),
    "green": (0.17, 0.58, 0.24),
    "blue": (0.13, 0.36, 0.77),
    "purple": (0.49, 0.23, 0.67),
    "pink": (0.94, 0.47, 0.64),
    "brown": (0.48, 0.31, 0.19),
    "black": (0.13, 0.13, 0.16),
}
SIZES = {"small": (5.0, 9), "big": (10.0, 4)}  # half a side, and latents from the middle
COLUMNS = {"left": -1, "": 0, "right": 1}
ROWS = {"top": -1, "": 0, "bottom": 1}
WORDS = {  # other words for the same
    "disc": "circle", "ball": "circle", "dot": "circle", "sun": "circle", "box": "square",
    "crescent": "moon", "wheel": "ring", "plus": "cross", "rhombus": "diamond",
    "blossom": "flower", "violet": "purple", "dark": "black", "little": "small", "tiny": "small",
    "large": "big", "huge": "big", "above": "top", "upper": "top", "below": "bottom",
    "lower": "bottom", "middle": "center", "centre": "center",
}  # fmt: skip


def _heart(x: float, y: float) -> float:
    x, y = abs(x) * 1.08, 0.55 - y * 1.02  # of a heart whose tip is at the origin
    if x + y > 1:
        return math.sqrt(2) / 4 - math.hypot(x - 0.25, y - 0.75)
    half = max(x + y, 0) / 2
    near = min(math.hypot(x, y - 1), math.hypot(x - half, y - half))
    return near if x - y < 0 else -near


def _polygon(points: Sequence[tuple[float, float]], x: float, y: float) -> float:
    nearest, inside = math.inf, False
    for (ax, ay), (bx, by) in zip(points, [*points[1:], points[0]]):
        ex, ey, px, py = bx - ax, by - ay, x - ax, y - ay
        along = min(max((px * ex + py * ey) / (ex * ex + ey * ey), 0), 1)
        nearest = min(nearest, math.hypot(px - ex * along, py - ey * along))
        if (ay > y) != (by > y) and px < py * ex / ey:
            inside = not inside
    return nearest if inside else -nearest


def _circle(points: int, *radii: float) -> list[tuple[float, float]]:
    """Points around the origin, the first at the top, at radii that follow each other."""
    angles = [2 * math.pi * i / points - math.pi / 2 for i in range(points)]
    return [
        (radii[i % len(radii)] * math.cos(a), radii[i % len(radii)] * math.sin(a))
        for i, a in enumerate(angles)
    ]


def _bars(x: float, y: float) -> float:
    def box(width: float, height: float) -> float:
        return min(width - abs(x), height - abs(y))

    return max(box(1, 0.34), box(0.34, 1))


def _petals(x: float, y: float) -> float:
    petals = [(0.62 * px, 0.62 * py) for px, py in _circle(5, 1)]
    return max(0.4 - math.hypot(x - px, y - py) for px, py in [*petals, (0, 0)])


# Distance to the edge of a shape of half a side 1, positive inside.
SHAPES = {
    "circle": lambda x, y: 0.95 - math.hypot(x, y),
    "square": lambda x, y: 0.85 - max(abs(x), abs(y)),
    "triangle": lambda x, y: _polygon([(0, -0.95), (1, 0.8), (-1, 0.8)], x, y),
    "star": lambda x, y: _polygon(_circle(10, 1.08, 0.46), x, y + 0.04),
    "heart": lambda x, y: 1.65 * _heart(x / 1.65, y / 1.65),
    "moon": lambda x, y: min(0.95 - math.hypot(x, y), math.hypot(x - 0.48, y + 0.18) - 0.74),
    "ring": lambda x, y: 0.27 - abs(math.hypot(x, y) - 0.68),
    "cross": _bars,
    "diamond": lambda x, y: _polygon([(0, -1), (0.72, 0), (0, 1), (-0.72, 0)], x, y),
    "flower": _petals,
}
CONCEPTS = [*SHAPES, *COLORS, *SIZES, "left", "right", "top", "bottom", "center"]


def items() -> tuple[list[list[float]], list[list[str]]]:
    """Of every shape, size and place: distances to the edge at each latent, and its words."""
    distances, words = [], []
    for shape, distance in SHAPES.items():
        for size, (half, away) in SIZES.items():
            for column, dx in COLUMNS.items():
                for row, dy in ROWS.items():
                    left, top = dx * away + (SIDE - 1) / 2, dy * away + (SIDE - 1) / 2
                    distances.append(
                        [
                            half * distance((x - left) / half, (y - top) / half)
                            for y in range(SIDE)
                            for x in range(SIDE)
                        ]
                    )
                    words.append([shape, size, *filter(None, (column, row))])
                    if not column and not row:
                        words[-1].append("center")
    return distances, words


Matrix = list[list[float]]


def product(a: Matrix, b: Matrix) -> Matrix:
    """a @ b"""
    columns = list(zip(*b))
    return [[math.fsum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def inverse(a: Matrix) -> Matrix:
    """By elimination."""
    size = len(a)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(a)]
    for i in range(size):
        best = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[best] = rows[best], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i])]
    return [row[size:] for row in rows]


def basis() -> tuple[Matrix, list[float]]:
    """Latents whose preview is red, green and blue, [3][4], and those that a preview does not
    show, [4], which have the distance to the edge.
    """
    preview = [list(row) for row in PREVIEW]
    across = [list(column) for column in zip(*preview)]
    shown = product(inverse(product(across, preview)), across)
    hidden = [1.0, 0.0, 0.0, 0.0]
    for _ in range(3):  # what is left without the shown part, again for its rounding
        [part] = product([hidden], preview)
        [seen] = product([part], shown)
        hidden = [h - s for h, s in zip(hidden, seen)]
    length = math.hypot(*hidden)
    return shown, [h / length for h in hidden]


def signed(color: Sequence[float]) -> list[float]:
    """A color from -1 to 1."""
    return [2 * c - 1 for c in color]


# long: the nodes of the graph, in their order
def denoiser() -> BytesSource:
    """The graph "unet": the noise in `sample`."""
    m = Model()
    distances, words = items()
    shown, hidden = basis()
    masks = [[min(max(d + 0.5, 0), 1) for d in row] for row in distances]
    reliefs = [[RELIEF * min(max(d / DEPTH, -1), 1) for d in row] for row in distances]
    paper = signed(PAPER)
    inks = [[c - p for c, p in zip(signed(color), paper)] for color in COLORS.values()]
    count, colors = len(masks), len(inks)

    # Squared lengths: of paper, of ink on it, and of distances, whose latents are orthogonal.
    [base] = product([paper], shown)
    ink = product(inks, shown)
    lengths = []
    for mask, relief in zip(masks, reliefs):
        once, twice = math.fsum(mask), math.fsum(x * x for x in mask)
        rest = math.fsum(x * x for x in relief)
        for row in ink:
            cross = math.fsum(a * b for a, b in zip(base, row))
            lengths.append(2 * once * cross + twice * math.fsum(x * x for x in row) + rest)

    sample = m.input("sample", FLOAT, ["batch", 4, SIDE, SIDE])
    timestep = m.input("timestep", FLOAT, [])
    states = m.input("encoder_hidden_states", FLOAT, ["batch", "sequence", len(CONCEPTS)])
    keeps, kept = [], 1.0
    for i in range(STEPS):  # the schedule of scheduler_config.json
        kept *= 1 - (1e-4 + (2e-2 - 1e-4) * i / (STEPS - 1))
        keeps.append(kept)
    at = m.op("Cast", timestep, to=INT64)
    signal = m.op("Gather", m.floats(keeps, STEPS), at)  # share of the picture in the sample
    noise = m.op("Sub", m.floats([1]), signal)
    strength = m.op("Sqrt", signal)

    x = m.op("Reshape", sample, m.integers(4, AREA))
    rgb = m.op("MatMul", m.floats([v for row in shown for v in row], 3, 4), x)
    edge = m.op("MatMul", m.floats(hidden, 1, 4), x)
    mask = m.floats([v for row in masks for v in row], count, AREA)
    relief = m.floats([v for row in reliefs for v in row], count, AREA)
    inked = m.op("MatMul", mask, m.op("Transpose", rgb, perm=[1, 0]))
    across = m.floats([row[c] for c in range(3) for row in inks], 3, colors)
    likely = m.op(
        "Add",
        m.op("MatMul", inked, across),
        m.op("MatMul", relief, m.op("Transpose", edge, perm=[1, 0])),
    )
    likely = m.op("Mul", likely, m.op("Div", strength, noise))
    half = m.op("Mul", m.op("Div", signal, noise), m.floats([0.5]))
    likely = m.op("Sub", likely, m.op("Mul", m.floats(lengths, count, colors), half))

    told = m.op("ReduceMax", states, m.integers(1), keepdims=0)
    of_items = [SURE * (c in own) for c in CONCEPTS for own in words]
    of_colors = [SURE * (c == name) for c in CONCEPTS for name in COLORS]
    named = m.op("MatMul", told, m.floats(of_items, len(CONCEPTS), count))
    likely = m.op("Add", likely, m.op("Transpose", named, perm=[1, 0]))
    likely = m.op("Add", likely, m.op("MatMul", told, m.floats(of_colors, len(CONCEPTS), colors)))
    flat = m.op("Softmax", m.op("Reshape", likely, m.integers(1, -1)), axis=1)
    weights = m.op("Reshape", flat, m.integers(count, colors))

    # The mean picture: ink on paper, and distances.
    per_item = m.op("MatMul", weights, m.op("Transpose", across, perm=[1, 0]))
    picture = m.op("MatMul", m.op("Transpose", per_item, perm=[1, 0]), mask)
    picture = m.op("Add", picture, m.floats(paper, 3, 1))
    shares = m.op("ReduceSum", weights, m.integers(1), keepdims=1)
    depth = m.op("MatMul", m.op("Transpose", shares, perm=[1, 0]), relief)
    latent = m.op(
        "Add",
        m.op("MatMul", m.floats([row[c] for c in range(4) for row in shown], 4, 3), picture),
        m.op("MatMul", m.floats(hidden, 4, 1), depth),
    )
    rest = m.op("Sub", x, m.op("Mul", latent, strength))
    rest = m.op("Div", rest, m.op("Sqrt", noise))
    m.op("Reshape", rest, m.integers(1, 4, SIDE, SIDE), name="out_sample")
    return m.source("unet/model.onnx", "out_sample", ["batch", 4, SIDE, SIDE])


def decoder() -> BytesSource:
    """The graph "vae_decoder": a shape with a sharp edge, in the mean color of its inside."""
    m = Model()
    _, hidden = basis()
    latent = m.input("latent_sample", FLOAT, ["batch", 4, SIDE, SIDE])
    rgb = m.op("Conv", latent, m.floats([PREVIEW[k][c] for c in range(3) for k in range(4)],
                                        3, 4, 1, 1))  # fmt: skip
    depth = m.op("Conv", latent, m.floats([h / RELIEF for h in hidden], 1, 4, 1, 1))
    deep = m.op("Mul", m.op("Sub", depth, m.floats([0.3])), m.floats([1e3]))
    inside = m.op("Sigmoid", deep)
    axes = m.integers(2, 3)
    total = m.op("ReduceSum", m.op("Mul", rgb, inside), axes, keepdims=1)
    area = m.op("Add", m.op("ReduceSum", inside, axes, keepdims=1), m.floats([1e-3]))
    paper = m.floats(signed(PAPER), 1, 3, 1, 1)
    ink = m.op("Sub", m.op("Div", total, area), paper)
    sizes = m.integers(1, 1, SIDE * SCALE, SIDE * SCALE)
    large = m.op("Resize", depth, "", "", sizes, mode="cubic", cubic_coeff_a=-0.5)
    shape = m.op("Sigmoid", m.op("Mul", large, m.floats([40])))
    m.op("Add", m.op("Mul", shape, ink), paper, name="sample")
    return m.source("vae_decoder/model.onnx", "sample", ["batch", 3, SIDE * SCALE, SIDE * SCALE])


def pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    """Merges of byte pairs that make one token of each word."""
    spelled = [[*word[:-1], f"{word[-1]}</w>"] for word in words]
    merges = []
    while any(len(word) > 1 for word in spelled):
        found = Counter(pair for word in spelled for pair in zip(word, word[1:]))
        best = max(found, key=lambda pair: (found[pair], pair))
        merges.append(best)
        for word in spelled:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = ["".join(best)]
                i += 1
    return merges


def texts() -> tuple[BytesSource, dict[str, BytesSource]]:
    """The graph "text_encoder", which marks the words that it knows, and the tokenizer's files."""
    known = [*CONCEPTS, *WORDS]
    merges = pairs(known)
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens = [*letters, *(f"{c}</w>" for c in letters), *("".join(pair) for pair in merges)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    table = [0.0] * (len(vocabulary) * len(CONCEPTS))
    for word in known:
        concept = CONCEPTS.index(WORDS.get(word, word))
        table[vocabulary[f"{word}</w>"] * len(CONCEPTS) + concept] = 1.0
    m = Model()
    ids = m.input("input_ids", INT64, ["batch", TOKENS])
    m.op("Gather", m.floats(table, len(vocabulary), len(CONCEPTS)), ids, name="last_hidden_state")
    lines = "".join(f"{a} {b}\n" for a, b in merges)
    files = {
        "vocab.json": json.dumps(vocabulary),
        "merges.txt": f"#version: 0.2\n{lines}",
        "tokenizer_config.json": json.dumps(
            {"tokenizer_class": "CLIPTokenizer", "model_max_length": TOKENS}
        ),
    }
    shape = ["batch", TOKENS, len(CONCEPTS)]
    return (
        m.source("text_encoder/model.onnx", "last_hidden_state", shape),
        {name: BytesSource(text.encode(), name) for name, text in files.items()},
    )


def main(path: str) -> None:
    """Writes the package."""
    encoder, tokenizer = texts()
    configs = {
        "model_index.json": {
            "_class_name": "StableDiffusionPipeline",
            "requires_safety_checker": False,
        },
        "unet/config.json": {"in_channels": 4, "out_channels": 4, "sample_size": SIDE},
        "vae_decoder/config.json": {"scaling_factor": 1.0, "block_out_channels": [1] * 4},
        "scheduler/scheduler_config.json": {
            "_class_name": "DDIMScheduler",
            "num_train_timesteps": STEPS,
            "beta_start": 1e-4,
            "beta_end": 2e-2,
            "beta_schedule": "linear",
            "prediction_type": "epsilon",
            "timestep_spacing": "trailing",
            "set_alpha_to_one": True,
        },
    }
    files = {
        "text_encoder/model.onnx": encoder,
        "unet/model.onnx": denoiser(),
        "vae_decoder/model.onnx": decoder(),
        **{f"tokenizer/{name}": source for name, source in tokenizer.items()},
        **{name: BytesSource(json.dumps(text).encode(), name) for name, text in configs.items()},
    }
    with open(path, "wb") as file:
        compile_task(files, "text-to-image").write(file)


if __name__ == "__main__":
    main(sys.argv[1])
