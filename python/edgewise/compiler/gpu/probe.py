"""Plans with one product, by which a page measures whether its GPU is faster than WebAssembly
(web/src/device/webgpu/probe.ts).

The sizes are those of the page's model, so a plan is generated as its words and, for words that
depend on the sizes, factors of 1, k, n and k * n.
"""

from __future__ import annotations

import struct
from fractions import Fraction

from ..bind import BoundGraph, Gradients
from ..declare.dtypes import FLOAT, UINT8
from ..ir import Graph, Info
from ..plan import Plan, compile_graph
from ..targets.webgpu import WEBGPU

BLOCK = 32
SIZES = ((1024, 512), (2048, 512), (1024, 1536), (2048, 1536))  # that factors are computed from
CHECKED = (4096, 11008)
Factors = tuple[int, int, int, int]


def probe_plan(bits: int, k: int, n: int) -> Plan:
    """A product of one row with a weight of k rows and n columns. bits: 32 (float32), or 4 in
    blocks of 32.
    """
    graph = Graph("probe", [], [Info("x", FLOAT, [1, k])], [], opsets={"": 23}, ours=True)

    def add(bound: BoundGraph) -> None:
        g, x = Gradients(bound), bound.inputs["x"]
        if bits == 32:
            y = g.op("MatMul", x, bound.state("w", FLOAT, [k, n]))
        else:
            w = bound.state("w", UINT8, [n, k // BLOCK, BLOCK // 2])
            scales = bound.state("s", FLOAT, [n * (k // BLOCK)])
            sizes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK}
            y = g.op("MatMulNBits", x, w, scales, domain="com.microsoft", **sizes)
        bound.outputs = {"y": y}

    return compile_graph(graph, {"x": [1, k]}, {"x": FLOAT}, transform=add, target=WEBGPU)[0]


def factors(bits: int) -> tuple[bytes, dict[int, Factors]]:
    """(a plan, {byte offset of a word: its factors}). Raises ValueError where a word has none."""
    plans = [probe_plan(bits, k, n).data for k, n in SIZES]
    base = plans[0]
    out: dict[int, Factors] = {}
    for at in range(0, len(base), 4):
        words = [struct.unpack_from("<I", plan, at)[0] for plan in plans]
        if len(set(words)) == 1:
            continue
        (k, n), (k2, _), (_, n2), _ = SIZES
        both = Fraction(words[3] - words[1] - words[2] + words[0], (k2 - k) * (n2 - n))
        of_k = Fraction(words[1] - words[0], k2 - k) - both * n
        of_n = Fraction(words[2] - words[0], n2 - n) - both * k
        found = (words[0] - of_k * k - of_n * n - both * k * n, of_k, of_n, both)
        # per BLOCK columns, so that all are integers
        scaled = [BLOCK * Fraction(x) for x in found]
        if any(x.denominator != 1 for x in scaled):
            raise ValueError(f"byte {at} of the plan follows its sizes in another way")
        one, for_k, for_n, for_both = map(int, scaled)
        out[at] = (one, for_k, for_n, for_both)
    k, n = CHECKED
    if resized(base, out, k, n) != probe_plan(bits, k, n).data:
        raise ValueError("the plan follows its sizes in another way")
    return base, out


def resized(base: bytes, words: dict[int, Factors], k: int, n: int) -> bytes:
    """The plan for other sizes."""
    data = bytearray(base)
    for at, (one, of_k, of_n, both) in words.items():
        struct.pack_into("<I", data, at, (one + of_k * k + of_n * n + both * k * n) // BLOCK)
    return bytes(data)
