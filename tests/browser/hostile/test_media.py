"""Damaged pictures and sounds in a page: each is decoded, or refused in words."""

import base64
import io
import struct
import subprocess
import wave
import zlib

import numpy as np
import pytest
from PIL import Image

from ..conftest import WEB

SEED = 11
EACH = 60
BUILD = ("__VERSION__", "__COMPILER__", "__WHEEL__")  # as web/bundle.mjs


@pytest.fixture(scope="module")
def modules(files):
    """The addresses of the modules that decode, as the worker and the page have them."""
    out = {}
    for name, source in {
        "pictures": "worker/pipelines/images/decode.ts",
        "sounds": "page/pipelines/sounds.ts",
        "samples": "worker/pipelines/sounds/read.ts",
    }.items():
        subprocess.run(
            [
                WEB / "node_modules/.bin/esbuild",
                WEB / "src" / source,
                "--bundle",
                "--format=esm",
                *(f'--define:{name}="0"' for name in BUILD),
                f"--outfile={files / name}.js",
                "--log-level=warning",
            ],
            check=True,
        )
        out[name] = f"/files/{name}.js"
    return out


def damaged(data, rng, count):
    """Copies of a file with bytes changed, ranges removed or repeated, and sizes exaggerated."""
    for _ in range(count):
        b = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            # headers are where decoders go wrong
            at = int(rng.integers(0, min(len(b), 64) if rng.random() < 0.7 else len(b)))
            match rng.integers(0, 4):
                case 0:
                    b[at] = rng.integers(0, 256)
                case 1:
                    b[at : at + 4] = struct.pack(
                        "<I", int(rng.choice([0, 1, 2**31 - 1, 2**32 - 1]))
                    )
                case 2:
                    del b[at : at + int(rng.integers(1, 40))]
                case 3:
                    b[at:at] = b[: int(rng.integers(1, 40))]
        yield bytes(b)


def png(width, height):
    """A file of few bytes that stands for many pixels: most of them are missing."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + chunk(b"IDAT", zlib.compress(bytes(9999)))
        + chunk(b"IEND", b"")
    )


def pictures():
    rng = np.random.default_rng(SEED)
    pixels = Image.fromarray(rng.integers(0, 255, (24, 20, 3), np.uint8))
    for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "ICO"):
        out = io.BytesIO()
        pixels.save(out, kind)
        yield from damaged(out.getvalue(), rng, EACH)
    for size in ((65535, 65535), (2**31 - 1, 1), (0, 5), (12000, 12000)):
        yield png(*size)
    yield from (b"", b"\x89PNG", b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>")


def sounds():
    rng = np.random.default_rng(SEED)
    for width in (1, 2, 3, 4):
        out = io.BytesIO()
        with wave.open(out, "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(width)
            file.setframerate(16000)
            file.writeframes(rng.integers(0, 255, 600 * width, np.uint8).tobytes())
        yield from damaged(out.getvalue(), rng, EACH)
    others = (b"fLaC\0\0\0\x22", b"OggS" + bytes(24) + b"\x01vorbis", b"ID3\x04\0\0\x7f\x7f")
    for magic in (*others, b"\xff\xfb\x90\0", b"\0\0\0\x20ftypM4A "):
        yield from damaged(magic + rng.integers(0, 255, 900, np.uint8).tobytes(), rng, EACH // 6)
    yield b""


DECODE = """
    const { readImage } = await import(arg.modules.pictures);
    const { sendableSound } = await import(arg.modules.sounds);
    const { readSound } = await import(arg.modules.samples);
    const decode = {
        pictures: async (bytes) => {
            const { width, height, data } = await readImage(new Blob([bytes]));
            return data.length === 4 * width * height;
        },
        sounds: async (bytes) => {
            const sound = await sendableSound(bytes);
            const samples = await readSound({}, { ...sound, sampling_rate: 0 }, 16000);
            return samples.length > 0 && samples.every(Number.isFinite);
        },
    }[arg.kind];
    const out = { read: 0, refused: 0, odd: [] };
    for (const [i, text] of arg.data.entries())
        try {
            if (await decode(Uint8Array.from(atob(text), (x) => x.charCodeAt(0)))) out.read++;
            else out.odd.push([i, 'wrong sizes']);
        } catch (e) {
            if (e.name === 'InputError' && e.what && e.remedy) out.refused++;
            else out.odd.push([i, `${e.name}: ${e.message}`]);
        }
    return out;
"""


@pytest.mark.parametrize("kind", ["pictures", "sounds"])
def test_damaged_files(visit, server, modules, kind):
    data = [base64.b64encode(d).decode() for d in {"pictures": pictures, "sounds": sounds}[kind]()]
    got = visit(server).run(DECODE, {"modules": modules, "kind": kind, "data": data})
    assert got["odd"] == [] and got["read"] > 20 and got["refused"] > 100, got
