"""Writes the results: results.json, results.md, plots, and the measured part of docs/benchmarks.md.

Cases that were not run keep their entries in results.json, each with its own date and load. A case
is a dictionary:

    title, columns, table (rows of text), notes
    unit: "ms", "tokens/s" or "MB"
    values: {row: {contender: [figure of each round]}}, the source of goals and plots
    shares: {row: {contender: [fraction, name of the limit]}}
    memory: {contender: MB} of the page's process
    files: {row: {contender: MB}} of models
    first: {row: {contender: first step, prompt or token over later ones}}
    themes: {row: kind of kernel}
    ratios, peer (versions)
    trouble: contenders that failed or are not comparable
    page: path of a page of docs/ that has the table between markers

All keys from `unit` on are optional.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from pathlib import Path
from statistics import median

from ..contenders import ONE, ORT_TWO, SIMD, TRAINING_ONE, TRAINING_TWO, TWO
from ..stats import show
from ..stats import summary as summarize
from . import goals, plots
from .goals import faster

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- written by make bench -->", "<!-- until here -->"


def machine():
    """The kind of machine: processor, number of processors, memory."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    kb = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    return f"{model}, {os.cpu_count()} processors, {kb / 2**20:.0f} GB, {platform.system()}"


def write(cases, version, folder=HERE):
    """Merges `cases` into results.json and writes all files from it.

    Returns the path of results.md.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {"cases": {}}
    for name, case in cases.items():
        results["cases"][name] = {
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "machine": machine(),
            "browser": f"Chromium {version}",
            **case,
        }
    text = json.dumps(results, indent=1, default=_plain, ensure_ascii=False)
    text = re.sub(
        r"\[\s+(-?[\d.e+-]+(?:,\s+-?[\d.e+-]+)*)\s+\]",
        lambda m: "[" + ", ".join(_short(x) for x in m[1].split(",")) + "]",
        text,
    )  # the figures of a row on one line
    path.write_text(text + "\n")
    results = json.loads(text)
    drawn = plots.write(results, folder)
    path.with_suffix(".md").write_text(markdown(results, drawn))
    if folder == HERE:
        page(results, drawn)
        for name in cases:
            if "page" in results["cases"][name]:
                part(name, results["cases"][name])
    return path.with_suffix(".md")


def _plain(x):
    return round(float(x), 6)


def _short(x):
    return f"{float(x):.5g}" if "." in x else x.strip()


def markdown(results, drawn=()):
    out = [
        "# Results of `make bench`",
        "",
        (
            "Written by `make bench`. Figures move with the machine and its load, so ratios, taken"
            " within one round, are what counts. Each figure is the median of the rounds, in"
            " brackets the quartiles. Every contender has a page and a process of its own in one"
            " Chromium, or is native, in the process that measures; all do the same work, and"
            " outputs were compared first."
        ),
        "",
        *summary_table(results),
    ]
    out += [line for name, alt in drawn for line in ("", f"![{alt}]({name})")]
    for name, case in results["cases"].items():
        out += [
            "",
            f"## {case['title']}",
            "",
            f"`{name}` · {case['date']} · {case['machine']} · {case['browser']}"
            + (f" · {case['peer']}" if case.get("peer") else "")
            + f" · load average {case['load'][0]:.1f} before, {case['load'][1]:.1f} after",
            "",
        ]
        if "columns" in case:
            out += table(case["columns"], case["table"])
        if case.get("ratios"):
            out += [
                "",
                *table(
                    ["ratio", "", "median", "quartiles", "in processor time"],
                    [
                        [
                            r["ours"],
                            "over " + r["theirs"],
                            f"**{r['median']:.2f}×**",
                            f"{r['q1']:.2f}–{r['q3']:.2f}",
                            f"{r['cpu']['median']:.2f}×" if r["cpu"] else "–",
                        ]
                        for r in case["ratios"]
                    ],
                ),
            ]
        out += (
            [""]
            + [f"- {note}" for note in case.get("notes", [])]
            + [f"- **Failed or not comparable:** {t}" for t in case.get("trouble", [])]
        )
    return "\n".join(out) + "\n"


def summary_table(results):
    found = goals.check(results)
    rows = [
        [what, wanted, measured, "met" if ok else "**not met**", limit]
        for what, wanted, measured, ok, limit in found
        if ok is not None
    ]
    left = len(found) - len(rows)
    return [
        f"## Goals: {sum(1 for f in found if f[3])} of {len(rows)} met",
        "",
        (
            "One thread and relaxed SIMD unless said. Last column: how near it is to what the"
            " machine allows, where that was measured in the same rounds."
        ),
        "",
        *table(["", "goal", "measured", "", "of the limit that binds"], rows),
        *(["", f"{left} goals were not measured."] if left else []),
        *farthest_kernels(results),
    ]


def farthest_kernels(results, count=5):
    """The kernels of each kind with the lowest fraction of their limit."""

    def middle(kernels):
        return f"{100 * median(share for share, *_ in kernels):.0f} %" if kernels else "–"

    simd = goals.kernels(results, SIMD)
    rows = [
        [
            theme,
            str(len(kernels)),
            middle(kernels),
            middle(simd.get(theme)),
            "; ".join(
                f"{name}: {100 * share:.0f} % of {limit}"
                for share, limit, name in kernels[:count]
                if share < goals.KERNELS
            )
            or "–",
        ]
        for theme, kernels in goals.kernels(results).items()
    ]
    return (
        [
            "",
            (
                "Kernels, each alone, one thread: the share of the limit that binds, and the"
                f" {count} farthest from it with relaxed SIMD."
            ),
            "",
            *table(["", "kernels", "median", "median, simd128", "farthest from their limit"], rows),
        ]
        if rows
        else []
    )


def summary(path):
    """The goals as text for the terminal."""
    return path.read_text().split("\n## ")[1].split("\n![")[0]


# long: the sections of the page in their order
def page(results, drawn):
    """The part of docs/benchmarks.md between its two markers: plots and a short table."""
    text = PAGE.read_text()
    if BEGIN not in text or END not in text:
        return
    folder = "../tests/bench/results"
    cases = results["cases"]
    groups = plots.entries(results)
    shown = [cases[case] for _, group in groups for case, *_ in group]
    if not shown:
        return
    first = shown[-1]
    dates = sorted({case["date"][:10] for case in shown})
    lines = [
        (
            f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on {first['machine']},"
            f" {first['browser']}; medians, against"
            f" {cases['decode']['peer'].split(',')[0] if 'decode' in cases else 'onnxruntime-web'}"
            " (training: 1.19.2, its last release that could) [in the same"
            f" rounds]({folder}/results.md); relaxed SIMD, which is what Chromium gets."
        ),
        "",
    ]
    lines += [f"![{alt}]({folder}/{name})\n" for name, alt in drawn]
    rows = []
    for _name, group in groups:
        for case, row, label, reference in group:
            values, unit = cases[case]["values"][row], cases[case]["unit"]
            training = reference == TRAINING_ONE
            two = faster(cases[case], row, TWO, TRAINING_TWO if training else ORT_TWO)
            one = faster(cases[case], row, ONE, reference)
            cells = [
                (
                    f"{show(summarize(values[who])['median'])} {unit}"
                    + (f", {r['median']:.1f} ×" if r else "")
                    if who in values
                    else "–"
                )
                for who, r in ((ONE, one), (TWO, two))
            ]
            rows.append(
                [
                    (
                        label
                        if row
                        else f"{'training step' if training else '135M language model'}: {label}"
                    ),
                    *cells,
                ]
            )
    lines += table(
        ["", "one thread, times onnxruntime-web", "two threads, times onnxruntime-web with two"],
        rows,
    )
    checked = [ok for *_, ok, _ in goals.check(results) if ok is not None]
    lines += [
        "",
        (
            f"Of {len(checked)} goals {sum(checked)} are met; [the table]({folder}/results.md)"
            " lists them, and the limits of the machine that the others are near."
        ),
    ]
    replace(PAGE, BEGIN, lines)


def part(name, case):
    """The part of a page that is the table of one case, `page` of the case, with when and where it
    was measured.
    """
    head = (
        f"Measured {case['date'][:10]} on {case['machine']}, {case['browser']}; load average"
        f" {case['load'][0]:.1f} before and {case['load'][1]:.1f} after. Above 2, other programs"
        " took a part of both processors: an idle machine is faster."
    )
    notes = [f"- {note}" for note in case["notes"]]
    lines = [head, "", *table(case["columns"], case["table"]), "", *notes]
    replace(ROOT / case["page"], f"<!-- written by make bench CASE={name} -->", lines)


def replace(path, begin, lines):
    """Replaces the lines of a page between a marker and the next END."""
    text = path.read_text()
    a = text.index(begin) + len(begin)
    path.write_text(text[:a] + "\n" + "\n".join(lines) + "\n" + text[text.index(END, a) :])


def table(head, rows):
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(r) + " |" for r in rows),
    ]
