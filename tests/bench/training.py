"""Case `train`: training steps, beside onnxruntime-web's last release with training, jax-js,
TensorFlow.js, and PyTorch natively for scale.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from fnmatch import fnmatch

import numpy as np
import onnx
from onnx import numpy_helper

from .browser import HERE, WORK, Contender, _sh, say
from .contenders import EDGEWISE, JAX, JAX_TWO, ONE, SIMD, TF, TORCH, TWO, leave_out
from .contenders import ORT_TRAINING as ORT
from .contenders import TRAINING_ONE as ORT_ONE
from .contenders import TRAINING_TWO as ORT_TWO
from .models import SMOLLM2, TRAINING, in_4_bits, language_model
from .stats import ratio, show, summary

CASES = ("train",)
TITLES = {
    "mlp": "Training step: MLP 784-512-512-10, batch 64",
    "gpt4": "Training step: GPT, 4 layers of 96, batch 16 × 64 tokens",
    "gpt6": "Training step: GPT, 6 layers of 192, batch 8 × 128 tokens",
    "gpt6-lora": "Training step: the same with LoRA r = 8 on all linear layers",
}
FULL = "Edgewise relaxed, 1 thread, all parameters instead"
CONTENDERS = {
    **{who: ("training.js", how) for who, how in EDGEWISE.items()},
    ORT_ONE: ("ort-training.js", (1,)),
    ORT_TWO: ("ort-training.js", (2,)),
    JAX: ("jax.js", (1,)),
    JAX_TWO: ("jax.js", (2,)),
    TF: ("tf.js", (1,)),
}
RATIOS = [
    (SIMD, ORT_ONE),
    (ONE, ORT_ONE),
    (TWO, ORT_TWO),
    (TWO, ONE),
    (ONE, TF),
    (ONE, JAX),
    (ONE, TORCH),
]
TOLERANCE = 1e-3
SLOW = 6  # a contender that takes so many times the fastest's time takes part in two rounds only


# ---- models, once each ----
def trained_names(name):
    return ["*.lora_?"] if name.endswith("-lora") else []


def batch(name):
    """What is fed, as page/batch.js makes it: (input name, its array, int64 labels)."""
    arguments = TRAINING[name][1]
    if name == "mlp":
        rows, (first, *_, last) = 64, arguments["dims"]
        return (
            "x",
            (np.arange(rows * first) * 7919 % 1000 / 1000).astype(np.float32).reshape(rows, first),
            np.arange(rows) * 7919 % last,
        )
    rows, sequence, vocab = (arguments[k] for k in ("batch", "sequence", "vocab"))
    ids = np.arange(rows * sequence)
    return "ids", (ids * 7919 % vocab).reshape(rows, sequence), (ids + 1) * 7919 % vocab


def flops(name):
    """Floating-point operations of a step's matrix products: forward, and those of the gradients
    that are wanted.
    """
    a = TRAINING[name][1]
    if name == "mlp":
        sizes = [x * y for x, y in zip(a["dims"], a["dims"][1:])]
        return 2 * 64 * (3 * sum(sizes) - sizes[0])  # nobody wants the gradient of x
    tokens, d, inner, r = a["batch"] * a["sequence"], a["width"], a["inner"], a.get("rank", 0)
    weights = a["layers"] * (4 * d * d + 3 * d * inner) + d * a["vocab"]
    attention = (
        a["layers"] * 2 * a["sequence"] * d
    )  # of all pairs, as the graph says, though half of them are masked
    adapters = a["layers"] * r * (4 * 2 * d + 3 * (d + inner))
    return 2 * tokens * ((2 if r else 3) * weights + 3 * attention + 3 * adapters)


def model_files(name):
    """NAME.onnx, .weights and .json for all; the same file is every contender's forward graph."""
    folder = WORK / "train"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    function, arguments = TRAINING[name]
    model = function(**arguments)
    data = model.SerializeToString()
    if path.exists() and path.read_bytes() == data:
        return path
    say(f"making {path.name}")
    shutil.rmtree(path.with_suffix(".ort"), ignore_errors=True)
    weights, blob = [], bytearray()
    for i in model.graph.initializer:
        if i.data_type == onnx.TensorProto.FLOAT and i.dims:
            array = numpy_helper.to_array(i)
            weights.append(
                {"name": i.name, "shape": list(array.shape), "at": len(blob), "count": array.size}
            )
            blob += array.tobytes()
    patterns = trained_names(name)
    trained = [
        w["name"] for w in weights if not patterns or any(fnmatch(w["name"], p) for p in patterns)
    ]
    feed, x, labels = batch(name)
    about = (
        {"kind": "mlp", "layers": len(arguments["dims"]) - 1}
        if name == "mlp"
        else {"kind": "gpt", **arguments}
    )
    path.with_suffix(".weights").write_bytes(blob)
    path.with_suffix(".json").write_text(
        json.dumps(
            {
                "model": about,
                "weights": weights,
                "trained": trained,
                "input": {
                    "name": feed,
                    "shape": list(x.shape),
                    **({"vocab": arguments["vocab"]} if feed == "ids" else {}),
                },
                "labels": {
                    "count": len(labels),
                    "classes": arguments["dims"][-1] if name == "mlp" else arguments["vocab"],
                    "shift": 0 if name == "mlp" else 1,
                },
            }
        )
    )
    path.write_bytes(data)
    return path


def ort_artifacts(path):
    """What ONNX Runtime trains from, made by its own Python package in an environment of its own:
    the package and its NumPy are of 2024.
    """
    python = WORK / "ort-training/bin/python"
    if not (python.parent / "ready").exists():
        say(f"installing onnxruntime-training-cpu {ORT}")
        _sh(
            sys.executable, "-m", "venv", WORK / "ort-training"
        )  # its wheels are for Python up to 3.11
        _sh(
            python,
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "install",
            f"onnxruntime-training-cpu=={ORT}",
            "onnx==1.16.2",
            "numpy<2",
        )
        (python.parent / "ready").touch()
    folder = path.with_suffix(".ort")
    if not (folder / "optimizer_model.onnx").exists():
        folder.mkdir(exist_ok=True)
        _sh(python, HERE / "ort_artifacts.py", path, folder, *trained_names(path.stem))


def optimizer():
    from edgewise.training.optimizers import AdamW

    return AdamW(lr=1e-3, weight_decay=0.0, form="ort")


def program(path):
    """The model's training program, from the same file."""
    from edgewise.onnx import FileSource, read_model
    from edgewise.training.losses import CrossEntropyLoss
    from edgewise.training.program import Program

    name = path.stem
    feed, x, _ = batch(name)
    return Program(
        read_model(FileSource(str(path))),
        {feed: list(x.shape)},
        loss=CrossEntropyLoss(),
        optimizer=optimizer(),
        trainable=json.loads(path.with_suffix(".json").read_text())["trained"],
    )


def write_plan(program, target, about):
    """The plan of a step, its weights and the states' first values in TARGET.plan, a description of
    both in TARGET.json. Returns the Plan.
    """
    from edgewise.training.session import TrainingSession

    plan, session, slots = program.plan("train"), TrainingSession(program), []
    with open(target.with_suffix(".plan"), "wb") as f:
        f.write(plan.data)
        for slot in plan.slots:
            slots.append({"name": slot.name, "kind": slot.kind, "bytes": slot.nbytes})
            state = program.states.get(slot.name) if slot.kind == "state" else None
            data = (
                slot.tensor.bytes()
                if slot.kind == "weight"
                else (
                    session.read(slot.name)
                    if state is not None and state.initial != ("fill", 0)
                    else None
                )
            )
            if data is not None:
                f.write(bytes(-f.tell() % 64))
                slots[-1]["at"] = f.tell()
                f.write(data)
    session.free()
    target.with_suffix(".json").write_text(
        json.dumps({**about, "plan": [0, len(plan.data)], "slots": slots})
    )
    return plan


# ---- a case ----
def run(bench, cases, rounds, seconds):
    found = {}
    for name in TRAINING:
        try:
            bench_trouble, bench.trouble = bench.trouble, []
            found[f"train {name}"] = one_model(bench, name, rounds, seconds / 2)
            found[f"train {name}"]["trouble"] = bench.trouble
        finally:
            bench.trouble = bench_trouble
    return found | adapters(bench, rounds)


def one_model(bench, name, rounds, seconds):
    path = model_files(name)
    try:
        ort_artifacts(path)
    except (RuntimeError, OSError) as e:
        bench.failed("ONNX Runtime's artifacts", e)
    listed = dict(CONTENDERS)
    plans = {
        name: write_plan(
            program(path),
            WORK / "train" / f"{name}-edgewise",
            json.loads(path.with_suffix(".json").read_text()),
        )
    }
    if name == "gpt6-lora":
        other = model_files("gpt6")
        write_plan(
            program(other),
            WORK / "train/gpt6-edgewise",
            json.loads(other.with_suffix(".json").read_text()),
        )
        listed[FULL] = CONTENDERS[ONE]
    contenders, versions = {}, {}
    for who, (script, args) in listed.items():
        model = "gpt6" if who == FULL else name
        one = bench.contend(
            who,
            script,
            "open",
            f"/bench/train/{model}{'-edgewise' if script == 'training.js' else ''}",
            *args,
        )
        if one:
            contenders[who] = one
            if one.opened.get("version"):
                versions[who.split(",")[0].split(" ")[0]] = one.opened["version"]
    torch = Torch(path)
    times, losses, first, memory, cpu = (
        {who: [] for who in [*contenders, TORCH]},
        {},
        {},
        {},
        {who: [] for who in contenders},
    )
    limits = {f: one for f in ("simd128", "relaxed") if (one := bench.limit(f))}
    peaks = {f: [] for f in limits}

    def take_part(who, count, ms):
        if who == TORCH:
            return torch.steps(count, ms)
        return contenders[who].call_and_find("steps", count, ms)

    for who in list(times):  # the loss before the first step, after one, and after five; and warm
        try:
            warm = take_part(who, 6, 0)
            losses[who], first[who] = warm["losses"], warm["ms"][0]
        except Exception as e:
            bench.failed(who, e)
            del times[who]
            if who in contenders:
                contenders.pop(who).close()
    differences = compare({w: x for w, x in losses.items() if w != FULL})
    for who in leave_out(
        bench, TITLES[name], differences, dict.fromkeys(differences, TOLERANCE), times
    ):
        if who in contenders:
            contenders.pop(who).close()
    end = time.monotonic() + seconds
    for number in range(rounds):
        if number >= 2 and time.monotonic() > end:
            break
        quickest = min((np.median(t) for t in times.values() if t), default=0)
        order = list(times)
        for who in order[number % len(order) :] + order[: number % len(order)]:
            if number >= 2 and np.median(times[who]) > SLOW * quickest:
                continue
            try:
                ms = take_part(who, 2 if number == 0 else 3, 250)["ms"]
                times[who].append(float(np.median(ms)))
                if who in contenders:
                    cpu[who].append(contenders[who].worked / len(ms))
            except Exception as e:
                bench.failed(who, e)
                del times[who]
                if who in contenders:
                    contenders.pop(who).close()
        for flavour, one in limits.items():
            peaks[flavour].append(one.call("measure")["flops"])
    for who, one in contenders.items():
        memory[who] = (
            one.peak_mb(),
            one.call("memory") / 2**20 if listed[who][0] == "training.js" else None,
        )
        one.close()
    for one in limits.values():
        one.close()
    return result(
        name,
        plans[name],
        times,
        first,
        cpu,
        differences,
        memory,
        peaks,
        versions,
        empty_page(bench),
    )


def empty_page(bench):
    """MB that a page with a worker that does nothing takes."""
    one = Contender(bench, "an empty page", "rpc.js")
    one.settle()
    found = one.peak_mb()
    one.close()
    return found


def compare(losses):
    """{contender: largest relative difference from onnxruntime-web's (else the first one's) losses
    before the first step, after one and after five}
    """
    reference = losses.get(ORT_ONE) or next(iter(losses.values()), None)
    return {
        who: max(abs(x[i] - reference[i]) / abs(reference[i]) for i in (0, 1, 5))
        for who, x in losses.items()
    }


def result(name, plan, times, first, cpu, differences, memory, peaks, versions, empty_mb):
    work = flops(name)
    floors = {f: work / np.median(p) / 1e6 for f, p in peaks.items() if p}
    table, raw = [], {}
    for who, t in times.items():
        if not t:
            continue
        s = raw[who] = summary(t)
        floor = (
            floors.get("simd128" if who == SIMD else "relaxed")
            if who in (SIMD, ONE, FULL)
            else None
        )
        table.append(
            [
                who,
                f"{show(s['median'])} [{show(s['q1'])}–{show(s['q3'])}]",
                str(s["n"]),
                f"{np.median(times[ORT_ONE]) / s['median']:.2f}×" if times.get(ORT_ONE) else "–",
                f"{100 * floor / s['median']:.0f} %" if floor and who != FULL else "–",
                show(summary(cpu[who])["median"]) if cpu.get(who) else "–",
                f"{show(memory[who][0])} MB" if who in memory and memory[who][0] else "–",
                f"{show(memory[who][1])} MB" if who in memory and memory[who][1] else "–",
                f"{first[who] / s['median']:.2f}×",
                show(differences[who], 1) if who in differences else "–",
            ]
        )
    cpu = {
        who: c for who, c in cpu.items() if all(c)
    }  # none where the page's process was not found
    ratios = [
        {"ours": a, "theirs": b, **r, "cpu": ratio(cpu.get(b), cpu.get(a))}
        for a, b in RATIOS
        if (r := ratio(times.get(b), times.get(a)))
    ]
    notes = [
        f"Arithmetic floor: {work / 1e9:.3g} GFLOP in matrix products of the forward and backward"
        " part, at the multiply-adds measured in the same rounds: "
        + ", ".join(
            f"{f} {show(np.median(peaks[f]))} GFLOP/s, so {show(ms)} ms" for f, ms in floors.items()
        )
        + ".",
        (
            "That counts the attention of all pairs, as the graph says; Edgewise leaves out most of"
            " what the causal mask hides."
            if "gpt" in name
            else None
        ),
        (
            "Same file, same first weights, same batch, AdamW in float32; the losses before the"
            f" first step, after one and after five agree within {TOLERANCE:g}, or it says so here."
        ),
        (
            f"Plan: {len(plan.kernels)} steps, arena {show(plan.arena_bytes / 2**20)} MB. Peak:"
            " most resident memory of the page's renderer process, loading included (an empty page"
            f" with a worker: {show(empty_mb)} MB); engine: all of the engine's memory."
        ),
        (
            "A step is forward, backward and the optimizer, with the loss read. onnxruntime-web:"
            " runTrainStep, runOptimizerStep, lazyResetGrad. jax-js and TensorFlow.js multiply"
            " one-hot rows, since their embedding lookup has no gradient there."
        ),
    ]
    notes = [n for n in notes if n]
    if FULL in times and times.get(ONE):
        r = ratio(times[ONE], times[FULL])
        notes.insert(
            0,
            f"LoRA takes {r['median']:.2f} [{r['q1']:.2f}–{r['q3']:.2f}] of the time of training"
            " all parameters.",
        )
    shares = {
        "": {
            who: [floors[flavour] / raw[who]["median"], "multiply-adds"]
            for who, flavour in ((SIMD, "simd128"), (ONE, "relaxed"))
            if who in raw and flavour in floors
        }
    }
    return {
        "title": TITLES[name],
        "unit": "ms",
        "values": {"": {who: t for who, t in times.items() if t}},
        "shares": shares,
        "memory": {who: m[0] for who, m in memory.items() if m[0]},
        "columns": [
            "",
            "ms per step",
            "rounds",
            "speed, onnxruntime-web's 1 thread = 1",
            "of the floor",
            "processor ms",
            "peak memory",
            "engine",
            "first step over the median",
            "difference",
        ],
        "table": table,
        "ratios": ratios,
        "first": {"": {who: first[who] / raw[who]["median"] for who in raw}},
        "peer": (
            f"onnxruntime-web {versions.get('onnxruntime-web', ORT)}, TensorFlow.js"
            f" {versions.get('TensorFlow.js', '?')}, PyTorch {torch_version()}"
        ),
        "notes": notes,
    }


def torch_version():
    import torch

    return torch.__version__


class Torch:
    """PyTorch on the same weights, eager as people run it, one thread."""

    def __init__(self, path):
        import torch
        import torch.nn.functional as F

        torch.set_num_threads(1)
        self.torch, model = torch, onnx.load(path)
        about = json.loads(path.with_suffix(".json").read_text())
        a = about["model"]
        w = {
            i.name: torch.from_numpy(numpy_helper.to_array(i).copy())
            for i in model.graph.initializer
        }
        for name in about["trained"]:
            w[name].requires_grad_()
        _, x, labels = batch(path.stem)
        x, labels = torch.from_numpy(x), torch.from_numpy(labels)
        self.optimizer = torch.optim.AdamW(
            [w[n] for n in about["trained"]], lr=1e-3, weight_decay=0.0, fused=True
        )

        def linear(x, name):
            y = x @ w[name]
            return y + x @ w[name + ".lora_A"] @ w[name + ".lora_B"] if name + ".lora_A" in w else y

        def norm(x, name):
            return F.rms_norm(x, x.shape[-1:], w[name], 1e-5)

        def mlp(h):
            for i in range(a["layers"]):
                h = torch.addmm(w[f"b{i}"], h, w[f"w{i}"])
                h = torch.relu(h) if i + 1 < a["layers"] else h
            return h

        def gpt(ids):
            h = F.embedding(ids, w["embedding"])
            for i in range(a["layers"]):
                p = f"layers.{i}."
                y = norm(h, p + "norm1")
                q, k, v = (
                    linear(y, p + n).view(*ids.shape, a["heads"], -1).transpose(1, 2) for n in "qkv"
                )
                h = h + linear(
                    F.scaled_dot_product_attention(q, k, v, is_causal=True)
                    .transpose(1, 2)
                    .reshape(h.shape),
                    p + "o",
                )
                y = norm(h, p + "norm2")
                h = h + linear(F.silu(linear(y, p + "gate")) * linear(y, p + "up"), p + "down")
            return (norm(h, "norm") @ w["head"]).flatten(0, 1)

        self.loss = lambda: F.cross_entropy((mlp if a["kind"] == "mlp" else gpt)(x), labels)

    def steps(self, count, milliseconds):
        losses, ms, begin = [], [], time.perf_counter()
        while len(ms) < count or (time.perf_counter() - begin) * 1e3 < milliseconds:
            start = time.perf_counter()
            loss = self.loss()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
            ms.append((time.perf_counter() - start) * 1e3)
        return {"losses": losses, "ms": ms}


# ---- adapters on a model of SmolLM2-135M's size ----
TOKENS = 128
ADAPTERS = {"float32": 1536, "4 bits": 614}  # base: goal in MB of engine memory


def adapter_files():
    """The base in float32 and in 4 bits (onnxruntime's quantizer, blocks of 32)."""
    folder = WORK / "llm"
    folder.mkdir(parents=True, exist_ok=True)
    full, small = folder / "model.onnx", folder / "model-q4.onnx"
    if not full.exists():
        say("making model.onnx")
        onnx.save(language_model(**SMOLLM2), folder / "part")
        (folder / "part").rename(full)
    if not small.exists():
        say("making model-q4.onnx")
        onnx.save(in_4_bits(onnx.load(full)), folder / "part")
        (folder / "part").rename(small)
    return {"float32": full, "4 bits": small}


def adapter_program(path):
    from edgewise.onnx import FileSource, read_model
    from edgewise.training.language_model import causal_lm_inputs
    from edgewise.training.losses import CausalLMLoss
    from edgewise.training.package import default_lora
    from edgewise.training.program import Program

    graph = read_model(FileSource(str(path)))
    return Program(
        graph,
        **causal_lm_inputs(graph, 1, TOKENS),
        loss=CausalLMLoss(),
        optimizer=optimizer(),
        lora=default_lora(r=8, lora_alpha=8),
        trainable=[],
    )


def adapters(bench, rounds):
    bench.trouble, kept = [], bench.trouble
    table, values = [], {}
    for base, path in adapter_files().items():
        about = {
            "input": {"name": "input_ids", "shape": [1, TOKENS], "vocab": SMOLLM2["vocab"]},
            "labels": {"count": TOKENS, "classes": SMOLLM2["vocab"], "shift": 0},
        }
        plan = write_plan(adapter_program(path), WORK / "train" / f"smollm2-{base[0]}", about)
        for who in (ONE, TWO):
            one = bench.contend(
                f"{who}, {base}",
                "training.js",
                "open",
                f"/bench/train/smollm2-{base[0]}",
                *CONTENDERS[who][1],
            )
            if not one:
                continue
            try:
                one.call("steps", 2, 0)
                ms = one.call("steps", max(3, rounds), 0)["ms"]
                s = summary(ms)
                engine = one.call("memory") / 2**20
                values.setdefault(base, {})[who] = ms
                table.append(
                    [
                        f"{base}, {who}",
                        f"{show(s['median'])} [{show(s['q1'])}–{show(s['q3'])}]",
                        show(TOKENS / s["median"] * 1e3),
                        f"{show(engine)} MB",
                        f"≤ {ADAPTERS[base]} MB",
                        f"{show(plan.arena_bytes / 2**20)} MB",
                        f"{show(one.peak_mb())} MB",
                    ]
                )
                say("  " + ", ".join(table[-1]))
            except Exception as e:
                bench.failed(f"{who}, {base}", e)
            one.close()
    found = {
        "train smollm2-lora": {
            "title": (
                "LoRA step on a base of SmolLM2-135M's size: r = 8, all linear layers, 1 ×"
                f" {TOKENS} tokens"
            ),
            "columns": [
                "base",
                "ms per step",
                "tokens/s",
                "engine memory",
                "goal",
                "arena",
                "peak memory",
            ],
            "table": table,
            "unit": "ms",
            "values": values,
            "trouble": bench.trouble,
            "notes": [
                "No other engine here trains this. The 4-bit base is MatMulNBits in blocks of 32 as"
                " onnxruntime's quantizer writes it; its embedding and output layer, which share"
                " their weights, stay in float32."
            ],
        }
    }
    bench.trouble = kept
    return found
