"""Language models with states of fixed shape on a GPU: logits are onnxruntime's."""

import numpy as np
import pytest
from edgewise import CausalLM

from tests.generation.hybrid import NAMES, VOCAB, Loop, hybrid_model

from .adapters import gpu

CLOSE = 1e-4  # kernels on a GPU add in another order


@pytest.mark.parametrize("exporter", NAMES)
def test_states(tmp_path, exporter):
    """Prompts in several runs, single tokens, a cut, and a copy."""
    model = hybrid_model(exporter)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    lm, loop = CausalLM(tmp_path, capacity=96, engine=gpu()), Loop(model, exporter)

    def check(sequence, ids, expected):
        got = lm.logits(lm.forward(sequence, ids))
        np.testing.assert_allclose(got, expected, atol=CLOSE, rtol=CLOSE)

    for n in (1, 5, 17, 33):
        ids = [int(x) for x in np.random.default_rng(n).integers(0, VOCAB, n)]
        sequence, copy = lm.open(), lm.open()
        check(sequence, ids, loop.start().logits(ids))
        check(sequence, [3], loop.logits([3]))
        lm.copy(sequence, copy)
        check(copy, [4], loop.logits([4]))
        lm.truncate(sequence, n - 1)
        check(sequence, [5, 6], loop.start().logits([*ids[:-1], 5, 6]))
    lm.free()
