"""Deltas of floating-point numbers, exact to the bit. web/src/extras/release/floats.ts decodes the
same.

Numbers are compared by the ordinals of their upper 16 bits: these bits, with those of negative
numbers inverted but for the sign, so that neighbours differ by 1. The lower 16 bits of float32 are
compared apart, inverted where the number is negative. Differences are zigzag coded (0, -1, 1, ...).

What training changes in a matrix is in large part a product of two narrow ones: where it pays,
the change that they predict is added to the base first. Differences are then coded (entropy.py)
in planes, of their low bytes, second bytes and so on, and each plane in segments: the numbers in
ascending order of the base's exponents, which the decoder has, too, as many exponents together as
have MIN numbers. Numbers of like magnitude change by like ordinals.

    u8 rank, u8 shift, i16 scale, u32 columns, u32 phase
    coded: the two factors, (rank, rows) and (rank, columns), of zigzag coded int8; then the planes

`shift`: the lowest of the upper 16 bits that belongs to the exponent e. `phase`: numbers of the
first row that lie in front of the chunk. A product P of both factors predicts floor(P 2^x + 1/2)
ordinals, with x = min(scale - max(e, 1), 8).
"""

from __future__ import annotations

import math
import struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from . import entropy
from .errors import ReleaseError

HEAD = struct.Struct("<BBhII")
MIN = 2048  # numbers of a segment
RANKS = (16, 6)  # that are tried
MAX_RANK = 32
NARROWEST = 48  # columns and rows where a product may pay
MAX_SHIFT = 8
NOISE = 0.35  # of the rounded factors, relative to what they do not predict

Bytes: TypeAlias = npt.NDArray[np.uint8]
Halves: TypeAlias = npt.NDArray[np.uint16]
Factors: TypeAlias = tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]


def _flip(bits: Halves) -> Halves:
    """Bits to ordinals and back."""
    return np.where(bits > 0x7FFF, bits ^ 0x7FFF, bits)


def _halves(data: bytes, width: int) -> tuple[Halves, Halves | None]:
    """(ordinals of the upper halves, lower halves of float32)"""
    bits = np.frombuffer(data, "<u2").reshape(-1, width // 2)
    upper = bits[:, -1]
    if width == 2:
        return _flip(upper), None
    return _flip(upper), np.where(upper > 0x7FFF, ~bits[:, 0], bits[:, 0])


def _planes(difference: Halves) -> list[Bytes]:
    """Low and high bytes, zigzag coded."""
    d = difference.view(np.int16)
    z = ((d << 1) ^ (d >> 15)).view(np.uint16)
    return [(z & 255).astype(np.uint8), (z >> 8).astype(np.uint8)]


def _from_planes(low: Bytes, high: Bytes) -> Halves:
    z = low.astype(np.uint16) | high.astype(np.uint16) << 8
    return (z >> 1) ^ (0 - (z & 1)).astype(np.uint16)


def _exponents(base: bytes, width: int, shift: int) -> npt.NDArray[np.int64]:
    upper = np.frombuffer(base, "<u2")[width // 2 - 1 :: width // 2]
    return ((upper & 0x7FFF) >> shift).astype(np.int64)


def _sizes(exponents: npt.NDArray[np.int64]) -> list[int]:
    """Sizes of the segments of a plane."""
    sizes, run = [], 0
    for count in np.bincount(exponents).tolist():
        run += count
        if run >= MIN:
            sizes.append(run)
            run = 0
    if run and sizes:
        sizes[-1] += run
    return sizes or [run]


def _segments(planes: list[Bytes], exponents: npt.NDArray[np.int64]) -> list[Bytes]:
    order = np.argsort(exponents, kind="stable")
    cuts = np.cumsum(_sizes(exponents))[:-1]
    return [part for plane in planes for part in np.split(plane[order], cuts)]


def _predicted(
    factors: Factors, scale: int, phase: int, exponents: npt.NDArray[np.int64]
) -> Halves:
    """Ordinals by which the base is expected to change, modulo 2^16."""
    rows, columns = (f.astype(np.float64) for f in factors)  # exact: sums below 2^53
    product = (rows.T @ columns).reshape(-1)[phase : phase + exponents.size]
    power = np.minimum(scale - np.maximum(exponents, 1), MAX_SHIFT)
    moved = np.ldexp(product, power.astype(np.intc))  # Windows' ldexp takes no int64
    return np.floor(moved + 0.5).astype(np.int64).astype(np.uint16)


def _values(data: bytes, width: int, shift: int) -> npt.NDArray[np.float64]:
    """The numbers whose exponents begin at `shift`."""
    if width == 4 or shift == 7:
        bits = np.frombuffer(data, "<u2").reshape(-1, width // 2)[:, -1]
        return (bits.astype("<u4") << 16).view("<f4").astype(np.float64)
    return np.frombuffer(data, "<f2").astype(np.float64)


def _product(
    change: npt.NDArray[np.float64], columns: int, phase: int, rank: int, bias: int
) -> tuple[Factors, int] | None:
    """A product of rounded factors near to the change: (factors, scale); None if it is none."""
    rows = -(-(phase + change.size) // columns)
    if min(rows, columns) < NARROWEST or rank * (rows + columns) > change.size:
        return None
    matrix = np.zeros(rows * columns)
    matrix[phase : phase + change.size] = change
    matrix = matrix.reshape(rows, columns)
    found = matrix @ np.random.default_rng(0).standard_normal((columns, rank + 8))
    for _ in range(2):  # subspace iteration (Halko, Martinsson, Tropp, arXiv:0909.4061)
        found = matrix @ (matrix.T @ np.linalg.qr(found)[0])
    basis = np.linalg.qr(found)[0]
    try:
        left, weights, right = np.linalg.svd(basis.T @ matrix, full_matrices=False)
    except np.linalg.LinAlgError:
        return None
    roots = np.sqrt(weights[:rank])[:, None]
    balance = (rows / columns) ** 0.25
    one = roots * (basis @ left)[:, :rank].T * balance
    two = roots * right[:rank] / balance
    rest = max(0.0, np.square(matrix).sum() - np.square(weights[:rank]).sum()) / change.size
    spread = float(np.square(one).mean(1).sum() + np.square(two).mean(1).sum())
    if not (rest > 0 and spread > 0):
        return None
    # the noise of rounding to steps of s is s^2 / 12 in each factor
    largest = max(float(np.abs(one).max()), float(np.abs(two).max()))
    fine, coarse = np.log2(NOISE**2 * rest * 12 / spread), 2 * np.log2(largest / 127)
    scale = max(round(float(fine)), math.ceil(float(coarse)))
    step = 2.0 ** (scale / 2)
    factors = tuple(np.clip(np.rint(x / step), -127, 127).astype(np.int8) for x in (one, two))
    return (factors[0], factors[1]), scale + bias


def encode(base: bytes, new: bytes, width: int, place: tuple[int, int]) -> bytes:
    """The delta between two chunks of equal length.

    Args:
        base: numbers of `width` bytes, 2 or 4.
        new: as above.
        width: of a number.
        place: (columns, phase) of the matrix that the numbers are in; (0, 0): unknown.
    """
    (old, old_low), (wanted, wanted_low) = _halves(base, width), _halves(new, width)
    low = [] if old_low is None or wanted_low is None else _planes(wanted_low - old_low)
    best: tuple[float, bytes, list[Bytes]] | None = None
    for shift in (7,) if width == 4 else (10, 7):
        exponents = _exponents(base, width, shift)
        options: list[tuple[Factors, int] | None] = [None]
        with np.errstate(all="ignore"):
            change = _values(new, width, shift) - _values(base, width, shift)
        # only the codec that fits sees a change of the numbers' size
        columns, phase = place
        if columns and np.isfinite(change).all() and np.abs(change).max(initial=0) < 2.0**15:
            bias = 25 if shift == 10 else 134  # ulp(1) of an exponent e is 2^(e - bias)
            options += [_product(change, columns, phase, rank, bias) for rank in RANKS]
        for product in options:
            head, parts, ahead = HEAD.pack(0, shift, 0, 0, 0), [], old
            if product is not None:
                factors, scale = product
                head = HEAD.pack(len(factors[0]), shift, scale, columns, phase)
                parts = [((f << 1) ^ (f >> 7)).view(np.uint8).reshape(-1) for f in factors]
                ahead = old + _predicted(factors, scale, phase, exponents)
            parts += _segments([*low, *_planes(wanted - ahead)], exponents)
            needed = entropy.cost(parts)
            if best is None or needed < best[0]:
                best = needed, head, parts
    assert best is not None
    return best[1] + entropy.encode(best[2])


def decode(base: bytes, delta: bytes, width: int, where: str) -> bytes:
    """The new version of a chunk.

    Raises:
        ReleaseError: the delta is damaged, or of another chunk.
    """
    count = len(base) // width
    if len(delta) < HEAD.size:
        raise ReleaseError("its head is cut off", where)
    rank, shift, scale, columns, phase = HEAD.unpack_from(delta)
    rows = -(-(phase + count) // max(1, columns))
    right = shift in (7, 10) and rank <= MAX_RANK and (phase < columns or not rank)
    if not right or rank * (rows + columns) > count:
        raise ReleaseError("it is of another matrix", where)
    exponents = _exponents(base, width, shift)
    ends = [rank * rows, rank * columns, *(count for _ in range(width))]
    sizes = [*ends[:2], *(_sizes(exponents) * width)]
    out = np.split(entropy.decode(delta[HEAD.size :], sizes, where), np.cumsum(ends)[:-1])
    old, low = _halves(base, width)
    if rank:
        f = [((x >> 1) ^ (0 - (x & 1)).astype(np.uint8)).view(np.int8) for x in out[:2]]
        factors = f[0].reshape(rank, rows), f[1].reshape(rank, columns)
        old = old + _predicted(factors, scale, phase, exponents)
    order = np.argsort(exponents, kind="stable")
    planes = [np.empty_like(p) for p in out[2:]]
    for plane, found in zip(planes, out[2:], strict=True):
        plane[order] = found
    upper = _flip(old + _from_planes(*planes[-2:]))
    if low is None:
        return upper.astype("<u2").tobytes()
    low = low + _from_planes(*planes[:2])
    halves = np.stack([np.where(upper > 0x7FFF, ~low, low), upper], 1)
    return halves.astype("<u2").tobytes()
