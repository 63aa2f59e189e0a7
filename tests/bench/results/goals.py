"""The goals of the benchmark, and whether the results meet them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from ..binding import ARENA
from ..contenders import NATIVE, ONE, ORT_ONE, TF, TRAINING_ONE, TWO, WLLAMA_ONE
from ..first_result import FIRST_RESULT
from ..gpu import tokens as gpu
from ..real import INLINE, NATIVE_EDGEWISE, NATIVELY, ORT_WORKER
from ..start import COMPILED, FIRST_PROMPT, FIRST_TOKEN, IMPORTED
from ..stats import ratio, show, summary
from ..visits import FIRST, SECOND, STEADY, row_name

KERNELS = 0.85  # minimum fraction of the binding limit, for each single kernel


@dataclass
class Goal:
    """A required ratio or limit of a case.

    By default the goal is a ratio of speeds, `ours` over `theirs` in the same rounds; without
    `theirs` it is a fraction of the binding limit.

    Args:
        row: row of the case's values; "*" means each row.
        at_most: instead of a ratio, an upper limit of the median of `ours` in the case's unit.
        above_file: subtract the size of the model's file first.
        first: compare the first step, prompt or token with the median of later ones.
    """

    what: str
    case: str
    row: str
    theirs: str | None
    at_least: float | None = None
    ours: str = ONE
    at_most: float | None = None
    above_file: bool = False
    first: bool = False


STEPS = (
    ("MLP", "train mlp"),
    ("GPT small", "train gpt4"),
    ("GPT medium", "train gpt6"),
    ("LoRA", "train gpt6-lora"),
)
REFERENCE = {
    "kernels": (
        "GEMM 512×512×512",
        "GEMM 1024×1024×1024",
        "GEMV 1×2048×2048",
        *(
            f"4-bit {m}×2048×2048, blocks of 32, accuracy_level {level}"
            for m in (1, 128)
            for level in (0, 4)
        ),
        "conv 3×3, 64→64, 56×56",
    ),
    "kernels along memory": ("softmax 1024×1024", "layer norm 1024×768"),
}
# Pre-trained models through the public API: the smallest ones, where the time outside of the
# kernels matters, and some that were slower than the peer in earlier releases.
TINY = (
    "wake-word head",
    "voice activity, Silero 4 (If)",
    "voice activity, Silero 6 (If)",
    "voice activity, Silero 6, opset 15",
    "voice activity, Silero 6, without If",
    "speech embedding (CNN)",
    "voice encoder (LSTM)",
)
NO_SLOWER = (
    *TINY,
    "mel spectrogram, 1 s",
    "MiniLM, 128 tokens",
    "SmolLM2-135M, 4 bits, 1 token",
    "Stable Diffusion (tiny): VAE decoder",
    "Stable Diffusion (tiny): VAE encoder",
)
PLACE = {ONE: "steady, in a worker", INLINE: "steady, page's thread"}
REAL = (
    *((title, STEADY, ORT_WORKER, 1.0, ONE) for title in TINY),
    *((title, STEADY, ORT_ONE, 1.0, INLINE) for title in TINY),
    ("Whisper tiny.en merged decoder, 1 token", STEADY, ORT_WORKER, 1.5, ONE),
    ("Whisper tiny.en merged decoder, 1 token", STEADY, ORT_ONE, 1.5, INLINE),
    *((title, NATIVELY, NATIVE, 1.0, NATIVE_EDGEWISE) for title in NO_SLOWER),
)
GOALS = [
    Goal("float32 prefill", "prefill", "", ORT_ONE, 1.7),
    Goal("float32 decode", "decode", "", ORT_ONE, 1.8),
    Goal("int8 prefill", "prefill-int8", "", ORT_ONE, 1.8),
    Goal("int8 decode", "decode-int8", "", ORT_ONE, 4),
    Goal("4-bit prefill, activations stay float32", "prefill-4bit", "", ORT_ONE, 1.7),
    Goal("4-bit decode, activations stay float32", "decode-4bit", "", ORT_ONE, 15),
    Goal("4-bit prefill, accuracy_level 4", "prefill-4bit-level4", "", ORT_ONE, 3),
    Goal("4-bit decode, accuracy_level 4", "decode-4bit-level4", "", ORT_ONE, 15),
    Goal("4-bit decode, accuracy_level 4", "decode-4bit-level4", "", WLLAMA_ONE, 6),
    Goal("4-bit decode, accuracy_level 4", "decode-4bit-level4", "", NATIVE, 0.8),
    Goal("4-bit prefill, genai export", "prefill-genai", "", ORT_ONE, 3),
    Goal("4-bit decode, genai export", "decode-genai", "", ORT_ONE, 15),
    Goal("4-bit decode, genai export", "decode-genai", "", NATIVE, 0.8),
    *(
        Goal(name, "ops", name, theirs, least)
        for name, times in (
            ("MatMul 1024×1024×1024", 1.5),
            ("4-bit GEMV 2048×2048", 25),
            ("Conv 3×3, 64→64, 56×56", 1.4),
            ("Softmax 1024×1024", 6),
            ("LayerNorm 1024×768", 8),
        )
        for theirs, least in ((ORT_ONE, times), (TF, 1))
        if theirs != TF or "4-bit" not in name
    ),
    *(Goal(f"training step, {what}", case, "", TRAINING_ONE, 1.6) for what, case in STEPS),
    Goal(
        "training step, GPT small: share of the arithmetic floor", "train gpt4", "", None, 1 / 1.15
    ),
    Goal(
        "training step, GPT medium: share of the arithmetic floor", "train gpt6", "", None, 1 / 1.15
    ),
    Goal("", "vision", "*", ORT_ONE, 1.4),
    Goal("", "encoder", "*", ORT_ONE, 1.4),
    Goal("second thread: float32 prefill", "prefill", "", ONE, 1.8, TWO),
    *(
        Goal(f"second thread: training step, {what}", case, "", ONE, 1.8, TWO)
        for what, case in STEPS
    ),
    Goal("second thread: 4-bit decode", "decode-4bit-level4", "", ONE, 1.6, TWO),
    *(
        Goal(
            f"first training step over the median: {what}", case, "", None, at_most=1.3, first=True
        )
        for what, case in STEPS
    ),
    *(
        Goal(row.replace("later ones", "the median"), "start", row, None, at_most=1.3, first=True)
        for row in (FIRST_PROMPT, FIRST_TOKEN)
    ),
    Goal(
        "session of the 135M model in float32 from memory",
        "start",
        "session of SmolLM2-135M in float32",
        None,
        at_most=300,
    ),
    *(
        Goal(f"{title}: first result, first visit", FIRST_RESULT, row, None, at_most=800)
        for title in ("wake-word head", "speech embedding (CNN)")
        for row in [row_name(title, FIRST)]
    ),
    *(
        Goal(
            f"{title}: first result, {visit}", FIRST_RESULT, row_name(title, visit), ORT_ONE, least
        )
        for title in ("EfficientNet-Lite0", "MiniLM, 128 tokens, int8", "MiniLM, 128 tokens")
        for visit, least in ((FIRST, 0.77), (SECOND, 1))
    ),
    Goal("Pyodide: import edgewise", "start", "Pyodide: " + IMPORTED, None, at_most=300),
    Goal("Pyodide: the 135M model compiled", "start", "Pyodide: " + COMPILED, None, at_most=2000),
    *(
        Goal(f"kernel alone: {row}", case, row, None, KERNELS)
        for case, rows in REFERENCE.items()
        for row in rows
    ),
    *(
        Goal(
            row_name(title, PLACE.get(ours, where)),
            "real",
            row_name(title, where),
            theirs,
            least,
            ours,
        )
        for title, where, theirs, least, ours in REAL
    ),
    *(Goal("WebGPU: a token", "webgpu", "", who, 1, gpu.OURS) for who in gpu.PEERS),
    Goal("WebGPU: training step", "webgpu train", "*", gpu.JAX, 1, gpu.OURS),
    Goal("", "size", "*", None, at_most=150),
    Goal(
        "arena over what is alive at once, worst of the zoo's graphs",
        "bind",
        ARENA,
        None,
        at_most=1.1,
    ),
    Goal(
        "peak memory having written 1,024 tokens", "memory", "*", None, at_most=150, above_file=True
    ),
]


def faster(case, row, ours, theirs):
    """Summary of the ratio of speeds over the rounds that both have, or None if one was not
    measured.
    """
    values = case.get("values", {}).get(row, {})
    a, b = values.get(ours), values.get(theirs)
    return ratio(a, b) if case.get("unit", "").endswith("/s") else ratio(b, a)


def _figure(goal, case, row):
    """The figure of a goal that is no ratio of speeds: the median of `ours` in the case's unit, or
    its first step over the median. None if it was not measured.
    """
    if goal.first:
        return case.get("first", {}).get(row, {}).get(goal.ours)
    values = case.get("values", {}).get(row, {}).get(goal.ours)
    return summary(values)["median"] if values else None


def kernels(results, who=ONE):
    """Returns {kind of kernels: [(fraction of the binding limit, name of the limit, kernel)]},
    lowest first.
    """
    found = {}
    for case in results["cases"].values():
        for row, theme in case.get("themes", {}).items():
            if who in case["shares"].get(row, {}):
                found.setdefault(theme, []).append((*case["shares"][row][who], row))
    return {theme: sorted(of) for theme, of in found.items()}


# long: one branch for each kind of goal
def check(results):
    """Compares all goals with the results.

    Returns [(goal as text, target, measurement, met, fraction of the binding limit)] for a table;
    `met` is None if the goal was not measured.
    """
    found = []
    for goal in GOALS:
        case = results["cases"].get(goal.case, {})
        for row in case.get("values", {}) if goal.row == "*" else [goal.row]:
            share = case.get("shares", {}).get(row, {}).get(goal.ours)
            limit = f"{100 * share[0]:.0f} % of {share[1]}" if share else "–"
            what = goal.what or row
            if goal.at_most is not None:
                value, least, unit = (
                    _figure(goal, case, row),
                    goal.at_most,
                    "×" if goal.first else case.get("unit", ""),
                )
                if goal.above_file:
                    what, least = (
                        f"{what}, {row}",
                        goal.at_most + case.get("files", {}).get(row, {}).get(goal.ours, 0),
                    )
                found.append(
                    (
                        what,
                        f"at most {show(least)} {unit}",
                        f"**{show(value)} {unit}**" if value is not None else "not measured",
                        value <= least if value is not None else None,
                        limit,
                    )
                )
            elif goal.theirs is None:
                found.append(
                    (
                        what,
                        f"{100 * goal.at_least:.0f} %",
                        limit if share else "not measured",
                        share[0] >= goal.at_least if share else None,
                        limit,
                    )
                )
            else:
                r = faster(case, row, goal.ours, goal.theirs)
                found.append(
                    (
                        what,
                        f"{goal.at_least:g} × {goal.theirs}",
                        (
                            f"**{r['median']:.2f} ×** [{r['q1']:.2f}–{r['q3']:.2f}]"
                            if r
                            else "not measured"
                        ),
                        r["median"] >= goal.at_least if r else None,
                        limit,
                    )
                )
    for theme, shares in (kernels(results) or {"each": []}).items():
        near = sum(share >= KERNELS for share, *_ in shares)
        found.append(
            (
                f"kernels alone, all sizes: {theme}",
                f"{100 * KERNELS:.0f} % of their limit",
                f"**{near} of {len(shares)}**" if shares else "not measured",
                near == len(shares) if shares else None,
                f"median {100 * median(share for share, *_ in shares):.0f} %" if shares else "–",
            )
        )
    return found


def goal_of(case, row, theirs):
    """The smallest ratio over `theirs` that is a goal, or None."""
    return next(
        (
            g.at_least
            for g in GOALS
            if g.case == case and g.row in (row, "*") and g.theirs == theirs and g.ours == ONE
        ),
        None,
    )
