"""Writes tests/conformance/audio/sounds.json: WAV files of all encodings, and the samples that
Python reads from them. test_sound.py compares these with soundfile's.
"""

from __future__ import annotations

import array
import base64
import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

from edgewise.processors.audio.decode import read_sound

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
# kind, bits, channels, Hz, Hz of the samples that are read
CASES = [
    (PCM, 8, 1, 16000, 16000),
    (PCM, 16, 1, 16000, 16000),
    (PCM, 16, 2, 16000, 16000),
    (PCM, 24, 3, 16000, 16000),
    (PCM, 32, 1, 16000, 16000),
    (FLOAT, 32, 2, 16000, 16000),
    (FLOAT, 64, 1, 16000, 16000),
    (EXTENSIBLE, 24, 2, 16000, 16000),
    (PCM, 16, 2, 44100, 16000),
    (FLOAT, 32, 1, 8000, 16000),
]
FRAMES = 40


def wav(kind: int, bits: int, channels: int, rate: int) -> bytes:
    """A file whose channels are different sines. A chunk of odd length precedes the samples, half
    a frame follows them, and the length of the last chunk is that of an endless stream.
    """
    count = FRAMES * channels
    values = [0.97 * math.sin(0.3 * i + 1.7 * (i % channels)) for i in range(count)]
    if kind == FLOAT:
        data = struct.pack(f"<{count}{'f' if bits == 32 else 'd'}", *values)
    else:
        ints = [round(v * (2 ** (bits - 1) - 1)) + (128 if bits == 8 else 0) for v in values]
        data = b"".join(i.to_bytes(bits // 8, "little", signed=bits > 8) for i in ints)
    block = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * block, block, bits)
    if kind == EXTENSIBLE:
        form += struct.pack(
            "<HHIH14s", 22, bits, 0, PCM, b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
        )
    body = b"WAVE" + b"LIST\3\0\0\0abc\0" + b"fmt " + struct.pack("<I", len(form)) + form
    body += b"data" + b"\xff\xff\xff\xff" + data + data[: block // 2]
    return b"RIFF\xff\xff\xff\xff" + body


def cases() -> list[dict[str, Any]]:
    """Files and the samples in them."""
    out = []
    for kind, bits, channels, rate, to_rate in CASES:
        file = wav(kind, bits, channels, rate)
        samples = array.array("f", bytes(memoryview(read_sound(file, to_rate).samples.data)))
        out.append(
            {
                "wav": base64.b64encode(file).decode(),
                "rate": to_rate,
                "count": len(samples),
                "digest": hashlib.sha256(samples.tobytes()).hexdigest()[:32],
            }
        )
    return out


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "conformance" / "audio" / "sounds.json"
    path.write_text(json.dumps(cases()).replace('{"wav"', '\n{"wav"') + "\n")
