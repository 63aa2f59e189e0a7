"""Samples and states of graphs from sound to sound, on both forms."""

import pytest
from edgewise.errors import ModelError
from edgewise.logic.speech.graphs import Port, Signature

from .forms import both, module


def graph(inputs, outputs):
    ports = [[Port(n, d, list(s)) for n, d, *s in of] for of in (inputs, outputs)]
    return Signature(*ports)


@both
def test_states(form):
    rules = module(form, "speech.enhancement")
    silero = graph(
        [("input", "float32", -1, -1), ("state", "float32", 2, -1, 128), ("sr", "int64")],
        [("output", "float32", -1, 1), ("stateN", "float32", -1, -1, -1)],
    )
    found = rules.model_of(silero)
    assert [(a.name, b.name) for a, b in found.states] == [("state", "stateN")]
    assert (found.sound.name, found.output.name, found.rate.name) == ("input", "output", "sr")
    steps = graph(
        [("frame", "float32", 1, 256), ("h_in", "float32", 2, 1, 8), ("c_in", "float32", 2, 1, 8)],
        [("y", "float32", 1, 256), ("h_out", "float32", 2, 1, 8), ("c_out", "float32", 2, 1, 8)],
    )
    found = rules.model_of(steps)
    assert [(a.name, b.name) for a, b in found.states] == [("h_in", "h_out"), ("c_in", "c_out")]
    assert found.size == 256 and found.rate is None
    for wrong in (
        [("mix", "float32", 1, 257, 1, 2)],
        [("a", "float32", 1, -1), ("b", "float32", 1)],
    ):
        with pytest.raises(ModelError, match="samples"):
            rules.model_of(graph(wrong, [("y", "float32", 1, -1)]))
