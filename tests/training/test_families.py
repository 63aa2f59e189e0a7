"""Language models of this year, tiny and random, as exporters write them, train as in PyTorch: the
losses of 50 steps of AdamW (families.json, made by make_families.py).
"""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgewise import LoraConfig, Trainer
from edgewise.errors import InputError, ModelError
from edgewise.onnx import FileSource, read_model
from edgewise.training.losses import CausalLMLoss
from generation.test_families import stored

SEQ2SEQ = Path(__file__).parents[1] / "seq2seq" / "models"
KNOWN = json.loads((Path(__file__).parent / "families.json").read_text())
# {model: rows and tokens of a step, rate of AdamW, factor of the matrices that are trained}
MODELS = {
    "GenAI_gpt_oss": (2, 20, 3e-3, 1.0),
    "GenAI_lfm2": (2, 12, 3e-3, 1.0),
    "GenAI_lfm2_moe": (2, 12, 3e-3, 1.0),
    "GenAI_qwen3_5_text": (2, 70, 3e-3, 0.3),
    "GenAI_qwen3_5_moe": (1, 20, 1e-3, 0.3),
    "transformers_mamba2": (1, 8, 3e-3, 1.0),
    "transformers_gemma4": (1, 12, 3e-3, 1.0),
}


# Decoders of tests/seq2seq, whose encoders' states are random: rows, tokens, tokens of the encoder,
# rate
DECODERS = {"whisper": (2, 9, 50, 1e-3), "marian": (2, 9, 6, 1e-3), "t5": (2, 9, 6, 1e-3)}


def folder(tmp_path, name, factor=1.0):
    """The model's folder; its matrices that are trained are multiplied by a factor."""
    for file, content in stored(name).items():
        if factor != 1.0 and file.endswith(".onnx"):
            model = onnx.load_from_string(content)
            for t in model.graph.initializer:
                if t.name in KNOWN[name]["trained"] and len(t.dims) > 1:
                    array = onnx.numpy_helper.to_array(t) * np.float32(factor)
                    t.CopyFrom(onnx.numpy_helper.from_array(array, t.name))
            content = model.SerializeToString()
        (tmp_path / file).write_bytes(content)
    return tmp_path


def ids(rows, tokens):
    return np.random.default_rng(0).integers(3, 90, (2, rows, tokens))


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_pytorch(tmp_path, name):
    rows, tokens, rate, factor = MODELS[name]
    known = KNOWN[name]
    trainer = Trainer(
        folder(tmp_path, name, factor),
        trainable=known["trained"],
        optimizer={"type": "AdamW", "weight_decay": 0.0},
        learning_rate=rate,
        max_grad_norm=None,
        batch_size=rows,
        sequence_length=tokens,
    )
    data = ids(rows, tokens)
    losses = [
        trainer.step({"input_ids": data[i % 2], "labels": data[i % 2]})
        for i in range(len(known["losses"]))
    ]
    np.testing.assert_allclose(losses, known["losses"], atol=1e-3)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_of_encoder_decoder_models(name):
    """Merged ones, with the encoder's states fed, and with adapters."""
    rows, tokens, length, rate = DECODERS[name]
    path = SEQ2SEQ / name / "onnx" / "decoder_model_merged.onnx"
    given = [i.shape for i in read_model(FileSource(path)).inputs if "hidden" in i.name]
    states = np.random.default_rng(1).standard_normal((rows, length, given[0][-1]))
    fed = {"encoder_hidden_states": states.astype(np.float32)}
    if name != "whisper":
        fed["encoder_attention_mask"] = np.ones((rows, length), np.int64)
    more = {
        "optimizer": {"type": "AdamW", "weight_decay": 0.0},
        "learning_rate": rate,
        "max_grad_norm": None,
    }
    known, data = KNOWN[name], ids(rows, tokens)

    def losses(count, **options):
        trainer = Trainer(path, CausalLMLoss(), **more, **options)
        steps = [{"input_ids": x, "labels": x, **fed} for x in data]
        return [trainer.step(steps[i % 2]) for i in range(count)]

    np.testing.assert_allclose(
        losses(50, trainable=known["trained"]), known["losses"], rtol=2e-4, atol=1e-3
    )
    first, _, third = losses(3, adapters=LoraConfig(r=4, target_modules="all-linear"))
    assert abs(first - known["losses"][0]) < 1e-3 and third < first


def _adapted(path, tokens, rows=1, **more):
    lora = LoraConfig(r=4, target_modules="all-linear")
    return Trainer(
        path, adapters=lora, batch_size=rows, sequence_length=tokens, learning_rate=5e-3, **more
    )


def _quantized(path, bits):
    """The model's products with matrices as MatMulNBits, of blocks of 32 inputs."""
    model, half = onnx.load(path / "model.onnx"), 1 << bits - 1
    weights = {t.name: t for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        w = onnx.numpy_helper.to_array(weights[node.input[1]]).T
        if w.ndim != 2 or w.shape[1] % 32:
            continue
        blocks = w.reshape(len(w), -1, 32)
        scales = np.abs(blocks).max(2, keepdims=True) / (half - 1) + 1e-9
        q = (np.round(blocks / scales) + half).astype(np.uint8)
        q = q[..., 0::2] | q[..., 1::2] << 4 if bits == 4 else q
        parts = (q, scales[..., 0].astype(np.float32).reshape(-1))
        names = [node.input[1] + end for end in ("_Q", "_scales")]
        model.graph.initializer.extend(map(onnx.numpy_helper.from_array, parts, names))
        sizes = {"K": w.shape[1], "N": len(w), "bits": bits, "block_size": 32}
        node.CopyFrom(
            onnx.helper.make_node(
                "MatMulNBits",
                [node.input[0], *names],
                node.output,
                node.name,
                domain="com.microsoft",
                **sizes,
            )
        )
    if all(o.domain != "com.microsoft" for o in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, path / "model.onnx")
    return path


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize(
    "name", ("GenAI_gpt_oss", "GenAI_lfm2", "GenAI_qwen3_5_text", "optimum_qwen3_moe")
)
def test_adapters_of_quantized_models(tmp_path, name, bits):
    trainer = _adapted(_quantized(folder(tmp_path, name), bits), 12)
    data = {"input_ids": ids(1, 12)[0]}
    losses = [trainer.step({**data, "labels": data["input_ids"]}) for _ in range(4)]
    assert losses[-1] < losses[0] - 0.1


def test_rows_of_other_lengths_and_a_resumed_run(tmp_path):
    """Each trainer has its own length; one continues from the checkpoint of another."""
    path = folder(tmp_path, "GenAI_qwen3_5_text")
    texts = [[int(i) for i in row] for row in ids(6, 80).reshape(-1, 80)]
    whole = _adapted(path, 40, 2)
    whole.fit(texts, max_steps=4)
    part = _adapted(path, 40, 2)
    part.fit(texts, max_steps=4, callbacks=[lambda p: p.step < 2])
    part.save(tmp_path / "run.safetensors")
    _adapted(path, 70).fit(texts, max_steps=1)
    again = _adapted(path, 40, 2)
    again.resume(tmp_path / "run.safetensors")
    again.fit(texts, max_steps=4)
    states = whole.adapter()
    assert states and all(again.adapter()[n][2] == data for n, (_, _, data) in states.items())


def test_files_of_a_fixed_size(tmp_path):
    """A file for one row trains one row, which is the default; one for single tokens says so."""
    trainer = Trainer(folder(tmp_path, "transformers_olmo3"), adapters={"r": 2}, sequence_length=8)
    row = ids(1, 8)[0]
    assert np.isfinite(trainer.step({"input_ids": row, "labels": row}))
    with pytest.raises(InputError, match="number of rows in a step is 1.*batch_size=1"):
        _adapted(tmp_path, 8, 2).estimate()
    with pytest.raises(InputError, match="number of tokens in a step is 1.*sequence_length"):
        _adapted(folder(tmp_path, "transformers_mamba"), 8).estimate()
    with pytest.raises(ModelError, match="rows of 24 tokens.*smaller sequence_length"):
        _adapted(folder(tmp_path, "transformers_mamba2"), 24).estimate()


def test_masks_are_refused(tmp_path):
    """A row is padded at its end: the tokens before do not depend on the padding."""
    trainer = _adapted(folder(tmp_path, "GenAI_gpt_oss"), 8)
    row = ids(1, 8)[0]
    data = {"input_ids": row, "labels": np.where(np.arange(8) < 5, row, -100)}
    other = {**data, "input_ids": np.where(np.arange(8) < 5, row, 7)}
    trainer.step(data)
    losses = [float(trainer.session.evaluate(x)["loss"]) for x in (data, other)]
    assert losses[0] == losses[1]
    with pytest.raises(InputError, match="at the ends of rows, with the label -100"):
        trainer.step({**data, "attention_mask": np.arange(8)[None] > 2})
