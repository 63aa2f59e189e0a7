"""Tests that every page finishes on an overloaded machine: new browser profiles load real models
while all cores are busy.

    python -m tests.soak.soak --runs 200            # or: make soak RUNS=200

Each run is a browser with an empty profile, a first visit and a second one, with one or two
threads, and with a server that supports ranges or not. A visit that exceeds its time limit is a
hang. Models: those of tests/zoo/models, the demo's, and those of REAL in the folder $EDGEWISE_REAL.
$CHROMIUM is the path of another browser. Writes a table to .build/soak.md.
"""

import argparse
import base64
import multiprocessing
import os
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from playwright.sync_api import TimeoutError as Late
from playwright.sync_api import sync_playwright

from tests.browser.chromium import CHROMIUM, FLAGS
from tests.browser.conftest import BLANK, ROOT, WEB, _serve

ZOO = ROOT / "tests" / "zoo" / "models"
F, I = np.float32, np.int64
# Inputs of models that have no stored ones: {path in EDGEWISE_REAL: feeds}.
REAL = {
    "efficientnet-lite0/onnx/model.onnx": {"pixel_values": np.zeros((1, 3, 224, 224), F)},
    "all-MiniLM-L6-v2/onnx/model.onnx": {
        n: np.ones((1, 16), I) for n in ("input_ids", "attention_mask", "token_type_ids")
    },
    "all-MiniLM-L6-v2/onnx/model_quantized.onnx": {
        n: np.ones((1, 16), I) for n in ("input_ids", "attention_mask", "token_type_ids")
    },
    "rapidocr/ch_PP-OCRv4_det_infer.onnx": {"x": np.zeros((1, 3, 96, 160), F)},
    "rapidocr/ch_PP-OCRv4_rec_infer.onnx": {"x": np.zeros((1, 3, 48, 160), F)},
    "resemblyzer/model.onnx": {"mels": np.zeros((1, 160, 40), F)},
    "silero-vad/silero_vad_16k_op15.onnx": {
        "input": np.zeros((1, 576), F),
        "state": np.zeros((2, 1, 128), F),
        "sr": np.array(16000, I),
    },
    "silero-vad/silero_vad_op18_ifless.onnx": {
        "input": np.zeros((1, 576), F),
        "state": np.zeros((2, 1, 128), F),
        "sr": np.array(16000, I),
    },
    "tiny-random-sd/vae_decoder/model.onnx": {"latent_sample": np.zeros((1, 4, 8, 8), F)},
    "whisper-tiny.en/onnx/encoder_model.onnx": {"input_features": np.zeros((1, 80, 3000), F)},
}
TYPES = {
    "f4": "float32",
    "f2": "float16",
    "i8": "int64",
    "i4": "int32",
    "b1": "bool",
    "u1": "uint8",
}

PIPELINE = """
    const p = await ew.pipeline("text-generation", arg.model, {dtype: "q4", threads: arg.threads});
    const out = await p("Once upon a time", {max_new_tokens: 5});
    await p.dispose();
    return out.length;
"""
SESSION = """
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
    const arrays = {
      float32: Float32Array,
      float16: Uint16Array,
      int64: BigInt64Array,
      int32: Int32Array,
      bool: Uint8Array,
      uint8: Uint8Array,
    };
    const s = await ew.InferenceSession.create(arg.model, { threads: arg.threads });
    const feeds = Object.fromEntries(
      Object.entries(arg.feeds).map(([n, [type, dims, data]]) => [
        n,
        new ew.Tensor(type, new arrays[type](bytes(data)), dims),
      ]),
    );
    const out = await s.run(feeds);
    await s.release();
    return Object.keys(out).length;
"""


def plain(feeds):
    return {
        n: [TYPES[a.dtype.str[1:]], list(a.shape), base64.b64encode(a.tobytes()).decode()]
        for n, a in feeds.items()
    }


def models(real):
    """Returns (name, script body, argument) of every model."""
    found = [
        ("demo package", PIPELINE, {"model": "/demo/model.edge"}),
        ("demo .onnx", PIPELINE, {"model": "/demo/model/"}),
    ]
    for folder in sorted(ZOO.iterdir()):
        if (folder / "model.npz").exists():
            with np.load(folder / "model.npz") as stored:
                feeds = {
                    k.removeprefix("in/"): stored[k] for k in stored.files if k.startswith("in/")
                }
            if feeds:
                found.append(
                    (
                        folder.name,
                        SESSION,
                        {"model": f"/zoo/{folder.name}/model.onnx", "feeds": plain(feeds)},
                    )
                )
    for path, feeds in REAL.items():
        if real and (real / path).exists():
            found.append((path, SESSION, {"model": f"/real/{path}", "feeds": plain(feeds)}))
    return found


def burn():
    while True:
        pass


def visit(chromium, profile, server, body, arg, limit):
    """Returns (outcome, seconds)."""
    context = chromium.launch_persistent_context(profile, executable_path=CHROMIUM, args=FLAGS)
    begun = time.monotonic()
    try:
        page = context.new_page()
        page.set_default_timeout(limit * 1000)
        page.goto(server + "/files/blank.html")
        page.evaluate(
            "([body, arg]) => { window.ended = undefined; (async () => { const ew = await"
            " import('/edgewise.js'); const f = new (Object.getPrototypeOf(async function ()"
            " {}).constructor)('ew', 'arg', body); try { await f(ew, arg); window.ended = 'ok'; }"
            " catch (e) { window.ended = `${e.name}: ${e.message}`; } })(); }",
            [body, arg],
        )
        page.wait_for_function("window.ended !== undefined")
        return page.evaluate("window.ended"), time.monotonic() - begun
    except Late:
        return "HANG", time.monotonic() - begun
    finally:
        context.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200, help="fresh profiles")
    parser.add_argument("--minutes", type=float, default=1e9, help="ends earlier after so long")
    parser.add_argument("--limit", type=float, default=240, help="seconds for a visit")
    parser.add_argument(
        "--busy", type=int, default=os.cpu_count(), help="processes that keep the cores busy"
    )
    parser.add_argument("--only", default="", help="models whose names have this in them")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    real = Path(os.environ["EDGEWISE_REAL"]) if "EDGEWISE_REAL" in os.environ else None
    given = [m for m in models(real) if options.only in m[0]]
    files = Path(tempfile.mkdtemp())
    (files / "blank.html").write_text(BLANK)
    (files / "model.edge").write_bytes((WEB / "dist" / "demo" / "model.edge").read_bytes())
    mounts = ["--mount", f"/zoo={ZOO}", *(["--mount", f"/real={real}"] if real else [])]
    servers = {"ranges": _serve(files, *mounts), "no ranges": _serve(files, "--no-range", *mounts)}
    burners = [multiprocessing.Process(target=burn, daemon=True) for _ in range(options.busy)]
    for b in burners:
        b.start()
    table = defaultdict(list)
    order = random.Random(options.seed)
    begun = time.monotonic()
    try:
        with sync_playwright() as playwright:
            for run in range(options.runs):
                if time.monotonic() - begun > 60 * options.minutes:
                    break
                name, body, arg = (
                    given[run % len(given)] if run < len(given) else order.choice(given)
                )
                threads, kind = order.choice((1, 2)), order.choice(tuple(servers))
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
                    for which in ("first", "second"):
                        said, seconds = visit(
                            playwright.chromium,
                            profile,
                            servers[kind][1],
                            body,
                            {**arg, "threads": threads},
                            options.limit,
                        )
                        table[name].append((which, threads, kind, said, seconds))
                        print(
                            f"{run:4} {name} {which} visit, {threads} threads, {kind}: {said[:160]}"
                            f" {seconds:.1f} s",
                            flush=True,
                        )
                        if said == "HANG":
                            break
    finally:
        for b in burners:
            b.kill()
        for process, _ in servers.values():
            process.terminate()
        report(table)


def report(table):
    visits = [v for of in table.values() for v in of]
    lines = [
        (
            "| model | visits | hangs | errors | first visit, s (longest) | second visit, s"
            " (longest) |"
        ),
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, of in table.items():
        times = {
            w: [s for which, _, _, said, s in of if which == w and said == "ok"]
            for w in ("first", "second")
        }
        shown = [f"{np.median(t):.1f} ({max(t):.1f})" if t else "" for t in times.values()]
        lines.append(
            f"| {name} | {len(of)} | {sum(v[3] == 'HANG' for v in of)} |"
            f" {sum(v[3] not in ('ok', 'HANG') for v in of)} | {' | '.join(shown)} |"
        )
    lines += [
        "",
        (
            f"{len(visits)} visits, {sum(v[0] == 'first' for v in visits)} fresh profiles,"
            f" {sum(v[3] == 'HANG' for v in visits)} hangs."
        ),
    ]
    lines += sorted(
        {
            f"- {name}: {said[:300]}"
            for name, of in table.items()
            for _, _, _, said, _ in of
            if said not in ("ok", "HANG")
        }
    )
    text = "\n".join(lines)
    (ROOT / ".build").mkdir(exist_ok=True)
    (ROOT / ".build" / "soak.md").write_text(text + "\n")
    print(text)
    raise SystemExit(any(v[3] == "HANG" for v in visits))


if __name__ == "__main__":
    main()
