"""Cases `prefill` and `decode`: a language model in several formats."""

from __future__ import annotations

import numpy as np

from ..browser import say
from ..contenders import (
    EDGEWISE,
    NATIVE,
    NATIVE_TWO,
    ONE,
    ORT_ONE,
    ORT_TWO,
    SIMD,
    SLOW,
    TORCH,
    TWO,
    WLLAMA_ONE,
    WLLAMA_TWO,
    Limits,
    leave_out,
    turns,
)
from ..models import SMOLLM2
from ..stats import cell, ratio, show
from .formats import CASES, CLOSE, FORMATS, GGUF, IDS, LAST, PROMPT, STEPS, gguf, model_files
from .native import Native, Torch


def contenders_of(name):
    """Returns {name: (script, arguments of open)}."""
    heads = SMOLLM2["kv_heads"], SMOLLM2["head_dim"]
    found = {
        who: ("edgewise.js", (f"/bench/llm/{name}.edge", *how)) for who, how in EDGEWISE.items()
    }
    found |= {
        who: ("ort.js", (f"/bench/llm/{file}.onnx", threads, *heads))
        for who, file, threads in (
            (ORT_ONE, name, 1),
            (ORT_TWO, name, 2),
            (LAST, f"{name}-last", 1),
        )
    }
    if name in GGUF:
        found |= {
            who: ("wllama.js", (f"/bench/llm/{GGUF[name]}.gguf", threads))
            for who, threads in ((WLLAMA_ONE, 1), (WLLAMA_TWO, 2))
        }
    return found


RATIOS = {
    "prefill": [
        (SIMD, ORT_ONE),
        (ONE, ORT_ONE),
        (ONE, LAST),
        (TWO, ORT_TWO),
        (TWO, ONE),
        (ONE, WLLAMA_ONE),
        (TWO, WLLAMA_TWO),
        (ONE, NATIVE),
        (ONE, TORCH),
    ],
    "decode": [
        (SIMD, ORT_ONE),
        (ONE, ORT_ONE),
        (TWO, ORT_TWO),
        (TWO, ONE),
        (ONE, WLLAMA_ONE),
        (TWO, WLLAMA_TWO),
        (ONE, NATIVE),
        (ONE, TORCH),
    ],
}


NOTES = {
    "prefill": [
        (
            "The exported graph asks for logits at all 256 positions. onnxruntime computes them;"
            " Edgewise's compiler keeps the last position's, which is all that generation needs;"
            f" so do llama.cpp and PyTorch as they are called here. “{LAST}” is the same model with"
            " that change made in the graph: compare with it for equal arithmetic."
        ),
        (
            f"The greedy choice is made within the time. Who takes more than {SLOW:g} s for the"
            " prompt has one round of it."
        ),
    ],
    "decode": [
        (
            "Fixed tokens are fed, so that all do the same work (wllama: those that it chooses);"
            " the greedy choice is made within the time. Each figure is the median of a round's"
            f" {STEPS} tokens from position {PROMPT} on."
        ),
        (
            "onnxruntime hands its cache out and in as tensors, as transformers.js does on wasm;"
            " Edgewise, llama.cpp and PyTorch keep it."
        ),
    ],
}


MORE = {
    "int8": (
        "Dynamic quantization quantizes the activations of all tokens of a run at once, and"
        " Edgewise runs prompts in chunks: its logits differ by what the quantization itself does."
    ),
    "4bit-level4": (
        "accuracy_level 4 allows activations to be rounded to int8; how is each engine's choice."
    ),
}


MORE["genai"] = MORE["4bit-level4"]


LLAMA = (
    "wllama: llama.cpp's {}, made by the gguf package of the same float32 weights, the logits'"
    " product included; products quantize activations to bytes. Its own clock counts, without the"
    " tokenizer."
)


def work(case, model):
    """The minimum work for one token: {flops, dots, bytes} for Limits.share."""
    d = SMOLLM2
    products = (
        d["layers"]
        * d["width"]
        * ((2 * d["heads"] + 2 * d["kv_heads"]) * d["head_dim"] + 3 * d["inner"])
    )
    head = d["width"] * d["vocab"]
    # logits of the last position only; attention of the half that is not masked
    if case == "prefill":
        attention = 4 * d["layers"] * d["heads"] * d["head_dim"] * PROMPT / 2
        count = 2 * (products + head / PROMPT)
        return (
            {"flops": count + attention}
            if model in ("model", "4bit")
            else {"dots": count, "flops": attention}
        )
    size = {"model": 4, "int8": 1}.get(model, 0.5 + 4 / 32)
    return {
        "bytes": (products + head) * size + 8 * d["layers"] * d["kv_heads"] * d["head_dim"] * PROMPT
    }


def run(bench, cases, rounds, seconds):
    found = {}
    for name in FORMATS:
        wanted = {CASES[c][0]: c for c in cases if CASES[c][1] == name}
        if wanted:
            common, bench.trouble = bench.trouble, list(bench.trouble)
            try:
                results = measure(bench, name, list(wanted), rounds, seconds)
                found |= {
                    wanted[case]: {**result, "trouble": list(bench.trouble[len(common) :])}
                    for case, result in results.items()
                }
            except Exception as e:
                bench.failed(f"{' and '.join(wanted.values())}", e)
                common.append(bench.trouble[-1])
            bench.trouble = common
    return found


def open_all(bench, model, cases):
    """Returns {name: Contender or InProcess} of all contenders that could be opened."""
    model_files(model)
    contenders = {}
    if model in GGUF:
        try:
            gguf(model)
        except Exception as e:
            bench.failed(f"wllama's {GGUF[model]} file", e)
    for name, (script, args) in contenders_of(model).items():
        if name == LAST and "prefill" not in cases:
            continue
        one = bench.contend(name, script, "open", *args)
        if one:
            say(f"  {name}: loaded in {one.opened['ms'] / 1e3:.1f} s, peak {one.peak_mb()} MB")
            contenders[name] = one
    for name, make in {
        NATIVE: lambda: Native(model, 1),
        NATIVE_TWO: lambda: Native(model, 2),
        **({TORCH: Torch} if model == "model" else {}),
    }.items():
        try:
            contenders[name] = make()
        except Exception as e:
            bench.failed(name, e)
    return contenders


# long: the rounds of one format and its report
def measure(bench, model, cases, rounds, seconds):
    """Loads each contender once for both cases; in each round every contender has one prefill and
    one decode, alternating.
    """
    contenders = open_all(bench, model, cases)
    everyone, limits = dict(contenders), Limits(bench)
    logits, long = {}, {}

    def turn(who, one, number):
        """Returns {case: (tokens/s, processor ms per token)}."""
        found, clock = {}, [one.cpu_ms()]
        if long.get(who, 0) < SLOW or number < 1 and "prefill" in cases:
            prefill = one.call("prefill", IDS[:PROMPT])
            long[who] = prefill / 1e3
            clock.append(one.cpu_ms())
            found["prefill"] = PROMPT / prefill * 1e3, (clock[1] - clock[0]) / PROMPT
        if number < 0:
            logits[who] = (
                one.call("likeliest", IDS[:PROMPT], 10)
                if who in (WLLAMA_ONE, WLLAMA_TWO)
                else [one.floats("logits")]
            )
        if number < 0 or "decode" in cases and who != LAST:
            clock.append(one.cpu_ms())
            times = one.call("decode", PROMPT, IDS[PROMPT:])
            found["decode"] = 1e3 / float(np.median(times)), (one.cpu_ms() - clock[-1]) / len(times)
        if number < 0 and who not in (WLLAMA_ONE, WLLAMA_TWO):
            logits[who].append(one.floats("logits"))
        return found

    found = turns(bench, contenders, rounds, seconds, turn, limits, FORMATS[model][0])
    differences, allowed = compare(logits, model)
    leave_out(bench, FORMATS[model][0], differences, allowed, found, contenders)
    speeds, cpu = (
        {
            case: {
                who: [r[case][i] for r in rounds if case in r]
                for who, rounds in found.items()
                if who != LAST or case == "prefill"
            }
            for case in cases
        }
        for i in (0, 1)
    )
    peaks, loads = (
        {name: get(one) for name, one in contenders.items()}
        for get in (lambda one: one.peak_mb(), lambda one: one.opened["ms"])
    )
    version = next(
        (one.opened["version"] for name, one in contenders.items() if name in (ORT_ONE, ORT_TWO)),
        None,
    )
    llama = next(
        (
            one.opened["version"]
            for name, one in contenders.items()
            if name in (WLLAMA_ONE, WLLAMA_TWO)
        ),
        None,
    )
    note = limits.note()
    for one in everyone.values():
        one.close()
    limits.close()
    results = {}
    for case in cases:
        ours = speeds[case].get(ONE)
        share = limits.share(1e3 / np.median(ours), **work(case, model)) if ours else None
        results[case] = {
            "title": (
                {
                    "prefill": f"Prefill of {PROMPT} tokens",
                    "decode": f"Decode at position {PROMPT}",
                }[case]
                + f", SmolLM2-135M dimensions, {FORMATS[model][0]}"
            ),
            "unit": "tokens/s",
            "values": {"": {n: v for n, v in speeds[case].items() if v}},
            "shares": {"": {ONE: share}} if share else {},
            "memory": {n: p for n, p in peaks.items() if p},
            "columns": [
                "",
                "tokens/s",
                "rounds",
                "processor ms per token",
                "loaded in",
                "peak memory",
                "difference",
            ],
            "table": [
                [
                    n,
                    cell(v),
                    str(len(v)),
                    show(float(np.median(cpu[case][n]))),
                    f"{loads[n] / 1e3:.1f} s",
                    f"{show(peaks[n])} MB" if peaks[n] else "–",
                    show(differences.get(n), 1),
                ]
                for n, v in speeds[case].items()
                if v
            ],
            "ratios": [
                {"ours": a, "theirs": b, **r, "cpu": ratio(cpu[case][b], cpu[case][a])}
                for a, b in RATIOS[case]
                if (r := ratio(speeds[case].get(a), speeds[case].get(b)))
            ],
            "peer": (
                f"onnxruntime-web {version}" + (f", wllama with llama.cpp {llama}" if llama else "")
            ),
            "notes": (
                [note]
                + (
                    [
                        f"{ONE} is at {100 * share[0]:.0f} % of what {share[1]} would allow for the"
                        f" model's {'weights and cache' if case == 'decode' else 'arithmetic'}"
                        " alone."
                    ]
                    if share
                    else []
                )
                + NOTES[case]
                + ([MORE[model]] if model in MORE else [])
                + ([LLAMA.format(GGUF[model])] if llama else [])
                + [
                    (
                        "Processor time is what all threads of the page's process took, and hardly"
                        " moves with the machine's load; for one thread its ratio is the speed's on"
                        " a quiet machine."
                    ),
                    "Same weights, same tokens; logits after the prompt and after the last token"
                    f" agree within {FORMATS[model][1]:g} × the largest logit, or it says so here"
                    + (
                        " (wllama: logarithms of its 10 likeliest tokens' probabilities after the"
                        f" prompt, within {CLOSE:g} × the largest logit)"
                        if llama
                        else ""
                    )
                    + ". Peak: most resident memory of the page's renderer process, loading"
                    " included; each contender has a page and process of its own.",
                    "Not comparable: TensorFlow.js and jax-js read neither ONNX nor GGUF files.",
                ]
            ),
        }
    return results


def compare(logits, model):
    """Compares the logits with those of onnxruntime-web, or of the first contender if it is absent.

    Returns {contender: largest difference, relative to the largest logit} and {contender:
    tolerance}.
    """
    reference = logits.get(ORT_ONE) or next(iter(logits.values()), None)
    found, allowed = {}, {}
    for name, arrays in logits.items():
        llama = name in (WLLAMA_ONE, WLLAMA_TWO)
        if llama:  # [token, its log probability]
            b = reference[0].astype(np.float64)
            probabilities = b - b.max() - np.log(np.exp(b - b.max()).sum())
            found[name] = max(abs(p - probabilities[i]) for i, p in arrays) / float(
                np.max(np.abs(b))
            )
        else:
            found[name] = max(
                float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in zip(arrays, reference)
            )
        allowed[name] = max(CLOSE, FORMATS[model][1]) if llama else FORMATS[model][1]
    return found, allowed
