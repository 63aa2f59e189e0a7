"""A decoder of more than 4 GB in a tab, as `python -m tests.bench.large FOLDER`.

Makes a model of Llama 3's 8B shape in 4 bits with random weights, as onnxruntime-genai exports it,
and its package; runs both natively; stores the package in a browser profile; loads it from there
and decodes. It takes 11 GB of disk in FOLDER, which stays, and 8 GB of memory. It prints
the tokens of both, the largest memory of the tab's process beside the size of the file, and tokens
a second beside what one reading of the weights takes.

With `--shape mixture` it has gpt-oss' shape of 20 billion parameters, of which a token uses 3.6
(36 GB of disk; `--layers` makes it smaller), and it also prints which part of the file is in memory
natively. `--expert-gb` limits the memory of experts in the tab.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from .browser import ROOT
from .models import F32, I64, CachedAttention, Graph

LLAMA = {"layers": 32, "width": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "inner": 14336}
# 20.9 billion parameters, of which a token uses 3.6
GPT_OSS = {"layers": 24, "width": 2880, "heads": 64, "kv_heads": 8, "head_dim": 64, "inner": 2880}
GPT_OSS |= {"experts": 32, "chosen": 4}
VOCAB, CAPACITY, TOKENS, BLOCK = 128_256, 256, 8, 32
PROMPT = "Once upon a time"


class LargeGraph(Graph):
    """Writes weights to a file of external data instead of keeping them."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.file = path.open("wb")

    def external(self, name, dtype, shape, data):
        tensor = TensorProto(name=name, data_type=dtype, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        at = self.file.seek(-(-self.file.tell() // 4096) * 4096)
        for key, value in ("location", self.path.name), ("offset", at), ("length", len(data)):
            tensor.external_data.add(key=key, value=str(value))
        self.file.write(data)
        self.initializers.append(tensor)
        return name

    def quantized(self, name, k, n, experts=0):
        """Random 4-bit weights of n rows of k, of each expert if there are some, and scales that
        keep the size of activations.
        """
        blocks, times = k // BLOCK, max(1, experts)
        shape = [experts, n, k // 2] if experts else [n, blocks, BLOCK // 2]
        data = self.random.bytes(times * n * k // 2)
        packed = self.external(name + "_Q4", TensorProto.UINT8, shape, data)
        scale = self.random.uniform(0.8, 1.2, times * n * blocks).astype(np.float32)
        scale /= 4.6 * k**0.5
        shape = [experts, n, blocks] if experts else [n, blocks]
        return packed, self.external(name + "_scales", F32, shape, scale.tobytes())

    def normal(self, count, width):
        """Random float32 numbers for a product of rows of `width`."""
        return (self.random.standard_normal(count, np.float32) / width**0.5).tobytes()

    def product(self, x, name, k, n, **more):
        attributes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
        packed, scales = self.quantized(name, k, n)
        return self.op(
            "MatMulNBits", x, packed, scales, domain="com.microsoft", **attributes, **more
        )


def feed_forward(g, h, name, width, inner):
    """SwiGLU."""
    gate = g.product(h, name + "gate", width, inner)
    up = g.product(h, name + "up", width, inner)
    h = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
    return g.product(h, name + "down", inner, width)


def mixture(g, h, name, width, inner, experts, chosen, floats):
    """QMoE with SwiGLU as gpt-oss has it, or with `floats` MoE with SiLU."""
    rows = g.op("Reshape", h, [-1, width])
    scores = g.op("MatMul", rows, g.weight(name + "router", width, experts))
    if floats:
        up, down = (
            g.external(name + part, F32, [experts, n, k], g.normal(experts * n * k, k))
            for part, n, k in (("up", inner, width), ("down", width, inner))
        )
        more = {"k": chosen, "activation_type": "silu", "normalize_routing_weights": 1}
        return g.op("MoE", h, scores, up, "", down, domain="com.microsoft", **more)
    layers = [
        g.quantized(name + part, k, n, experts)
        for part, n, k in (("up", 2 * inner, width), ("down", width, inner))
    ]
    return g.op(
        *("QMoE", h, scores, *layers[0], "", *layers[1]),
        domain="com.microsoft",
        k=chosen,
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=1.702,
        activation_beta=1.0,
        swiglu_limit=7.0,
        normalize_routing_weights=1,
        expert_weight_bits=4,
        block_size=BLOCK,
    )


# long: one graph, node by node
def make(
    folder: Path,
    layers,
    width,
    heads,
    kv_heads,
    head_dim,
    inner,
    vocab=VOCAB,
    experts=0,
    chosen=0,
    floats=False,
) -> None:
    """The model as a folder of transformers.

    Args:
        experts, chosen: of a mixture; 0: none.
        floats: whether the weights of its experts are float32.
    """
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    g = LargeGraph(folder / "onnx" / "model_q4.onnx_data")

    def norm_weight(name):
        return g.array(name, np.ones(width, np.float32))

    g.scope = "/model"
    table = g.quantized("model.embed_tokens.weight", width, vocab)
    packed = next(t for t in g.initializers if t.name == table[0])
    packed.dims[:] = [vocab, width // 2]
    x = g.op(
        *("GatherBlockQuantized", table[0], "input_ids", table[1]),
        domain="com.microsoft",
        bits=4,
        block_size=BLOCK,
        quantize_axis=1,
    )
    x = g.op("Mul", x, float(width**0.5))
    attention = CachedAttention(g, heads, kv_heads, head_dim, 500_000.0, CAPACITY)
    norm = {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
    for i in range(layers):
        g.scope = f"/model/layers.{i}"
        name = f"model.layers.{i}."
        h = g.op("SimplifiedLayerNormalization", x, norm_weight(name + "input.weight"), **norm)
        qkv = g.product(h, name + "qkv", width, (heads + 2 * kv_heads) * head_dim)
        y = g.product(attention.layer(i, qkv), name + "o", heads * head_dim, width)
        x = g.op("Add", x, y)
        h = g.op("SimplifiedLayerNormalization", x, norm_weight(name + "post.weight"), **norm)
        y = (
            mixture(g, h, name, width, inner, experts, chosen, floats)
            if experts
            else feed_forward(g, h, name, width, inner)
        )
        x = g.op("Add", x, y)
    g.scope = "/lm_head"
    x = g.op("SimplifiedLayerNormalization", x, norm_weight("model.norm.weight"), **norm)
    g.product(x, "lm_head", width, vocab, out="logits")
    inputs = [
        ("input_ids", I64, ["batch_size", "sequence"]),
        ("attention_mask", I64, ["batch_size", "total_sequence_length"]),
    ]
    outputs = [("logits", F32, ["batch_size", "sequence", vocab]), *attention.presents]
    g.file.close()
    onnx.save(g.model(inputs + attention.pasts, outputs), folder / "onnx" / "model_q4.onnx")
    demo = ROOT / "web" / "demo" / "model"
    for file in demo.glob("*.json"):
        shutil.copy(file, folder / file.name)
    config = json.loads((demo / "config.json").read_text())
    config |= {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    config |= {"num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": vocab}
    config |= {"intermediate_size": inner, "max_position_embeddings": CAPACITY}
    (folder / "config.json").write_text(json.dumps(config))


def natively(path: Path) -> dict:
    """Ids and seconds a token of the native engine, which maps the file."""
    import edgewise

    pipe: Any = edgewise.pipeline("text-generation", str(path))
    started = time.monotonic()
    pipe(PROMPT, max_new_tokens=1, do_sample=False)
    first = time.monotonic()
    found = pipe(PROMPT, max_new_tokens=TOKENS, do_sample=False, return_tensors=True)
    seconds = time.monotonic() - first
    mapped = re.search(r"RssFile:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert mapped is not None
    return {
        "ids": found[0]["generated_token_ids"],
        "first_s": first - started,
        "all_s": seconds,
        "mapped_gb": int(mapped[1]) * 1024 / 1e9,
    }


def bandwidth() -> float:
    """GB/s that two threads read of memory that no cache holds."""
    from concurrent.futures import ThreadPoolExecutor

    block = np.ones(1 << 28, np.float32)
    halves = np.split(block, 2)
    with ThreadPoolExecutor(2) as pool:
        best = 0.0
        for _ in range(5):
            started = time.monotonic()
            list(pool.map(np.sum, halves))
            best = max(best, block.nbytes / (time.monotonic() - started) / 1e9)
    return best


def largest_process() -> int:
    """Most bytes that a renderer of Chromium has had (VmHWM)."""
    most = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = (status.parent / "cmdline").read_bytes()
            if b"--type=renderer" in command:
                found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
                most = max(most, int(found[1]) * 1024 if found else 0)
        except OSError:
            continue  # it has ended
    return most


VISIT = """
    async ({ url, prompt, tokens, options }) => {
      const ew = await import("/edgewise.js");
      ew.env.cacheFiles = true;
      const started = performance.now();
      const p = await ew.pipeline("text-generation", url, options);
      const loaded = performance.now();
      const ids = [];
      const streamer = { put: (x) => ids.push(...x), end() {} };
      await p(prompt, { max_new_tokens: tokens, do_sample: false, streamer });
      const { info, stats } = p;
      await p.dispose();
      return { ids, info, stats, load_s: (loaded - started) / 1000 };
    }
"""


def in_a_tab(folder: Path, package: Path, options: dict) -> tuple[dict, int]:
    """What the second visit found, and the most memory of its process."""
    from playwright.sync_api import sync_playwright

    (folder / "blank.html").write_text("<!doctype html><meta charset=utf-8>")
    serve = ["node", str(ROOT / "web/demo/serve.mjs"), "--port", "0", "--mount", f"/big={folder}"]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = next(
            m[0] for line in server.stdout if (m := re.search(r"http://localhost:\d+", line))
        )
        found = {}
        for _ in range(2):
            with sync_playwright() as play:
                context = play.chromium.launch_persistent_context(
                    str(folder / "profile"),
                    executable_path="/usr/bin/chromium",
                    args=["--no-sandbox"],
                )
                page = context.new_page()
                page.set_default_timeout(0)
                page.goto(f"{url}/big/blank.html")
                asked = {"url": f"/big/{package.name}", "prompt": PROMPT, "tokens": TOKENS}
                asked["options"] = options
                found = page.evaluate(VISIT, asked)
                peak = largest_process()
                context.close()
            print({k: found[k] for k in ("load_s", "stats")}, flush=True)
        return found, peak
    finally:
        server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=["dense", "mixture"], default="dense")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--expert-gb", type=float)
    args = parser.parse_args()
    folder: Path = args.folder
    shape: dict[str, int] = LLAMA if args.shape == "dense" else GPT_OSS
    limit = {} if args.expert_gb is None else {"expert_bytes": int(args.expert_gb * 1e9)}
    model, package = folder / "model", folder / "model.edge"
    if not package.exists():
        make(model, **{**shape, "layers": args.layers or shape["layers"]})
        command = [sys.executable, "-m", "edgewise.cli", "build", str(model)]
        subprocess.run([*command, "--dtype", "q4", "-o", str(package)], check=True)
    size = package.stat().st_size
    speed = bandwidth()
    print(
        f"package {size / 1e9:.2f} GB; memory {speed:.1f} GB/s: {speed * 1e9 / size:.2f} tokens/s"
    )
    native = natively(package)
    print(f"native: {native}")
    tab, peak = in_a_tab(folder, package, limit)
    print(f"tab: {tab['ids']}, {tab['info']['flavour']}, {tab['info']['threads']} threads")
    print(f"peak {peak / 1e9:.2f} GB, {peak / size:.2f} of the file; {tab['stats']}")


if __name__ == "__main__":
    main()
