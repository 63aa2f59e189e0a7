"""Case `webgpu`: a small language model on a GPU."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from ..browser import Bench, Contender, say
from ..contenders import leave_out, turns
from ..stats import cell, ratio, show
from .files import IDS, PROMPT, SHAPE, STEPS, float_weights, gguf, onnx_file

OURS, WASM = "Edgewise, WebGPU", "Edgewise, WebAssembly, 1 thread"
ORT, JAX, WLLAMA = "onnxruntime-web, WebGPU", "jax-js, WebGPU", "wllama, WebGPU"
PEERS = ORT, JAX, WLLAMA
CLOSE = {OURS: 0.1, WASM: 0.1, ORT: 0.1, JAX: 0.1}  # level 4: activations may become bytes


def open_all(bench: Bench) -> dict[str, Contender]:
    """The contenders that could be opened."""
    heads, presents = (SHAPE["kv_heads"], SHAPE["head_dim"]), onnx_file()
    float_weights()
    scripts: dict[str, tuple[str, tuple[Any, ...]]] = {
        OURS: ("webgpu/edgewise.js", ("/bench/webgpu/webgpu.edge", "webgpu")),
        WASM: ("webgpu/edgewise.js", ("/bench/webgpu/cpu.edge", "wasm")),
        ORT: ("webgpu/ort.js", ("/bench/webgpu/model.onnx", *heads, presents)),
        JAX: ("webgpu/jax.js", ("/bench/webgpu/jax",)),
    }
    found: dict[str, Contender] = {}

    def add(who: str, script: str, *arguments: Any) -> None:
        if one := bench.contend(who, script, "open", *arguments):
            found[who] = one
            say(f"  {who}: opened in {one.opened['ms'] / 1e3:.1f} s")

    for who, (script, arguments) in scripts.items():
        add(who, script, *arguments)
    try:
        gguf()
        add(WLLAMA, "wllama.js", "/bench/webgpu/model.gguf", 1, SHAPE["layers"] + 1)
    except Exception as e:
        bench.failed(WLLAMA, e)
    return found


class Turns:
    """What `turns` calls, and what it finds besides times.

    Attributes:
        first: {contender: milliseconds of the first prompt, with what is compiled for it}.
        logits: {contender: logits after the prompt}.
        counts: {contender: what a token asks of WebGPU}.
        peaks: {contender: MB of GPUBuffers}.
    """

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        self.logits: dict[str, np.ndarray] = {}
        self.counts: dict[str, dict[str, float]] = {}
        self.peaks: dict[str, float] = {}

    def __call__(self, who: str, one: Contender, number: int) -> tuple[float, float, float]:
        """(milliseconds of the prompt, of a token, processor time of the page for a token)"""
        prompt = one.call("prefill", IDS[:PROMPT])
        if number < 0:
            self.first[who] = prompt
            say(f"  {who}: first prompt in {prompt / 1e3:.1f} s")
            if who != WLLAMA:
                text = one.call("logits", IDS[:PROMPT])
                self.logits[who] = np.frombuffer(base64.b64decode(text), np.float32)
                one.call("prefill", IDS[:PROMPT])
        if who != WLLAMA:  # whose objects are in a worker of its own
            before = one.call("counts")
        clock = one.cpu_ms()
        times = one.call("decode", PROMPT, IDS[PROMPT:])
        clock = (one.cpu_ms() - clock) / len(times)
        if who != WLLAMA:
            after = one.call("counts")
            self.counts[who] = {n: (after[n] - before[n]) / len(times) for n in after}
            self.peaks[who] = after["peakBytes"] / 1e6
        return prompt, float(np.median(times)), clock


def row(
    who: str, one: Contender, turn: Turns, found: list[tuple[float, float, float]]
) -> list[str]:
    """A row of the table."""
    counted = turn.counts.get(who) if who != WASM else None
    names = ("dispatches", "submits", "maps", "bytesRead", "buffers", "pipelines")
    return [
        who,
        cell([1e3 / token for _, token, _ in found]),
        cell([1e3 * PROMPT / prompt for prompt, _, _ in found]),
        show((one.opened["ms"] + turn.first[who]) / 1e3),
        show(float(np.median([cpu for *_, cpu in found]))),
        show(one.peak_mb()),
        show(turn.peaks[who]) if counted else "–",
        *(show(counted[name]) if counted else "–" for name in names),
    ]


def measured(bench: Bench, adapter: str, rounds: int, seconds: float) -> dict[str, Any]:
    """The case's result, of the pages."""
    contenders = open_all(bench)
    everyone, turn = dict(contenders), Turns()
    found = turns(bench, contenders, rounds, seconds, turn)
    reference = turn.logits.get(WASM)
    off = {
        who: float(np.max(np.abs(x - reference)) / np.max(np.abs(reference)))
        for who, x in turn.logits.items()
        if reference is not None
    }
    leave_out(bench, "", off, CLOSE, found, contenders)
    table = [row(who, contenders[who], turn, of) for who, of in found.items() if of]
    speeds = {who: [1e3 / token for _, token, _ in of] for who, of in found.items() if of}
    versions = {who: one.opened.get("version") for who, one in everyone.items()}
    for one in everyone.values():
        one.close()
    pairs = [(OURS, ORT), (OURS, JAX), (OURS, WLLAMA), (OURS, WASM)]
    return {
        "title": f"WebGPU: text generation with a small model on {adapter}",
        "unit": "tokens/s",
        "values": {"": speeds},
        "peer": ", ".join(f"{who} {v}" for who, v in versions.items() if v),
        "columns": COLUMNS,
        "table": table,
        "ratios": [
            {"ours": a, "theirs": b, **r, "cpu": None}
            for a, b in pairs
            if (r := ratio(speeds.get(a), speeds.get(b)))
        ],
        "notes": list(NOTES),
    }


COLUMNS = [
    "",
    "tokens/s",
    "prompt, tokens/s",
    "first token after opening, s",
    "page's processor ms a token",
    "peak of the page, MB",
    "GPUBuffers, MB",
    "dispatches a token",
    "submits",
    "maps",
    "bytes read",
    "buffers made",
    "programs made",
]
NOTES = (
    (
        f"Llama of {SHAPE['layers']} layers, {SHAPE['width']} columns, vocabulary {SHAPE['vocab']},"
        " 4 bits as onnxruntime-genai exports it (GroupQueryAttention, MatMulNBits of blocks of 32,"
        f" accuracy_level 4); wllama: Q4_0 of the same weights. A prompt of {PROMPT} tokens, then"
        f" {STEPS} fixed tokens one by one; the greedy choice is within the time."
    ),
    (
        "The adapter is software on the same processor: speeds are those of its loops, in which a"
        " barrier costs more and memory less than on a GPU. Counts do not depend on it."
    ),
    (
        "First token after opening: with reading the file, and what is compiled for the prompt."
        " Processor time of the page's process: JavaScript, WebAssembly and commands for the"
        " browser's GPU process, not what that computes. Counts are per token, of the worker that"
        " was opened; wllama's objects are in a worker of its own."
    ),
    (
        "onnxruntime-web keeps its cache in GPUBuffers (preferredOutputLocation). Logits after the"
        " prompt agree with those of WebAssembly within 0.1 of the largest."
    ),
    (
        "jax-js reads no model files: the same graph, written with its numpy under jit, with the"
        " 4-bit weights as the float32 that they stand for; its greedy choice is an argmax on the"
        " GPU."
    ),
)
