"""Case `train`: training steps of Edgewise, onnxruntime-web's last release with training, jax-js,
TensorFlow.js, and PyTorch natively.
"""

from __future__ import annotations

import json
import time

import numpy as np

from ..browser import WORK, Contender
from ..contenders import JAX, ONE, SIMD, TF, TORCH, TWO, leave_out
from ..contenders import ORT_TRAINING as ORT
from ..contenders import TRAINING_ONE as ORT_ONE
from ..contenders import TRAINING_TWO as ORT_TWO
from ..stats import ratio, show, summary
from .adapters import adapters
from .models import CONTENDERS, flops, model_files, ort_artifacts
from .networks import TRAINING
from .plans import program, write_plan
from .pytorch import Torch, torch_version

CASES = ("train",)


TITLES = {
    "mlp": "Training step: MLP 784-512-512-10, batch 64",
    "gpt4": "Training step: GPT, 4 layers of 96, batch 16 × 64 tokens",
    "gpt6": "Training step: GPT, 6 layers of 192, batch 8 × 128 tokens",
    "gpt6-lora": "Training step: the same with LoRA r = 8 on all linear layers",
}


FULL = "Edgewise relaxed, 1 thread, all parameters instead"


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


SLOW = 6  # a contender slower than the fastest by this factor takes part in two rounds only


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


# long: the rounds of one model
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

    # the losses before the first step, after one step and after five; this also warms up
    for who in list(times):
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
    """Memory in MB of a page with an idle worker."""
    one = Contender(bench, "an empty page", "rpc.js")
    one.settle()
    found = one.peak_mb()
    one.close()
    return found


def compare(losses):
    """Compares losses with those of onnxruntime-web, or of the first contender if it is absent.

    Returns {contender: largest relative difference of the losses before the first step, after one
    step and after five}.
    """
    reference = losses.get(ORT_ONE) or next(iter(losses.values()), None)
    return {
        who: max(abs(x[i] - reference[i]) / abs(reference[i]) for i in (0, 1, 5))
        for who, x in losses.items()
    }


# long: the report of one model, column by column
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
    }  # absent if the process of the page was not found
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
