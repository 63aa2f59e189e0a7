"""DoRA against PEFT: gradients, losses, files, generation and merged models."""

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from edgewise.errors import InputError, ModelError, UnsupportedOp
from edgewise.training.optimizers import AdamW
from edgewise.training.peft import CONFIG, WEIGHTS, LoraConfig, load_adapter, save_adapter

from .. import llama
from .models import close, logits, run_ort, session_of

peft = pytest.importorskip("peft")
loraplus = pytest.importorskip("peft.optimizers")

FIELDS = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}
IDS = [3, 17, 250, 9, 44, 101]


def theirs(model, fields, use_dora=True):
    """(the model with PEFT's DoRA, {name of the state: Parameter})"""
    made = peft.get_peft_model(model, peft.LoraConfig(use_dora=use_dora, **fields))
    found = {}
    for name, p in made.named_parameters():
        if p.requires_grad:
            name = name.removeprefix("base_model.model.").replace(".default", "")
            found[name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")] = p
    return made, found


def put(session, parameters, seed=0):
    """Gives PEFT's parameters the session's values, B random ones in both."""
    rng = np.random.default_rng(seed)
    for name, p in parameters.items():
        x = np.array(session.get(name))
        if "magnitude" in name:
            close(x, p.detach(), 1e-5, name)
        if "lora_B" in name:
            x = (rng.standard_normal(x.shape) * 0.05).astype("f4")
            session.set(name, x)
        p.data = torch.tensor(x)


@pytest.mark.parametrize(
    "kind, more",
    [
        ("fp32", {}),
        ("q4", {"use_rslora": True, "rank_pattern": {"down_proj": 6}}),
        ("fp32", {"init_lora_weights": False}),
    ],
    ids=["fp32", "q4", "random"],
)
def test_as_peft(kind, more, engine):
    """Gradients of A, B and magnitudes at the first step, and losses of AdamW."""
    fields = FIELDS | more
    if kind == "q4":
        fields["target_modules"] = llama.LINEARS
    optimizer = AdamW(lr=5e-3, weight_decay=0.01)
    session = session_of(kind, LoraConfig(use_dora=True, **fields), engine, optimizer=optimizer)
    try:
        model, parameters = theirs(llama.pytorch(), fields)
        assert set(parameters) == set(session.program.trained)
        if "init_lora_weights" in more:  # B is random: the norms are those of W + scaling B A
            for name in parameters:
                if "magnitude" in name:
                    m = name.removesuffix("magnitude_vector")
                    a, b = (np.array(session.get(f"{m}{x}.weight"), "f8") for x in "AB")
                    w = model.get_parameter(
                        f"base_model.model.{m.removesuffix('.lora_')}.base_layer.weight"
                    )
                    whole = w.detach().numpy() + 2 * b @ a
                    close(session.get(name), np.linalg.norm(whole, axis=1), 1e-5, name)
                    parameters[name].data = torch.tensor(np.array(session.get(name)))
        put(session, parameters)
        data = llama.batch()
        ids, labels = (torch.tensor(data[n]) for n in ("input_ids", "labels"))
        loss = model(ids, labels=labels).loss
        loss.backward()
        assert float(session.accumulate(data)["loss"]) == pytest.approx(loss.item(), rel=1e-5)
        for name, p in parameters.items():
            close(session.get(f"gradient/{name}"), p.grad, 1e-3, name)
        theirs_ = torch.optim.AdamW(parameters.values(), lr=5e-3, weight_decay=0.01)
        for step in range(10):
            theirs_.zero_grad()
            loss = model(ids, labels=labels).loss
            loss.backward()
            theirs_.step()
            made = float(session.train(data, 5e-3)["loss"])
            assert made == pytest.approx(loss.item(), rel=1e-4), step
    finally:
        session.free()


def biased():
    """(bytes of an ONNX model, the same in PyTorch): products with a bias."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
    h = onnx.helper
    nodes = [
        h.make_node("Gemm", ["x", "0.weight", "0.bias"], ["a"], "/0/Gemm", transB=1),
        h.make_node("Relu", ["a"], ["b"]),
        h.make_node("Gemm", ["b", "2.weight", "2.bias"], ["y"], "/2/Gemm", transB=1),
    ]
    g = h.make_graph(
        nodes,
        "biased",
        [h.make_tensor_value_info("x", 1, ["n", 6])],
        [h.make_tensor_value_info("y", 1, ["n", 5])],
        [onnx.numpy_helper.from_array(p.detach().numpy(), n) for n, p in net.named_parameters()],
    )
    made = h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString(), net


def test_biases_and_dropout(engine):
    """A bias is added after the norms are; with dropout the base takes the dropped input, too."""
    model, net = biased()
    rng = np.random.default_rng(0)
    data = {"x": rng.standard_normal((4, 6)).astype("f4"), "labels": rng.integers(0, 5, 4)}
    fields = {"r": 2, "lora_alpha": 6, "target_modules": ["0", "2"]}

    def trainer_of(**more):
        return edgewise.Trainer(
            model,
            loss="cross_entropy",
            adapters=LoraConfig(use_dora=True, **fields, **more),
            batch_size=4,
            learning_rate=1e-2,
            engine=engine,
        )

    trainer = trainer_of()
    trainer._ready(data)
    made, parameters = theirs(net, fields)
    put(trainer.session, parameters)
    x, y = torch.tensor(data["x"]), torch.tensor(data["labels"])
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-2)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(made(x), y)
        loss.backward()
        optimizer.step()
        assert trainer.step(data) == pytest.approx(loss.item(), rel=1e-4)
    want = made(x).detach()
    for layers in ((), trainer.program.lora_layers):  # merged, then as nodes
        for layer in layers:
            layer.weight = None
        trainer.program.plans.pop("merge", None)
        got = onnxruntime.InferenceSession(trainer.export()).run(None, {"x": data["x"]})[0]
        close(got, want, 1e-4)
    whole, dropping = trainer.evaluate(data), trainer_of(lora_dropout=0.4)
    dropping._ready(data)
    for name in parameters:
        dropping.session.set(name, trainer.session.get(name))
    assert dropping.evaluate(data) == pytest.approx(whole, rel=1e-6)
    made.train()
    torch.manual_seed(1)
    for module in made.modules():
        if hasattr(module, "lora_dropout"):
            module.lora_dropout["default"] = torch.nn.Dropout(0.4)
    few = [torch.nn.functional.cross_entropy(made(x), y).item() for _ in range(400)]
    dropping._programs, ours = dropping._programs, []
    dropping.session.program.plan("accumulate")
    for _ in range(400):
        ours.append(float(dropping.session.accumulate(data)["loss"]))
    error = 4 * np.hypot(np.std(few), np.std(ours)) / 20
    assert np.mean(ours) == pytest.approx(np.mean(few), abs=error)
    assert abs(np.mean(few) - whole) > error / 4 and np.std(ours) == pytest.approx(
        np.std(few), rel=0.4
    )
    trainer.free(), dropping.free()


@pytest.mark.parametrize("kind", ["fp32", "q4"])
def test_files(kind, tmp_path):
    """A run, stopped and gone on with, ends with the same bits; PEFT computes the same with its
    file, and Edgewise with PEFT's; merged models and generation too.
    """
    path = tmp_path / "model.onnx"
    path.write_bytes(llama.base(kind))
    rows = [IDS * 3, IDS[::-1] * 3]

    def trainer_of():
        config = LoraConfig(use_dora=True, **FIELDS)
        return edgewise.Trainer(
            str(path), adapters=config, learning_rate=2e-2, batch_size=1, sequence_length=16
        )

    def run(trainer, steps):
        return trainer.fit(rows, max_steps=steps, progress=False).losses

    whole = trainer_of()
    losses = run(whole, 4)
    first = trainer_of()
    first.fit(rows, max_steps=4, callbacks=[lambda p: p.step < 2], progress=False)
    first.save(tmp_path / "run.safetensors")
    second = trainer_of().resume(tmp_path / "run.safetensors")
    assert run(second, 4) == losses[2:]
    assert second.adapter() == whole.adapter()
    whole.save_adapter(tmp_path / "mine")
    model = peft.PeftModel.from_pretrained(llama.pytorch(), tmp_path / "mine").eval()
    with torch.no_grad():
        want = model(torch.tensor([IDS])).logits[0, -1].numpy()
        base = llama.pytorch()(torch.tensor([IDS])).logits[0, -1].numpy()
    assert np.abs(want - base).max() > 1
    close(logits(whole.language_model(), IDS), want, 1e-4, "while it is trained")
    (tmp_path / "merged.onnx").write_bytes(whole.export())
    close(run_ort(onnxruntime.InferenceSession(tmp_path / "merged.onnx"), IDS), want, 1e-4)
    model.save_pretrained(tmp_path / "theirs")
    lm = edgewise.CausalLM(str(path), lora=tmp_path / "theirs")
    close(logits(lm, IDS), want, 1e-4, "of PEFT's file")
    lm.set_adapter(None)
    close(logits(lm, IDS), base, 1e-5, "the base")
    lm.set_adapter("default", 0.0)
    close(logits(lm, IDS), base, 1e-5, "without effect")
    plain = save_adapter(lora_of(load_adapter(tmp_path / "theirs")))
    lm.load_adapter(plain, "lora")
    lm.set_adapter("lora")
    lora = edgewise.CausalLM(str(path), lora=LoraConfig(**FIELDS))
    lora.load_adapter(plain)
    lora.set_adapter("default")
    close(logits(lm, IDS), logits(lora, IDS), 1e-5, "LoRA in a model with room for DoRA")
    with pytest.raises(InputError, match="it is DoRA at.*compiled for LoRA"):
        lora.load_adapter(tmp_path / "theirs")
    with pytest.raises(InputError, match="it is LoRA at"):
        second.load_adapter(plain)
    for x in (lm, lora, whole, first, second):
        x.free()


def test_loraplus(engine):
    """Learning rates as PEFT's create_loraplus_optimizer gives them: of A, of B and magnitudes, and
    of adapters of embeddings.
    """
    fields = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"]}
    rates = {"loraplus_lr_ratio": 16, "loraplus_lr_embedding": 1e-4}
    for dora in (True, False):
        fields["target_modules"] += [] if dora else ["embed_tokens"]
        config = LoraConfig(use_dora=dora, **fields)
        optimizer = AdamW(lr=1e-3, weight_decay=0.0)
        session = session_of("fp32", config, engine, optimizer=optimizer, **rates)
        model, parameters = theirs(llama.pytorch(), fields, dora)
        assert set(parameters) == set(session.program.trained)
        put(session, parameters)
        made = loraplus.create_loraplus_optimizer(model, torch.optim.AdamW, lr=1e-3, **rates)
        data = llama.batch()
        ids, labels = (torch.tensor(data[n]) for n in ("input_ids", "labels"))
        for _ in range(5):
            made.zero_grad()
            loss = model(ids, labels=labels).loss
            loss.backward()
            made.step()
            assert float(session.train(data, 1e-3)["loss"]) == pytest.approx(loss.item(), rel=1e-4)
        for name, p in parameters.items():
            close(session.get(name), p.detach(), 1e-3, name)
        session.free()
    with pytest.raises(InputError, match="loraplus_lr_ratio: it is for adapters"):
        edgewise.Trainer(llama.base("fp32"), loraplus_lr_ratio=16)
    with pytest.raises(InputError, match="loraplus_lr_embedding: it is for adapters"):
        edgewise.Trainer(llama.base("fp32"), loraplus_lr_embedding=1e-3)
    with pytest.raises(InputError, match="loraplus_lr_embedding: it has no effect without"):
        edgewise.Trainer(llama.base("fp32"), adapters=config, loraplus_lr_embedding=1e-3)
    with pytest.raises(InputError, match="loraplus_lr_ratio: it is 0"):
        edgewise.Trainer(llama.base("fp32"), adapters=config, loraplus_lr_ratio=0)


def lora_of(adapter):
    """An adapter without its magnitudes."""
    config = LoraConfig(**{**adapter.config.to_dict(), "use_dora": False})
    return type(adapter)(config, adapter.lora)


def convolved():
    """A model with a convolution, conv."""
    weight = onnx.numpy_helper.from_array(np.ones((1, 1, 1, 1), "f4"), "conv.weight")
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [1, 1, 1, 1]) for n in "xy")
    nodes = [onnx.helper.make_node("Conv", ["x", "conv.weight"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "convolved", [x], [y], [weight])
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def test_refusals():
    with pytest.raises(UnsupportedOp, match="DoRA is for linear layers.*embedding"):
        session_of("fp32", LoraConfig(use_dora=True, target_modules=["embed_tokens"]))
    # also where a trainer is made, before anything is compiled
    with pytest.raises(UnsupportedOp, match="DoRA is for linear layers.*embedding"):
        edgewise.Trainer(
            llama.base("fp32"), adapters={"use_dora": True, "target_modules": ["embed_tokens"]}
        )
    convolution = {"use_dora": True, "target_modules": ["conv"]}
    with pytest.raises(UnsupportedOp, match="DoRA is for linear layers, 'conv' is a convolution"):
        edgewise.Trainer(convolved(), "output:y", adapters=convolution)
    one = np.ones((1, 3), "f4"), np.ones((2, 1), "f4")
    config = LoraConfig(r=1, use_dora=True)
    adapter = edgewise.training.peft.Adapter(config, {"q": one}, magnitudes={"q": np.ones(2, "f4")})
    files = save_adapter(adapter)
    assert list(load_adapter(files).magnitudes) == ["q"]
    without = save_adapter(edgewise.training.peft.Adapter(LoraConfig(r=1), {"q": one}))
    with pytest.raises(ModelError, match="'q.lora_magnitude_vector' belongs to DoRA, and the conf"):
        load_adapter({WEIGHTS: files[WEIGHTS], CONFIG: without[CONFIG]})
    with pytest.raises(ModelError, match="'q' has no lora_magnitude_vector"):
        load_adapter({WEIGHTS: without[WEIGHTS], CONFIG: files[CONFIG]})
    adapter.magnitudes["q"] = np.ones(3, "f4")
    with pytest.raises(ModelError, match=r"magnitudes \[3\]"):
        load_adapter(save_adapter(adapter))
