"""A small SmolLM2 (tests/zoo/models/q4_llama: optimum's export with 4-bit weights), the same in
float32, and the same in PyTorch, for tests of adapters.
"""

import math
from pathlib import Path

import numpy as np
import onnx
import torch
from edgewise.onnx import BytesSource, read_model
from edgewise.training.language_model import causal_lm_inputs
from onnx import helper, numpy_helper

MODELS = Path(__file__).parents[1] / "zoo" / "models"
CONFIG = dict(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=256,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    max_position_embeddings=64,
    tie_word_embeddings=True,
)
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def _floats(model, node):
    """The [N, K] float weight of a MatMulNBits node."""
    arrays = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    a = {x.name: helper.get_attribute_value(x) for x in node.attribute}
    q, scales = arrays[node.input[1]], arrays[node.input[2]]
    numbers = (
        np.stack([q & 15, q >> 4], -1).reshape(a["N"], -1, a["block_size"]).astype(np.float32) - 8
    )
    return (numbers * scales.reshape(a["N"], -1, 1)).reshape(a["N"], -1)[:, : a["K"]]


def base(kind):
    """The bytes of the model. kind: "q4", or "fp32" and "fp16": with the weights that the 4-bit
    ones stand for, as MatMul does with them; float16 is cast up.
    """
    model = onnx.load(MODELS / "q4_llama" / "model.onnx")
    if kind == "q4":
        return model.SerializeToString()
    nodes = []
    for n in model.graph.node:
        if n.op_type != "MatMulNBits":
            nodes.append(n)
            continue
        name, w = n.input[1].removesuffix("_Q4"), np.ascontiguousarray(_floats(model, n).T)
        if kind == "fp16":
            w = w.astype(np.float16)
            nodes.append(helper.make_node("Cast", [name], [name + "_float"], to=1))
        model.graph.initializer.append(numpy_helper.from_array(w, name))
        nodes.append(
            helper.make_node(
                "MatMul",
                [n.input[0], name + "_float" * (kind == "fp16")],
                n.output,
                n.name.removesuffix("_Q4"),
            )
        )
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    used = {i for n in nodes for i in n.input}
    kept = [i for i in model.graph.initializer if i.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def graph(kind):
    return read_model(BytesSource(base(kind), f"{kind}.onnx"))


def shapes(g, batch=2, sequence=16):
    return causal_lm_inputs(g, batch, sequence)


def batch(seed=0, rows=2, sequence=16):
    """Token ids and labels; the second row's last ones are padding."""
    ids = np.random.default_rng(seed).integers(3, 256, (rows, sequence))
    labels = ids.copy()
    labels[-1, -4:] = -100
    return {"input_ids": ids, "labels": labels}


def pytorch():
    """transformers' LlamaForCausalLM with the weights that the 4-bit ones stand for."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = onnx.load(MODELS / "q4_llama" / "model.onnx")
    lm = LlamaForCausalLM(LlamaConfig(**CONFIG, attn_implementation="eager")).eval()
    weights = {
        i.name: torch.tensor(numpy_helper.to_array(i))
        for i in model.graph.initializer
        if i.name.startswith("model.")
    }
    for n in model.graph.node:
        if n.op_type == "MatMulNBits":
            weights[n.name.strip("/").removesuffix("/MatMul_Q4").replace("/", ".") + ".weight"] = (
                torch.tensor(_floats(model, n))
            )
    missing, unexpected = lm.load_state_dict(weights, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected
    lm.tie_weights()
    return lm.requires_grad_(False)


class Lora(torch.nn.Module):
    """base(x) + scaling * B(A(x)), as PEFT computes it."""

    def __init__(self, base, a, b, scaling):
        super().__init__()
        self.base, self.a, self.b, self.scaling = (
            base,
            torch.nn.Parameter(torch.tensor(a)),
            torch.nn.Parameter(torch.tensor(b)),
            scaling,
        )

    def forward(self, x):
        if isinstance(self.base, torch.nn.Embedding):
            return (
                self.base(x) + self.scaling * torch.nn.functional.embedding(x, self.a.T) @ self.b.T
            )
        if isinstance(self.base, torch.nn.Conv2d):
            c = self.base
            return c(x) + self.scaling * torch.nn.functional.conv2d(
                torch.nn.functional.conv2d(x, self.a, None, c.stride, c.padding, c.dilation), self.b
            )
        return self.base(x) + self.scaling * (x @ self.a.T) @ self.b.T


def adapt(model, session, seed=0):
    """Puts the session's adapters into a PyTorch model, B with random numbers in both.

    Returns {name of the state: Parameter}.
    """
    out, rng = {}, np.random.default_rng(seed)
    for layer in session.program.lora_layers:
        b = np.asarray(session.get(layer.b))
        b = (rng.standard_normal(b.shape) * 0.05).astype(np.float32)
        session.set(layer.b, b)
        parent, _, last = layer.name.rpartition(".")
        owner = model.get_submodule(parent)
        made = Lora(getattr(owner, last), np.array(session.get(layer.a)), b, layer.scaling)
        setattr(owner, last, made)
        out[layer.a], out[layer.b] = made.a, made.b
    return out


def scaling(config):
    return config.lora_alpha / (math.sqrt(config.r) if config.use_rslora else config.r)
