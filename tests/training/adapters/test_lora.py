"""LoRA training against PyTorch: layers, initial values, dropout, biases and modules to save."""

from collections import Counter

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from edgewise import Trainer
from edgewise.compiler.onnx import as_source, read_model
from edgewise.compiler.passes.lora import check_targets
from edgewise.errors import InputError, UnsupportedOp
from edgewise.training.losses import CrossEntropyLoss
from edgewise.training.optimizers import AdamW
from edgewise.training.peft import LoraConfig, load_adapter
from edgewise.training.program import Program
from generation.test_families import stored
from onnx import TensorProto, helper, numpy_helper

from .. import llama
from ..zoo import ZooCase, cases
from .models import close, logits, run_ort, session_of


@pytest.mark.parametrize(
    "kind, config",
    [
        ("fp32", LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")),
        (
            "fp32",
            LoraConfig(r=3, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "v_proj"]),
        ),
        ("q4", LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")),
        ("q4", LoraConfig(r=8, target_modules=r"model\.layers\.1\..*_proj")),
        (
            "fp32",
            LoraConfig(
                r=2,
                target_modules=["embed_tokens", "down_proj", "lm_head"],
                rank_pattern={"down_proj": 5},
                alpha_pattern={"down_proj": 20},
            ),
        ),
    ],
    ids=["fp32", "rslora", "q4", "q4-pattern", "embedding"],
)
def test_as_pytorch(kind, config, engine):
    """Gradients of every A and B at the first step, and ten losses of AdamW."""
    session = session_of(kind, config, engine, optimizer=AdamW(lr=5e-3, weight_decay=0.01))
    model = llama.pytorch()
    try:
        ours = llama.adapt(model, session)
        names = set(ours)
        assert names == set(session.program.trained) and len(names) == 2 * len(
            session.program.lora_layers
        )
        data = llama.batch()
        ids, labels = (torch.tensor(data[n]) for n in ("input_ids", "labels"))
        loss = model(ids, labels=labels).loss
        loss.backward()
        assert float(session.accumulate(data)["loss"]) == pytest.approx(loss.item(), rel=1e-5)
        for name, p in ours.items():
            close(session.get(f"gradient/{name}"), p.grad, 1e-3, name)
        optimizer = torch.optim.AdamW(ours.values(), lr=5e-3, weight_decay=0.01)
        for step in range(10):
            optimizer.zero_grad()
            loss = model(ids, labels=labels).loss
            loss.backward()
            optimizer.step()
            assert float(session.train(data, 5e-3)["loss"]) == pytest.approx(
                loss.item(), rel=1e-4
            ), step
    finally:
        session.free()


def test_targets():
    """PEFT's ways to select layers."""

    def layers(**fields):
        program = session_of("q4", LoraConfig(r=2, **fields)).program
        return Counter(x.name.rsplit(".", 1)[-1] for x in program.lora_layers)

    assert layers() == layers(target_modules="all-linear") == dict.fromkeys(llama.LINEARS, 2), (
        "not the output head"
    )
    assert layers(target_modules=["q_proj", "mlp.up_proj"]) == {"q_proj": 2, "up_proj": 2}
    assert layers(target_modules=["q_proj"], layers_to_transform=[1]) == {"q_proj": 1}
    assert layers(target_modules=r".*\.0\..*(k|v)_proj") == {"k_proj": 1, "v_proj": 1}
    assert layers(target_modules="all-linear", exclude_modules=["down_proj"])["down_proj"] == 0
    with pytest.raises(InputError, match="no layer matches.*'qproj'.*q_proj"):
        layers(target_modules=["qproj"])


@pytest.mark.parametrize(
    ("model", "fields", "words"),
    [
        ("q4", {"target_modules": ["q_prj"]}, "Did you mean 'q_proj'. Layers end in down"),
        ("fp32", {"target_modules": ["input_layernorm"]}, "no layer matches.*up_proj"),
        ("fp32", {"target_modules": ".*nothing"}, "no layer matches '.*nothing'.*up_proj"),
        ("q4", {"target_modules": ["q_proj"], "layers_to_transform": [7]}, "no layer matches"),
        ("GenAI_gpt_oss", {"target_modules": ["gate_up_proj"]}, "weights of all experts"),
    ],
)
def test_targets_are_checked_when_a_trainer_is_made(model, fields, words):
    """Before a step, from the names in the file."""
    file = stored(model)["model.onnx"] if "_" in model else llama.base(model)
    with pytest.raises(InputError, match=words):
        Trainer(file, adapters=LoraConfig(**fields))
    Trainer(file, adapters=LoraConfig(target_modules=["o_proj", "of_another_model"]))


def parts(nodes, weights, x):
    """A model of nodes named as modules, with weights of zeros."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (x, ("y", None))]
    arrays = [numpy_helper.from_array(np.zeros(s, t), n) for n, (s, t) in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], arrays)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.mark.parametrize(
    ("kind", "target", "words"),
    [
        ("conv", "conv1", None),  # a weight of three dimensions is no expert's
        ("conv", "con1", "Layers end in fc."),  # neither of modules that have layers
        ("bits", "q_proj", None),
        ("experts", "gate_proj", "weights of all experts"),
        ("experts", "q_proj", "The file does not name its layers"),
    ],
)
def test_dimensions_of_a_weight_are_not_its_meaning(kind, target, words):
    node, floats = helper.make_node, np.float32
    if kind == "conv":
        data = parts(
            [
                node("Conv", ["x", "conv1.weight"], ["c"], "/model/conv1/Conv"),
                node("MatMul", ["c", "fc.weight"], ["d"], "/model/fc/MatMul"),
                node("MatMul", ["d", "d"], ["y"], "/model/self_attn/MatMul"),
            ],
            {"conv1.weight": ((4, 4, 1), floats), "fc.weight": ((4, 4), floats)},
            ("x", [1, 4, 4]),
        )
    elif kind == "bits":
        sizes = {"K": 32, "N": 8, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
        data = parts(
            [node("MatMulNBits", ["x", "q_proj.weight", "scales"], ["y"], "/q/MatMul_Q4", **sizes)],
            {"q_proj.weight": ((8, 1, 16), np.uint8), "scales": ((8,), floats)},
            ("x", [1, 4, 32]),
        )
    else:
        data = parts(
            [node("MatMul", ["x", "gate_proj.weight"], ["y"], "/experts/MatMul")],
            {"gate_proj.weight": ((2, 4, 4), floats)},
            ("x", [2, 4, 4]),
        )
    graph, config = read_model(as_source(data)), LoraConfig(target_modules=[target])
    if words is None:
        check_targets(graph, config)
        return
    with pytest.raises(InputError) as told:
        check_targets(graph, config)
    assert words in str(told.value)


def test_first_values():
    """init_lora_weights as PEFT: A uniform or normal, B zero or not; the same seed gives the same
    ones.
    """
    read = {}
    for how in (True, "gaussian", False):
        s = session_of(
            "q4",
            LoraConfig(r=16, target_modules=["down_proj", "embed_tokens"], init_lora_weights=how),
            seed=3,
        )
        read[how] = {
            n: np.array(s.get(n)) for n, x in list(s.program.states.items()) if x.kind == "adapter"
        }
        s.free()
    a, b = (
        "model.layers.0.mlp.down_proj.lora_A.weight",
        "model.layers.0.mlp.down_proj.lora_B.weight",
    )
    bound = 1 / np.sqrt(128)
    assert (
        np.abs(read[True][a]).max() <= bound
        and np.abs(read[True][a]).std() > 0.2 * bound
        and not read[True][b].any()
    )
    assert (
        read["gaussian"][a].std() == pytest.approx(1 / 16, rel=0.1)
        and np.abs(read["gaussian"][a]).max() > 2.5 / 16
        and not read["gaussian"][b].any()
    )
    assert 0.2 < np.abs(read[False][b]).max() <= 1 / np.sqrt(16)
    ea, eb = (f"model.embed_tokens.lora_embedding_{x}" for x in "AB")
    assert (
        not read[True][ea].any()
        and read[True][eb].std() == pytest.approx(1, rel=0.1)
        and abs(read[True][eb].mean()) < 0.1
    )
    assert not np.array_equal(read[True][a], read[True][a.replace("layers.0", "layers.1")])


def test_dropout():
    """lora_dropout drops the adapter's input alone, in training alone; its mean over many seeds is
    the loss without, and the seed decides it.
    """
    config = LoraConfig(r=4, lora_alpha=16, target_modules=["down_proj"], lora_dropout=0.4)
    session, plain = (
        session_of("q4", config),
        session_of("q4", LoraConfig(**{**config.to_dict(), "lora_dropout": 0.0})),
    )
    data, rng = llama.batch(), np.random.default_rng(0)
    for layer in session.program.lora_layers:
        b = (rng.standard_normal(session.program.states[layer.b].shape) * 0.02).astype("f4")
        session.set(layer.b, b)
    for name in [x for layer in session.program.lora_layers for x in (layer.a, layer.b)]:
        plain.set(name, session.get(name))
    want = float(plain.evaluate(data)["loss"])
    assert float(session.evaluate(data)["loss"]) == pytest.approx(want, rel=1e-6)
    losses = [float(session.accumulate(data)["loss"]) for _ in range(40)]
    assert len(set(losses)) == 40 and np.mean(losses) == pytest.approx(
        want, abs=4 * np.std(losses) / np.sqrt(40) + 1e-3
    )
    session.runs = 0
    assert [float(session.accumulate(data)["loss"]) for _ in range(3)] == losses[:3]
    session.free(), plain.free()


def small_cnn():
    """(bytes of an ONNX model, the same in PyTorch): convolutions with stride, padding and
    dilation.
    """
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 6, 3, stride=2, padding=2, dilation=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(6 * 16, 5),
    ).requires_grad_(False)
    h = onnx.helper
    nodes = [
        h.make_node(
            "Conv", ["x", "0.weight", "0.bias"], ["a"], "/0/Conv", pads=[1] * 4, kernel_shape=[3, 3]
        ),
        h.make_node("Relu", ["a"], ["b"]),
        h.make_node(
            "Conv",
            ["b", "2.weight", "2.bias"],
            ["c"],
            "/2/Conv",
            pads=[2] * 4,
            strides=[2, 2],
            dilations=[2, 2],
            kernel_shape=[3, 3],
        ),
        h.make_node("Relu", ["c"], ["d"]),
        h.make_node("Flatten", ["d"], ["e"]),
        h.make_node("Gemm", ["e", "5.weight", "5.bias"], ["y"], "/5/Gemm", transB=1),
    ]
    g = h.make_graph(
        nodes,
        "cnn",
        [h.make_tensor_value_info("x", 1, ["n", 3, 8, 8])],
        [h.make_tensor_value_info("y", 1, ["n", 5])],
        [onnx.numpy_helper.from_array(p.numpy(), n) for n, p in net.named_parameters()],
    )
    return (
        h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=9).SerializeToString(),
        net,
    )


def test_convolutions(engine):
    """Adapters of convolutions with PEFT's shapes (A with the kernel, B 1x1): gradients and losses
    of PyTorch; merged into the file, or separate if the weight is shared.
    """
    model, net = small_cnn()
    rng = np.random.default_rng(0)
    data = {"x": rng.standard_normal((4, 3, 8, 8)).astype("f4"), "labels": rng.integers(0, 5, 4)}
    trainer = edgewise.Trainer(
        model,
        loss="cross_entropy",
        adapters=LoraConfig(r=2, lora_alpha=6, target_modules=["0", "2", "5"]),
        batch_size=4,
        learning_rate=1e-2,
        engine=engine,
    )
    trainer._prepare(data)
    session = trainer.session
    session.accumulate(data)
    session.reset()
    ours = llama.adapt(net, session)
    x, y = torch.tensor(data["x"]), torch.tensor(data["labels"])
    torch.nn.functional.cross_entropy(net(x), y).backward()
    session.accumulate(data)
    for name, p in ours.items():
        close(session.get(f"gradient/{name}"), p.grad, 1e-4, name)
    optimizer = torch.optim.AdamW(ours.values(), lr=1e-2)
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        assert trainer.step(data) == pytest.approx(loss.item(), rel=1e-4)
    close(
        onnxruntime.InferenceSession(trainer.export()).run(None, {"x": data["x"]})[0],
        net(x).detach(),
        1e-4,
    )
    for layer in session.program.lora_layers:
        layer.weight = None
    del trainer.program.plans["merge"]
    close(
        onnxruntime.InferenceSession(trainer.export()).run(None, {"x": data["x"]})[0],
        net(x).detach(),
        1e-4,
    )
    trainer.free()


# long: one round trip through every kind of file
def test_modules_to_save(tmp_path):
    """What modules_to_save names is trained as a whole, kept in the adapter in PyTorch's layout,
    and merged; the rest of the model stays.
    """
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["down_proj", "norm"])
    path = tmp_path / "model.onnx"
    path.write_bytes(llama.base("fp32"))
    trainer = edgewise.Trainer(
        path,
        adapters=config,
        batch_size=2,
        sequence_length=16,
        learning_rate=1e-2,
        optimizer="SGD",
        max_grad_norm=None,
    )
    data, model = llama.batch(), llama.pytorch()
    trainer.step(data)
    kinds = Counter(s.kind for s in trainer.program.states.values())
    assert kinds["parameter"] == 3 and {s.name for s in trainer.program.saved} == {
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
        "model.norm.weight",
    }
    for n in ("model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj", "model.norm"):
        model.get_submodule(n).requires_grad_(True)
    model(torch.tensor(data["input_ids"]), labels=torch.tensor(data["labels"])).loss.backward()
    trainer.save_adapter(tmp_path / "adapter")
    adapter = load_adapter(tmp_path / "adapter")
    assert set(adapter.saved) == {s.name for s in trainer.program.saved}
    for name, t in adapter.saved.items():
        p = model.get_parameter(name)
        close(
            np.frombuffer(t.bytes(), "f4").reshape(t.shape),
            (p - 1e-2 * p.grad).detach(),
            1e-5,
            name,
        )
    # exported, generated with, and loaded again
    exported = onnxruntime.InferenceSession(trainer.export())
    ours = trainer.language_model()
    want = run_ort(exported, [5, 9, 77])
    close(logits(ours, [5, 9, 77]), want, 1e-4)
    lm = edgewise.CausalLM(path, lora=tmp_path / "adapter")
    close(logits(lm, [5, 9, 77]), want, 1e-4)
    lm.set_adapter(None)
    plain = run_ort(onnxruntime.InferenceSession(str(path)), [5, 9, 77])
    close(logits(lm, [5, 9, 77]), plain, 1e-4)
    again = edgewise.Trainer(path, adapters=config, batch_size=2, sequence_length=16).load_adapter(
        tmp_path / "adapter"
    )
    assert {n: bytes(x[2]) for n, x in again.adapter().items()} == {
        n: bytes(x[2]) for n, x in trainer.adapter().items()
    }
    for t in (trainer, again, lm):
        t.free()
    with pytest.raises(InputError, match="no module is named 'dawn_proj'.*down_proj"):
        edgewise.Trainer(path, adapters=LoraConfig(modules_to_save=["dawn_proj"])).estimate()
    with pytest.raises(InputError, match="share one weight.*Name both"):
        edgewise.Trainer(path, adapters=LoraConfig(modules_to_save=["lm_head"])).estimate()
    edgewise.Trainer(
        path, adapters=LoraConfig(modules_to_save=["lm_head", "embed_tokens"])
    ).estimate()
    with pytest.raises(UnsupportedOp, match="quantized"):
        edgewise.Trainer(
            llama.base("q4"), adapters=LoraConfig(modules_to_save=["down_proj"])
        ).estimate()


def test_bias():
    case = ZooCase(cases()["mlp_clipnorm_ce_adamw"])
    shapes = {n: list(v.shape) for n, v in case.data.items() if n != "target"}
    biases = {n for n in case.graph.constants if n.endswith(".bias")}
    first = sorted(biases)[0].removesuffix(".bias")

    def saved(**fields):
        return {
            s.name
            for s in Program(
                case.graph, shapes, loss=CrossEntropyLoss(), trainable=[], lora=LoraConfig(**fields)
            ).saved
        }

    assert (
        saved(bias="all", target_modules=[first]) == biases
        and saved(bias="lora_only", target_modules=[first]) == {first + ".bias"}
        and saved(target_modules=[first]) == set()
    )


def test_large_products_of_4_bits():
    """The arena of a step has no room for an expanded weight: 1024 x 1024 would take 4 MB, what a
    row of 16 needs is far below.
    """
    h, rng = onnx.helper, np.random.default_rng(0)
    n = 1024
    nodes = [
        h.make_node(
            "MatMulNBits",
            [x, f"{y}.weight_Q4", f"{y}.scales"],
            [y],
            f"/{y}/MatMul_Q4",
            domain="com.microsoft",
            K=n,
            N=n,
            bits=4,
            block_size=32,
        )
        for x, y in (("x", "a"), ("a", "b"), ("b", "c"))
    ]
    weights = [
        w
        for y in "abc"
        for w in (
            onnx.numpy_helper.from_array(
                rng.integers(0, 256, (n, n // 32, 16), dtype=np.uint8), f"{y}.weight_Q4"
            ),
            onnx.numpy_helper.from_array(
                (rng.random((n * n // 32)) * 0.01).astype("f4"), f"{y}.scales"
            ),
        )
    ]
    g = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", 1, [16, n])],
        [h.make_tensor_value_info("c", 1, [16, n])],
        weights,
    )
    model = h.make_model(
        g, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)], ir_version=9
    ).SerializeToString()
    trainer = edgewise.Trainer(
        model, loss="mse", adapters=LoraConfig(r=4, target_modules=["a", "b", "c"]), batch_size=16
    )
    data = {"x": rng.standard_normal((16, n)).astype("f4"), "labels": np.zeros((16, n), "f4")}
    losses = [trainer.step(data) for _ in range(4)]
    assert losses[-1] < losses[0]
    plan = trainer.program.plan("train")
    assert plan.arena_bytes < 1 << 21 and not any(s.kind == "computed" for s in plan.slots)
    assert trainer.estimate(data).weights == sum(len(w.raw_data) for w in weights)
    trainer.free()
