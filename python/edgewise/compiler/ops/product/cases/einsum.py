"""Test cases of ops/product/einsum.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..einsum import einsum

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@einsum.cases
def einsum_cases(t: Toolbox) -> Cases:
    for equation, *shapes in (
        ("ij,jk->ik", (3, 4), (4, 5)),
        ("ij,jk", (3, 4), (4, 5)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
        ("bhij,bjhd->bihd", (2, 3, 4, 6), (2, 6, 3, 5)),
        ("bind,bjnd->bnij", (2, 4, 3, 5), (2, 6, 3, 5)),
        ("ij->ji", (3, 4)),
        ("ij->", (3, 4)),
        ("ij->j", (3, 4)),
        ("ii->i", (4, 4)),
        ("ii", (4, 4)),
        ("iij->ij", (3, 3, 4)),
        ("i,j->ij", (3,), (4,)),
        ("i,i->", (5,), (5,)),
        ("i,i->i", (5,), (5,)),
        ("ij,i->ij", (3, 4), (3,)),
        ("...ij,...jk->...ik", (2, 3, 4, 5), (2, 3, 5, 6)),
        ("...ij,jk->...ik", (2, 3, 4, 5), (5, 6)),
        ("...i,...i->...", (2, 1, 4), (3, 4)),
        ("...ij->...ji", (2, 3, 4)),
        ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
        ("bc,bd,be->bcde", (2, 3), (2, 4), (2, 5)),
        ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
        ("abc,cd,de->abe", (2, 3, 4), (4, 5), (5, 6)),
        (" b i , i j -> b j ", (2, 3), (3, 4)),
        ("ij,kl->", (2, 3), (4, 5)),
        ("i,->i", (3,), ()),
        ("bhlt,bhtd->bhld", (1, 2, 3, 4), (1, 2, 4, 5)),
    ):
        yield t(*(t.f(*s) for s in shapes), equation=equation, tol=1e-4)
    for dtype in ("float64", "int32", "int64"):
        yield t(t.any(dtype, 2, 3, 4), t.any(dtype, 2, 4, 5), equation="bij,bjk->bik")
        yield t(t.any(dtype, 3, 4), equation="ij->i")
    for dtype in ("uint8", "int16", "uint32", "uint64"):
        yield t(
            t.any(dtype, 3, 4),
            t.any(dtype, 4, 5),
            equation="ij,jk->ki",
            trust="onnx",
            why="onnxruntime has it for few types",
        )
    yield t(
        t.f(3, 40, dtype="float16"),
        t.f(40, 5, dtype="float16"),
        equation="ij,jk->ik",
        tol=4e-3,
        trust="onnx",
        why="onnxruntime has no half-precision Einsum",
    )
