"""Losses of preferences: DPO, ORPO, KTO and SimPO, as TRL computes them.

They depend on a model through the log-probabilities of completions alone. So an update runs the
rows forward, computes the loss and its derivative by each token here, and runs them backward with
these as the weights of the tokens' losses: the gradient is exact, and one program does for all
losses. The reference is the model as it was read: without adapters, and without what this run or
one before it learned. Its log-probabilities are computed once.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError
from ..native import setting, written
from .chat import DataRequest, Example, Report, completed, example_of, nothing_left
from .data import IGNORED, Row, learned
from .options import check_number
from .records import Record, part_of
from .run import Apply, Reset

LossName = Literal["dpo", "orpo", "kto", "simpo"]
LOSSES: tuple[LossName, ...] = ("dpo", "orpo", "kto", "simpo")
RATE = 0.1
"""Factor of the default learning rate: log-probabilities of whole completions move faster."""
_PAIR = 'Give {"prompt": ..., "chosen": ..., "rejected": ...}.'
_LABELLED = 'Give {"prompt": ..., "completion": ..., "label": true or false}.'


@dataclass
class Preference:
    """A loss and its numbers, with TRL's names and defaults.

    Attributes:
        loss: its name.
        beta: how much the model may leave the reference; of ORPO, the weight of the odds ratio.
        simpo_gamma: margin of the rewards of SimPO.
        desirable_weight, undesirable_weight: of KTO's examples.
    """

    loss: LossName
    beta: float = 0.1
    simpo_gamma: float = 0.5
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0


@dataclass
class Unit:
    """What is compared: a chosen and a rejected completion; of KTO, a completion with its label and
    another completion of the same prompt, whose log-probability says how far the model has moved.

    Attributes:
        rows: the two of them. Labels are the completion.
        ends: tokens of each row, without padding.
        label: of KTO.
        reference: log-probabilities of the two completions by the reference.
    """

    rows: list[Row]
    ends: list[int]
    label: bool
    reference: list[float]


@dataclass(frozen=True)
class Score:
    """Run rows forward, without dropout. Labels are all tokens. The answer: the losses of the
    tokens of all rows, one row after the other: at each place that of the next token.
    """

    rows: list[Row]
    kind: Literal["score"] = "score"


@dataclass(frozen=True)
class Backward:
    """Run rows forward and backward, and add the gradients of the sum of the tokens' losses times
    `weights`. Labels are all tokens; weights are those of the tokens of all rows.
    """

    rows: list[Row]
    weights: list[float]
    kind: Literal["backward"] = "backward"


PreferenceRequest = Reset | Score | Backward | Apply


def check_preference(
    loss: object,
    beta: float | None,
    simpo_gamma: float | None,
    desirable_weight: float | None,
    undesirable_weight: float | None,
    where: str,
) -> Preference:
    """The settings of a loss; None: its default. where: what errors write before a name.

    Raises:
        InputError: one cannot be used.
    """
    name: LossName | None = None
    for one in LOSSES:
        if loss == one:
            name = one
    if name is None:
        raise InputError(
            f"it is {written(loss)}", where + "loss", f"Give {', '.join(LOSSES)}, or leave it out."
        )
    made = Preference(name)
    if beta is not None:
        made.beta = check_number(beta, where + "beta", True)
    if simpo_gamma is not None:
        made.simpo_gamma = check_number(simpo_gamma, where + "simpo_gamma")
    if desirable_weight is not None:
        made.desirable_weight = check_number(desirable_weight, where + "desirable_weight")
    if undesirable_weight is not None:
        made.undesirable_weight = check_number(undesirable_weight, where + "undesirable_weight")
    return made


# Data


def compared(
    record: Record, loss: LossName, end: int | None, where: str
) -> Generator[DataRequest, Any, list[tuple[Example, bool]]]:
    """The completions of a record, with whether they are good: a chosen and a rejected one, or the
    one that it has.

    Args:
        record: with prompt, chosen and rejected, or with prompt, completion and label: texts or
            messages. Chosen and rejected chats may begin with the prompt.
        loss: its name. KTO takes both; the others need pairs.
        end: id of the token that ends a text, or None.
        where: for errors.

    Raises:
        InputError: it has other fields.
    """
    made: list[tuple[Example, bool]] = []
    tools: Any = record.get("tools")
    if "chosen" in record and "rejected" in record:
        chosen = part_of(record, "chosen", where)
        rejected = part_of(record, "rejected", where)
        prompt: str | list[Record] = ""
        if "prompt" in record:
            prompt = part_of(record, "prompt", where)
        elif not isinstance(chosen, str) and not isinstance(rejected, str):
            first = _shared(chosen, rejected)
            prompt, chosen, rejected = chosen[:first], chosen[first:], rejected[first:]
        _check_alike(prompt, chosen, where)
        _check_alike(prompt, rejected, where)
        good: Example = yield from completed(prompt, chosen, tools, end, where)
        bad: Example = yield from completed(prompt, rejected, tools, end, where)
        first = min(good.prompt, bad.prompt)
        made.append((_from(good, first), True))
        made.append((_from(bad, first), False))
    elif loss == "kto" and "completion" in record and "prompt" in record:
        label: object = record.get("label")
        if isinstance(label, str) and label.lower() in ("true", "false"):  # of a file in CSV
            label = label.lower() == "true"
        if not isinstance(label, bool):
            raise InputError(f"label is {written(label)[:80]}", where, "Give true or false.")
        prompt, completion = part_of(record, "prompt", where), part_of(record, "completion", where)
        _check_alike(prompt, completion, where)
        one: Example = yield from completed(prompt, completion, tools, end, where)
        made.append((one, label))
    else:
        names = ", ".join(list(record))[:120] or "none"
        raise InputError(f"its fields are {names}", where, _LABELLED if loss == "kto" else _PAIR)
    return made


def previewed(
    record: Record, template: str | None, end: int | None, sequence: int, where: str
) -> Generator[DataRequest, Any, list[Example]]:
    """The examples of a record, of a preference too: its completions are learned."""
    if "chosen" in record and "rejected" in record:
        pair: list[tuple[Example, bool]] = yield from compared(record, "dpo", end, where)
        return [example for example, _ in pair]
    return (yield from example_of(record, template, end, sequence, where))


def _shared(one: list[Record], other: list[Record]) -> int:
    """How many first messages two chats share; less than either has."""
    count = 0
    while count < min(len(one), len(other)) - 1 and one[count] == other[count]:
        count += 1
    return count


def _check_alike(prompt: object, completion: object, where: str) -> None:
    if isinstance(prompt, str) != isinstance(completion, str):
        raise InputError(
            "some of prompt and completions are texts, others messages",
            where,
            "Give all as texts, or all as messages.",
        )


def _from(example: Example, first: int) -> Example:
    """An example whose completion begins at a token."""
    return Example(example.ids, [i >= first for i in range(len(example.ids))], first)


def units_of(
    examples: Sequence[tuple[Example, bool]],
    loss: LossName,
    sequence: int,
    pad: int,
    block: int,
    where: str,
) -> tuple[list[Unit], Report]:
    """What is compared.

    Args:
        examples: of `compared`, one record after the other.
        loss: its name.
        sequence: tokens of a row; the end of longer ones is cut off.
        pad: id of padding.
        block: of KTO: examples of an update. Within as many, in the order of the data, each prompt
            gets the completion of the example before, as in TRL.
        where: for errors.

    Raises:
        InputError: no completion is left, or of KTO, an update has one alone.
    """
    if loss == "kto" and block < 2:
        raise InputError(
            "an update has one completion: KTO compares each with that of another prompt",
            where,
            f"Give {setting('gradient_accumulation_steps', 2)}, or batches of 4 rows.",
        )
    report = Report(len(examples))
    kept = [x for x in examples if x[0].prompt < sequence and len(x[0].ids) > x[0].prompt]
    for example, _ in examples:
        if len(example.ids) > sequence:
            report.truncated += 1
            report.lost += len(example.ids) - max(sequence, example.prompt)
    units: list[Unit] = []
    if loss == "kto":
        report.dropped = len(examples) - len(kept)
        for i, (example, label) in enumerate(kept):
            first = i - i % block
            last = min(first + block, len(kept)) - 1
            other = kept[last if i == first else i - 1][0]
            ids = example.ids[: example.prompt] + other.ids[other.prompt :]
            moved = Example(ids, [at >= example.prompt for at in range(len(ids))], example.prompt)
            units.append(_unit([example, moved], label, sequence, pad))
    else:
        for i in range(0, len(examples), 2):
            pair = [examples[i][0], examples[i + 1][0]]
            if all(x.prompt < sequence and len(x.ids) > x.prompt for x in pair):
                units.append(_unit(pair, True, sequence, pad))
            else:
                report.dropped += 2
    if not units:
        raise nothing_left(report, sequence, where)
    return units, report


def _unit(examples: Sequence[Example], label: bool, sequence: int, pad: int) -> Unit:
    rows: list[Row] = []
    ends: list[int] = []
    for example in examples:
        ids = example.ids[:sequence]
        missing = sequence - len(ids)
        labels = [ids[i] if i >= example.prompt else IGNORED for i in range(len(ids))]
        rows.append((ids + [pad] * missing, labels + [IGNORED] * missing))
        ends.append(len(ids))
    return Unit(rows, ends, label, [])


# Losses


@dataclass
class Outcome:
    """The loss of units, and by which each of them is multiplied.

    Attributes:
        loss: their mean.
        completions: the derivatives by the log-probability of each row's completion.
        chosen: the derivatives by the loss of each token of chosen rows, of ORPO.
    """

    loss: float
    completions: list[float]
    chosen: float


def outcome_of(units: Sequence[Unit], losses: Sequence[list[float]], by: Preference) -> Outcome:
    """The loss of units.

    Args:
        units: at least one.
        losses: of the tokens of each of their rows, as the answer of Score.
        by: the loss.
    """
    sums: list[float] = []
    counts: list[int] = []
    for i, losses_of_row in enumerate(losses):
        labels = units[i // 2].rows[i % 2][1]
        total, count = 0.0, 0
        for at in range(1, len(labels)):
            if labels[at] != IGNORED:
                total -= losses_of_row[at - 1]
                count += 1
        sums.append(total)
        counts.append(max(1, count))
    if by.loss == "kto":
        return _kto(units, sums, by)
    if by.loss == "dpo":
        return _dpo(units, sums, by)
    return _without_reference(units, losses, sums, counts, by)


def _dpo(units: Sequence[Unit], sums: Sequence[float], by: Preference) -> Outcome:
    made = Outcome(0.0, [], 0.0)
    for i, unit in enumerate(units):
        ratio = sums[2 * i] - unit.reference[0] - (sums[2 * i + 1] - unit.reference[1])
        made.loss -= log_sigmoid(by.beta * ratio) / len(units)
        slope = -by.beta * sigmoid(-by.beta * ratio) / len(units)
        made.completions.append(slope)
        made.completions.append(-slope)
    return made


def _kto(units: Sequence[Unit], sums: Sequence[float], by: Preference) -> Outcome:
    made = Outcome(0.0, [], 0.0)
    moved = 0.0
    for i, unit in enumerate(units):
        moved += (sums[2 * i + 1] - unit.reference[1]) / len(units)
    moved = max(moved, 0.0)
    for i, unit in enumerate(units):
        ratio = sums[2 * i] - unit.reference[0]
        sign = 1.0 if unit.label else -1.0
        weight = by.desirable_weight if unit.label else by.undesirable_weight
        value = sigmoid(sign * by.beta * (ratio - moved))
        made.loss += weight * (1 - value) / len(units)
        made.completions.append(-sign * weight * by.beta * value * (1 - value) / len(units))
        made.completions.append(0.0)
    return made


def _without_reference(
    units: Sequence[Unit],
    losses: Sequence[list[float]],
    sums: Sequence[float],
    counts: Sequence[int],
    by: Preference,
) -> Outcome:
    """ORPO and SimPO, of the mean log-probability of a completion's tokens."""
    made = Outcome(0.0, [], 0.0)
    for i in range(len(units)):
        good, bad = sums[2 * i] / counts[2 * i], sums[2 * i + 1] / counts[2 * i + 1]
        if by.loss == "simpo":
            value = by.beta * (good - bad) - by.simpo_gamma
            made.loss -= log_sigmoid(value) / len(units)
            slope = -by.beta * sigmoid(-value) / len(units)
            slopes = [slope, -slope]
        else:
            value = good - bad - (log1mexp(good) - log1mexp(bad))
            made.loss -= by.beta * log_sigmoid(value) / len(units)
            slope = -by.beta * sigmoid(-value) / len(units)
            slopes = [slope / -math.expm1(good), -slope / -math.expm1(bad)]
        made.completions.append(slopes[0] / counts[2 * i])
        made.completions.append(slopes[1] / counts[2 * i + 1])
    if by.loss == "orpo":
        total, tokens = 0.0, 0
        for i, unit in enumerate(units):
            for at in range(unit.ends[0] - 1):
                total += losses[2 * i][at]
            tokens += unit.ends[0] - 1
        made.loss += total / max(1, tokens)
        made.chosen = 1 / max(1, tokens)
    return made


def weights_of(unit: Unit, which: int, completion: float, chosen: float) -> list[float]:
    """The weights of the losses of a row's tokens.

    Args:
        unit: of the row.
        which: of its rows.
        completion: derivative by the completion's log-probability.
        chosen: derivative by the loss of each token, if it is the chosen row.
    """
    labels, end = unit.rows[which][1], unit.ends[which]
    weights: list[float] = []
    for at in range(len(labels)):
        weight = -completion if labels[at] != IGNORED else 0.0
        weights.append(weight + chosen if which == 0 and at < end else weight)
    return weights


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x))."""
    if x >= 0:
        return 1 / (1 + math.exp(-min(x, 700.0)))
    small = math.exp(max(x, -700.0))
    return small / (1 + small)


def log_sigmoid(x: float) -> float:
    """log(sigmoid(x))."""
    return min(x, 0.0) - math.log1p(math.exp(-min(abs(x), 700.0)))


def log1mexp(x: float) -> float:
    """log(1 - exp(x)) of x below 0; as TRL, with the better of two forms."""
    x = min(x, -1e-12)
    if x < -0.6931471805599453:
        return math.log1p(-math.exp(max(x, -700.0)))
    return math.log(-math.expm1(x))


# Updates


def _whole(unit: Unit, which: int) -> Row:
    """A row whose labels are all of its tokens."""
    ids, end = unit.rows[which][0], unit.ends[which]
    return ids, ids[:end] + [IGNORED] * (len(ids) - end)


def scores(units: Sequence[Unit], size: int) -> Generator[Score, list[float], list[list[float]]]:
    """The losses of the tokens of all rows of units, run in batches of `size` rows."""
    rows = [_whole(unit, which) for unit in units for which in (0, 1)]
    made: list[list[float]] = []
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        found: list[float] = yield Score(part)
        sequence = len(part[0][0])
        for i in range(len(part)):
            made.append(found[i * sequence : (i + 1) * sequence])
    return made


def refer(
    units: Sequence[Unit], by: Preference, size: int, at_once: int
) -> Generator[Score, list[float], None]:
    """Computes the log-probabilities by the reference: the model as it is."""
    if by.loss not in ("dpo", "kto"):
        return
    for first in range(0, len(units), at_once):
        part = units[first : first + at_once]
        losses: list[list[float]] = yield from scores(part, size)
        for i, unit in enumerate(part):
            unit.reference = [log_probability(unit, w, losses[2 * i + w]) for w in (0, 1)]


def log_probability(unit: Unit, which: int, losses: Sequence[float]) -> float:
    """The log-probability of the completion of a row. losses: of its tokens, as of `scores`."""
    labels = unit.rows[which][1]
    total = 0.0
    for at in range(1, len(labels)):
        if labels[at] != IGNORED:
            total -= losses[at - 1]
    return total


def preferred(
    units: Sequence[Unit], by: Preference, size: int, rate: float
) -> Generator[PreferenceRequest, Any, float]:
    """Makes an update.

    Args:
        units: of the update.
        by: the loss.
        size: rows of a batch of the program.
        rate: the learning rate.

    Returns:
        The loss before the update.
    """
    yield Reset()
    losses: list[list[float]] = yield from scores(units, size)
    outcome = outcome_of(units, losses, by)
    rows: list[Row] = []
    weights: list[float] = []
    for i, unit in enumerate(units):
        for which in (0, 1):
            slope = outcome.completions[2 * i + which]
            if which == 1 and by.loss == "kto":
                continue  # only its log-probability counts
            rows.append(_whole(unit, which))
            weights.extend(weights_of(unit, which, slope, outcome.chosen))
    sequence = len(rows[0][0])
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        yield Backward(part, weights[first * sequence : (first + len(part)) * sequence])
    yield Apply(rate, 1.0)
    return outcome.loss


def judged(
    units: Sequence[Unit], by: Preference, size: int
) -> Generator[Score, list[float], Outcome]:
    """The loss of units, without an update."""
    losses: list[list[float]] = yield from scores(units, size)
    return outcome_of(units, losses, by)


def tokens_of_units(units: Sequence[Unit], by: Preference) -> int:
    """Tokens of completions that are learned."""
    count = 0
    for unit in units:
        count += learned(unit.rows[:1] if by.loss == "kto" else unit.rows)
    return count


__all__ = [
    "LOSSES",
    "RATE",
    "Backward",
    "LossName",
    "Outcome",
    "Preference",
    "PreferenceRequest",
    "Score",
    "Unit",
    "check_preference",
    "compared",
    "judged",
    "log_probability",
    "outcome_of",
    "preferred",
    "previewed",
    "refer",
    "scores",
    "tokens_of_units",
    "units_of",
]
