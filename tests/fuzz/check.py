"""Runs a case in one session and compares each run with the reference."""

from __future__ import annotations

import dataclasses

import edgewise
import numpy as np
from edgewise.errors import EdgewiseError, PlanError

from .reference import Reference, spread

# Differences of this part of the largest number are no differences.
EXACT = {np.dtype(np.float32): 1e-4, np.dtype(np.float16): 1e-2, np.dtype(np.float64): 1e-4}
MANY = 0.1  # of the elements of an output
ROOM = 20  # times the spread of the reference
# Kinds of runs, the worst last.
KINDS = (
    "both refuse", "only onnxruntime refuses", "agree", "sensitive", "only edgewise refuses",
    "damaged", "differ",
)  # fmt: skip


@dataclasses.dataclass
class Result:
    """runs: the kind and text of each run. recorded: how many runs were recorded ones. new: the
    kinds of those runs that do not agree, in new sessions.
    """

    runs: list[tuple[str, str]]
    recorded: int
    new: list[str]

    @property
    def kind(self):
        return max((k for k, _ in self.runs), key=KINDS.index)

    @property
    def text(self):
        kind = self.kind
        return next(text for k, text in self.runs if k == kind)


def references(model, runs):
    """For each run the outputs, or the error's text."""
    try:
        reference = Reference(model)
    except Exception as e:  # noqa: BLE001 - onnxruntime has no common class of errors
        return [str(e)] * len(runs)
    out = []
    for run in runs:
        try:
            out.append(reference.run(run))
        except Exception as e:  # noqa: BLE001
            out.append(str(e))
    return out


class Difference(str):
    """What differs. share: the part of the elements of an output."""

    share = 1.0


def differences(got, want, allowed=None):
    """The first output that differs, as a Difference, or "". allowed: a further tolerance of
    elements.
    """
    for i, (g, w) in enumerate(zip(got, want)):
        g = np.asarray(g)
        if g.shape != w.shape or g.dtype != w.dtype:
            return Difference(f"output {i}: {g.dtype}{g.shape} instead of {w.dtype}{w.shape}")
        if not w.size:
            continue
        x, y = g.astype(np.float64), w.astype(np.float64)
        finite = np.isfinite(y)
        largest = np.abs(y[finite]).max(initial=0.0)
        room = EXACT.get(w.dtype, 0.0) * (largest + 0.1)
        with np.errstate(invalid="ignore"):
            far = np.abs(x - y)
        far = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.nan_to_num(far, nan=np.inf))
        if allowed is not None:
            room = room + ROOM * allowed[i]
        if (wrong := far > room).any():
            found = Difference(
                f"output {i}: {int(wrong.sum())} of {w.size} differ by up to {far.max():.3g};"
                f" the largest is {largest:.3g}"
            )
            found.share = wrong.mean()
            return found
    return ""


def compared(model, run, got, want):
    """(kind, text) of a run that both have answered."""
    if not (text := differences(got, want)):
        return "agree", ""
    try:
        allowed = spread(model, run, want)
    except Exception as e:  # noqa: BLE001 - onnxruntime refuses what it has accepted before
        return "differ", f"{text} (how exact it can be is unknown: {e})"
    return ("differ", text) if differences(got, want, allowed) else ("sensitive", text)


def open_session(model, engine):
    return edgewise.InferenceSession(model.SerializeToString(), engine=engine)


def run_one(session, run):
    """The outputs of a run, or (kind, text)."""
    try:
        return session.run(run.names, run.feeds)
    except Exception as e:  # noqa: BLE001 - any other class than EdgewiseError is a finding
        return kind_of(e), f"{type(e).__name__}: {e}"


def check(model, runs, engine, wanted=None):
    """Compares the runs of one session with the reference.

    A result that rounding could explain in one session, but that has no difference in a new one,
    differs if many elements do: a session may not depend on earlier runs.

    Args:
        model: ModelProto.
        runs: [Run].
        engine: an Engine.
        wanted: what `references` gave for them.
    """
    wanted = references(model, runs) if wanted is None else wanted
    out, recorded = in_one_session(model, runs, engine, wanted)
    new = []
    for i, (kind, text) in enumerate(out):
        if KINDS.index(kind) > KINDS.index("agree"):
            (again, _), *_ = in_one_session(model, runs[i : i + 1], engine, wanted[i : i + 1])[0]
            new.append(again)
            if kind == "sensitive" and again == "agree" and text.share > MANY:
                out[i] = "differ", text
    return Result(out, recorded, new)


def in_one_session(model, runs, engine, wanted):
    """([(kind, text)] of the runs, number of recorded runs)."""
    try:
        session = open_session(model, engine)
    except EdgewiseError as e:
        refused = kind_of(e), f"{type(e).__name__}: {e}"
        return [judged(model, None, refused, want) for want in wanted], 0
    recorded = Recorded(session)
    out = []
    for run, want in zip(runs, wanted):
        out.append(judged(model, run, run_one(session, run), want))
    session.free()
    return out, recorded.count


def judged(model, run, got, want):
    """(kind, text) of a run. got: outputs, or its kind and text; want: outputs, or a text."""
    if isinstance(got, tuple):
        refusal = isinstance(want, str) and got[0] != "damaged"
        return ("both refuse", want) if refusal else got
    if isinstance(want, str):
        return "only onnxruntime refuses", want
    return compared(model, run, got, want)


def kind_of(error):
    """A refusal, or a finding: a plan that the engine does not accept, any other exception."""
    refusal = isinstance(error, EdgewiseError) and not isinstance(error, PlanError)
    return "only edgewise refuses" if refusal else "damaged"


class Recorded:
    """Counts the recorded runs of a session (edgewise/host/session/direct.py)."""

    def __init__(self, session):
        self.count, self.run = 0, session.direct.run
        session.direct.run = self

    def __call__(self, *args):
        outputs = self.run(*args)
        self.count += outputs is not None
        return outputs
