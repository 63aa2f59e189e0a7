"""What errors quote from files."""

import unicodedata

import pytest
from edgewise.errors import EdgewiseError

from ..runs import session
from ..seeds import model, node, value

BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_errors_hold_no_controls():
    """Names of a model are printed to terminals: no escape sequence, no other direction."""
    for code in range(0x3000):
        text = str(EdgewiseError(f"a{chr(code)}b", chr(code), chr(code)))
        assert not [x for x in text if unicodedata.category(x) == "Cc"], hex(code)
        assert not [x for x in text if unicodedata.bidirectional(x) in BIDI], hex(code)


def test_names_of_a_model():
    name = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.x"
    with pytest.raises(EdgewiseError) as e:
        session(model([node(name, "x", "y")], [value("x")], [value("y")]))
    assert "title" in str(e.value) and not set("\x1b\x07\x9b\u202e") & set(str(e.value))
