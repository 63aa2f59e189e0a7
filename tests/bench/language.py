"""Cases `decode` and `prefill`: a language model of the size of SmolLM2-135M, float32."""
from __future__ import annotations

import time

import numpy as np
import onnx

from .browser import ROOT, WORK, say
from .models import SMOLLM2, language_model
from .stats import ratio, summary

PROMPT, STEPS, CAPACITY = 256, 12, 512
TOLERANCE = 1e-3
IDS = [(i * 7919 + 11) % 40000 for i in range(PROMPT + STEPS)]  # the same for all; what a contender would choose is not fed back
CONTENDERS = {  # name: (script, arguments of open)
    "Edgewise simd128": ("edgewise.js", ("/bench/llm/model.edge", "simd128", 1)),
    "Edgewise relaxed, 1 thread": ("edgewise.js", ("/bench/llm/model.edge", "relaxed-threads", 1)),
    "Edgewise relaxed, 2 threads": ("edgewise.js", ("/bench/llm/model.edge", "relaxed-threads", 2)),
    "onnxruntime-web, 1 thread": ("ort.js", ("/bench/llm/model.onnx", 1, SMOLLM2["kv_heads"], SMOLLM2["head_dim"])),
    "onnxruntime-web, 2 threads": ("ort.js", ("/bench/llm/model.onnx", 2, SMOLLM2["kv_heads"], SMOLLM2["head_dim"])),
    "onnxruntime-web, last logits only, 1 thread": ("ort.js", ("/bench/llm/model-last.onnx", 1, SMOLLM2["kv_heads"], SMOLLM2["head_dim"])),
}
ONE, TWO, LAST = "onnxruntime-web, 1 thread", "onnxruntime-web, 2 threads", "onnxruntime-web, last logits only, 1 thread"
RATIOS = {
    "prefill": [("Edgewise simd128", ONE), ("Edgewise relaxed, 1 thread", ONE), ("Edgewise relaxed, 1 thread", LAST), ("Edgewise relaxed, 2 threads", TWO),
                ("Edgewise relaxed, 2 threads", "Edgewise relaxed, 1 thread")],
    "decode": [("Edgewise simd128", ONE), ("Edgewise relaxed, 1 thread", ONE), ("Edgewise relaxed, 2 threads", TWO), ("Edgewise relaxed, 2 threads", "Edgewise relaxed, 1 thread")],
}
NOTES = {
    "prefill": ["The exported graph asks for logits at all 256 positions. onnxruntime-web computes them; Edgewise's compiler keeps the last position's, which is all that generation needs. "
                f"“{LAST}” is the same model with that change made in the graph: compare with it for equal arithmetic.",
                "Both make the greedy choice in JavaScript within the time."],
    "decode": ["Fixed tokens are fed, so that all do the same work; both make the greedy choice in JavaScript within the time. Each figure is the median of a round's "
               f"{STEPS} tokens from position {PROMPT} on.",
               "onnxruntime-web hands its cache out and in as tensors, as transformers.js does on wasm; Edgewise writes it in place."],
}


def model_files():
    """Makes the model, its variant and the package, once; again when the compiler has changed."""
    folder = WORK / "llm"
    folder.mkdir(parents=True, exist_ok=True)
    for name, last_only in (("model.onnx", False), ("model-last.onnx", True)):
        if not (folder / name).exists():
            say(f"making {name}")
            part = folder / "part"
            onnx.save(language_model(**SMOLLM2, last_only=last_only), part)
            part.rename(folder / name)
    package = folder / "model.edge"
    sources = list((ROOT / "python/edgewise").rglob("*.py"))
    if not package.exists() or package.stat().st_mtime < max(s.stat().st_mtime for s in sources):
        from edgewise.session.decoder import open_package
        part = folder / "part"
        with open(part, "wb") as f:
            open_package(str(folder / "model.onnx"), None, CAPACITY).write(f)
        part.rename(package)
    return folder


def run(bench, cases, rounds, seconds):
    """One loading for both cases; rounds in which every contender has one prefill and one decode, in turns."""
    model_files()
    contenders = {}
    for name, (script, args) in CONTENDERS.items():
        if name == LAST and "prefill" not in cases:
            continue
        one = bench.contend(name, script, "open", *args)
        if one:
            say(f"  {name}: loaded in {one.opened['ms'] / 1e3:.1f} s, peak {one.peak_mb()} MB")
            contenders[name] = one
    limit = bench.limit("relaxed")
    limits = []
    speeds = {case: {name: [] for name in contenders if case == "prefill" or name != LAST} for case in cases}
    cpu = {case: {name: [] for name in speeds[case]} for case in cases}
    logits, peaks = {}, {}
    end = time.monotonic() + seconds
    for number in range(-1, rounds):  # round -1 warms up and checks
        if number >= 2 and time.monotonic() > end:
            say(f"  time is up after {number} rounds")
            break
        names = list(contenders)
        shift = number % len(names) if names else 0
        for name in names[shift:] + names[:shift]:
            one = contenders[name]
            try:
                clock = [one.cpu_ms()]
                prefill = one.call("prefill", IDS[:PROMPT])
                clock.append(one.cpu_ms())
                seen = [one.floats("logits")] if number < 0 else []
                times = one.call("decode", PROMPT, IDS[PROMPT:]) if name in speeds.get("decode", ()) or number < 0 else []
                clock.append(one.cpu_ms())
                if number < 0:
                    logits[name] = seen + [one.floats("logits")]
                    continue
                if "prefill" in cases:
                    speeds["prefill"][name].append(PROMPT / prefill * 1e3)
                    cpu["prefill"][name].append((clock[1] - clock[0]) / PROMPT)
                if times:
                    speeds["decode"][name].append(1e3 / np.median(times))
                    cpu["decode"][name].append((clock[2] - clock[1]) / STEPS)
            except Exception as e:
                bench.failed(name, e)
                del contenders[name]
                one.close()
        if limit and number >= 0:
            limits.append(limit.call("measure"))
    for name, one in contenders.items():
        peaks[name] = one.peak_mb()
    differences = compare(bench, logits)
    loads = {name: one.opened["ms"] for name, one in contenders.items()}
    version = next((one.opened.get("version") for one in contenders.values() if one.opened.get("version")), None)
    for one in [*contenders.values(), *([limit] if limit else [])]:
        one.close()
    return {case: {
        "title": {"prefill": f"Prefill of {PROMPT} tokens", "decode": f"Decode at position {PROMPT}"}[case] + ", SmolLM2-135M dimensions, float32",
        "unit": "tokens/s", "better": "higher",
        "rows": [{"name": n, **summary(v), "cpu_ms": summary(cpu[case][n]), "load_ms": loads[n], "peak_mb": peaks[n], "difference": differences.get(n)} for n, v in speeds[case].items() if v and n in peaks],
        "ratios": [{"ours": a, "theirs": b, **r, "cpu": ratio(cpu[case][b], cpu[case][a])} for a, b in RATIOS[case] if (r := ratio(speeds[case].get(a), speeds[case].get(b)))],
        "limits": {k: summary([x[k] for x in limits]) for k in ("flops", "bandwidth")} if limits else None,
        "peer": f"onnxruntime-web {version}", "notes": NOTES[case] + [
            "Processor time is what all threads of the page's process took, and hardly moves with the machine's load; for one thread its ratio is the speed's on a quiet machine.",
            f"Same weights, same tokens; logits after the prompt and after the last token agree within {TOLERANCE:g} × max(1, |logit|), or it says so here. "
            "Peak: most resident memory of the page's renderer process, loading included; each contender has a page and process of its own."],
    } for case in cases}


def compare(bench, logits):
    """Largest differences of each from onnxruntime-web (else from the first), relative to max(1, |value|)."""
    reference = logits.get(ONE) or next(iter(logits.values()), None)
    found = {}
    for name, arrays in logits.items():
        found[name] = max(float(np.max(np.abs(a - b) / np.maximum(1, np.abs(b)))) for a, b in zip(arrays, reference))
        if not found[name] <= TOLERANCE:
            bench.trouble.append(f"{name}: its logits differ by {found[name]:.3g}: NOT COMPARABLE")
    return found
