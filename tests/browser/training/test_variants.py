"""Variants of LoRA in pages: DoRA, ranks by module, modules that are trained as a whole."""

import json

import pytest

from ..conftest import MODEL
from .harness import BATCH, SEQUENCE, TEXT

VARIANTS = {
    "dora": {
        "use_dora": True,
        "rank_pattern": {"q_proj": 2, "layers.1.mlp.down_proj": 6},
        "alpha_pattern": {"v_proj": 3},
    },
    "whole": {"use_rslora": True, "modules_to_save": ["norm"], "target_modules": ["q_proj"]},
}
SIZES = {"batch": BATCH, "sequence": SEQUENCE}
FIELDS = {"r": 4, "lora_alpha": 8}
SHORT = [f"the {w} robot had a lamp" for w in ("old", "small", "merry", "rusty", "good")] + [
    "the cat sat",
    "a small owl",
    "the lamp was old and the robot was merry",
]


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request, files):
    """A package that trains a variant: /files/variant-NAME.edge."""
    from edgewise.compiler.training.package import compile_training_package
    from edgewise.host.session.open import folder_files

    lora = FIELDS | VARIANTS[request.param]
    program = {"name": "lora", "lora": lora, **SIZES}
    with open(files / f"variant-{request.param}.edge", "wb") as f:
        compile_training_package(folder_files(MODEL)[0], [program]).write(f)
    return request.param, lora


# long: the script of a page and the checks of what it returns
def test_variants_as_in_python(visit, server, files, variant, tmp_path):
    """The losses, the adapter and the words are those of Python; a run goes on with the same bits;
    the base stays as it is.
    """
    import edgewise
    from edgewise.compiler.training.package import default_lora
    from edgewise.training.peft import load_adapter

    name, lora = variant
    options = {"max_steps": 4, "seed": 3, "learning_rate": 0.05}

    def trainer_of(**more):
        return edgewise.Trainer(
            str(MODEL),
            adapters=default_lora(**lora),
            batch_size=BATCH,
            sequence_length=SEQUENCE,
            seed=3,
            learning_rate=0.05,
            **more,
        )

    trainer = trainer_of()
    losses = trainer.fit([TEXT], max_steps=4, progress=False).losses
    trainer.save_adapter(tmp_path / "mine")
    for file in (tmp_path / "mine").iterdir():
        (files / f"{name}-{file.name}").write_bytes(file.read_bytes())
    lm = edgewise.CausalLM(str(files / f"variant-{name}.edge"))
    lm.load_adapter(tmp_path / "mine")
    lm.set_adapter("default")
    v = visit(server)
    got = v.run(
        """
            const p = await ew.pipeline("text-generation", `/files/variant-${arg.name}.edge`, {
              flavour: "simd128",
            });
            const greedy = async () =>
              (await p("Once upon a time", { max_new_tokens: 12, do_sample: false }))[0]
                .generated_text;
            const base = await greedy();
            const checkpoint = { name: "variant", every: 2 };
            const { losses } = await ew.fineTune(p, arg.text, { ...arg.options, name: "a" });
            const text = await greedy();
            const saved = await p.saveAdapter("a");
            const more = { ...arg.options, name: "b", checkpoint };
            const t = await ew.Trainer.create(p, arg.text, more);
            await t.step();
            await t.step();
            await t.save();
            await t.close();
            const again = await ew.fineTune(p, arg.text, { ...more, resume: true });
            const resumed = await greedy();
            const file = async (n) =>
              new File([await (await fetch(`/files/${arg.name}-${n}`)).blob()], n);
            await p.loadAdapter("python", [
              await file("adapter_model.safetensors"),
              await file("adapter_config.json"),
            ]);
            await p.setAdapter("python");
            const python = await greedy();
            await p.loadAdapter("back", await p.saveAdapter("a"));
            await p.setAdapter("back");
            const back = await greedy();
            const same = [];
            const files = await p.saveAdapter("back");
            for (const [i, a] of (await p.saveAdapter("a")).entries())
              same.push((await a.text()) === (await files[i].text()));
            await p.setAdapter("b");
            const third = await greedy();
            await p.setAdapter(null);
            const without = await greedy();
            let scaled;
            try {
              await p.setAdapter("b", 0.5);
              scaled = await greedy();
            } catch (e) {
              scaled = e.message;
            }
            const kept = await Promise.all(
              saved.map(async (f) => [f.name, [...new Uint8Array(await f.arrayBuffer())]]),
            );
            const texts = { base, text, resumed, python, back, third, without };
            await p.dispose();
            return { losses, again: again.losses, texts, scaled, same, kept };
        """,
        {"name": name, "text": TEXT, "options": options},
    )
    assert "error" not in got, got
    assert got["losses"] == pytest.approx(losses, rel=1e-4)
    assert got["again"] == got["losses"]
    texts = got["texts"]
    assert texts["base"] == texts["without"] != texts["text"]
    assert texts["text"] == texts["resumed"] == texts["third"] == texts["back"]
    prompt = "Once upon a time"
    made = trainer.generate(prompt, max_new_tokens=12, do_sample=False)
    made = made.removeprefix("<|startoftext|>").removesuffix("<|endoftext|>")
    assert made == texts["python"]
    assert texts["python"] == texts["text"]
    assert all(got["same"]), "files are written as they were read"
    (tmp_path / "page").mkdir()
    for file, data in got["kept"]:
        (tmp_path / "page" / file).write_bytes(bytes(data))
    config = json.loads((tmp_path / "page" / "adapter_config.json").read_text())
    theirs = json.loads((tmp_path / "mine" / "adapter_config.json").read_text())
    assert config.keys() == theirs.keys() and config["use_dora"] == (name == "dora")
    page, mine = load_adapter(tmp_path / "page"), load_adapter(tmp_path / "mine")
    assert page.tensors().keys() == mine.tensors().keys()
    if name == "whole":
        assert list(page.saved) == ["model.norm.weight"]
        assert "cannot be scaled" in got["scaled"]
    else:
        assert len(page.magnitudes) == len(page.lora) == 42
        assert got["scaled"].startswith("Once")
    lm.load_adapter(tmp_path / "page", "page")
    lm.set_adapter("page")
    lm.free(), trainer.free()


def test_averages_in_a_page(visit, server, files):
    """Evaluations, the end and the best result of a run with averages of the weights are those of
    Python, which are those of torch.optim.swa_utils; also of a run that goes on.
    """
    import edgewise
    from edgewise.compiler.training.package import compile_training_package, default_lora
    from edgewise.host.session.open import folder_files

    fields, decay = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}, {"ema_decay": 0.6}
    options = {"adapter": "lora", "batch_size": BATCH, "sequence_length": SEQUENCE}
    with open(files / "averaged.edge", "wb") as f:
        compile_training_package(folder_files(MODEL)[0], options | fields | decay).write(f)
    run = {"max_steps": 5, "evaluation": 0.2, "evaluate_every": 2}
    rate = {"learning_rate": 0.05, "seed": 3}
    sizes = {"batch_size": BATCH, "sequence_length": SEQUENCE}
    trainer = edgewise.Trainer(
        str(MODEL), adapters=default_lora(**fields), **sizes, **rate, **decay
    )
    history = trainer.fit([TEXT], **run, progress=False)
    made = trainer.generate("Once upon a time", max_new_tokens=12, do_sample=False)
    got = visit(server).run(
        """
            const p = await ew.pipeline("text-generation", "/files/averaged.edge", {
              flavour: "simd128",
            });
            const greedy = async () =>
              (await p("Once upon a time", { max_new_tokens: 12, do_sample: false }))[0]
                .generated_text;
            const t = await ew.Trainer.create(p, arg.text, arg.options);
            const whole = await t.run();
            const end = await t.evaluate();
            await t.close();
            const text = await greedy();
            const more = { ...arg.options, checkpoint: { name: "averages", every: 100 } };
            const first = await ew.Trainer.create(p, arg.text, more);
            for (let i = 0; i < 3; i++) await first.step();
            await first.save();
            await first.close();
            const again = await ew.fineTune(p, arg.text, { ...more, resume: true });
            const resumed = await greedy();
            await p.dispose();
            return { whole, end, text, again, resumed };
        """,
        {"text": TEXT, "options": run | rate},
    )
    assert "error" not in got, got
    whole = got["whole"]
    # Other instructions add in another order, and the rate is high.
    assert whole["losses"] == pytest.approx(history.losses, rel=5e-3)
    assert [s for s, _ in whole["evaluations"][:4]] == [0, 2, 4, 5]
    assert [x for _, x in whole["evaluations"][1:4]] == pytest.approx(
        [x for _, x in history.evaluations], rel=5e-3
    )
    assert got["end"] == whole["evaluations"][3][1], "the averages are the weights"
    assert got["again"]["losses"] == whole["losses"] and got["resumed"] == got["text"]
    assert made.removeprefix("<|startoftext|>").removesuffix("<|endoftext|>") == got["text"]
    trainer.free()


# long: the script of a page and the checks of what it returns
def test_the_best_result_in_a_page(visit, server, trainable):
    """Early stopping and the best result, as in Python; a run that goes on from a checkpoint ends
    the same.
    """
    import edgewise
    from edgewise.compiler.training.package import default_lora

    trainer = edgewise.Trainer(
        str(MODEL),
        adapters=default_lora(r=4, lora_alpha=8, lora_dropout=0.1),
        batch_size=BATCH,
        sequence_length=SEQUENCE,
        learning_rate=0.05,
        seed=9,
    )
    stopping = {"early_stopping_patience": 2, "load_best_model_at_end": True}
    options = {"max_steps": 12, "evaluation": 0.2, "evaluate_every": 1, **stopping}
    history = trainer.fit([TEXT], **options, progress=False)
    assert history.stopped == "early_stopping" and 1 <= history.best_step < len(history.losses)
    options |= {"seed": 9, "learning_rate": 0.05}
    got = visit(server).run(
        """
            const p = await ew.pipeline("text-generation", "/files/trainable.edge", {
              flavour: "simd128",
            });
            const greedy = async () =>
              (await p("Once upon a time", { max_new_tokens: 12, do_sample: false }))[0]
                .generated_text;
            const t = await ew.Trainer.create(p, arg.text, arg.options);
            const whole = await t.run();
            const best = await t.evaluate();
            await t.close();
            const text = await greedy();
            const runs = [];
            const checkpoint = { name: "best", every: 100 };
            for (let i = 1; i < whole.step; i++) {
              const first = await ew.Trainer.create(p, arg.text, { ...arg.options, checkpoint });
              for (let k = 0; k < i; k++) await first.step();
              await first.save();
              await first.close();
              const { losses, stopped, best_step } = await ew.fineTune(p, arg.text, {
                ...arg.options,
                checkpoint,
                resume: true,
              });
              runs.push([losses, stopped, best_step, await greedy()]);
            }
            let refused;
            try {
              await ew.fineTune(p, arg.text, { load_best_model_at_end: true });
            } catch (e) {
              refused = e.message;
            }
            await p.dispose();
            return { whole, best, text, runs, refused };
        """,
        {"text": TEXT, "options": options},
    )
    assert "error" not in got, got
    whole = got["whole"]
    # Other instructions add in another order, and the rate is high.
    assert whole["losses"] == pytest.approx(history.losses, rel=5e-3)
    assert whole["stopped"] == "early_stopping"
    evaluations = dict(map(tuple, whole["evaluations"][1 : whole["step"] + 1]))
    assert got["best"] == evaluations[whole["best_step"]] == min(evaluations.values())
    assert got["runs"]
    for losses, stopped, best_step, text in got["runs"]:
        assert losses == whole["losses"] and stopped == "early_stopping"
        assert best_step == whole["best_step"] and text == got["text"]
    assert "options.load_best_model_at_end" in got["refused"]
    trainer.free()


def test_packing_and_balance_in_a_page(visit, server, files, tmp_path):
    """Rows of several texts, and the loss that balances experts: the losses are those of Python,
    which are those of a row for each text (tests/training/test_packing.py) and of transformers
    (test_balance.py).
    """
    import edgewise
    from edgewise.compiler.training.package import compile_training_package, default_lora
    from edgewise.host.session.open import folder_files
    from generation.test_families import stored
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted({w for line in SHORT for w in line.split()})
    tokenizer = Tokenizer(models.WordLevel({w: i + 3 for i, w in enumerate(words)}, unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    for name, content in stored("optimum_qwen3_moe").items():
        (tmp_path / name).write_bytes(content)
    lora = {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}
    sizes = {"batch_size": 2, "sequence_length": 16}
    more = {"router_aux_loss_coef": 0.5, "packing": True}
    with open(files / "packed.edge", "wb") as f:
        compile_training_package(folder_files(tmp_path)[0], sizes | lora | more).write(f)
    run = {"epochs": 2, "evaluation": SHORT[-3:]}
    rate = {"learning_rate": 0.02, "seed": 5}
    trainer = edgewise.Trainer(tmp_path, adapters=default_lora(**lora), **sizes, **more, **rate)
    history = trainer.fit(SHORT[:-3], **run, progress=False)
    got = visit(server).run(
        """
            const p = await ew.pipeline("text-generation", "/files/packed.edge", {
              flavour: "simd128",
            });
            const t = await ew.Trainer.create(p, arg.texts, arg.options);
            const { blocks } = t.info;
            const { losses, evaluations } = await t.run();
            await t.close();
            let refused;
            try {
              await ew.fineTune(p, [{ prompt: "a", chosen: "b", rejected: "c" }], { loss: "dpo" });
            } catch (e) {
              refused = e.message;
            }
            await p.dispose();
            return { blocks, losses, evaluations, refused };
        """,
        {"texts": SHORT[:-3], "options": run | rate},
    )
    assert "error" not in got, got
    assert got["blocks"] < len(SHORT) - 3
    assert got["losses"] == pytest.approx(history.losses, rel=1e-4)
    assert got["evaluations"][-1][1] == pytest.approx(history.evaluations[-1][1], rel=1e-4)
    assert "compiled with router_aux_loss_coef" in got["refused"]
    trainer.free()


# long: the script of a page and the checks of what it returns
def test_distillation_in_a_page(visit, server, files):
    """The losses are those of Python; the first one is PyTorch's, of the logits of onnxruntime."""
    import edgewise
    import numpy as np
    import onnxruntime
    import torch
    from edgewise.compiler.training.package import compile_training_package, default_lora
    from edgewise.host.session.open import folder_files
    from edgewise.training import DistillationRows
    from edgewise.training.losses import DistillationLoss
    from torch.nn import functional as F

    lora = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    sizes, fields = {"batch_size": 2}, {"top_k": 4, "temperature": 2.0, "alpha": 0.7}
    package = compile_training_package(
        folder_files(MODEL)[0], lora | sizes | {"sequence_length": 16, "distillation": fields}
    )
    with open(files / "taught.edge", "wb") as f:
        package.write(f)
    rate = {"learning_rate": 0.02, "seed": 5}
    loss = DistillationLoss(**fields)
    trainer = edgewise.Trainer(
        str(MODEL),
        loss,
        "AdamW",
        default_lora(**lora),
        max_grad_norm=1.0,
        **sizes,
        **rate,
        no_decay=("*norm*", "*bias*"),
    )
    rng, records, wanted = np.random.default_rng(0), [], []
    session = onnxruntime.InferenceSession(str(next(MODEL.rglob("*.onnx"))))
    names = {i.name: i for i in session.get_inputs()}
    for completion in (" a lamp.", " it to the cat.", " a boat and a hat."):
        prompt = "The robot gave"
        first = len(trainer.tokenizer.encode(prompt))
        ids = [*trainer.tokenizer.encode(prompt + completion), trainer.model.end]
        count = len(ids) - first
        tokens = np.stack([rng.choice(100, 4, False) for _ in range(count)])
        scores = -np.sort(rng.exponential(size=(count, 4)), 1)
        teacher = [[[int(t), float(s)] for t, s in zip(*x)] for x in zip(tokens, scores)]
        records.append({"prompt": prompt, "completion": completion, "teacher": teacher})
        feeds = {"input_ids": np.array([ids])}
        feeds["attention_mask"] = np.ones_like(feeds["input_ids"])
        feeds["position_ids"] = np.arange(len(ids))[None]
        for name, i in names.items():
            if name.startswith("past"):
                shape = [d if isinstance(d, int) else 0 for d in i.shape]
                feeds[name] = np.zeros([1, *shape[1:]], np.float32)
        feeds = {n: x for n, x in feeds.items() if n in names}
        logits = torch.tensor(session.run(["logits"], feeds)[0][0, first - 1 : -1])
        student = torch.log_softmax(logits / 2, -1).gather(1, torch.tensor(tokens))
        known = torch.log_softmax(torch.tensor(scores, dtype=torch.float32) / 2, -1)
        soft = 4 * F.kl_div(student, known, log_target=True, reduction="sum")
        hard = F.cross_entropy(logits, torch.tensor(ids[first:]), reduction="sum")
        wanted.append((float(0.7 * soft + 0.3 * hard), count))
    rows = DistillationRows(trainer, records, 16)
    chosen = rows.order.chosen(0, 0)
    total, count = np.sum([wanted[i] for i in chosen], 0)
    history = trainer.fit(rows, epochs=2, progress=False)
    assert history.losses[0] == pytest.approx(total / count, rel=1e-4)
    got = visit(server).run(
        """
            const p = await ew.pipeline("text-generation", "/files/taught.edge", {
              flavour: "simd128",
            });
            const { losses } = await ew.fineTune(p, arg.records, arg.options);
            const errors = [];
            for (const [data, options] of [
              ["a text", {}],
              [[{ prompt: "a", completion: "b" }], {}],
              [[{ prompt: "a", chosen: "b", rejected: "c" }], { loss: "dpo" }],
            ])
              await ew.fineTune(p, data, options).catch((e) => errors.push(e.message));
            await p.dispose();
            return { losses, errors };
        """,
        {"records": records, "options": {"epochs": 2} | rate},
    )
    assert "error" not in got, got
    assert got["losses"] == pytest.approx(history.losses, rel=1e-4)
    words = (
        "no records with a teacher's part",
        "record 1: teacher is",
        "compiled with distillation",
    )
    assert len(got["errors"]) == 3
    for error, word in zip(got["errors"], words):
        assert word in error
    trainer.free()
