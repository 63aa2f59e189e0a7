"""Keys and values in 8 and 4 bits: how far results are from those of float32, packages, and models
and devices that do not have them.
"""

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgewise import CausalLM, generate
from edgewise.compiler.compile import compile_package
from edgewise.compiler.targets import target_named
from edgewise.errors import InputError, UnsupportedOp
from edgewise.host.session.open import folder_files

from tests.training import llama

DEMO = Path(__file__).parents[2] / "web" / "demo" / "model"
SEQ2SEQ = Path(__file__).parents[1] / "seq2seq" / "models" / "t5"


def loss_of(lm, ids):
    """The mean negative log-likelihood of tokens after others, each read alone."""
    sequence, total = lm.open(), 0.0
    for token, after in zip(ids, ids[1:]):
        scores = np.array(lm.logits(lm.forward(sequence, [token])), np.float64)
        high = scores.max()
        total += math.log(np.exp(scores - high).sum()) + high - scores[after]
    lm.close(sequence)
    return total / (len(ids) - 1)


def test_perplexity():
    """Of texts that a trained model writes: within 1 % of float32's, and the caches as small as
    documented.
    """
    writer = CausalLM(DEMO, dtype="q4", capacity=160, cache_dtype="float32", cache_bytes=0)
    fields = {"do_sample": True, "temperature": 1.0, "top_k": 0, "max_new_tokens": 140}
    fields["eos_token_id"] = None
    texts = [generate(writer, [1], seed=seed, **fields)[0] for seed in range(4)]
    writer.free()
    losses, sizes = {}, {}
    for dtype in ("float32", "float16", "int8", "int4"):
        lm = CausalLM(DEMO, dtype="q4", capacity=160, cache_dtype=dtype, cache_bytes=0)
        losses[dtype] = sum(loss_of(lm, ids) for ids in texts) / len(texts)
        sizes[dtype] = lm.bytes_for(160)
        head = lm.config["hidden_size"] // lm.config["num_attention_heads"]
        assert lm.cache_dtype == dtype
        lm.free()
    values = sizes["float32"] // 4
    blocks = values // head * -(-head // 32)
    assert sizes["int8"] == 34 * blocks and sizes["int4"] == 18 * blocks
    for dtype, most in (("float16", 0.0005), ("int8", 0.002), ("int4", 0.01)):
        assert abs(math.exp(losses[dtype] - losses["float32"]) - 1) < most, (dtype, losses)
    assert losses["int4"] != losses["float32"]


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_packages_and_beams(tmp_path, dtype):
    model, package = tmp_path / "model.onnx", tmp_path / "m.edge"
    model.write_bytes(llama.base("fp32"))
    sources, _ = folder_files(tmp_path)
    with open(package, "wb") as f:
        compile_package(sources, capacity=200, cache_dtype=dtype).write(f)
    lm, same = CausalLM(model, capacity=200, cache_dtype=dtype), CausalLM(package)
    assert same.cache_dtype == dtype
    prompt = [(7 * i) % 90 + 1 for i in range(150)]
    for fields in ({"do_sample": False}, {"num_beams": 3}, {"do_sample": True, "seed": 4}):
        fields["max_new_tokens"] = 12
        assert generate(lm, prompt, **fields) == generate(same, prompt, **fields)
    with pytest.raises(InputError, match=f"as {dtype}, not as 'float16'"):
        CausalLM(package, cache_dtype="float16")


def test_refused(tmp_path):
    """On WebGPU, for encoder-decoder models, of keys that are transposed, and other names."""
    model = onnx.load_from_string(llama.base("fp32"))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    sources, _ = folder_files(tmp_path)
    with pytest.raises(InputError, match="int4 on the device 'webgpu'.*float16"):
        compile_package(sources, cache_dtype="int4", target=target_named("webgpu"))
    with pytest.raises(InputError, match="'int5'.*float32 or float16 or int8 or int4"):
        CausalLM(path, cache_dtype="int5")
    from edgewise.compiler.compile.seq2seq import compile_seq2seq

    with pytest.raises(InputError, match="'int8'.*Give float32 or float16"):
        compile_seq2seq(folder_files(SEQ2SEQ)[0], cache_dtype="int8")
    info = onnx.helper.make_tensor_value_info
    kinds = {"past.0.key": ["b", 2, 8, "past"], "present.0.key": ["b", 2, 8, "all"]}
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Gather", ["table", "input_ids"], ["x"]),
            onnx.helper.make_node("Reshape", ["x", "heads"], ["by_head"]),
            onnx.helper.make_node("Transpose", ["by_head"], ["new"], perm=[0, 2, 3, 1]),
            onnx.helper.make_node("Concat", ["past.0.key", "new"], ["present.0.key"], axis=3),
            onnx.helper.make_node("ReduceSum", ["present.0.key", "axes"], ["sum"], keepdims=0),
            onnx.helper.make_node("Reshape", ["sum", "one"], ["row"]),
            onnx.helper.make_node("Add", ["x", "row"], ["logits"]),
        ],
        "transposed",
        [info("input_ids", 7, ["b", "s"]), info("past.0.key", 1, kinds["past.0.key"])],
        [info("logits", 1, ["b", "s", 16]), info("present.0.key", 1, kinds["present.0.key"])],
        [
            onnx.numpy_helper.from_array(np.random.rand(16, 16).astype("f4"), "table"),
            onnx.numpy_helper.from_array(np.array([0, -1, 2, 8]), "heads"),
            onnx.numpy_helper.from_array(np.array([3]), "axes"),
            onnx.numpy_helper.from_array(np.array([0, 1, 16]), "one"),
        ],
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    path.write_bytes(made.SerializeToString())
    CausalLM(path, capacity=40).free()
    with pytest.raises(UnsupportedOp, match="4 bits.*float16"):
        CausalLM(path, capacity=40, cache_dtype="int4")
