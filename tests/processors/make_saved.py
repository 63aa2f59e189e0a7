"""Writes tests/conformance/image_configs.json: what every image processor of transformers that
Edgewise knows writes to preprocessor_config.json; and image_numbers.json: the numbers of those that
need torchvision or SciPy, which the tests do not have.

    python -m tests.processors.make_saved

Needs torchvision 0.28, SciPy 1.17 and transformers: 4.57.6 first, then 5.24.0; each adds its own
configurations, the numbers are those of 5.24.0.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
from edgewise.compiler.processors.images.types import TYPES

FOLDER = Path(__file__).parents[1] / "conformance"
SQUARE = {"height": 12, "width": 12}
NUMBERS = [
    ("Owlv2ImageProcessorPil", {"size": SQUARE}),
    ("RfDetrImageProcessor", {"size": SQUARE}),
    ("RfDetrImageProcessor", {"size": {"shortest_edge": 10, "longest_edge": 14}}),
    ("EomtImageProcessorPil", {"size": {"shortest_edge": 12, "longest_edge": 14}, "do_pad": True}),
    ("EomtImageProcessorPil", {"size": {"shortest_edge": 12, "longest_edge": None}}),
    ("Sam2ImageProcessor", {"size": SQUARE}),
    ("Sam3ImageProcessor", {"size": SQUARE}),
]
SIZES = [(24, 17), (9, 30)]


def picture(height, width):
    """Areas and noise, the same ones everywhere."""
    y, x = np.mgrid[:height, :width]
    planes = [(x * 37 + y * 11) % 97 + 100 * (x > width // 3), 8 * y, (x * y * 7) % 251]
    return np.stack(planes, -1).clip(0, 255).astype(np.uint8)


def saved():
    """{class: its preprocessor_config.json}"""
    import transformers

    found = {}
    for name in TYPES:
        for form in (name, f"{name}Fast", f"{name}Pil"):
            kind = getattr(transformers, form, None)
            if kind is None:
                continue
            try:
                made = kind()
            except ImportError:
                continue
            with tempfile.TemporaryDirectory() as folder:
                made.save_pretrained(folder)
                found[form] = json.loads(Path(folder, "preprocessor_config.json").read_text())
    return found


def numbers():
    """The results of processors for pictures."""
    import transformers
    from PIL import Image

    made = []
    for name, fields in NUMBERS:
        processor = getattr(transformers, name)(**fields)
        for size in SIZES:
            values = processor(images=Image.fromarray(picture(*size)), return_tensors="pt")
            array = values["pixel_values"].numpy()
            made.append(
                {
                    "config": json.loads(processor.to_json_string()),
                    "picture": size,
                    "shape": array.shape,
                    "values": [round(float(x), 3) for x in array.flatten()],
                }
            )
    return made


def main():
    import transformers

    path = FOLDER / "image_configs.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[transformers.__version__] = saved()
    path.write_text(json.dumps(known, separators=(",", ":")) + "\n")
    if hasattr(transformers, "RfDetrImageProcessor"):
        text = json.dumps(numbers(), separators=(",", ":"))
        (FOLDER / "image_numbers.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
