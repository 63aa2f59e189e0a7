"""Case `real`: pre-trained models through the public API of a page, and natively.

Each model is opened from its .onnx file in a page of a new browser profile (first visit) and in a
second page of the same profile (second visit), and run there repeatedly (steady state). Natively it
is run by both Python packages in this process. Outputs are first compared with those of native
onnxruntime.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ..references import reference_of
from .browser import WORK, Bench, say
from .contenders import NATIVE, ONE, ORT_ONE, Native, leave_out, native_session
from .real_models import FOLDER, MODELS, Feeds, RealModel
from .stats import show
from .visits import FIRST, SECOND, STEADY, STEADY_MS, Visits, cells, row_name

CASES = ("real",)
NATIVE_EDGEWISE = "native Edgewise, 1 thread"
INLINE, ORT_WORKER = "Edgewise, page's thread", "onnxruntime-web, in a worker"
PAGES = {ONE: "edgewise", ORT_ONE: "ort"}  # by default, Edgewise computes in a worker
OTHER_THREAD = {INLINE: "edgewise&proxy=false", ORT_WORKER: "ort&proxy=true"}
NATIVELY = "native"


def write_feeds(feeds: Feeds, target: Path) -> None:
    """Writes TARGET.json and TARGET.bin in the format that page/real.js reads."""
    described, parts, at = [], [], 0
    for name, array in feeds.items():
        data = np.ascontiguousarray(array).tobytes()
        described.append(
            {
                "name": name,
                "type": str(array.dtype),
                "dims": list(array.shape),
                "at": at,
                "bytes": len(data),
            }
        )
        padded = data + bytes(-len(data) % 8)
        parts.append(padded)
        at += len(padded)
    target.with_suffix(".bin").write_bytes(b"".join(parts))
    target.with_suffix(".json").write_text(json.dumps(described))


def write_page() -> None:
    """Writes the page that runs page/real.js."""
    page = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'>"
    (WORK / "page/real.html").write_text(page + "<script type=module src=real.js></script>")


def address(bench: Bench, who: str, model: RealModel, feeds: str) -> str:
    """The page in which a contender runs a model."""
    url = (
        f"{bench.url}/bench/page/real.html?engine={(PAGES | OTHER_THREAD)[who]}"
        f"&model=/real/{model.file}&feeds={feeds}"
    )
    if model.passed:
        url += f"&prompt={feeds}-prompt&passed={quote(json.dumps(model.passed))}"
    return url


def output(visits: Visits) -> np.ndarray:
    """The first output of the last run, as float32."""
    found = visits.page.evaluate("window.output()")
    data = np.frombuffer(base64.b64decode(found["data"]), np.float32)
    return data.reshape(found["dims"])


def difference(model: RealModel, y: np.ndarray, reference: np.ndarray) -> float:
    """The difference between an output and the reference, in the terms of `model.tolerance`."""
    if y.shape != reference.shape:
        return float("inf")
    if model.shape_only:
        return 0.0
    y, reference = y.astype(np.float64), reference.astype(np.float64)
    if model.norms:
        return float(np.linalg.norm(y - reference) / np.linalg.norm(reference))
    return float(np.max(np.abs(y - reference)) / max(np.max(np.abs(reference)), 1e-30))


def natives(model: RealModel, feeds: Feeds) -> dict[str, Native]:
    """Sessions of both Python packages with one thread."""
    import edgewise

    options = edgewise.SessionOptions()
    options.intra_op_num_threads = 1
    ours, theirs = edgewise.InferenceSession(str(model.path), options), native_session(model.path)
    return {
        NATIVE_EDGEWISE: Native(lambda: ours.run(None, feeds)[0]),
        NATIVE: Native(lambda: theirs.run(None, feeds)[0]),
    }


def run_natively(
    bench: Bench,
    model: RealModel,
    feeds: Feeds,
    rounds: int,
    found: dict[str, dict[str, list[float]]],
) -> np.ndarray | None:
    """Times both packages alternately. Returns onnxruntime's output, with exact products of bytes
    on any processor, or None if it failed.
    """
    engines, times = natives(model, feeds), {}
    for who, one in list(engines.items()):
        try:
            one.times(0)
            times[who] = []
        except Exception as e:
            bench.failed(f"{who}, {model.title}", e)
            del engines[who]
    for _ in range(rounds):
        for who, one in engines.items():
            times[who].append(float(np.median(one.times(STEADY_MS)[1:])))
    reference = None
    if NATIVE in engines:
        exact = reference_of(model.path)
        reference = engines[NATIVE].result
        if exact is not model.path:
            reference = native_session(exact).run(None, feeds)[0]
        off = {who: difference(model, one.result, reference) for who, one in engines.items()}
        leave_out(bench, model.title, off, dict.fromkeys(off, model.tolerance), times)
    found[NATIVELY] = times
    return reference


def run_in_pages(
    bench: Bench,
    model: RealModel,
    feeds: str,
    rounds: int,
    reference: np.ndarray | None,
    found: dict[str, dict[str, list[float]]],
    memory: dict[str, float],
) -> None:
    """Measures first visits in new profiles, and second visits and runs in the last of them, in
    turns. Runs are measured in a worker and in the page's thread with both engines.
    """
    times: dict[str, dict[str, list[float]]] = {FIRST: {}, SECOND: {}, STEADY: {}}
    open_now: dict[str, Visits] = {}
    failed: set[str] = set()

    def attempt(who: str, what: Any) -> Any:
        try:
            return what()
        except Exception as e:
            failed.add(who)
            bench.failed(f"{who}, {model.title}", e)

    try:
        for _number in range(rounds):
            for who in PAGES:
                if who in failed:
                    continue
                if who in open_now:
                    open_now.pop(who).close()
                visits = open_now[who] = Visits(bench, address(bench, who, model, feeds))
                for what in (FIRST, SECOND):
                    if visited := attempt(who, visits.visit):
                        times[what].setdefault(who, []).append(visited["first"])
        for who in OTHER_THREAD:
            open_now[who] = Visits(bench, address(bench, who, model, feeds))
            attempt(who, open_now[who].visit)
        for _number in range(rounds):
            for who in [w for w in open_now if w not in failed]:
                if ms := attempt(who, open_now[who].steady):
                    times[STEADY].setdefault(who, []).append(ms)
        off = {}
        for who in [w for w in open_now if w not in failed]:
            if who in PAGES:
                memory[who] = open_now[who].peak / 1024
            made = attempt(who, lambda visits=open_now[who]: output(visits))
            if made is not None and reference is not None:
                off[who] = difference(model, made, reference)
        allowed = dict.fromkeys(off, model.tolerance)
        leave_out(bench, model.title, off, allowed, *times.values(), memory)
    finally:
        for visits in open_now.values():
            visits.close()
    found |= times


# long: the rounds of one case and its report
def run(bench: Bench, cases: list[str], rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Runs the case. `seconds` has no effect: each model is small or run once."""
    models = [m for m in MODELS if m.path.exists()]
    if not models:
        say(
            f"  no model of tests/bench/real_models.py is in {FOLDER}: set EDGEWISE_REAL to the "
            "folder that has them"
        )
        return {}
    for model in MODELS:
        if model not in models:
            bench.trouble.append(f"{model.title}: {model.file} is not there")
    folder = WORK / "real"
    folder.mkdir(parents=True, exist_ok=True)
    write_page()
    rounds = min(rounds, 3)
    table, values, memories = [], {}, {}
    for number, model in enumerate(models):
        begin = time.monotonic()
        feeds = model.feeds(np.random.default_rng(number))
        write_feeds(feeds, folder / str(number))
        if model.passed:
            write_feeds(model.prompt, folder / f"{number}-prompt")
        found: dict[str, dict[str, list[float]]] = {}
        memory: dict[str, float] = {}
        reference = run_natively(bench, model, feeds, rounds, found)
        run_in_pages(bench, model, f"/bench/real/{number}", rounds, reference, found, memory)
        for what, times in found.items():
            values[row_name(model.title, what)] = times
        memories[model.title] = memory
        table.append(
            [
                model.title,
                f"{model.path.stat().st_size / 1e6:.3g}",
                *cells(found[FIRST], ONE, ORT_ONE),
                *cells(found[SECOND], ONE, ORT_ONE),
                *cells(found[STEADY], ONE, ORT_WORKER),
                *cells(found[STEADY], INLINE, ORT_ONE),
                *cells(found[NATIVELY], NATIVE_EDGEWISE, NATIVE),
                *(show(memory.get(who)) for who in PAGES),
            ]
        )
        say(f"  {' | '.join(table[-1])} ({time.monotonic() - begin:.0f} s)")
    columns = [
        "one thread",
        "MB",
        *(
            c
            for what in (
                FIRST,
                SECOND,
                "a run in a worker",
                "a run in the page's thread",
                "a run, natively",
            )
            for c in (f"{what}: Edgewise, ms", "onnxruntime, ms", "")
        ),
        "peak of the page: Edgewise, MB",
        "onnxruntime-web, MB",
    ]
    notes = [
        (
            "First visit: milliseconds from navigation to the first result, in a fresh browser"
            " profile, the model an .onnx file on a plain local server; second visit: the same in a"
            " new page of that profile. A run: the median of later runs through the public API of a"
            " page. Visits have the defaults: Edgewise computes in a worker, onnxruntime-web in the"
            " page's thread. Runs are measured both ways, by `proxy: false` of Edgewise's sessions"
            " and `env.wasm.proxy` of onnxruntime-web. A decoder's cross attention caches are those"
            " that the session gave for a prompt, as they are where text is written."
        ),
        "Natively: the run() of both Python packages, NumPy arrays in and out.",
        (
            "The first output was compared with native onnxruntime's before anything counted."
            " Kokoro draws random numbers: of it the shape was compared."
        ),
    ]
    return {
        "real": {
            "title": "Real pre-trained models",
            "unit": "ms",
            "values": values,
            "real_memory": memories,
            "columns": columns,
            "table": table,
            "notes": notes,
        }
    }
