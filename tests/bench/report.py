"""results.json and results.md: cases that were not run this time stay as they were, each with its own date and load."""
from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path

from .stats import show

HERE = Path(__file__).parent


def machine():
    """The class of machine: processor, how many of it, memory."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), platform.processor())
    kb = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return f"{model}, {os.cpu_count()} processors, {kb / 2**20:.0f} GB, {platform.system()}"


def write(cases, version, folder=HERE):
    """Merges `cases` into what results.json holds, and writes both files."""
    path = Path(folder) / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {"cases": {}}
    for name, case in cases.items():
        results["cases"][name] = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "machine": machine(), "browser": f"Chromium {version}", **case}
    path.write_text(json.dumps(results, indent=1, default=_plain, ensure_ascii=False) + "\n")
    path.with_suffix(".md").write_text(markdown(results))
    return path.with_suffix(".md")


def _plain(x):
    return round(float(x), 6)


def markdown(results):
    out = ["# Results of `make bench`", "", "Written by `python -m tests.bench`; figures move with the machine and its load, so ratios, taken within one run, are what counts. "
           "Each figure is the median of the rounds; in brackets the quartiles."]
    for name, case in results["cases"].items():
        out += ["", f"## {case['title']}", "", f"`{name}` · {case['date']} · {case['machine']} · {case['browser']}" + (f" · {case['peer']}" if case.get("peer") else "")
                + f" · load average {case['load'][0]:.1f} before, {case['load'][1]:.1f} after", ""]
        if "columns" in case:
            out += table(case["columns"], case["table"])
        else:
            out += table(["", case["unit"], "rounds", "processor ms per token", "loaded in", "peak memory", "difference"],
                         [[r["name"], spread(r), str(r["n"]), show(r["cpu_ms"]["median"]), f"{r['load_ms'] / 1e3:.1f} s", f"{show(r['peak_mb'])} MB" if r["peak_mb"] else "–", show(r["difference"], 1)] for r in case["rows"]])
        if case.get("ratios"):
            out += ["", *table(["ratio", "", "median", "quartiles", "in processor time"], [[r["ours"], "over " + r["theirs"], f"**{r['median']:.2f}×**", f"{r['q1']:.2f}–{r['q3']:.2f}", f"{r['cpu']['median']:.2f}×" if r["cpu"] else "–"] for r in case["ratios"]])]
        if case.get("limits"):
            out += ["", f"The machine in the same rounds (relaxed SIMD, 1 thread): {spread(case['limits']['flops'])} GFLOP/s multiply-add, {spread(case['limits']['bandwidth'])} GB/s read."]
        out += [""] + [f"- {note}" for note in case.get("notes", [])] + [f"- **Failed or not comparable:** {t}" for t in case.get("trouble", [])]
    return "\n".join(out) + "\n"


def spread(r):
    return f"{show(r['median'])} [{show(r['q1'])}–{show(r['q3'])}]"


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in rows)]
