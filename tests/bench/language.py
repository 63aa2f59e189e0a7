"""Cases `decode` and `prefill`: a language model of the size of SmolLM2-135M, in float32; with
-int8, -4bit, -4bit-level4 and -genai behind their names quantized.
"""

from __future__ import annotations

import time

import numpy as np
import onnx

from . import gguf_file
from .browser import ROOT, WORK, say
from .contenders import (
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
    native_session,
    turns,
)
from .models import SMOLLM2, genai_model, in_4_bits, language_model
from .stats import cell, ratio, show

PROMPT, STEPS, CAPACITY = 256, 12, 512
IDS = [
    (i * 7919 + 11) % 40000 for i in range(PROMPT + STEPS)
]  # the same for all; what a contender would choose is not fed back
# name of the files: (in words, largest difference of logits from onnxruntime-web's, relative to the
# largest logit)
FORMATS = {
    "model": ("float32", 1e-3),
    "int8": ("dynamic int8 (onnxruntime.quantization.quantize_dynamic)", 0.2),
    "4bit": ("4 bits (MatMulNBits, block 32)", 1e-3),
    "4bit-level4": ("4 bits (MatMulNBits, block 32, accuracy_level 4)", 0.1),
    "genai": (
        (
            "4 bits as onnxruntime-genai exports it (GroupQueryAttention, MatMulNBits, block 32,"
            " accuracy_level 4)"
        ),
        0.1,
    ),
}
CASES = {
    f"{case}{'' if f == 'model' else '-' + f}": (case, f)
    for f in FORMATS
    for case in ("prefill", "decode")
}
LAST = "onnxruntime-web, last logits only, 1 thread"
GGUF = {"int8": "Q8_0", "4bit": "Q4_0", "4bit-level4": "Q4_0"}
# of the largest logit: what llama.cpp's logits may differ by, which quantizes activations to bytes
CLOSE = 0.1


def contenders_of(name):
    """{name: (script, arguments of open)}"""
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


def make(name, last_only):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = WORK / "llm" / f"{name}{'-last' if last_only else ''}.onnx"
    if path.exists():
        return
    say(f"making {path.name}")
    part = path.with_name("part")
    model = (
        genai_model(**SMOLLM2, last_only=last_only)
        if name == "genai"
        else language_model(**SMOLLM2, last_only=last_only, head=name != "model")
    )
    if name in ("4bit", "4bit-level4", "genai"):
        model = in_4_bits(model, accuracy_level=0 if name == "4bit" else 4)
    if name == "int8":
        onnx.save(model, path.with_name("float"))
        quantize_dynamic(
            path.with_name("float"),
            part,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
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


def gguf(name):
    """The model as llama.cpp's file, once."""
    path = WORK / "llm" / f"{GGUF[name]}.gguf"
    if not path.exists():
        say(f"making {path.name}")
        part = path.with_name("part")
        gguf_file.write(
            language_model(**SMOLLM2, head=True), part, GGUF[name], CAPACITY, SMOLLM2, IDS
        )
        part.rename(path)


class InProcess:
    """An engine of this process, for scale, with the interface of a Contender as far as `measure`
    needs it: run(ids) computes the last logits behind what is in self.cache.
    """

    def call(self, method, *args):
        if method == "prefill":
            self.start()
            begin = time.perf_counter()
            self.run(args[0])
            self.keep()
            return 1e3 * (time.perf_counter() - begin)
        self.back()
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


class Native(InProcess):
    """onnxruntime: the cache goes out and in."""

    def __init__(self, name, threads):
        begin = time.perf_counter()
        self.session = native_session(WORK / "llm" / f"{name}.onnx", threads)
        self.opened = {"ms": 1e3 * (time.perf_counter() - begin)}
        self.empty = np.zeros((1, SMOLLM2["kv_heads"], 0, SMOLLM2["head_dim"]), np.float32)
        self.inputs, self.names = (
            [i.name for i in self.session.get_inputs()],
            [o.name for o in self.session.get_outputs()],
        )

    def start(self):
        self.cache, self.past = {}, 0

    def keep(self):
        self.kept = self.cache, self.past

    def back(self):
        self.cache, self.past = self.kept

    def run(self, ids):
        n = len(ids)
        feeds = {
            "input_ids": np.array([ids]),
            "attention_mask": np.ones((1, self.past + n), np.int64),
            "position_ids": np.arange(self.past, self.past + n)[None],
        }
        feeds = {
            name: (
                feeds[name]
                if name in feeds
                else self.cache.get(name.replace("past_key_values", "present"), self.empty)
            )
            for name in self.inputs
        }
        self.cache = dict(zip(self.names, self.session.run(None, feeds)))
        self.past += n
        self.last = self.cache["logits"][0, -1]
        self.last.argmax()

    def close(self):
        self.session = self.cache = self.kept = None


class Torch(InProcess):
    """transformers' LlamaForCausalLM in PyTorch with the same weights, eager, one thread."""

    def __init__(self):
        import torch
        from onnx import numpy_helper
        from transformers import LlamaConfig, LlamaForCausalLM

        begin = time.perf_counter()
        d = SMOLLM2
        config = LlamaConfig(
            vocab_size=d["vocab"],
            hidden_size=d["width"],
            intermediate_size=d["inner"],
            num_hidden_layers=d["layers"],
            num_attention_heads=d["heads"],
            num_key_value_heads=d["kv_heads"],
            rope_theta=d["theta"],
            rms_norm_eps=d["epsilon"],
            tie_word_embeddings=True,
            max_position_embeddings=CAPACITY,
        )
        with torch.device("meta"):
            self.model = LlamaForCausalLM(config).eval()
        weights = {
            i.name: numpy_helper.to_array(i)
            for i in onnx.load(WORK / "llm/model.onnx").graph.initializer
        }
        state = {
            name: torch.from_numpy(
                np.ascontiguousarray(
                    weights[name].T if name.endswith("_proj.weight") else weights[name]
                )
            )
            for name in self.model.state_dict()
            if name in weights
        }
        self.model.load_state_dict(state, strict=False, assign=True)
        self.model.tie_weights()
        self.model.model.rotary_emb = type(self.model.model.rotary_emb)(config)
        self.torch, self.opened = torch, {"ms": 1e3 * (time.perf_counter() - begin)}

    def start(self):
        from transformers import DynamicCache

        self.cache = DynamicCache()

    def keep(self):
        pass

    def back(self):
        self.cache.crop(PROMPT)

    def run(self, ids):
        self.torch.set_num_threads(1)
        with self.torch.inference_mode():
            self.last = (
                self.model(
                    self.torch.tensor([ids]),
                    past_key_values=self.cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                .logits[0, -1]
                .numpy()
            )
        self.last.argmax()

    def close(self):
        self.model = self.cache = None


def work(case, model):
    """What a token takes at least: {flops, dots, bytes} as Limits.share wants them."""
    d = SMOLLM2
    products = (
        d["layers"]
        * d["width"]
        * ((2 * d["heads"] + 2 * d["kv_heads"]) * d["head_dim"] + 3 * d["inner"])
    )
    head = d["width"] * d["vocab"]
    if case == "prefill":  # logits of the last position; attention of the half that is not masked
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
    """{name: Contender or InProcess} of who could be opened."""
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


def measure(bench, model, cases, rounds, seconds):
    """One loading for both cases; rounds in which every contender has one prefill and one decode,
    in turns.
    """
    contenders = open_all(bench, model, cases)
    everyone, limits = dict(contenders), Limits(bench)
    logits, long = {}, {}

    def turn(who, one, number):
        """{case: (tokens/s, processor ms per token)}"""
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
    """({contender: largest difference from onnxruntime-web's (else the first one's) logits,
    relative to the largest}, {contender: how much it may be}).
    """
    reference = logits.get(ORT_ONE) or next(iter(logits.values()), None)
    found, allowed = {}, {}
    for name, arrays in logits.items():
        llama = name in (WLLAMA_ONE, WLLAMA_TWO)
        if llama:  # [token, logarithm of its probability]
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
