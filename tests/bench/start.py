"""Case `start`: how long until it runs."""
from __future__ import annotations

import time

from .browser import ROOT, WORK, Contender
from .language import model_files
from .stats import show, summary

CASES = ("start",)
ENGINES = [("simd128", 1), ("relaxed-threads", 1), ("relaxed-threads", 2)]


def run(bench, cases, rounds, seconds):
    folder = WORK / "start"
    folder.mkdir(parents=True, exist_ok=True)
    from edgewise.session.decoder import open_package
    with open(folder / "demo.edge", "wb") as f:
        open_package(str(ROOT / "web/demo/model")).write(f)
    (WORK / "page/first.html").write_text("<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><script type=module src=first.js></script>")
    model_files()
    end = time.monotonic() + seconds
    table, found, notes = [], {}, ["Every row: fresh workers; rows of pages: a fresh browser profile each time, so nothing is cached but the files on the server's disk."]

    def row(name, values, goal=""):
        if values:
            s = summary(values)
            table.append([name, f"{show(s['median'])} ms", f"{show(s['q1'])}–{show(s['q3'])}", str(s["n"]), goal])
            found[name] = s

    for flavour, threads in ENGINES:
        times = engines(bench, flavour, threads, 3 * rounds)
        row(f"engine {flavour}, {threads} thread{'s' * (threads > 1)}: fetched, compiled and started", [t["all"] for t in times])
        row(f"engine {flavour}, {threads} thread{'s' * (threads > 1)}: of it after the compilation", [t["instantiate"] for t in times], "≤ 100 ms")
    times = visits(bench, rounds, "/bench/start/demo.edge", "package")
    row("navigation to the first token, demo model as .edge", [t["first"] for t in times], "≤ 1000 ms")
    row("… of it until the model is loaded", [t["loaded"] for t in times])
    times = visits(bench, max(1, rounds // 2), "/demo/model/", "compiled", "&cold")
    row("navigation to the first token, demo model as .onnx, compiled in Pyodide", [t["first"] for t in times])
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
    for name, key, goal in (("Pyodide started", "pyodide", ""), ("wheel fetched and unpacked", "wheel", ""), ("import edgewise", "import", "≤ 300 ms (speed issue)"),
                            ("import of the compiler", "compiler", ""), ("SmolLM2-135M-sized model compiled (30 layers, 7,200 nodes as exported)", "compile", "≤ 4000 ms")):
        row("Pyodide: " + name, [s[key] for s in steps], goal)
    row("Pyodide: all of it, from nothing to a compiled model", [sum(s.values()) for s in steps])
    notes.append("The compiled model's weights are not read in the Pyodide rows: Python sees only the graph, weights stream past it into the engine.")
    return {"start": {"title": "Start", "columns": ["", "median", "quartiles", "rounds", "goal"], "table": table, "summaries": found, "notes": notes}}


def engines(bench, flavour, threads, count):
    """Times of engines opened one after the other, each in a new worker."""
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
    """First tokens of so many visits; none after one that fails."""
    times = []
    while len(times) < count and (t := first(bench, *what)):
        times.append(t)
    return times


def first(bench, model, origin, more=""):
    """A visit of a new visitor; None where it fails."""
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
