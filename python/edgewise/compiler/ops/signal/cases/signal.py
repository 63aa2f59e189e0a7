"""Test cases of ops/signal/signal.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import OPS
from ..signal import dft, mel, stft

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@dft.cases
def dft_cases(t: Toolbox) -> Cases:
    numpy = {"trust": "onnx", "why": "onnxruntime loses digits with its own recurrences"}
    for length in (1, 2, 7, 16, 33, 600, 1031, 1200):
        for parts in (1, 2):
            yield t(t.f(2, length, parts), tol=1e-4, opset=17, axis=1, **numpy)
            yield t(t.f(2, length, parts), tol=1e-4, opset=20, inverse=1, **numpy)
        yield t(t.f(2, length, 1), tol=1e-4, opset=20, onesided=1, **numpy)
    for length in (2, 5, 17, 601):
        yield t(
            t.f(2, length, 2),
            tol=1e-4,
            opset=20,
            inverse=1,
            onesided=1,
            trust="onnx",
            why="newer than onnxruntime's",
        )
    yield t(
        t.f(2, 5, 2),
        9,
        tol=1e-4,
        opset=20,
        inverse=1,
        onesided=1,
        trust="onnx",
        why="newer than onnxruntime's",
    )
    for length in (5, 12, 20):
        for axis in (0, 1, -2):
            yield t(t.f(3, 12, 2), length, axis, tol=1e-4, opset=20, **numpy)
        yield t(t.f(3, 12, 1), length, 1, tol=1e-4, opset=20, onesided=1, **numpy)
    yield t(t.f(2, 3, 10, 1), tol=1e-4, opset=17, axis=2, **numpy)
    yield t(t.f(2, 700, 2, dtype="float64"), tol=1e-9, opset=17, axis=1, **numpy)
    yield t(t.f(0, 4, 1), opset=17, axis=1, **numpy)


@stft.cases
def stft_cases(t: Toolbox) -> Cases:
    numpy = {"trust": "onnx", "why": "onnxruntime loses digits with its own recurrences"}
    for onesided in (0, 1):
        yield t(t.f(2, 100, 1), 7, None, 16, tol=1e-4, onesided=onesided, **numpy)
        yield t(t.f(1, 100, 1), 8, t.f(16), tol=1e-4, onesided=onesided, **numpy)
        yield t(t.f(1, 100, 1), 10, t.f(25), 25, tol=1e-4, onesided=onesided, **numpy)
    yield t(t.f(2, 64, 2), 16, t.f(32), tol=1e-4, onesided=0, **numpy)
    yield t(t.f(1, 2000, 1), 160, t.f(1200), tol=1e-4, **numpy)
    yield t(
        t.f(2, 100),
        5,
        t.f(20),
        tol=1e-3,
        trust="ort",
        why="ONNX's reference needs a last axis of 1",
    )


@mel.cases
def mel_cases(t: Toolbox) -> Cases:
    for bins, length, rate, low, high in (
        (8, 16, 8192, 0.0, 4096.0),
        (20, 400, 16000, 20.0, 7600.0),
        (80, 512, 22050, 0.0, 8000.0),
    ):
        yield t(bins, length, rate, low, high, tol=1e-4)
    yield t(8, 64, 8192, 0.0, 4096.0, output_datatype=11)


def _window_cases(t: Toolbox) -> Cases:
    alone = {"trust": "onnx", "why": "onnxruntime computes it in single precision"}
    for size in (2, 10, 300):
        for periodic in (0, 1):
            yield t(size, periodic=periodic, tol=1e-4, **alone)
    yield t(10, output_datatype=11, **alone)
    yield t(10, output_datatype=10, tol=2e-2, trust="onnx", why="it computes in half precision")
    yield t(t.of("int32", 12), **alone)


for _name in ("HannWindow", "HammingWindow", "BlackmanWindow"):
    OPS["", _name].cases(_window_cases)
