"""Medians, spreads, and ratios within rounds."""

from __future__ import annotations

from statistics import median, quantiles


def summary(values):
    """Median, quartiles and extremes of a list of measurements."""
    values = sorted(values)
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {
        "median": median(values),
        "q1": low,
        "q3": high,
        "min": values[0],
        "max": values[-1],
        "n": len(values),
    }


def ratio(ours, theirs):
    """Median over rounds of ours/theirs. Both values of a round are measured within seconds of each
    other; slow contenders have fewer rounds.
    """
    return summary([a / b for a, b in zip(ours, theirs)]) if ours and theirs else None


def show(x, digits=3):
    """Formats a number with the given significant digits and no exponent."""
    if x is None:
        return "–"
    if x >= 10 ** (digits - 1):
        return f"{x:,.0f}"
    return f"{x:.{digits}g}" if x >= 1e-4 or x == 0 else f"{x:.0e}"


def cell(values):
    """Formats the median and quartiles for a table."""
    s = values and summary(values)
    return f"{show(s['median'])} [{show(s['q1'])}–{show(s['q3'])}]" if s else "–"
