"""Test cases of ops/product/matmul_nbits.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..matmul_nbits import bnb4, nbits

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@nbits.cases
def nbits_cases(t: Toolbox) -> Cases:
    # Over 60 lines: a list of cases.
    for bits in (4, 8, 2):
        for rows, k, cols, block in (
            (1, 64, 48, 32),
            (3, 64, 48, 32),
            (1, 100, 17, 16),
            (5, 100, 17, 16),
            (2, 130, 9, 64),
            (33, 96, 40, 32),
            (1, 256, 33, 128),
            (7, 256, 33, 256),
        ):
            blocks = -(-k // block)
            w, scales = (
                t.n("uint8", cols, blocks, block * bits // 8, low=0, high=255),
                t.f(cols, blocks, low=0.02, high=0.1),
            )
            zeros, bias = t.n("uint8", cols * -(-blocks * bits // 8), low=0, high=255), t.f(cols)
            attrs = {
                "K": k,
                "N": cols,
                "bits": bits,
                "block_size": block,
                "tol": 1e-4,
                "fold": False,
            }
            yield t(t.f(rows, k), t.const(w), t.const(scales), **attrs)
            yield t(t.f(rows, k), t.const(w), t.const(scales), t.const(zeros), **attrs)
            yield t(
                t.f(rows, k),
                t.const(w),
                t.const(scales),
                t.const(zeros),
                None,
                t.const(bias),
                **attrs,
            )
            yield t(t.f(rows, k), t.const(w), t.const(scales), None, None, t.const(bias), **attrs)
        yield t(
            t.f(2, 3, 64),
            t.const(t.n("uint8", 48, 2, 4 * bits, low=0, high=255)),
            t.const(t.f(48, 2)),
            K=64,
            N=48,
            bits=bits,
            block_size=32,
            tol=1e-4,
        )
        yield t(
            t.f(0, 64),
            t.const(t.n("uint8", 48, 2, 4 * bits, low=0, high=255)),
            t.const(t.f(48, 2)),
            K=64,
            N=48,
            bits=bits,
            block_size=32,
        )
        yield t(
            t.f(3, 64, dtype="float16"),
            t.const(t.n("uint8", 48, 2, 4 * bits, low=0, high=255)),
            t.const(t.f(48, 2, low=0.02, high=0.1, dtype="float16")),
            K=64,
            N=48,
            bits=bits,
            block_size=32,
            tol=4e-3,
        )
    yield t(
        t.f(3, 64),
        t.const(t.n("uint8", 48, 2, 16, low=0, high=255)),
        t.const(t.f(48, 2)),
        t.const(t.f(48, 2, low=0, high=15)),
        K=64,
        N=48,
        bits=4,
        block_size=32,
        tol=1e-4,
    )
    yield t(
        t.f(3, 64),
        t.const(t.n("uint8", 48, 2, 16, low=0, high=255)),
        t.const(t.f(48, 2)),
        None,
        t.const(t.of("int32", [i // 32 for i in range(64)])),
        K=64,
        N=48,
        bits=4,
        block_size=32,
        tol=1e-4,
    )
    yield t(
        t.f(3, 64),
        t.const(t.n("uint8", 48, 2, 16, low=0, high=255)),
        t.const(t.f(48, 2)),
        K=64,
        N=48,
        block_size=32,
        tol=1e-4,
    )
    for rows, k, cols, block, many in (
        (1, 96, 41, 32, 0),
        (33, 96, 41, 32, 0),
        (33, 256, 20, 64, 1),
        (64, 96, 33, 32, 1),
    ):  # activations may be rounded to bytes
        w, scales, zeros = (
            t.n("uint8", cols, k // block, block // 2, low=0, high=255),
            t.f(cols, k // block, low=0.02, high=0.1),
            t.n("uint8", cols * -(-k // block // 2), low=0, high=255),
        )
        yield t(
            t.f(rows, k),
            t.const(w),
            t.const(scales),
            *([t.const(zeros)] if many else []),
            K=k,
            N=cols,
            bits=4,
            block_size=block,
            accuracy_level=4,
            tol=0.25,
            fold=False,
        )
    for bits in (4, 8, 2):  # blocks shorter than 16 bytes and longer ones, with few rows
        for rows, k, cols, block in ((2, 256, 17, 16), (1, 320, 9, 32), (3, 512, 6, 128)):
            blocks = k // block
            w, scales = (
                t.n("uint8", cols, blocks, block * bits // 8, low=0, high=255),
                t.f(cols, blocks, low=0.3 / 2**bits, high=1.5 / 2**bits),
            )
            zeros = t.n("uint8", cols * -(-blocks * bits // 8), low=0, high=255)
            for level, tol in ((0, 1e-4), (4, 0.25)):
                yield t(
                    t.f(rows, k),
                    t.const(w),
                    t.const(scales),
                    K=k,
                    N=cols,
                    bits=bits,
                    block_size=block,
                    accuracy_level=level,
                    tol=tol,
                    fold=False,
                )
                yield t(
                    t.f(rows, k),
                    t.const(w),
                    t.const(scales),
                    t.const(zeros),
                    K=k,
                    N=cols,
                    bits=bits,
                    block_size=block,
                    accuracy_level=level,
                    tol=tol,
                    fold=False,
                )
            if bits < 8:  # onnxruntime takes zero points that are not integers for these alone
                yield t(
                    t.f(rows, k),
                    t.const(w),
                    t.const(scales),
                    t.const(t.f(cols, blocks, low=0, high=3)),
                    K=k,
                    N=cols,
                    bits=bits,
                    block_size=block,
                    tol=1e-4,
                    fold=False,
                )
    for rows, k, cols, block in ((1, 64, 48, 32), (3, 200, 17, 16), (9, 256, 5, 128)):
        blocks = -(-k // block)
        x, w = t.f(rows, k), t.n("uint8", cols, blocks, block // 8, low=0, high=255)
        scales, bias = t.f(cols, blocks, low=0.02, high=0.1), t.f(cols)
        stored = t.n("uint8", cols * -(-blocks // 8), low=0, high=255)
        middle = t.f(cols, blocks, low=0, high=1)
        bits = (stored.reshape(cols, -1, 1) >> t.of("uint8", range(8)) & 1).reshape(cols, -1)
        numbers = (w[..., None] >> t.of("uint8", range(8)) & 1).reshape(cols, blocks, block)
        for zeros, number in (
            (None, 1.0),
            (stored, bits[:, :blocks, None]),
            (middle, middle[..., None]),
        ):
            weights = ((numbers.astype("float64") - number) * scales[..., None]).reshape(cols, -1)
            yield t(
                x,
                t.const(w),
                t.const(scales),
                t.const(zeros) if zeros is not None else None,
                None,
                t.const(bias),
                K=k,
                N=cols,
                bits=1,
                block_size=block,
                tol=1e-4,
                expect=[(x @ weights[:, :k].T + bias).astype("float32")],
                why="onnxruntime has no weights of one bit",
            )
    groups = t.const(t.random.permutation(64).astype("int32") // 32)
    yield t(
        t.f(3, 64),
        t.const(t.n("uint8", 48, 2, 16, low=0, high=255)),
        t.const(t.f(48, 2)),
        None,
        groups,
        K=64,
        N=48,
        bits=4,
        block_size=32,
        tol=1e-4,
    )
    x, w, scales, zeros, bias, at = (
        t.f(2, 3, 64),
        t.n("uint8", 48, 2, 16, low=0, high=255),
        t.f(48, 2),
        t.n("uint8", 48, low=0, high=255),
        t.f(48),
        groups.array,
    )
    numbers = (w.repeat(2, 2) >> t.of("uint8", [0, 4] * 16) & 15).reshape(48, 64).astype("float64")
    weights = (numbers - (zeros[:, None] >> t.of("uint8", [0, 4]) & 15)[:, at]) * scales[:, at]
    yield t(
        x,
        *map(t.const, (w, scales, zeros)),
        groups,
        t.const(bias),
        K=64,
        N=48,
        bits=4,
        block_size=32,
        tol=1e-4,
        expect=[(x @ weights.T + bias).astype("float32")],
        why="onnxruntime takes other zero points",
    )


@bnb4.cases
def bnb4_cases(t: Toolbox) -> Cases:
    for kind in (0, 1):
        for rows, k, cols, block in (
            (1, 64, 48, 16),
            (1, 256, 9, 64),
            (3, 64, 48, 64),
            (5, 128, 7, 32),
        ):
            yield t(
                t.f(rows, k),
                t.const(t.n("uint8", cols * k // 2, low=0, high=255)),
                t.const(t.f(cols * k // block, low=0.1, high=1)),
                K=k,
                N=cols,
                block_size=block,
                quant_type=kind,
                tol=1e-4,
            )
    yield t(
        t.f(2, 3, 64),
        t.const(t.n("uint8", 48 * 32, low=0, high=255)),
        t.const(t.f(48, low=0.1, high=1)),
        K=64,
        N=48,
        block_size=64,
        quant_type=1,
        tol=1e-4,
    )
