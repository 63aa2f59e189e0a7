"""Test cases of ops/image/resize.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..resize import resize, upsample

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@resize.cases
def resize_cases(t: Toolbox) -> Cases:
    # long, but only a list of cases
    ort = {
        "trust": "ort",
        "why": (
            "ONNX's reference has coordinates in double precision, and uses the given scale where"
            " the size implies another one"
        ),
    }
    wheres = (
        "half_pixel",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "half_pixel_symmetric",
    )
    for where in wheres:
        older = {"opset": 18} if where == "align_corners" else {}
        for scales in ([1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 0.6, 0.5], [1.0, 1.0, 2.5, 0.75]):
            for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                only = (
                    {"trust": "onnx", "why": "onnxruntime rounds these coordinates differently"}
                    if where == "half_pixel_symmetric"
                    else ort
                )
                yield t(
                    t.f(1, 2, 5, 8),
                    None,
                    scales,
                    mode="nearest",
                    coordinate_transformation_mode=where,
                    nearest_mode=rounding,
                    **only,
                    **older,
                )
            for mode in ("linear", "cubic"):
                yield t(
                    t.f(1, 2, 5, 8),
                    None,
                    scales,
                    mode=mode,
                    coordinate_transformation_mode=where,
                    tol=1e-4,
                    **({**ort, **older} if older else {}),
                )
        yield t(
            t.f(2, 1, 5, 8),
            None,
            None,
            [2, 1, 3, 13],
            mode="linear",
            coordinate_transformation_mode=where,
            tol=1e-4,
        )
        yield t(
            t.f(2, 1, 5, 8),
            None,
            None,
            [2, 1, 1, 16],
            mode="cubic",
            coordinate_transformation_mode=where,
            tol=1e-4,
            **(ort if where == "pytorch_half_pixel" else {}),
        )
    yield t(
        t.f(1, 2, 5, 8),
        None,
        [1.0, 1.0, 0.8, 1.5],
        mode="cubic",
        cubic_coeff_a=-0.5,
        exclude_outside=1,
        tol=1e-4,
    )
    for mode, outside in (("linear", 0), ("linear", 1), ("cubic", 0), ("cubic", 1)):
        yield t(
            t.f(1, 2, 9, 14),
            None,
            [1.0, 1.0, 0.4, 0.5],
            mode=mode,
            antialias=1,
            opset=18,
            tol=1e-4,
            exclude_outside=outside,
        )
        yield t(
            t.f(1, 2, 9, 14),
            None,
            None,
            [1, 2, 5, 20],
            mode=mode,
            antialias=1,
            opset=18,
            tol=1e-4,
            exclude_outside=outside,
        )
    yield t(
        t.f(1, 2, 5, 8),
        t.const(t.of("float32", [0, 0, 0.2, -0.2, 1, 1, 0.8, 1.3])),
        None,
        [1, 2, 4, 6],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=3.0,
        tol=1e-4,
        trust="ort",
        why="ONNX's reference has coordinates in double precision",
    )
    for policy in ("not_larger", "not_smaller"):
        yield t(
            t.f(1, 2, 5, 8),
            None,
            None,
            [7, 9],
            axes=[2, 3],
            mode="nearest",
            keep_aspect_ratio_policy=policy,
            opset=18,
            **ort,
        )
    yield t(t.f(1, 2, 6), None, [1.0, 1.0, 2.0], mode="linear", tol=1e-4)
    yield t(t.f(1, 1, 3, 4, 5), None, [1.0, 1.0, 2.0, 1.0, 0.5], mode="nearest")
    for mode in ("linear", "cubic"):
        for opset, which in ((18, "ort"), (19, "onnx")):
            yield t(
                t.f(1, 2, 5, 8),
                None,
                [1.0, 1.0, 0.6, 2.45],
                mode=mode,
                coordinate_transformation_mode="align_corners",
                opset=opset,
                tol=1e-4,
                trust=which,
                why=(
                    "from 19 on the width that corners are aligned in may be a fraction, which"
                    " onnxruntime leaves out"
                ),
            )
    for opset in (11, 13):
        yield t(
            t.f(1, 2, 5, 8),
            t.const(t.of("float32", [])),
            [1.0, 1.0, 2.0, 2.0],
            mode="linear",
            opset=opset,
            tol=1e-4,
        )
    yield t(t.f(1, 2, 5, 8), [1.0, 1.0, 2.0, 3.0], mode="nearest", opset=10)
    yield t(t.f(1, 2, 5, 8), [1.0, 1.0, 0.6, 0.5], mode="linear", opset=10, tol=1e-4)
    yield t(t.n("uint8", 1, 2, 5, 8), None, [1.0, 1.0, 2.0, 2.0], mode="nearest")


@upsample.cases
def upsample_cases(t: Toolbox) -> Cases:
    for mode in ("nearest", "linear"):
        yield t(
            t.f(1, 2, 4, 5),
            [1.0, 1.0, 2.0, 3.0],
            mode=mode,
            opset=9,
            tol=1e-4,
            trust="ort",
            why="ONNX's reference does not have it",
        )
        yield t(
            t.f(1, 2, 4, 5),
            mode=mode,
            scales=[1.0, 1.0, 2.0, 2.0],
            opset=7,
            tol=1e-4,
            trust="ort",
            why="ONNX's reference does not have it",
        )
