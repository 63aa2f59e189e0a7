"""Errors that both languages raise have one text: the vectors of tests/conformance/errors.json,
which web/test/text/errors.test.ts and
tests/logic/test_generation.py read as well. Packages are compared in
tests/hostile/test_readers.py, tokenizers and regular expressions in test_text_limits.py.
"""

import json
import struct

import pytest
from conformance.vectors import vectors
from edgewise.errors import EdgewiseError, InputError
from edgewise.logic.generation.config import error_for
from edgewise.logic.generation.fields import ERRORS
from edgewise.seeds import check_seed
from edgewise.text import GenerationConfig
from edgewise.training.safetensors import load_safetensors

VECTORS = vectors("errors")


def raised(function, *arguments):
    with pytest.raises(EdgewiseError) as e:
        function(*arguments)
    return [type(e.value).__name__, e.value.what]


def generate(fields):
    config = GenerationConfig(**fields)
    config.validate()
    config.pack(16, 4, 8)


@pytest.mark.parametrize("fields, error", VECTORS["generation"], ids=json.dumps)
def test_generation_fields(fields, error):
    assert raised(generate, fields) == error


@pytest.mark.parametrize("code, error", VECTORS["sampling"], ids=str)
def test_sampling_codes(code, error):
    e = error_for(ERRORS[code])
    assert [type(e).__name__, e.what] == error


@pytest.mark.parametrize("seed, error", VECTORS["seeds"], ids=str)
def test_seeds(seed, error):
    assert raised(check_seed, seed, "seed") == error


@pytest.mark.parametrize("header, data, error", VECTORS["safetensors"], ids=json.dumps)
def test_safetensors(header, data, error):
    text = json.dumps(header, separators=(",", ":")).encode()
    file = struct.pack("<Q", len(text)) + text + bytes(data)
    assert raised(load_safetensors, file) == error


def test_long_lists_are_cut_between_names():
    names = [f"input_{i}" for i in range(1000)]
    begin, end = InputError(", ".join(names)).what.split(" ... ")
    begin, end = begin.rstrip(",").split(", "), end.split(", ")
    assert begin == names[: len(begin)] and end == names[-len(end) :]
    assert len(begin) > 50 and len(end) > 3
    assert len(InputError("x" * 1000).what) == 695
