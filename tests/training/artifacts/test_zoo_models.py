"""Every encoder, CNN, decoder with several inputs and recurrent model of the zoo is trainable as it
is: all its parameters, and adapters beside its layers.

The loss is the mean square of its first float output, against zeros (all parameters) or nine tenths
of it (adapters); the rate is such that to first order a step takes off a hundredth. Causal language
models learn their own inputs. Where the zoo is not there, the copies in tests/zoo/models stand in.
"""

import numpy as np
import pytest
from edgewise.errors import InputError, MissingGradient, UnsupportedOp
from edgewise.onnx import FileSource, read_model
from edgewise.training.language_model import causal_lm_inputs
from edgewise.training.losses import MSELoss
from edgewise.training.peft import LoraConfig
from edgewise.training.program import Program
from edgewise.training.session import TrainingSession
from tiers import slow_unless
from zoo.zoo import OWN, folder

FILES = {
    f"{p.parent.name}/{p.stem}": p
    for root in (OWN, folder())
    if root
    for p in sorted(root.glob("*/*.onnx"))
    if p.with_suffix(".npz").exists()
}

NUMBERS = {name: i for i, name in enumerate(FILES)}


def falls(program, feeds, tries=1, part=0.01):
    """Whether the loss falls in two steps of SGD."""
    session = TrainingSession(program)
    try:
        program.plan("train")
        loss = float(session.accumulate(feeds)["loss"])
        squares = sum(
            float((np.asarray(session.get(f"gradient/{n}"), np.float64) ** 2).sum())
            for n in program.trained
        )
        assert np.isfinite(loss) and squares > 0
        before = {n: session.read(n) for n in program.trained}
        losses = []
        for k in range(tries):
            for n, data in before.items():
                session.write(n, data)
            rate = part * loss / squares / 8**k
            losses = [float(session.train(feeds, rate)["loss"]) for _ in range(3)]
            if losses[2] < losses[0]:
                return True, losses
        return False, losses
    finally:
        session.free()


def make(path, lora):
    graph = read_model(FileSource(path))
    if path.parent.name.startswith("hf5") and path.stem == "decode":
        pytest.skip("made for one token at a time: prefill.onnx beside it trains")
    try:
        language_model = (
            causal_lm_inputs(graph, 2, 16)
            if any("past" in i.name for i in graph.input_names())
            else None
        )
    except UnsupportedOp:
        language_model = None
    if language_model is not None:
        ids = np.random.default_rng(0).integers(3, 40, (2, 16))
        return Program(
            graph,
            **language_model,
            loss="causal_lm",
            optimizer="SGD",
            lora=lora,
            trainable=[] if lora else "all",
        ), {"input_ids": ids, "labels": ids}
    with np.load(path.with_suffix(".npz")) as z:
        arrays = {n: z[n] for n in z.files}
    inputs = {n[3:]: x for n, x in arrays.items() if n.startswith("in/")}
    output = next(
        (
            o.name
            for o in graph.outputs
            if arrays.get("out/" + o.name, np.zeros(0)).dtype in (np.float32, np.float16)
        ),
        None,
    )
    if output is None:
        pytest.skip("no output is float")
    y = arrays["out/" + output].astype(np.float32)
    known = {
        n: x.reshape(-1).tolist() for n, x in inputs.items() if x.dtype.kind in "ib" and x.size <= 1
    }
    program = Program(
        graph,
        {n: list(x.shape) for n, x in inputs.items()},
        known=known,
        loss=MSELoss(output=output),
        optimizer="SGD",
        lora=lora,
        trainable=[] if lora else "all",
    )
    program.plan("evaluate")
    return program, {
        **{n: x for n, x in inputs.items() if n in program.feeds},
        "labels": 0.9 * y if lora else np.zeros_like(y),
    }


# In `make test` each model trains in one of the two ways, in turn.
@pytest.mark.parametrize("name", slow_unless(lambda name: NUMBERS[name] % 2 == 0, FILES))
def test_all_parameters(name):
    program, feeds = make(FILES[name], None)
    try:
        program.plan("train")
    except MissingGradient as e:
        assert (
            "DynamicQuantizeLinear" in str(e) and "int8_whisper_encoder" in name
        )  # what is quantized for ConvInteger
        pytest.skip(e.what[:80])
    except InputError as e:
        assert "no parameter" in str(e)
        floats = [t for n, t in program.graph.constants.items() if n in program.trainable]
        assert not floats or "safety_checker" in name, (
            "only what is quantized to the last weight has none, and outputs that are the inputs"
        )
        pytest.skip("all its weights are quantized, or its output does not depend on them")
    ok, losses = falls(program, feeds, 3)
    assert ok, losses


@pytest.mark.parametrize("name", slow_unless(lambda name: NUMBERS[name] % 2 == 1, FILES))
def test_adapters(name):
    try:
        program, feeds = make(FILES[name], LoraConfig(r=4, target_modules="all-linear"))
    except InputError:  # no linear layer but the output's: convolutions, or that one
        if name.startswith("qoperator"):
            pytest.skip("its layers are fused with their quantization")
        program, feeds = make(FILES[name], LoraConfig(r=4, target_modules=".*"))
    try:
        program.plan("train")
    except InputError as e:
        assert "no parameter" in str(e) and "safety_checker" in name
        pytest.skip("its output does not depend on its weights")
    ok, losses = falls(
        program, feeds, 4, 0.3 if name.startswith("qdq") else 0.01
    )  # quantized weights below the adapters make the loss change in steps
    assert ok, losses
