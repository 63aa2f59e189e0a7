"""Writes tests/conformance/media.json with Pillow: `python tests/processors/make_media.py`.

Pictures and sound come from a linear congruential generator, so the file has digests only.
"""

from __future__ import annotations

import array
import hashlib
import json
import struct
from pathlib import Path

FILTERS = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
SIZES = [  # height, width, out_height, out_width, box
    (31, 47, 12, 20, None),
    (31, 47, 64, 90, None),
    (120, 20, 33, 18, None),  # the height first
    (90, 24, 15, 60, None),
    (9, 200, 9, 13, None),
    (200, 9, 13, 9, None),
    (40, 50, 17, 23, (3.25, 2.5, 41.75, 33.0)),
    (3, 2, 37, 41, (0.5, 0.25, 1.5, 2.75)),
    (1, 1, 5, 7, None),
    (77, 65, 1, 1, None),
]
RATES = [(44100, 16000), (48000, 16000), (8000, 16000), (44056, 16000), (16000, 22050)]


def noise(count: int) -> bytes:
    """Bytes of the generator; web/test/media/media.test.ts has the same one."""
    state, out = 1, bytearray()
    for _ in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return bytes(out)


def floats(count: int) -> bytes:
    """float32 from -1 to 1, which are exact."""
    return array.array("f", ((b - 128) / 128 for b in noise(count))).tobytes()


def digest(data: bytes) -> str:
    """The first half of a SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]


def cases() -> dict[str, list[dict[str, object]]]:
    """Results of Pillow."""
    from PIL import Image

    images: list[dict[str, object]] = []
    for height, width, out_height, out_width, box in SIZES:
        for channels, mode in ((1, "L"), (3, "RGB"), (4, "CMYK"), (0, "F")):
            values = height * width * max(channels, 1)
            data = noise(values) if channels else floats(values)
            picture = Image.frombytes(mode, (width, height), data)
            for name in FILTERS:
                size, kind = (out_width, out_height), Image.Resampling[name.upper()]
                out = picture.resize(size, kind, box=box).tobytes()
                images.append(
                    {
                        "sizes": [height, width, max(channels, 1), out_height, out_width],
                        "float": not channels,
                        "filter": name,
                        "box": box,
                        "digest": digest(out),
                    }
                )
    return {"images": images}


def sounds() -> list[dict[str, object]]:
    """Results of the engine, natively: the page must have the same bits."""
    from edgewise.processors.media import resample_audio

    source = memoryview(floats(5000)).cast("f")
    out = []
    for rate, to_rate in RATES:
        result = resample_audio(source, rate, to_rate)
        values = struct.unpack(f"<{result.size}f", result.data)
        out.append(
            {
                "rates": [rate, to_rate],
                "length": len(values),
                "values": [round(v, 7) for v in values[100:104]],
                "digest": digest(bytes(result.data)),
            }
        )
    return out


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "conformance" / "media.json"
    text = json.dumps({**cases(), "sounds": sounds()})
    path.write_text(text.replace('{"sizes"', '\n{"sizes"').replace('{"rates"', '\n{"rates"') + "\n")
