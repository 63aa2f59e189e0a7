"""TfIdfVectorizer: how often the n-grams of a pool occur in each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import FLOAT
from ...declare.op import Op, fail
from ...declare.values import RunTensor
from ...session_limits import MAX_NGRAMS
from .attributes import NUMBER
from .labels import elements_of

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext

tf_idf = Op("TfIdfVectorizer")


@dataclass(frozen=True)
class _Counter:
    """Counts n-grams.

    Attributes:
        lengths: of the n-grams to count.
        skips: the most elements between neighbours of an n-gram.
        grams: {n-gram: its number}.
    """

    lengths: range
    skips: int
    grams: dict[tuple[Any, ...], int]

    def steps(self, length: int, columns: int) -> range:
        """Distances between neighbours of an n-gram that a row of so many columns has room for."""
        if length == 1:
            return range(1, 2)
        return range(1, min(self.skips + 1, (columns - 1) // (length - 1)) + 1)

    def lookups(self, columns: int) -> int:
        """How many n-grams of a row of so many columns are looked up."""
        return sum(
            max(columns - (length - 1) * step, 0)
            for length in self.lengths
            if length <= columns
            for step in self.steps(length, columns)
        )

    def counts(self, row: list[Any]) -> list[int]:
        """How often each n-gram occurs."""
        counts = [0] * len(self.grams)
        for length in self.lengths:
            for step in self.steps(length, len(row)):
                for i in range(len(row) - (length - 1) * step):
                    g = self.grams.get(tuple(row[i : i + (length - 1) * step + 1 : step]))
                    if g is not None:
                        counts[g] += 1
        return counts


def _counter(node: BoundNode, rank: int) -> _Counter:
    """The node's attributes, checked. rank: of its input."""
    low, high, skips, mode = (
        node.attr("min_gram_length", 0),
        node.attr("max_gram_length", 0),
        node.attr("max_skip_count", 0),
        node.attr("mode", ""),
    )
    starts, places = node.attrs.get("ngram_counts"), node.attrs.get("ngram_indexes")
    pool, weights = (
        node.attrs.get("pool_strings") or node.attrs.get("pool_int64s"),
        node.attrs.get("weights"),
    )
    if (
        rank not in (1, 2)
        or not 1 <= low <= high
        or not 0 <= skips <= 1 << 16
        or mode not in ("TF", "IDF", "TFIDF")
        or not pool
        or not places
        or not starts
        or len(starts) < high
    ):
        fail(
            node,
            f"its input is {node.inputs[0]}, its n-gram lengths are {low} to {high} and its mode"
            f" is '{mode}'",
        )
    bounds = [*starts, len(pool)]
    grams: dict[tuple[Any, ...], int] = {}
    for length in range(1, len(starts) + 1):
        begin, end = bounds[length - 1], bounds[length]
        if not 0 <= begin <= end <= len(pool) or (end - begin) % length:
            fail(
                node,
                f"its pool of {len(pool)} elements does not match its ngram_counts {starts}",
                "Export the model again.",
            )
        for i in range(begin, end, length):
            grams[tuple(pool[i : i + length])] = len(grams)
    if (
        len(grams) != len(places)
        or weights
        and len(weights) != len(places)
        or min(places) < 0
        or max(places) >= 1 << 28
    ):
        fail(node, f"{len(grams)} n-grams for {len(places)} places", "Export the model again.")
    return _Counter(range(low, high + 1), skips, grams)


def _weighted(node: BoundNode, counts: list[int], width: int) -> list[float]:
    """A row of the output: each count at the index of its n-gram, weighted by the mode."""
    mode, weights = node.attr("mode", ""), node.attrs.get("weights")
    values = [0.0] * width
    for g, (count, place) in enumerate(zip(counts, node.attrs["ngram_indexes"])):
        w = weights[g] if weights else 1.0
        if mode == "TF":
            values[place] = float(count)
        elif mode == "IDF":
            values[place] = w if count else 0.0
        else:
            values[place] = count * w
    return values


@tf_idf.host
def tf_idf_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """The neighbours of an n-gram may have up to max_skip_count other elements between them."""
    x = inputs[0]
    counter = _counter(node, x.rank)
    width, elements = max(node.attrs["ngram_indexes"]) + 1, elements_of(node, x)
    columns = x.shape[-1] if x.rank else 0
    starts = range(0, max(len(elements), 1), max(columns, 1))
    run.check_room(NUMBER * len(starts) * width)
    lookups = len(starts) * counter.lookups(columns)
    if lookups > MAX_NGRAMS:
        fail(
            node,
            f"it would look up {lookups} n-grams, with up to {counter.skips} skipped"
            " elements between theirs",
        )
    out: list[float] = []
    for at in starts:
        out += _weighted(node, counter.counts(elements[at : at + columns]), width)
    shape = [width] if x.rank == 1 else [x.shape[0], width]
    return [RunTensor.of(FLOAT, shape, out[: width if x.rank == 1 else x.shape[0] * width])]
