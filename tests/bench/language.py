"""Cases `decode` and `prefill`: a language model of the size of SmolLM2-135M, in float32; with -int8, -4bit, -4bit-level4 and -genai behind their names quantized."""
from __future__ import annotations

import time

import numpy as np
import onnx

from .browser import ROOT, WORK, say
from .models import SMOLLM2, genai_model, in_4_bits, language_model
from .stats import ratio, summary

PROMPT, STEPS, CAPACITY = 256, 12, 512
IDS = [(i * 7919 + 11) % 40000 for i in range(PROMPT + STEPS)]  # the same for all; what a contender would choose is not fed back
FORMATS = {  # name of the files: (in words, largest difference of logits from onnxruntime-web's, relative to the largest logit)
    "model": ("float32", 1e-3),
    "int8": ("dynamic int8 (onnxruntime.quantization.quantize_dynamic)", 0.2),
    "4bit": ("4 bits (MatMulNBits, block 32)", 1e-3),
    "4bit-level4": ("4 bits (MatMulNBits, block 32, accuracy_level 4)", 0.1),
    "genai": ("4 bits as onnxruntime-genai exports it (GroupQueryAttention, MatMulNBits, block 32, accuracy_level 4)", 0.1),
}
CASES = {f"{case}{'' if f == 'model' else '-' + f}": (case, f) for f in FORMATS for case in ("prefill", "decode")}
ONE, TWO, LAST = "onnxruntime-web, 1 thread", "onnxruntime-web, 2 threads", "onnxruntime-web, last logits only, 1 thread"


def contenders_of(name):
    """{name: (script, arguments of open)}"""
    heads = SMOLLM2["kv_heads"], SMOLLM2["head_dim"]
    return {
        "Edgewise simd128": ("edgewise.js", (f"/bench/llm/{name}.edge", "simd128", 1)),
        "Edgewise relaxed, 1 thread": ("edgewise.js", (f"/bench/llm/{name}.edge", "relaxed-threads", 1)),
        "Edgewise relaxed, 2 threads": ("edgewise.js", (f"/bench/llm/{name}.edge", "relaxed-threads", 2)),
        ONE: ("ort.js", (f"/bench/llm/{name}.onnx", 1, *heads)),
        TWO: ("ort.js", (f"/bench/llm/{name}.onnx", 2, *heads)),
        LAST: ("ort.js", (f"/bench/llm/{name}-last.onnx", 1, *heads)),
    }


RATIOS = {
    "prefill": [("Edgewise simd128", ONE), ("Edgewise relaxed, 1 thread", ONE), ("Edgewise relaxed, 1 thread", LAST), ("Edgewise relaxed, 2 threads", TWO),
                ("Edgewise relaxed, 2 threads", "Edgewise relaxed, 1 thread")],
    "decode": [("Edgewise simd128", ONE), ("Edgewise relaxed, 1 thread", ONE), ("Edgewise relaxed, 2 threads", TWO), ("Edgewise relaxed, 2 threads", "Edgewise relaxed, 1 thread"),
               ("Edgewise relaxed, 1 thread", "native onnxruntime, 1 thread")],
}
NOTES = {
    "prefill": ["The exported graph asks for logits at all 256 positions. onnxruntime-web computes them; Edgewise's compiler keeps the last position's, which is all that generation needs. "
                f"“{LAST}” is the same model with that change made in the graph: compare with it for equal arithmetic.",
                "Both make the greedy choice in JavaScript within the time."],
    "decode": ["Fixed tokens are fed, so that all do the same work; both make the greedy choice in JavaScript within the time. Each figure is the median of a round's "
               f"{STEPS} tokens from position {PROMPT} on.",
               "onnxruntime-web hands its cache out and in as tensors, as transformers.js does on wasm; Edgewise writes it in place."],
}
MORE = {
    "int8": "Dynamic quantization quantizes the activations of all tokens of a run at once, and Edgewise runs prompts in chunks: its logits differ by what the quantization itself does.",
    "4bit-level4": "accuracy_level 4 allows activations to be rounded to int8; how is each engine's choice.",
}
MORE["genai"] = MORE["4bit-level4"]


def make(name, last_only):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    path = WORK / "llm" / f"{name}{'-last' if last_only else ''}.onnx"
    if path.exists():
        return
    say(f"making {path.name}")
    part = path.with_name("part")
    model = genai_model(**SMOLLM2, last_only=last_only) if name == "genai" else language_model(**SMOLLM2, last_only=last_only, head=name != "model")
    if name in ("4bit", "4bit-level4", "genai"):
        model = in_4_bits(model, accuracy_level=0 if name == "4bit" else 4)
    if name == "int8":
        onnx.save(model, path.with_name("float"))
        quantize_dynamic(path.with_name("float"), part, weight_type=QuantType.QInt8, extra_options={"MatMulConstBOnly": True})
        path.with_name("float").unlink()
    else:
        onnx.save(model, part)
    part.rename(path)


def model_files(name="model"):
    """Makes the model, its variant and the package, once; again when the compiler has changed."""
    folder = WORK / "llm"
    folder.mkdir(parents=True, exist_ok=True)
    for last_only in (False, True):
        make(name, last_only)
    package = folder / f"{name}.edge"
    sources = list((ROOT / "python/edgewise").rglob("*.py"))
    if not package.exists() or package.stat().st_mtime < max(s.stat().st_mtime for s in sources):
        from edgewise.session.decoder import open_package
        part = folder / "part"
        with open(part, "wb") as f:
            open_package(str(folder / f"{name}.onnx"), None, CAPACITY).write(f)
        part.rename(package)
    return folder


class Native:
    """onnxruntime in this process, for scale: with the interface of a Contender as far as `measure` needs it."""

    def __init__(self, name, threads):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        begin = time.perf_counter()
        self.session = onnxruntime.InferenceSession(WORK / "llm" / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
        self.opened = {"ms": 1e3 * (time.perf_counter() - begin)}
        self.empty = np.zeros((1, SMOLLM2["kv_heads"], 0, SMOLLM2["head_dim"]), np.float32)
        self.names = [o.name for o in self.session.get_outputs()]
        self.kept = ()

    def run(self, ids):
        n = len(ids)
        feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, self.past + n), np.int64), "position_ids": np.arange(self.past, self.past + n)[None]}
        for i in self.session.get_inputs():
            if i.name.startswith("past"):
                feeds[i.name] = self.cache.get(i.name.replace("past_key_values", "present"), self.empty)
        self.cache = dict(zip(self.names, self.session.run(None, feeds)))
        self.past += n
        self.last = self.cache["logits"][0, -1]
        self.last.argmax()

    def call(self, method, *args):
        if method == "prefill":
            self.cache, self.past = {}, 0
            begin = time.perf_counter()
            self.run(args[0])
            self.kept = self.cache, self.past
            return 1e3 * (time.perf_counter() - begin)
        self.cache, self.past = self.kept
        times = []
        for one in args[1]:
            begin = time.perf_counter()
            self.run([one])
            times.append(1e3 * (time.perf_counter() - begin))
        return times

    def floats(self, _):
        return self.last.copy()

    def cpu_ms(self):
        return 1e3 * time.process_time()

    def peak_mb(self):
        return None

    def close(self):
        self.session = self.cache = self.kept = None


def run(bench, cases, rounds, seconds):
    found = {}
    for name in FORMATS:
        wanted = {CASES[c][0]: c for c in cases if CASES[c][1] == name}
        if wanted:
            found |= {wanted[case]: result for case, result in measure(bench, name, list(wanted), rounds, seconds).items()}
    return found


def measure(bench, model, cases, rounds, seconds):
    """One loading for both cases; rounds in which every contender has one prefill and one decode, in turns."""
    model_files(model)
    contenders = {}
    for name, (script, args) in contenders_of(model).items():
        if name == LAST and "prefill" not in cases:
            continue
        one = bench.contend(name, script, "open", *args)
        if one:
            say(f"  {name}: loaded in {one.opened['ms'] / 1e3:.1f} s, peak {one.peak_mb()} MB")
            contenders[name] = one
    for threads in (1, 2):
        contenders[f"native onnxruntime, {threads} thread{'s' * (threads > 1)}"] = Native(model, threads)
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
    differences = compare(bench, logits, model)
    loads = {name: one.opened["ms"] for name, one in contenders.items()}
    version = next((one.opened.get("version") for one in contenders.values() if one.opened.get("version")), None)
    for one in [*contenders.values(), *([limit] if limit else [])]:
        one.close()
    return {case: {
        "title": {"prefill": f"Prefill of {PROMPT} tokens", "decode": f"Decode at position {PROMPT}"}[case] + f", SmolLM2-135M dimensions, {FORMATS[model][0]}",
        "unit": "tokens/s", "better": "higher",
        "rows": [{"name": n, **summary(v), "cpu_ms": summary(cpu[case][n]), "load_ms": loads[n], "peak_mb": peaks[n], "difference": differences.get(n)} for n, v in speeds[case].items() if v and n in peaks],
        "ratios": [{"ours": a, "theirs": b, **r, "cpu": ratio(cpu[case][b], cpu[case][a])} for a, b in RATIOS[case] if (r := ratio(speeds[case].get(a), speeds[case].get(b)))],
        "limits": {k: summary([x[k] for x in limits]) for k in ("flops", "bandwidth")} if limits else None,
        "peer": f"onnxruntime-web {version}", "notes": NOTES[case] + ([MORE[model]] if model in MORE else []) + [
            "Processor time is what all threads of the page's process took, and hardly moves with the machine's load; for one thread its ratio is the speed's on a quiet machine.",
            f"Same weights, same tokens; logits after the prompt and after the last token agree within {FORMATS[model][1]:g} × the largest logit, or it says so here. "
            "Peak: most resident memory of the page's renderer process, loading included; each contender has a page and process of its own."],
    } for case in cases}


def compare(bench, logits, model):
    """Largest differences of each from onnxruntime-web (else from the first), relative to the largest value."""
    reference = logits.get(ONE) or next(iter(logits.values()), None)
    found = {}
    for name, arrays in logits.items():
        found[name] = max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in zip(arrays, reference))
        if not found[name] <= FORMATS[model][1]:
            bench.trouble.append(f"{name}, {FORMATS[model][0]}: its logits differ by {found[name]:.3g}: NOT COMPARABLE")
    return found
