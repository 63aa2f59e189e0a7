"""Case `kernels`: single kernels, as a fraction of the machine's limit for the same work.

A case (products.py, along_memory.py) is a plan of one step, or of a few steps if no single kernel
does all of the work. Its limit is measured in the same round and flavour with the loops of
page/limits.c, and is the largest of up to three times:

- the same number of multiply-adds, or of dot products for kernels that compute in integers;
- loads and stores of the same number of bytes: read, written, or both in place, so that data that
  fits a cache fits it there too; with the passes over a row that must come before its first result,
  in the nearest cache;
- the functions of its formula on a few kB of data: exponentials, divisions, roots, conversions and
  packing of bytes and halves, random numbers.
"""

from __future__ import annotations

import json
import time

import numpy as np

from ..browser import WORK, say
from ..contenders import EDGEWISE, ONE, SIMD
from ..stats import show
from . import along_memory, products

CASES = ("kernels",)
FLAVOURS = {ONE: "relaxed", SIMD: "simd128"}  # names of the builds of page/limits.c
TABLES = {
    "kernels": ("Kernels that multiply and add", products.cases),
    "kernels along memory": ("Kernels along memory", along_memory.cases),
}
NOTES = {
    "kernels": [
        (
            "What a plan does with weights once, when it is loaded, is not in the time."
            " Multiply-adds are those of the formula: a convolution by Winograd's method"
            " (conv_winograd) makes do with 4/9 of them and so may pass 100 %. Attention counts the"
            " pairs that its mask leaves, without their exponentials; its gradient five products of"
            " them."
        ),
        (
            "Dot products of bytes where the kernel works in bytes (simd128 has none of bytes: of"
            " 16-bit integers); products with quantized weights do at accuracy_level 4 with few"
            " rows, with relaxed SIMD and 4 bits also with many."
        ),
    ],
    "kernels along memory": [
        "Memory's limit includes the passes over a row without which its first result cannot be"
        " written (norms and their gradients), in the nearest cache. Functions are those of the"
        " formula, on a few kB; what moves elements within vectors (transposes) or reads single"
        " ones (gather of columns) is not counted."
    ],
}


def write(folder, found):
    """Writes the plans of all cases to one file and their descriptions to another, for
    page/kernels.js.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data, table = bytearray(), []
    for c in found:
        plan, slots = c.plan()
        data += bytes(-len(data) % 64)
        table.append({"name": c.name, "at": len(data), "size": len(plan), "slots": slots})
        data += plan
    (folder / "kernels.bin").write_bytes(data)
    (folder / "kernels.json").write_text(json.dumps(table))


class Limit:
    """The loops of one flavour, and the part of a case's work that each of them measures."""

    def __init__(self, bench, flavour):
        self.flavour, self.page = flavour, bench.limit(flavour)
        found = [self.page.call("functions") for _ in range(3)] if self.page else [{}]
        self.functions = {f: min(r[f] for r in found) for f in found[0]}  # ns for each element
        self.peaks = {}

    def least(self, c):
        """Measures the limits of a case; returns (its minimum in ms, the name of the binding
        limit).
        """
        again = 1e-6 * self.functions["read"] * c.passes
        times = {"memory": self.page.call("move", c.reads, c.writes, c.in_place) + again}
        if c.functions:
            times["functions"] = sum(
                self.functions[f] * count * 1e-6 for f, count in c.functions.items()
            )
        if c.operations:
            key, name = (
                ("dots", "dot products") if self.flavour in c.dots else ("flops", "multiply-adds")
            )
            peak = self.page.call("measure", [key])[key]
            self.peaks.setdefault(name, []).append(peak)
            times[name] = c.operations / peak * 1e-6
        name = max(times, key=times.get)
        return times[name], name

    def words(self):
        return f"{self.flavour}: " + ", ".join(
            [f"{show(np.median(v))} G/s {name}" for name, v in self.peaks.items()]
            + [f"{f} {show(v)} ns" for f, v in self.functions.items()]
        )


# long: the rounds of one case and its report
def run(bench, chosen, rounds, seconds):
    """Measures all cases of TABLES on one thread in both flavours.

    Returns {table: result}, see report.py: milliseconds and the fraction of the limit, lowest
    first.
    """
    everything = [(table, c) for table, (_, cases) in TABLES.items() for c in cases()]
    write(WORK / "kernels", [c for _, c in everything])
    pages = {
        who: bench.contend(
            who, "kernels.js", "open", "/bench/kernels/kernels", "/engine/", *EDGEWISE[who]
        )
        for who in FLAVOURS
    }
    limits = {who: Limit(bench, flavour) for who, flavour in FLAVOURS.items()}
    ready = [who for who in FLAVOURS if pages[who] and limits[who].page]
    rows, values, shares, end = (
        {t: [] for t in TABLES},
        {t: {} for t in TABLES},
        {t: {} for t in TABLES},
        time.monotonic() + 3 * seconds,
    )
    for i, (table, c) in enumerate(everything):
        ms, least, left = {who: [] for who in ready}, {who: [] for who in ready}, list(ready)
        begin, share_of_time = (
            time.monotonic(),
            max(0, end - time.monotonic()) / (len(everything) - i),
        )
        for number in range(rounds):
            if number and time.monotonic() - begin > share_of_time * number / (
                number + 1
            ):  # another round would exceed the time limit
                break
            for who in list(left):
                try:
                    took = pages[who].call("time", i)
                    least[who].append(limits[who].least(c))
                    ms[who].append(took)
                except Exception as e:
                    bench.failed(f"{who}, {c.name}", e)
                    left.remove(who)
        cells, found = [], {}
        for who in FLAVOURS:
            if not ms.get(who):
                cells += ["–", "–"]
                continue
            name = max({n for _, n in least[who]}, key=[n for _, n in least[who]].count)
            found[who] = [
                float(np.median([t / took for (t, _), took in zip(least[who], ms[who])])),
                name,
            ]
            cells += [show(float(np.median(ms[who]))), f"{100 * found[who][0]:.0f} % of {name}"]
        if not found:
            continue
        values[table][c.name], shares[table][c.name] = {who: t for who, t in ms.items() if t}, found
        took = float(np.median(ms[ONE])) if ms.get(ONE) else None
        rate = show((c.operations or c.reads + c.writes) / took * 1e-6) if took else "–"
        steps = ", ".join(dict.fromkeys(c.steps)) + (
            f" ({len(c.steps)} steps)" if len(c.steps) > 1 else ""
        )
        rows[table].append(
            (
                found.get(ONE, [0])[0],
                [c.name, cells[0], rate, *cells[1:], *([steps] if table == "kernels" else [])],
            )
        )
        say(f"  {c.name}: " + ", ".join(cells))
    note = (
        "Each alone in a plan of its own, one thread, inputs and outputs where they lie; the"
        " farthest from its limit first. What the machine did in the same rounds, "
        + "; ".join(limits[who].words() for who in ready)
        + " each; reading and writing as many bytes as the case."
    )
    for one in [*pages.values(), *(limit.page for limit in limits.values())]:
        if one:
            one.close()
    themes = {t: {c.name: c.theme for table, c in everything if table == t} for t in TABLES}
    columns = {
        "kernels": [
            "",
            "relaxed, ms",
            "GOP/s",
            "of its limit",
            "simd128, ms",
            "of its limit",
            "kernels",
        ],
        "kernels along memory": [
            "",
            "relaxed, ms",
            "GB/s",
            "of its limit",
            "simd128, ms",
            "of its limit",
        ],
    }
    return {
        t: {
            "title": title,
            "unit": "ms",
            "values": values[t],
            "shares": shares[t],
            "themes": themes[t],
            "columns": columns[t],
            "table": [row for _, row in sorted(rows[t], key=lambda r: r[0])],
            "notes": [note, *NOTES[t]],
        }
        for t, (title, _) in TABLES.items()
    }
