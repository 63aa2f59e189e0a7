"""Cases `start`: the time until a model runs; `first_visit`: a part of it, five real models beside
other libraries; `memory`: peak memory of a page that has generated 1,024 tokens; `size`: sizes of
the engines.
"""

from __future__ import annotations

import subprocess
import time

from . import operators
from .browser import ROOT, WORK, Contender, renderers, say
from .contenders import EDGEWISE, ONE, ORT_ONE, ORT_TWO
from .first_result import first_results
from .first_visit import FIRST_VISIT, first_visits
from .language import FORMATS, model_files
from .models import SMOLLM2
from .stats import show, summary

CASES = ("start", FIRST_VISIT, "memory", "size")
ENGINES = [("simd128", 1), ("simd128-threads", 2), ("relaxed-threads", 1), ("relaxed-threads", 2)]


HEADS = SMOLLM2["kv_heads"], SMOLLM2["head_dim"]
CREATORS = {
    **{who: ("edgewise", how) for who, how in EDGEWISE.items()},
    ORT_ONE: ("ort", (1,)),
    ORT_TWO: ("ort", (2,)),
}  # {contender: (name in page/create.js, its arguments)}
IDS = [(i * 7919 + 11) % 40000 for i in range(1032)]
LENGTH = 1024
IMPORTED, COMPILED = (
    "import edgewise",
    "SmolLM2-135M-sized model compiled (30 layers, 7,200 nodes as exported)",
)
FIRST_PROMPT, FIRST_TOKEN = (
    "first prompt of 256 tokens over later ones",
    "first token over later ones",
)


def run(bench, cases, rounds, seconds):
    found = {}
    if "start" in cases:
        found |= start(bench, rounds, seconds)
        found |= first_results(bench, rounds)
    if "start" in cases or FIRST_VISIT in cases:
        found |= first_visits(bench, rounds)
    if "memory" in cases:
        found |= memory(bench)
    if "size" in cases:
        found |= size()
    return found


def size():
    """Sizes of each engine in bytes, raw and compressed with brotli."""
    values, table = {}, []
    for path in sorted((WORK / "dist/engine").glob("*.wasm")):
        script = """
            console.log(
              require("zlib").brotliCompressSync(require("fs").readFileSync(process.argv[1]))
                .length,
            );
        """
        kb = [
            path.stat().st_size / 1e3,
            int(
                subprocess.run(["node", "-e", script, path], capture_output=True, check=True).stdout
            )
            / 1e3,
        ]
        values[path.name] = {ONE: kb[1:]}
        table.append([path.name, *(f"{x:.1f} kB" for x in kb), "≤ 150 kB"])
    return {
        "size": {
            "title": "Size of the engines",
            "unit": "kB",
            "columns": ["", "bytes", "as brotli", "goal"],
            "table": table,
            "values": values,
            "notes": [
                "A page loads one of them: the flavour that its browser runs, “full” where a model"
                " wants kernels that few do."
            ],
        }
    }


# long: the rounds of one case and its report
def start(bench, rounds, seconds):
    folder = WORK / "start"
    folder.mkdir(parents=True, exist_ok=True)
    from edgewise.host.session.decoder import open_package

    with open(folder / "demo.edge", "wb") as f:
        open_package(str(ROOT / "web/demo/model")).write(f)
    (WORK / "page/first.html").write_text(
        "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><script type=module"
        " src=first.js></script>"
    )
    model_files()
    end = time.monotonic() + seconds
    table, found, notes = (
        [],
        {},
        [
            "Every row: fresh workers; rows of pages: a fresh browser profile each time, so nothing"
            " is cached but the files on the server's disk."
        ],
    )

    def row(name, values, goal=""):
        if values:
            s = summary(values)
            table.append(
                [
                    name,
                    f"{show(s['median'])}{'' if 'over' in name else ' ms'}",
                    f"{show(s['q1'])}–{show(s['q3'])}",
                    str(s["n"]),
                    goal,
                ]
            )
            found[name] = s

    for flavour, threads in ENGINES:
        times = engines(bench, flavour, threads, 3 * rounds)
        row(
            f"engine {flavour}, {threads} thread{'s' * (threads > 1)}: fetched, compiled and"
            " started",
            [t["all"] for t in times],
        )
        row(
            f"engine {flavour}, {threads} thread{'s' * (threads > 1)}: of it after the compilation",
            [t["instantiate"] for t in times],
            "≤ 100 ms",
        )
    values = creations(bench, folder, max(2, rounds // 2), seconds)
    for what, by in values.items():
        for who, times in by.items():
            row(
                f"{what}, {who}",
                times,
                (
                    ""
                    if who in (ORT_ONE, ORT_TWO)
                    else "≤ 300 ms"
                    if "135M" in what
                    else "≤ 1.3"
                    if "over" in what
                    else ""
                ),
            )
    times = visits(bench, rounds, "/bench/start/demo.edge", "package")
    row(
        "navigation to the first token, demo model as .edge",
        [t["first"] for t in times],
        "≤ 1000 ms",
    )
    row("… of it until the model is loaded", [t["loaded"] for t in times])
    times = visits(bench, max(1, rounds // 2), "/demo/model/", "compiled", "&cold")
    row(
        "navigation to the first token, demo model as .onnx, compiled in Pyodide",
        [t["first"] for t in times],
    )
    wheel = next((WORK / "dist").glob("edgewise-*-py3-none-any.whl"), None)
    steps = []
    for number in range(max(1, rounds // 2) if wheel else 0):
        if number > len(steps) or steps and time.monotonic() > end:
            break
        one = bench.contend("Pyodide", "pyodide.js", "open", "/bench/llm/model.onnx")
        if one:
            try:
                steps.append(one.call("run", f"/{wheel.name}"))
            except Exception as e:
                bench.failed("Pyodide", e)
            one.close()
    for name, key, goal in (
        ("Pyodide started", "pyodide", ""),
        ("wheel fetched and unpacked", "wheel", ""),
        (IMPORTED, "import", "≤ 300 ms"),
        ("import of the compiler", "compiler", ""),
        (COMPILED, "compile", "≤ 2000 ms"),
    ):
        row("Pyodide: " + name, [s[key] for s in steps], goal)
        if steps:
            values["Pyodide: " + name] = {ONE: [s[key] for s in steps]}
    row("Pyodide: all of it, from nothing to a compiled model", [sum(s.values()) for s in steps])
    notes.append(
        "The compiled model's weights are not read in the Pyodide rows: Python sees only the graph,"
        " weights stream past it into the engine."
    )
    return {
        "start": {
            "title": "Start",
            "columns": ["", "median", "quartiles", "rounds", "goal"],
            "table": table,
            "summaries": found,
            "unit": "ms",
            "values": {
                what: by for what, by in values.items() if what not in (FIRST_PROMPT, FIRST_TOKEN)
            },
            "first": {
                what: {who: summary(x)["median"] for who, x in values[what].items()}
                for what in (FIRST_PROMPT, FIRST_TOKEN)
                if what in values
            },
            "notes": notes,
        }
    }


def creations(bench, folder, rounds, seconds):
    """Measures sessions created from bytes in memory, and their first steps relative to later ones.

    Returns {row: {contender: figures}}. The contenders take turns, each time in a new page.
    """
    op = folder / "op.onnx"
    operators.write("GEMV 2048×2048", op.with_suffix(""))
    from edgewise.cli import main

    if main(["build", str(op), "--dims", "", "-o", str(op.with_suffix(".edge"))]):
        raise RuntimeError("the model of one operator could not be built")
    rows, end = {}, time.monotonic() + seconds
    for number in range(rounds):
        if number >= 2 and time.monotonic() > end:
            break
        for who, (engine, how) in CREATORS.items():
            for url, method, args in (
                (
                    f"/bench/start/op.{'onnx' if engine == 'ort' else 'edge'}",
                    "session",
                    (how, operators.OPS["GEMV 2048×2048"].shape),
                ),
                (
                    f"/bench/llm/model.{'onnx' if engine == 'ort' else 'edge'}",
                    "languageModel",
                    ((*how, *HEADS) if engine == "ort" else how, IDS[:256], IDS[256:264]),
                ),
            ):
                one = bench.contend(f"{who}, {method}", "create.js", "fetch", url)
                if not one:
                    continue
                try:
                    t = one.call(method, engine, *args)
                    if method == "session":
                        put = {
                            "session of one operator, its scripts, workers and engine loaded": t[
                                "created"
                            ],
                            "… of one operator, until its first output": t["first"],
                        }
                    else:
                        put = {
                            "session of SmolLM2-135M in float32": t["created"],
                            FIRST_PROMPT: t["prompt"] / t["laterPrompt"],
                            FIRST_TOKEN: t["token"] / t["laterToken"],
                        }
                    for what, value in put.items():
                        rows.setdefault(what, {}).setdefault(who, []).append(value)
                except Exception as e:
                    bench.failed(f"{who}, {method}", e)
                one.close()
    return rows


# long: the rounds of one case and its report
def memory(bench):
    """Peak memory of the renderer processes in MB (10^6 bytes)."""
    mb = lambda one: one.peak_mb() * 1.048576  # noqa: E731
    shared = lambda one: renderers()[one.process]["files"] * 1.024e-3  # noqa: E731
    empty = bench.contend("an empty page", "create.js", "nothing")
    table, values, files, base = [], {}, {}, mb(empty) if empty else None
    if empty:
        files_mb = shared(empty)
        empty.close()
        cells = ["–", f"{show(base)} MB", "–", f"{show(files_mb)} MB", "–", "–"]
        table.append(["an empty page with a worker", *cells])
    for model in ("model", "int8", "4bit"):
        model_files(model)
        package = long_package(model)
        for who, script, file, args in (
            (ONE, "edgewise.js", package, EDGEWISE[ONE]),
            (ORT_ONE, "ort.js", package.with_name(f"{model}.onnx"), (1, *HEADS)),
        ):
            name = f"{FORMATS[model][0]}, {who}"
            one = bench.contend(name, script, "open", f"/bench/llm/{file.name}", *args)
            if not one:
                continue
            try:
                one.call("prefill", IDS[:LENGTH])
                one.call("decode", LENGTH, IDS[LENGTH:])
                peak, size, files_mb = mb(one), file.stat().st_size / 1e6, shared(one)
                engine = one.call("memory") / 1e6 if who == ONE else None
                table.append(
                    [
                        name,
                        f"{show(size)} MB",
                        f"{show(peak)} MB",
                        f"{show(engine)} MB" if engine else "–",
                        f"{show(files_mb)} MB",
                        f"{show(peak - size)} MB",
                        f"{show(peak - size - base)} MB" if base else "–",
                    ]
                )
                (
                    values.setdefault(FORMATS[model][0], {})[who],
                    files.setdefault(FORMATS[model][0], {})[who],
                ) = [peak], size
                say(f"  {name}: {peak:.0f} MB")
            except Exception as e:
                bench.failed(name, e)
            one.close()
    cache = 2 * 4 * SMOLLM2["layers"] * HEADS[0] * HEADS[1] * (LENGTH + 64) / 1e6
    return {
        "memory": {
            "title": (
                f"Peak memory of a page that has run {LENGTH:,} tokens, SmolLM2-135M dimensions"
            ),
            "columns": [
                "",
                "file",
                "peak of the renderer process",
                "of it the engine's memory",
                "of it Chromium's own files, shared",
                "above the file",
                "above file and empty page",
            ],
            "table": table,
            "unit": "MB",
            "values": values,
            "files": files,
            "notes": [
                (
                    "Most resident memory of the page's process since it began, loading included;"
                    " what it shares with Chromium's other processes (its code) counts, as an empty"
                    " page shows."
                ),
                f"In float32 the cache of the tokens alone has {show(cache)} MB.",
            ],
        }
    }


def long_package(model):
    """A package of the model with capacity for all tokens; written again when the other package of
    the model is newer.
    """
    path = WORK / "llm" / f"{model}-long.edge"
    if not path.exists() or path.stat().st_mtime < (WORK / "llm" / f"{model}.edge").stat().st_mtime:
        from edgewise.host.session.decoder import open_package

        with open(path, "wb") as f:
            open_package(str(WORK / "llm" / f"{model}.onnx"), None, LENGTH + 64).write(f)
    return path


def engines(bench, flavour, threads, count):
    """Measures the start of engines that are opened one after the other, each in a new worker."""
    try:
        one = Contender(bench, "engine", "edgewise.js")
        times = []
        for _ in range(count):
            times.append(one.call("engine", flavour, threads))
            one.renew()
        one.close()
        return times[1:]
    except Exception as e:
        bench.failed(f"engine {flavour}, {threads}", e)
        return []


def visits(bench, count, *what):
    """Measures the first tokens of `count` visits; stops at the first failure."""
    times = []
    while len(times) < count and (t := first(bench, *what)):
        times.append(t)
    return times


def first(bench, model, origin, more=""):
    """Measures a visit with a new browser profile; returns None if it fails."""
    context = bench.chromium.new_context()
    try:
        page = context.new_page()
        page.goto(f"{bench.url}/bench/page/first.html?model={model}{more}")
        page.wait_for_function("window.measured", timeout=60_000)
        measured = page.evaluate("window.measured")
        if measured.get("origin") != origin or not measured["first"] > 0:
            raise RuntimeError(measured.get("error") or measured)
        return measured
    except Exception as e:
        bench.failed(f"first token of {model}", e)
    finally:
        context.close()
