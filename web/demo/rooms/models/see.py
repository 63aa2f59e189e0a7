"""Makes the model of the room "See": a scattering network (Bruna and Mallat, 2013), whose filters
are fixed wavelets. Nothing in it is learned, so that it is made from this file alone.

A picture's features are the strengths of edges of eight directions and two sizes, of color
contrasts, and of the textures that they form, at nine places and over the whole picture.

    python web/demo/rooms/models/see.py web/dist/demo/see.edge
"""

from __future__ import annotations

import json
import math
import os
import sys
from array import array

from edgewise.compiler.declare.dtypes import FLOAT
from edgewise.ir import Info, Node
from edgewise.onnx import BytesSource
from edgewise.onnx.editor import ModelEditor
from edgewise.task_package import compile_task

SIDE = 96  # pixels
ANGLES = 8
FINE, COARSE = 7, 11  # pixels of a filter's side
GRAY = (0.299, 0.587, 0.114)
# Color contrasts: brightness, red against green, blue against yellow.
COLORS = (GRAY, (0.5, -0.5, 0.0), (-0.25, -0.25, 0.5))


def gabor(side: int, angle: float, phase: float) -> list[float]:
    """A wavelet: a wave of a direction under a bell, without a mean, of length 1."""
    middle, width = side // 2, side / 4
    turn = 2 * math.pi / (side / 1.8)
    bell, wave = [], []
    for y in range(-middle, middle + 1):
        for x in range(-middle, middle + 1):
            along = x * math.cos(angle) + y * math.sin(angle)
            bell.append(math.exp(-(x * x + y * y) / (2 * width * width)))
            wave.append(math.cos(turn * along + phase))
    mean = math.fsum(b * w for b, w in zip(bell, wave)) / math.fsum(bell)
    values = [b * (w - mean) for b, w in zip(bell, wave)]
    length = math.sqrt(math.fsum(v * v for v in values))
    return [v / length for v in values]


def pairs(side: int) -> list[list[float]]:
    """For each angle the two phases of a wavelet."""
    return [
        gabor(side, math.pi * k / ANGLES, phase)
        for k in range(ANGLES)
        for phase in (0.0, math.pi / 2)
    ]


# long: the nodes of the graph, in their order
def model() -> bytes:
    """The .onnx file: pixel_values [batch, 3, SIDE, SIDE] to image_embeds [batch, size]."""
    editor = ModelEditor()
    nodes: list[Node] = []

    def constant(name: str, shape: tuple[int, ...], values: list[float]) -> str:
        editor.set_initializer(name, (FLOAT, shape, array("f", values).tobytes()))
        return name

    def add(op: str, inputs: list[str], name: str, **attrs: object) -> str:
        nodes.append(Node(op, inputs, [name], dict(attrs), "", name))
        return name

    def strength(given: str, name: str, groups: int) -> str:
        """sqrt(even^2 + odd^2) of pairs of channels."""
        squares = add("Mul", [given, given], f"{name}_squares")
        two = constant(f"{name}_two", (groups, 2, 1, 1), [1.0] * 2 * groups)
        total = add("Conv", [squares, two], f"{name}_sums", group=groups)
        small = constant(f"{name}_small", (), [1e-6])
        return add("Sqrt", [add("Add", [total, small], f"{name}_more")], name)

    def pooled(given: str, name: str, side: int, places: int) -> str:
        """Means over places x places parts of a map of side x side."""
        size = side // places
        mean = add(
            "AveragePool", [given], f"{name}_mean", kernel_shape=[size] * 2, strides=[size] * 2
        )
        return add("Flatten", [mean], name, axis=1)

    colors = constant("colors", (3, 3, 1, 1), [v for row in COLORS for v in row])
    seen = add("Conv", ["pixel_values", colors], "contrasts")
    tones = add("AveragePool", [seen], "tones", kernel_shape=[2, 2], strides=[2, 2])
    found = [pooled(tones, "tones_9", SIDE // 2, 3)]
    filters = [g + [0.0] * 2 * len(g) for g in pairs(FINE)]  # of brightness
    for contrast in (1, 2):  # colors have no direction worth knowing
        for phase in (0, 1):
            g = pairs(FINE)[phase]
            blank = [0.0] * len(g)
            filters.append([v for c in range(3) for v in (g if c == contrast else blank)])
    count = len(filters)
    weight = constant("fine", (count, 3, FINE, FINE), [v for f in filters for v in f])
    edges = add("Conv", [seen, weight], "edges", strides=[2, 2], pads=[FINE // 2] * 4)  # SIDE / 2
    first = strength(edges, "first", count // 2)
    found += [pooled(first, "first_9", SIDE // 2, 3), pooled(first, "first_1", SIDE // 2, 1)]
    textures = pairs(COARSE)
    each = [v for _ in range(count // 2) for f in textures for v in f]
    total = count // 2 * len(textures)
    weight = constant("coarse", (total, 1, COARSE, COARSE), each)
    waves = add(
        "Conv", [first, weight], "waves", group=count // 2, strides=[2, 2], pads=[COARSE // 2] * 4
    )  # SIDE / 4
    second = strength(waves, "second", total // 2)
    found.append(pooled(second, "second_1", SIDE // 4, 1))
    every = add("Concat", found, "strengths", axis=1)
    # Strengths differ by factors: a logarithm makes differences of them. Tones may be negative.
    size = 27 + 9 * count // 2 + count // 2 + total // 2
    root = add("Sqrt", [add("Abs", [every], "sizes")], "roots")
    add("Mul", [root, add("Sign", [every], "signs")], "image_embeds")
    editor.add_nodes(nodes)
    editor.add_input(Info("pixel_values", FLOAT, ["batch", 3, SIDE, SIDE]))
    editor.add_output(Info("image_embeds", FLOAT, ["batch", size]))
    data = editor.write(None)
    assert data is not None
    return data


def main(path: str) -> None:
    """Writes the package, and beside it a folder of the model, which the room's export reads."""
    size = {"height": SIDE, "width": SIDE}
    config = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"shortest_edge": SIDE},
        "do_center_crop": True,
        "crop_size": size,
        "do_resize": True,
        "resample": 2,
        "do_rescale": True,
        "do_normalize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    config["image_processor_type"] = "CLIPImageProcessor"
    files = {
        "model.onnx": BytesSource(model(), "model.onnx"),
        "config.json": BytesSource(b'{"model_type": "scattering"}', "config.json"),
        "preprocessor_config.json": BytesSource(json.dumps(config).encode(), "config"),
    }
    package = compile_task(files, "image-classification", personalize=True)
    with open(path, "wb") as file:
        package.write(file)
    folder = os.path.splitext(path)[0]
    os.makedirs(os.path.join(folder, "onnx"), exist_ok=True)
    for name, source in files.items():
        place = os.path.join(folder, "onnx" if name == "model.onnx" else "", name)
        with open(place, "wb") as file:
            file.write(source.read_all(1 << 24))


if __name__ == "__main__":
    main(sys.argv[1])
