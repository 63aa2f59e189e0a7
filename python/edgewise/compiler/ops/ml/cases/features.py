"""Test cases of ops/ml/features.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..features import (
    array_feature_extractor,
    binarizer,
    feature_vectorizer,
    imputer,
    normalizer,
    one_hot_encoder,
    scaler,
)

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@array_feature_extractor.cases
def array_feature_extractor_cases(t: Toolbox) -> Cases:
    yield t(t.f(3, 4), t.of("int64", [[0, 2, 3]]))
    yield t(t.f(2, 3, 4), t.of("int64", [1]))
    yield t(t.n("int64", 3, 4), t.of("int64", [3, 0]))
    yield t(t.f(3, 4, dtype="float64"), t.of("int64", [3, 0]))


@binarizer.cases
def binarizer_cases(t: Toolbox) -> Cases:
    yield t(t.f(3, 4))
    yield t(t.f(3, 4, 5), threshold=0.5)
    yield t(t.of("float32", [float("nan"), 1, -1]), threshold=-0.5)


@scaler.cases
def scaler_cases(t: Toolbox) -> Cases:
    for x in (t.f(3, 4), t.n("int64", 3, 4), t.n("int32", 3, 4), t.f(3, 4, dtype="float64")):
        yield t(
            x,
            offset=[1.0, 2.0, -1.0, 0.5],
            scale=[0.5, 2.0, 3.0, 4.0],
            tol=1e-5,
            trust="ort",
            why="ONNX's reference keeps the input's type",
        )
    yield t(t.f(3, 4), offset=[1.0], scale=[0.5], trust="ort", why="the same")


@normalizer.cases
def normalizer_cases(t: Toolbox) -> Cases:
    x = t.f(4, 5)
    x[2] = 0
    for norm in ("MAX", "L1", "L2"):
        yield t(
            x if norm != "MAX" else abs(x),
            norm=norm,
            tol=1e-5,
            trust="ort",
            why="ONNX's reference keeps the input's type",
        )
    yield t(
        t.n("int64", 3, 4, low=1),
        norm="L2",
        trust="ort",
        why="ONNX's reference keeps the input's type",
    )


@imputer.cases
def imputer_cases(t: Toolbox) -> Cases:
    nan = float("nan")
    x = t.of("float32", [[1, nan, 3], [nan, 0, 2]])
    yield t(x, imputed_value_floats=[9.0, 8.0, 7.0], replaced_value_float=nan)
    yield t(x, imputed_value_floats=[9.0], replaced_value_float=nan)
    yield t(x, imputed_value_floats=[9.0, 8.0, 7.0], replaced_value_float=2.0)
    yield t(
        t.of("int64", [[1, -1, 3], [-1, 0, 2]]),
        imputed_value_int64s=[9, 8, 7],
        replaced_value_int64=-1,
    )


@feature_vectorizer.cases
def feature_vectorizer_cases(t: Toolbox) -> Cases:
    only = {"trust": "ort", "why": "ONNX's reference keeps the input's type"}
    yield t(t.f(3, 2), t.f(3, 4), inputdimensions=[2, 4], **only)
    yield t(t.f(3, 2), t.f(3, 1), t.f(3, 3), inputdimensions=[2, 1, 3], **only)
    yield t(
        t.f(3, 2),
        t.f(3, 4),
        inputdimensions=[3, 2],
        trust="ort",
        why="ONNX's reference keeps the input's type",
    )
    yield t(
        t.n("int64", 3, 2),
        inputdimensions=[2],
        trust="ort",
        why="ONNX's reference keeps the input's type",
    )


@one_hot_encoder.cases
def one_hot_encoder_cases(t: Toolbox) -> Cases:
    yield t(t.n("int64", 7, low=0, high=4), cats_int64s=[0, 2, 3])
    yield t(t.n("int64", 3, 4, low=0, high=4), cats_int64s=[4, 1])
    yield t(t.n("int32", 5, low=0, high=4), cats_int64s=[4, 1, 0])
    yield t(
        t.f(5, low=0, high=4),
        cats_int64s=[1, 2],
        trust="ort",
        why="ONNX's reference compares without a cast",
    )
