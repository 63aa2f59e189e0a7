"""The small step that pages run while they wait for a model."""

import math
import re
import struct
from base64 import b64decode
from pathlib import Path

import pytest
from edgewise.compiler.training.warm import VOCAB, warm_plan
from edgewise.engine import Buffer


def test_runs_on_zeros(engine):
    """Nothing has been learned: every class is as likely as any other; and whoever runs it need not
    know what its slots are.
    """
    plan = warm_plan()
    loaded, held = engine.load(plan), [engine.alloc(slot.nbytes) for slot in plan.slots]
    try:
        for i, address in enumerate(held):
            loaded.bind(i, Buffer(address, plan.slots[i].nbytes))
        loaded.init()
        for _ in range(3):
            loaded.run()
        (loss,) = struct.unpack(
            "<f",
            engine.read(held[next(i for i, s in enumerate(plan.slots) if s.name == "loss")], 4),
        )
        assert loss == pytest.approx(math.log(VOCAB), rel=1e-6)
    finally:
        loaded.free()
        for address in held:
            engine.free(address)


def test_text():
    text = (Path(__file__).parents[2] / "web/src/gen/warm.ts").read_text()
    short = b64decode(re.search(r'"([A-Za-z0-9+/=]+)"', text)[1])
    assert re.sub(rb"\0(.)", lambda m: bytes(m[1][0]), short, flags=re.S) == warm_plan().data
