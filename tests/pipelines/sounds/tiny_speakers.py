"""Language models that speak, with one rule: each token follows another one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

LETTERS = "abcdefghijklmnopqrstuvwxyz:. "


def make_bigrams(folder: Path, tokens: list[str], follows: dict[str, str], bos: str) -> Path:
    """A decoder with keys and values, whose next token follows from the last one, and a tokenizer
    of letters and `tokens`, which are special.
    """
    import tokenizers
    from tokenizers import AddedToken, models, pre_tokenizers, processors

    vocabulary = {c: i for i, c in enumerate(LETTERS)}
    made = tokenizers.Tokenizer(models.WordLevel({**vocabulary, "?": len(LETTERS)}, "?"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens])
    ids = {t: made.token_to_id(t) for t in tokens} | vocabulary
    made.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, ids[bos])]
    )
    (folder / "onnx").mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))
    size = made.get_vocab_size()
    table = np.zeros((size, size), "f4")
    for token, after in follows.items():
        table[ids[token], ids[after]] = 9
    config = {
        "model_type": "llama", "vocab_size": size, "max_position_embeddings": 512,
        "hidden_size": 2, "num_attention_heads": 1, "num_key_value_heads": 1,
        "num_hidden_layers": 1, "head_dim": 2, "eos_token_id": 0,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    save(_graph(table), folder / "onnx" / "model.onnx")
    return folder


def _graph(table: np.ndarray):
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["found"]),
        helper.make_node("Gather", ["rows", "input_ids"], ["row"]),
        helper.make_node("Unsqueeze", ["row", "one"], ["state"]),
        helper.make_node("ReduceSum", ["present.0.key"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
        helper.make_node("Add", ["found", "nothing"], ["logits"]),
    ]
    states = ("key", "value")
    for name in states:
        pair = [f"past_key_values.0.{name}", "state"]
        nodes.insert(3, helper.make_node("Concat", pair, [f"present.0.{name}"], axis=2))
    constants = {
        "table": table, "rows": np.ones((len(table), 2), "f4"), "one": np.array([1]),
        "zero": np.array(0, "f4"),
    }  # fmt: skip

    def info(name, shape, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, shape)

    inputs = [info("input_ids", ["b", "n"], TensorProto.INT64)]
    inputs += [info("attention_mask", ["b", "t"], TensorProto.INT64)]
    inputs += [info(f"past_key_values.0.{n}", ["b", 1, "p", 2]) for n in states]
    outputs = [info("logits", ["b", "n", len(table)])]
    outputs += [info(f"present.0.{n}", ["b", 1, "t", 2]) for n in states]
    graph = helper.make_graph(
        nodes, "bigrams", inputs, outputs,
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def orpheus(frames: int) -> tuple[list[str], dict[str, str], list[list[int]]]:
    """Tokens of Orpheus, which of them follows which, and the codes of SNAC that they are."""
    codes = np.random.default_rng(7).permuted(np.tile(np.arange(frames), (7, 1)), axis=1)
    said = [
        f"<custom_token_{10 + 4096 * i + codes[i, f]}>" for f in range(frames) for i in range(7)
    ]
    special = ["<|begin_of_text|>", "<|eot_id|>", *(f"<custom_token_{i}>" for i in range(6))]
    extra = [f"<custom_token_{10 + 4096 * i}>" for i in range(7)]
    path = ["<custom_token_1>", *said, "<custom_token_2>"]
    order = [[0], [1, 4], [2, 3, 5, 6]]
    streams = [[int(codes[i, f]) for f in range(frames) for i in of] for of in order]
    tokens = [*special, *dict.fromkeys([*said, *extra])]
    return tokens, dict(zip(path, path[1:])), streams


def outetts(frames: int) -> tuple[list[str], dict[str, str], list[list[int]]]:
    """The same of OuteTTS and a codec of two codebooks."""
    codes = np.random.default_rng(8).permuted(np.tile(np.arange(frames), (2, 1)), axis=1)
    said = [f"<|c{i + 1}_{codes[i, f]}|>" for f in range(frames) for i in range(2)]
    special = ["<|im_start|>", "<|im_end|>", "<|text_start|>", "<|text_end|>", "<|audio_start|>"]
    special += ["<|audio_end|>", "<|code|>", "<|word_end|>", "<|word_start|>", "<|features|>"]
    path = [".", "<|word_start|>", "b", "<|code|>", *said, "<|word_end|>", "<|audio_end|>"]
    extra = ["<|c1_0|>", "<|c2_0|>", "\n"]
    follows = dict(zip(path, path[1:])) | {"\n": "<|word_start|>"}
    return [*special, *dict.fromkeys([*said, *extra])], follows, codes.tolist()
