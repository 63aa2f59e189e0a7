"""Draws plots of the results as SVG: bars and marks on a card that follows the light or dark colour
scheme of the reader's system.

Written without a plotting library, which keeps the files small.
"""

from __future__ import annotations

import math
from html import escape

from ..contenders import JAX, NATIVE, ONE, ORT_ONE, SIMD, TF, TORCH, TRAINING_ONE, WLLAMA_ONE
from ..stats import show
from .goals import faster, goal_of

WIDTH, LEFT, RIGHT, ROW = 900, 300, 36, 23
MARKS = {SIMD: "simd", WLLAMA_ONE: "wllama", TF: "tf", JAX: "jax", NATIVE: "native", TORCH: "torch"}
WORDS = {
    "edgewise": "Edgewise (relaxed SIMD)",
    "simd": "Edgewise (simd128)",
    "ort": "onnxruntime-web",
    "wllama": "wllama",
    "tf": "TensorFlow.js",
    "jax": "jax-js",
    "native": "native onnxruntime",
    "torch": "native PyTorch",
    "goal": "goal",
}
STYLE = """
text{font:12.5px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1f2937}
.card{fill:#fff;stroke:#e5e7eb}.title{font-size:16px;font-weight:600}
.quiet{fill:#6b7280;font-size:11.5px}.group{font-weight:600;font-size:12px}.end{text-anchor:end}
.middle{text-anchor:middle}.number{font-weight:600}
.grid{stroke:#eceff3}.one{stroke:#9ca3af;stroke-width:1.5}.edgewise{fill:#2563eb}
.slower{opacity:.55}.simd{fill:#fff;stroke:#2563eb;stroke-width:2}.ort{fill:#9ca3af}
.wllama{fill:#059669}.tf{fill:#ea7317}.jax{fill:#a21caf}
.native,.torch{fill:none;stroke:#4b5563;stroke-width:2}
.halo *{fill:none;stroke:#fff;stroke-width:5;stroke-opacity:.85}.goal{stroke:#111827;stroke-width:2}
@media (prefers-color-scheme:dark){
text{fill:#e6e9ee}.card{fill:#12161d;stroke:#2a313c}.quiet{fill:#9aa4b2}.grid{stroke:#232a35}
.one{stroke:#7b8594}.edgewise{fill:#5b9bff}.simd{fill:#12161d;stroke:#5b9bff}.ort{fill:#7b8594}
.wllama{fill:#34d399}.tf{fill:#fb923c}.jax{fill:#e07bf5}.native,.torch{stroke:#c3cad4}
.halo *{stroke:#12161d}.goal{stroke:#f3f4f6}}
"""


def mark(kind, x, y):
    """The mark of a contender at a position."""
    if kind in ("edgewise", "ort"):
        return (
            f'<rect class="{kind}" x="{x - 7:.1f}" y="{y - 5:.1f}" width="14" height="10" rx="2"/>'
        )
    if kind == "goal":
        return f'<path class="goal" d="M{x:.1f} {y - 8.5:.1f}v17"/>'
    if kind == "jax":
        return f'<path class="jax" d="M{x:.1f} {y - 5.5:.1f}l5.5 9.5h-11z"/>'
    if kind == "wllama":
        return f'<rect class="wllama" x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9"/>'
    if kind == "native":
        return f'<path class="native" d="M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>'
    if kind == "torch":
        return f'<path class="torch" d="M{x - 4.5:.1f} {y - 4.5:.1f}l9 9m0 -9l-9 9"/>'
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'


def above(kind, x, y):
    """The mark with an outline, for a mark on top of a bar."""
    return f'<g class="halo">{mark(kind, x, y)}</g>{mark(kind, x, y)}'


def text(x, y, words, kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def card(height, title, subtitle, body):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" role="img" aria-label="{escape(title)}"><style>{STYLE}</style><rect'
        f' class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>'
        + text(24, 32, title, "title")
        + text(24, 52, subtitle, "quiet")
        + "".join(body)
        + "</svg>\n"
    )


def legend(kinds, y):
    out, x = [], 31
    for kind in kinds:
        out += [mark(kind, x, y - 4), text(x + 13, y, WORDS[kind], "quiet")]
        x += 13 + 6.3 * len(WORDS[kind]) + 20
    return out


def relative(title, subtitle, groups):
    """Bars of speed as a multiple of onnxruntime-web's on a logarithmic axis; other contenders are
    marks.

    groups: [(name, [(label, {kind: ratio}, goal or None)])].
    """
    rows = [r for _, g in groups for r in g]
    if not rows:
        return None
    largest = max(max([*ratios.values(), goal or 1]) for _, ratios, goal in rows)
    least = max(0.1, min([0.5, *(v for _, ratios, _ in rows for v in ratios.values())]))
    low, high = math.log2(least) - 0.15, math.log2(largest) + (0.75 if largest > 8 else 0.4)

    def at(ratio):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(max(ratio, least)) - low) / (high - low)

    kinds = [
        k
        for k in WORDS
        if k != "ort"
        and (k == "goal" and any(g for *_, g in rows) or any(k in ratios for _, ratios, _ in rows))
    ]
    y = 98
    top, body = y - 6, []
    for name, group in groups:
        if name and group:
            body.append(text(24, y + 13, name, "group"))
            y += ROW
        for label, ratios, goal in group:
            middle = y + ROW / 2
            body.append(text(LEFT - 14, middle + 4.5, label, "end"))
            ours = ratios.get("edgewise")
            if ours:
                a, b = sorted((at(1), at(ours)))
                body.append(
                    f'<rect class="edgewise{" slower" if ours < 1 else ""}" x="{a:.1f}"'
                    f' y="{middle - 7}" width="{max(b - a, 1.5):.1f}" height="14" rx="2"/>'
                )
            body += ([mark("goal", at(goal), middle)] if goal else []) + [
                above(k, at(v), middle) for k, v in ratios.items() if k != "edgewise"
            ]
            if ours:  # to the right of all marks that are near the end of the bar
                x = max(at(ours), at(1))
                while near := [
                    v
                    for v in [
                        *(at(v) for k, v in ratios.items() if k != "edgewise"),
                        *([at(goal)] if goal else []),
                    ]
                    if -2 < v - x < 54
                ]:
                    x = max(near) + 5
                body.append(text(x + 7, middle + 4.5, f"{ours:.1f}×", "number"))
            y += ROW
        y += 7
    ticks = [
        t for t in (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128) if low <= math.log2(t) <= high
    ]
    grid = [
        f'<path class="{"one" if t == 1 else "grid"}" d="M{at(t):.1f} {top}V{y}"/>'
        + text(at(t), y + 16, f"{t:g}×", "quiet middle")
        for t in ticks
    ]
    return card(y + 32, title, subtitle, legend(kinds, 76) + grid + body)


def row_of(case, row, reference):
    """Returns {kind: ratio} for a row of a case's values."""
    if not case.get("values", {}).get(row, {}).get(reference):
        return None
    found = {
        "edgewise": faster(case, row, ONE, reference),
        **{kind: faster(case, row, who, reference) for who, kind in MARKS.items()},
    }
    return {kind: r["median"] for kind, r in found.items() if r}


LANGUAGE = [
    ("prefill", "prefill, float32"),
    ("decode", "decode, float32"),
    ("prefill-int8", "prefill, int8"),
    ("decode-int8", "decode, int8"),
    ("prefill-4bit", "prefill, 4 bits"),
    ("decode-4bit", "decode, 4 bits"),
    ("prefill-4bit-level4", "prefill, 4 bits, accuracy_level 4"),
    ("decode-4bit-level4", "decode, 4 bits, accuracy_level 4"),
    ("prefill-genai", "prefill, 4 bits, genai export"),
    ("decode-genai", "decode, 4 bits, genai export"),
]
TRAINING = [
    ("train mlp", "MLP 784-512-512-10, batch 64"),
    ("train gpt4", "GPT 4 × 96, 16 × 64 tokens"),
    ("train gpt6", "GPT 6 × 192, 8 × 128 tokens"),
    ("train gpt6-lora", "the same, LoRA r = 8"),
]


def entries(results):
    """The rows of the overview: [(group, [(case, row, label, reference)])] of the measured
    cases.
    """
    cases = results["cases"]
    groups = [
        (
            "Language model, 135 million parameters",
            [(c, "", label, ORT_ONE) for c, label in LANGUAGE],
        )
    ]
    groups += [
        (cases[c]["title"], [(c, row, row, ORT_ONE) for row in cases[c].get("values", {})])
        for c in ("vision", "encoder")
        if c in cases
    ]
    groups += [("Training step", [(c, "", label, TRAINING_ONE) for c, label in TRAINING])]
    return [
        (name, kept)
        for name, group in groups
        if (
            kept := [
                e for e in group if cases.get(e[0], {}).get("values", {}).get(e[1], {}).get(e[3])
            ]
        )
    ]


def memory_bars(title, subtitle, groups):
    """groups: [(name, [(kind, MB)])] as bars on a linear axis."""
    if not groups:
        return None
    largest = max(mb for _, bars in groups for _, mb in bars)
    y, body, thick = 84, [], 17

    def width(mb):
        return (WIDTH - LEFT - 96) * mb / largest

    for name, bars in groups:
        body.append(text(24, y + 13, name, "group"))
        for kind, mb in bars:
            body += [
                text(LEFT - 14, y + 13, WORDS[kind].split(" (")[0], "end"),
                (
                    f'<rect class="{kind}" x="{LEFT}" y="{y + 2}" width="{width(mb):.1f}"'
                    ' height="13" rx="2"/>'
                ),
                text(LEFT + width(mb) + 7, y + 13, f"{show(mb)} MB", "number"),
            ]
            y += thick
        y += 12
    return card(
        y + 8, title, subtitle, [f'<path class="one" d="M{LEFT - 0.5} 80V{y - 8}"/>', *body]
    )


def memory(results):
    """Returns {title: [(kind, MB)]} for language models and for training."""
    found = []
    for case, label in (
        ("decode", "135M, float32"),
        ("decode-int8", "135M, int8"),
        ("decode-4bit-level4", "135M, 4 bits"),
        ("train gpt6", "training, GPT 6 × 192"),
        ("train gpt6-lora", "training, LoRA"),
    ):
        peaks = results["cases"].get(case, {}).get("memory", {})
        bars = [
            (kind, peaks[who])
            for who, kind in (
                (ONE, "edgewise"),
                (ORT_ONE, "ort"),
                (TRAINING_ONE, "ort"),
                (WLLAMA_ONE, "wllama"),
                (TF, "tf"),
                (JAX, "jax"),
            )
            if who in peaks
        ]
        if len(bars) > 1:
            found.append((label, bars))
    return found


# long: a table of plots
def write(results, folder):
    """Writes the plots of the measured cases; returns [(file name, title)]."""
    cases, found = results["cases"], []
    same = (
        "times the speed of onnxruntime-web{} with one thread, in the same rounds; everything has"
        " one thread; a logarithmic axis, further right is faster"
    )

    def rows(group):
        return [
            (label, ratios, goal_of(c, row, reference))
            for c, row, label, reference in group
            if (ratios := row_of(cases[c], row, reference))
        ]

    groups = entries(results)
    drawn = {
        "speed.svg": (
            "Speed beside onnxruntime-web in one Chromium",
            relative(
                "Speed in one Chromium, beside onnxruntime-web",
                same.format(""),
                [(n, rows(g)) for n, g in groups if n != "Training step"],
            ),
        ),
        "operators.svg": (
            "Single operators",
            relative(
                "Single operators",
                same.format(""),
                [
                    (
                        "",
                        rows(
                            [
                                ("ops", row, row, ORT_ONE)
                                for row in cases.get("ops", {}).get("values", {})
                            ]
                        ),
                    )
                ],
            ),
        ),
        "training.svg": (
            "Training steps",
            relative(
                "A training step",
                same.format(" 1.19.2"),
                [("", [r for n, g in groups if n == "Training step" for r in rows(g)])],
            ),
        ),
        "memory.svg": (
            "Peak memory of the page",
            memory_bars(
                "Peak memory of the page",
                "most resident memory of the renderer process, loading and 268 tokens, or some"
                " training steps, included; about 120 MB of it are an empty page's",
                memory(results),
            ),
        ),
    }
    for name, (alt, svg) in drawn.items():
        if svg:
            (folder / name).write_text(svg)
            found.append((name, alt))
    return found
