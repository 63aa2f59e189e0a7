"""Mixtures of experts that `torch.onnx.export` writes with `NonZero`: logits are onnxruntime's."""

import io

import numpy as np
import onnxruntime
import pytest
from edgewise import CausalLM
from edgewise.compiler.compile.mixtures import static_mixtures
from edgewise.compiler.onnx import as_source, read_model
from edgewise.errors import UnsupportedOp

torch = pytest.importorskip("torch")
VOCAB, WIDTH, EXPERTS, CHOICES = 43, 16, 4, 2


class Mixture(torch.nn.Module):
    """As the blocks of transformers: a router, and a loop over experts.

    Args:
        token_first: whether the mask of an expert is [tokens, choices], as DeepSeek's, or
            [choices, tokens], as Qwen's.
        leak: whether something else depends on which tokens an expert has.
    """

    def __init__(self, token_first, leak=False):
        super().__init__()
        self.token_first, self.leak = token_first, leak
        self.gate = torch.nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = torch.nn.ModuleList(torch.nn.Linear(WIDTH, 24) for _ in range(EXPERTS))
        self.down = torch.nn.ModuleList(torch.nn.Linear(24, WIDTH) for _ in range(EXPERTS))

    def forward(self, x):
        rows = x.reshape(-1, WIDTH)
        weights, chosen = torch.topk(self.gate(rows).softmax(-1), CHOICES, dim=-1)
        order = (2, 0, 1) if self.token_first else (2, 1, 0)
        mask = torch.nn.functional.one_hot(chosen, EXPERTS).permute(*order)
        total = torch.zeros_like(rows)
        for e in range(EXPERTS):
            found = torch.where(mask[e])
            token, choice = found if self.token_first else found[::-1]
            made = self.down[e](torch.nn.functional.silu(self.up[e](rows[token])))
            made = made * weights[token, choice, None]
            total.index_add_(0, token, made.sum(0, keepdim=True) + made if self.leak else made)
        return x + total.reshape(x.shape)


class Model(torch.nn.Module):
    def __init__(self, *options):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCAB, WIDTH)
        self.layers = torch.nn.ModuleList(Mixture(*options) for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, VOCAB)

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def exported(*options):
    torch.manual_seed(0)
    torch.onnx.export(
        Model(*options).eval(),
        (torch.arange(6)[None],),
        out := io.BytesIO(),
        input_names=["input_ids"],
        output_names=["logits"],
        dynamic_axes={"input_ids": {1: "n"}, "logits": {1: "n"}},
        dynamo=False,
    )
    return out.getvalue()


@pytest.mark.parametrize("token_first", [False, True], ids=["choices_tokens", "tokens_choices"])
def test_mixtures(tmp_path, token_first):
    model = exported(token_first)
    (tmp_path / "model.onnx").write_bytes(model)
    reference = onnxruntime.InferenceSession(model)
    assert not any(n.op == "NonZero" for n in static_mixtures(read_model(as_source(model))).nodes)
    lm = CausalLM(tmp_path, capacity=64)
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 16, 33):
        ids = rng.integers(0, VOCAB, n)
        (expected,) = reference.run(["logits"], {"input_ids": ids[None]})
        sequence = lm.open()
        got = lm.logits(lm.forward(sequence, [int(x) for x in ids]))
        np.testing.assert_allclose(got, expected[0, -1], atol=2e-5, rtol=2e-5)
        lm.close(sequence)


def test_what_depends_on_several_rows_is_left(tmp_path):
    """The sum of an expert's rows is not that of all rows: such a graph is not rewritten."""
    model = exported(False, True)
    graph = read_model(as_source(model))
    assert static_mixtures(graph) is graph
    (tmp_path / "model.onnx").write_bytes(model)
    with pytest.raises(UnsupportedOp, match="NonZero"):
        CausalLM(tmp_path, capacity=64)
