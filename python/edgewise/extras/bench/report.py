"""The result of a measurement, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from ...host.profile import Profile

# median, q1, q3 and n (the number of rounds).
Summary = dict[str, float]


@dataclass
class BenchReport:
    """What `bench` measured.

    Attributes:
        model: path.
        task: of the model.
        threads: number of threads of both runtimes.
        flavour: of the engine.
        rounds: number of rounds.
        figures: dicts of name, unit, better ("higher" or "lower"), edgewise and onnxruntime
            ({median, q1, q3, n} or None), and ratio, which is above 1 if Edgewise is better, or
            None.
        difference: largest difference between the results, relative to the largest value; None
            without onnxruntime.
        peer: name and version of onnxruntime if it was measured.
        notes: sentences about what was measured.
        profile: of the steps of Edgewise, if it was requested.
    """

    model: str
    task: str
    threads: int
    flavour: str
    rounds: int
    figures: list[dict[str, Any]]
    difference: float | None
    peer: str | None
    notes: list[str]
    profile: Profile | None = None

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-serializable values."""
        d = dict(self.__dict__)
        if self.profile is not None:
            d["profile"] = self.profile.as_dict()
        return d

    def __str__(self) -> str:
        lines = [
            f"{self.model}: {self.task}; {self.threads} thread{'s' * (self.threads != 1)},"
            f" {self.rounds} rounds, median [quartiles]",
            *self._table(),
            *self.notes,
        ]
        return "\n".join(lines) + (f"\n\n{self.profile}" if self.profile is not None else "")

    def _table(self) -> list[str]:
        """The figures, aligned in columns."""
        header = ["", f"Edgewise ({self.flavour})"]
        if self.peer is not None:
            header += [self.peer, "ratio"]
        rows = [header]
        for figure in self.figures:
            row = [f"{figure['name']}, {figure['unit']}", _spread(figure["edgewise"])]
            if self.peer is not None:
                ratio = figure["ratio"]
                row += [_spread(figure["onnxruntime"]), "" if ratio is None else f"{ratio:.2f} x"]
            rows.append(row)
        widths = [max(map(len, column)) for column in zip(*rows)]
        return [
            "  ".join(
                [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))]
            ).rstrip()
            for row in rows
        ]


def figure(
    name: str, unit: str, better: str, ours: Sequence[float] | None, theirs: Sequence[float] | None
) -> dict[str, Any]:
    """An entry of `BenchReport.figures`.

    Args:
        name: of the measurement.
        unit: of the values.
        better: "higher" or "lower".
        ours: values of Edgewise by round.
        theirs: values of onnxruntime by round.
    """
    ratios = [
        (x / y if better == "higher" else y / x)
        for x, y in zip(ours or (), theirs or ())
        if x and y
    ]
    return {
        "name": name,
        "unit": unit,
        "better": better,
        "edgewise": _summarize(ours),
        "onnxruntime": _summarize(theirs),
        "ratio": median(ratios) if ratios else None,
    }


def _summarize(values: Sequence[float] | None) -> Summary | None:
    if not values:
        return None
    q1, _, q3 = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": median(values), "q1": q1, "q3": q3, "n": len(values)}


def _spread(summary: Summary | None) -> str:
    """The median, with the quartiles if there are several rounds."""
    if summary is None:
        return "-"
    text = _number(summary["median"])
    if summary["n"] > 1:
        text += f" [{_number(summary['q1'])} - {_number(summary['q3'])}]"
    return text


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
