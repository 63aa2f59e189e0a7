"""Case `webgpu`: a small language model, and training steps, on a GPU in pages of one Chromium, and
natively.

Without a GPU both are in software (SwiftShader, lavapipe): ratios between contenders then say
little about GPUs, and the counts are what matters.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from ..browser import ROOT, Bench, say
from ..stats import show
from . import steps, tokens

CASES = ("webgpu",)
PATIENCE = 240  # seconds for what runs natively
FLAGS = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")
ADAPTER = """async () => {
  const { info, features } = (await navigator.gpu?.requestAdapter()) ?? {};
  const words = [info?.vendor, info?.architecture, info?.device, info?.description];
  return [words.filter(Boolean).join(", "), features?.has("shader-f16") ?? false];
}"""


def launch(bench: Bench) -> tuple[str, bool]:
    """Starts a Chromium with a GPU; returns the adapter's name, "" where there is none, and whether
    its shaders may compute with halves.
    """
    bench.chromium.close()
    bench.launch(*FLAGS)
    page = bench.chromium.new_page()
    page.goto(bench.url + "/bench/page/blank.html")
    name, halves = page.evaluate(ADAPTER)
    page.close()
    say(f"  the GPU: {name}")
    return name, halves


def natively() -> dict[str, Any]:
    """Times on the machine's GPU, or on lavapipe, and on the processor, in a process of their own:
    a driver that crashes ends only that.
    """
    done = subprocess.run(
        [sys.executable, ROOT / "tests/gpu/report.py", "--software", "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=ROOT,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    return json.loads(done.stdout.strip().split("\n")[-1])


def add_native(result: dict[str, Any]) -> None:
    """Adds rows of what runs without a browser."""
    native = natively()
    gpu, cpu = native["times"]
    size = len(result["columns"]) - 4
    for (what, ms, count), (_, beside, _) in zip(gpu, cpu):
        name = f"natively, {native['layers']} layers: {what}"
        words = [f"{show(ms)} ms", f"{show(beside)} ms on one thread of the processor"]
        result["table"].append([name, *words, f"{count} dispatches", *[""] * size])
    result["notes"].append(f"Natively: {native['adapter']}, a model of 192 columns in float32.")


def run(bench: Bench, cases: list[str], rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Runs the case, in a Chromium with a GPU."""
    found: dict[str, dict[str, Any]] = {}
    try:
        adapter, halves = launch(bench)
        if not halves:
            bench.trouble.append(f"{adapter} has no shader-f16, which llama.cpp asks for")
        common = list(bench.trouble)
        for name, of in (("webgpu", tokens), ("webgpu train", steps)):
            bench.trouble = list(common)
            found[name] = of.measured(bench, adapter, min(rounds, 3), seconds)
            found[name]["trouble"] = bench.trouble[len(common) :]
        bench.trouble = common
    finally:
        bench.chromium.close()
        bench.launch()
    try:
        add_native(found["webgpu"])
    except Exception as e:
        bench.failed("natively", e)
    return found
