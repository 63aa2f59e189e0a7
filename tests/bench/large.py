"""Decoders that 32-bit addresses do not hold: load, memory and tokens a second.

    python -m tests.bench.large FOLDER                                       # 5 GB, dense
    python -m tests.bench.large FOLDER --shape mixture                       # 12 GB
    python -m tests.bench.large FOLDER --shape mixture --expert-gb 2         # experts in pages

The first one is a model of Llama 3's 8B shape in 4 bits with random weights, as onnxruntime-genai
exports it, of 5.0 GB; it needs 11 GB of disk in FOLDER and 7 GB of memory. The second one has
gpt-oss' shape of 20 billion parameters, of which a token uses 3.6: 12.8 GB, 26 GB of disk, and the
memory of the file if it is to be in a tab as a whole. `--layers` makes both smaller.

Each runs natively and then in a tab of Chromium, which downloads the package into its storage and,
in a second visit, loads it from there. Two threads. For each it prints the time to the first token,
milliseconds a token (the median), the share of memory bandwidth (the bytes that a token reads, in
that time, beside what two threads read of plain memory in the same process), the memory, and the
tokens. The first one must be the same; a mixture with random weights may choose another expert by
a difference of rounding, and so other tokens later. FOLDER's model, package and profile are removed
at the end, also after an error, unless `--keep` is given. On a machine that does something else the
share says little. The first one took 4 minutes, the second one 8, on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
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
VOCAB, CAPACITY, TOKENS, BLOCK = 128_256, 256, 24, 32
PROMPT = "Once upon a time"


class LargeGraph(Graph):
    """Writes weights to a file of external data instead of keeping them.

    Large tensors repeat random bytes and scales, since to draw 12 GB takes minutes. The numbers of
    both are prime, so no two rows are equal.
    """

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.file = path.open("wb")
        # 1 to 15: with 0, their mean would not be the zero point, and all texts alike
        low, high = self.random.integers(1, 16, (2, 15_999_989), np.uint8)
        self.bytes = (low | high << 4).tobytes()
        self.scales = self.random.uniform(0.8, 1.2, 1_000_003).astype(np.float32)

    def repeated(self, source, count):
        """`count` items from a random place of `source` on, which is repeated."""
        at = int(self.random.integers(len(source)))
        for left in range(count, 0, -len(source)):
            piece = source[at:] + source[:at] if isinstance(source, bytes) else np.roll(source, -at)
            yield piece[:left]

    def external(self, name, dtype, shape, data):
        tensor = TensorProto(name=name, data_type=dtype, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        at = self.file.seek(-(-self.file.tell() // 4096) * 4096)
        size = math.prod(shape) * (4 if dtype == F32 else 1)
        for key, value in ("location", self.path.name), ("offset", at), ("length", size):
            tensor.external_data.add(key=key, value=str(value))
        for piece in data:
            self.file.write(piece)
        self.initializers.append(tensor)
        return name

    def quantized(self, name, k, n, experts=0):
        """Random 4-bit weights of n rows of k, of each expert if there are some, and scales that
        keep the size of activations.
        """
        blocks, times = k // BLOCK, max(1, experts)
        shape = [experts, n, k // 2] if experts else [n, blocks, BLOCK // 2]
        data = self.repeated(self.bytes, times * n * k // 2)
        packed = self.external(name + "_Q4", TensorProto.UINT8, shape, data)
        scale = (x / (4.6 * k**0.5) for x in self.repeated(self.scales, times * n * blocks))
        shape = [experts, n, blocks] if experts else [n, blocks]
        return packed, self.external(name + "_scales", F32, shape, (x.tobytes() for x in scale))

    def normal(self, count, width):
        """Random float32 numbers for a product of rows of `width`."""
        return [(self.random.standard_normal(count, np.float32) / width**0.5).tobytes()]

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


def bytes_of_token(layers, width, heads, kv_heads, head_dim, inner, experts=0, chosen=0) -> float:
    """Bytes of weights that a token reads: without the table of embeddings and other experts."""
    attention = width * (2 * heads + 2 * kv_heads) * head_dim
    weights = layers * (attention + 3 * width * inner * max(1, chosen)) + VOCAB * width
    return weights * (1 / 2 + 4 / BLOCK) + layers * width * experts * 4


def memory_of(status: Path) -> dict[str, float]:
    """GB by name of /proc/PID/status."""
    found = re.findall(r"(\w+):\s+(\d+) kB", status.read_text())
    return {name: int(kb) * 1024 / 1e9 for name, kb in found}


def milliseconds(times: list[float]) -> float:
    """Median between tokens, of which the first ones warm up."""
    return float(np.median(np.diff(times)[3:])) * 1000


class Times:
    """A streamer that notes ids and when they came."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.ids: list[int] = []

    def put(self, value) -> None:
        self.times.append(time.monotonic())
        self.ids += np.ravel(value).tolist()

    def end(self) -> None:
        pass


def natively(path: Path) -> dict:
    """A process of its own: the file is on disk and not in memory at first."""
    import edgewise

    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started = time.monotonic()
    pipe: Any = edgewise.pipeline("text-generation", str(path))
    pipe(PROMPT, max_new_tokens=1, do_sample=False)
    first = time.monotonic() - started
    streamer = Times()
    pipe(PROMPT, max_new_tokens=TOKENS, do_sample=False, streamer=streamer)
    memory = memory_of(Path("/proc/self/status"))
    return {
        "ids": streamer.ids[-TOKENS:],
        "first_s": first,
        "token_ms": milliseconds(streamer.times),
        "mapped_gb": memory["RssFile"],
        "own_gb": memory["RssAnon"],
        "bandwidth": bandwidth(),
    }


def bandwidth() -> float:
    """GB/s that two threads read of memory that no cache holds."""
    block = np.ones(1 << 26, np.uint64)
    halves = np.split(block, 2)
    with ThreadPoolExecutor(2) as pool:
        best = 0.0
        for _ in range(10):
            started = time.monotonic()
            list(pool.map(np.bitwise_or.reduce, halves))
            best = max(best, block.nbytes / (time.monotonic() - started) / 1e9)
    return best


def largest_renderer() -> float:
    """Most GB that a renderer below this process has had."""
    most = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"--type=renderer" not in (folder / "cmdline").read_bytes():
                continue
            above = folder.name
            while above not in ("0", "1", str(os.getpid())):
                status = Path("/proc", above, "status").read_text()
                above = re.findall(r"PPid:\s+(\d+)", status)[0]
            if above == str(os.getpid()):
                most = max(most, memory_of(folder / "status")["VmHWM"])
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
      const times = [];
      const put = (x) => (ids.push(...x), times.push(performance.now() / 1000));
      const streamer = { put, end() {} };
      await p(prompt, { max_new_tokens: 1, do_sample: false });
      const first = performance.now();
      await p(prompt, { max_new_tokens: tokens, do_sample: false, streamer });
      const { flavour, threads } = p.info;
      await p.dispose();
      const seconds = { load_s: (loaded - started) / 1000, first_s: (first - started) / 1000 };
      return { ids, times, flavour, threads, ...seconds };
    }
"""


def in_a_tab(folder: Path, package: Path, options: dict) -> dict:
    """Two visits: the second one loads the stored file."""
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
        for visit in "download", "storage":
            with sync_playwright() as play:
                context = play.chromium.launch_persistent_context(
                    str(folder / "profile"),
                    executable_path="/usr/bin/chromium",
                    args=["--no-sandbox"],
                )
                page = context.new_page()
                page.goto(f"{url}/big/blank.html")
                asked = {"url": f"/big/{package.name}", "prompt": PROMPT, "tokens": TOKENS}
                asked["options"] = options
                found = page.evaluate(VISIT, asked)
                found["peak_gb"] = largest_renderer()
                context.close()
            say(f"tab, from {visit}: loaded after {found['load_s']:.1f} s")
        found["ids"] = found["ids"][-TOKENS:]
        return found | {"token_ms": milliseconds(found["times"])}
    finally:
        server.terminate()


def say(line: str) -> None:
    print(line, flush=True)


def measure(folder: Path, shape: dict[str, int], options: dict) -> None:
    model, package = folder / "model", folder / "model.edge"
    if not package.exists():
        make(model, **shape)
        command = [sys.executable, "-m", "edgewise.cli", "build", str(model)]
        subprocess.run([*command, "--dtype", "q4", "-o", str(package)], check=True)
        shutil.rmtree(model)
    size, read = package.stat().st_size / 1e9, bytes_of_token(**shape) / 1e9
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        native = alone.submit(natively, package).result()
    bound = read / native["bandwidth"] * 1000
    say(
        f"package {size:.2f} GB, {read:.2f} GB a token: {bound:.0f} ms at {native['bandwidth']:.1f}"
    )

    def tell(name: str, found: dict) -> None:
        share = bound / found["token_ms"]
        say(
            f"{name}: first token after {found['first_s']:.1f} s, {found['token_ms']:.0f} ms a"
            f" token ({share:.0%} of bandwidth), {found['ids']}"
        )

    tell("native", native)
    say(
        f"native: {native['mapped_gb']:.2f} GB of the file and {native['own_gb']:.2f} GB of its own"
    )
    tab = in_a_tab(folder, package, options)
    tell(f"tab ({tab['flavour']}, {tab['threads']} threads)", tab)
    say(f"tab: peak {tab['peak_gb']:.2f} GB, {tab['peak_gb'] / size:.2f} of the file")
    same = [a == b for a, b in zip(tab["ids"], native["ids"], strict=True)]
    say(f"tokens that both chose before the first other one: {[*same, False].index(False)}")
    assert same[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=["dense", "mixture"], default="dense")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--expert-gb", type=float)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    folder: Path = args.folder
    shape: dict[str, int] = LLAMA if args.shape == "dense" else GPT_OSS
    shape = shape | ({"layers": args.layers} if args.layers else {})
    options = {"threads": 2}
    if args.expert_gb is not None:
        options["expert_bytes"] = int(args.expert_gb * 1e9)
    try:
        measure(folder, shape, options)
    finally:
        for made in () if args.keep else ("model", "profile"):
            shutil.rmtree(folder / made, ignore_errors=True)
        if not args.keep:
            (folder / "model.edge").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
