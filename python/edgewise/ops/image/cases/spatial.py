"""Test cases of ops/image/spatial.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..spatial import depth_to_space, grid_sample, resize, space_to_depth, upsample

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@resize.cases
def resize_cases(t: Toolbox) -> Cases:
    ort = {
        "trust": "ort",
        "why": (
            "ONNX's reference has places in double precision, and takes the scale as given where"
            " the size says otherwise"
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
                    {"trust": "onnx", "why": "onnxruntime rounds these places in a way of its own"}
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
        why="ONNX's reference has places in double precision",
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


@depth_to_space.cases
def depth_to_space_cases(t: Toolbox) -> Cases:
    for shape, size in (((2, 8, 3, 4), 2), ((1, 9, 2, 5), 3), ((1, 3, 4, 4), 1)):
        yield t(t.f(*shape), blocksize=size)
        yield t(t.f(*shape), blocksize=size, mode="CRD")
    yield t(t.f(2, 8, 3, 4), blocksize=2, opset=1)


@space_to_depth.cases
def space_to_depth_cases(t: Toolbox) -> Cases:
    for shape, size in (((2, 2, 6, 4), 2), ((1, 3, 6, 9), 3), ((1, 3, 4, 4), 1)):
        yield t(t.f(*shape), blocksize=size)
        yield t(
            t.f(*shape),
            blocksize=size,
            mode="CRD",
            opset=28,
            trust="onnx",
            why="newer than onnxruntime",
        )


@grid_sample.cases
def grid_sample_cases(t: Toolbox) -> Cases:
    for opset, modes in (
        (16, ("bilinear", "nearest", "bicubic")),
        (20, ("linear", "nearest", "cubic")),
    ):
        for mode in modes:
            for padding in ("zeros", "border", "reflection"):
                for align in (0, 1):
                    only = (
                        {
                            "trust": "ort",
                            "why": (
                                "ONNX's reference moves places to the border before it weighs,"
                                " PyTorch the elements"
                            ),
                        }
                        if (mode, padding) == ("cubic", "border")
                        else {}
                    )
                    yield t(
                        t.f(2, 3, 5, 6),
                        t.f(2, 4, 7, 2, low=-1.6, high=1.6),
                        mode=mode,
                        padding_mode=padding,
                        align_corners=align,
                        opset=opset,
                        tol=1e-4,
                        **only,
                    )
    for mode in ("linear", "nearest"):
        yield t(
            t.f(1, 2, 3, 4, 5),
            t.f(1, 2, 3, 4, 3, low=-1.3, high=1.3),
            mode=mode,
            opset=20,
            tol=1e-4,
        )
