"""Registers of plans in manifests: the two readers accept the same."""

import io

import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.onnx import BytesSource

from .packages import joined, split
from .seeds import small
from .test_readers import both, follow_register


@pytest.fixture(scope="module")
def package():
    target = io.BytesIO()
    files = {"model.onnx": BytesSource(small()["attention"][0])}
    compile_inference(files, ({"b": 1, "s": 2}, {"b": 2, "s": 3})).write(target)
    return target.getvalue()


@pytest.mark.parametrize(
    "registers, alone, why",
    [
        ([[1, 5]], True, "needs a register"),
        ([], True, "needs a register"),
        (None, True, "needs a register"),
        ([], False, ""),
        (None, False, "is not a list"),
        ([[1, 5]], False, "is not the size of a dimension"),
        ([[0, 0, 0, 2, 0, 1, 1]], False, ""),
        ([[0, 0, 0, 2, 0, 1]], False, "has 6 entries"),
        ([[0, 1, 0, 2, 0, 1, 1]], False, "not between 0 and 0"),
        ([[0, 0, 0, 2, 0, -9, 1]], False, "has values out of range"),
    ],
)
def test_further_registers(registers, alone, why, package, page):
    """Further registers need a first."""
    manifest, rest = split(package)
    if not alone:
        follow_register(manifest)
    manifest["inference"]["plans"][1]["registers"] = registers
    both(page, joined(manifest, rest), not why, why)
