"""What errors quote from files."""

import json
import unicodedata

import numpy as np
import pytest
import safetensors.numpy
from edgewise.errors import EdgewiseError
from edgewise.training.peft import load_adapter, save_adapter

from ..runs import session
from ..seeds import model, node, value

BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_errors_hold_no_controls():
    """Names of a model are printed to terminals: no escape sequence, no other direction."""
    for code in range(0x3000):
        text = str(EdgewiseError(f"a{chr(code)}b", chr(code), chr(code)))
        assert not [x for x in text if unicodedata.category(x) == "Cc"], hex(code)
        assert not [x for x in text if unicodedata.bidirectional(x) in BIDI], hex(code)


def test_long_lists_are_cut_between_entries():
    names = [f"option_{i:03}" for i in range(200)]
    error = EdgewiseError(f"there are: {', '.join(names)}", "x" * 900, "y" * 900)
    first, last = error.what.removeprefix("there are: ").split(", ... ")
    assert {*first.split(", "), *last.split(", ")} < {*names} and len(error.what) <= 700
    assert error.where == f"{'x' * 240} ... {'x' * 50}"


def test_names_of_a_model():
    name = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.x"
    with pytest.raises(EdgewiseError) as e:
        session(model([node(name, "x", "y")], [value("x")], [value("y")]))
    assert "title" in str(e.value) and not set("\x1b\x07\x9b\u202e") & set(str(e.value))


def test_halves_of_characters_in_adapters():
    """JSON of PEFT and of safetensors may hold them as escapes: they are written as such."""
    weights = {
        f"base_model.model.layers.0.q_proj.lora_{s}.weight": np.ones(shape, "f4")
        for s, shape in (("A", (2, 16)), ("B", (8, 2)))
    }
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    text = json.dumps({**config, "base_model_name_or_path": "a\ud800"}).encode()
    assert b"\\ud800" in text
    file = safetensors.numpy.save(weights)
    adapter = load_adapter({"adapter_config.json": text, "adapter_model.safetensors": file})
    saved = save_adapter(adapter)
    assert json.loads(saved["adapter_config.json"])["base_model_name_or_path"] == "a\ud800"
    assert load_adapter(saved).config == adapter.config
