"""What pages share with Python's sessions is written as emit.py makes it."""

from pathlib import Path

from edgewise.session.emit import PATH, text


def test_the_generated_file_is_current():
    assert (Path(__file__).parents[2] / PATH).read_text("utf-8") == text(), "run `make gen`"


def test_sizes_of_elements():
    """Manifests know them without the operators' module."""
    from edgewise.manifest import _BITS
    from edgewise.session.emit import BITS

    assert _BITS == BITS
