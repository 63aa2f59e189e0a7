"""Element types that an operator has no kernel for, and those it computes on instead.

Where that is exact, or wraps around alike (low bits of sums and products do not depend on the
width), nothing is lost. Two rules lose something, and README's limits name them: float64 as float32
(DOUBLES), and integers as float32 where something is interpolated (GridSample; Resize and Upsample
do so themselves, except to the nearest) or added up in places (Col2Im).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..declare.dtypes import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    MINIFLOATS,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)


@dataclass(frozen=True)
class Promotion:
    """Element types in which an operator is computed in the place of its own.

    Attributes:
        types: {element type: the one to compute in}.
        inputs: indices of the inputs to cast. Default: None, all that have the first one's type.
        outputs: indices of the outputs to cast back; None means all. Default: the first.
    """

    types: dict[int, int]
    inputs: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = (0,)


_SMALL = {UINT8: INT32, INT8: INT32, UINT16: INT32, INT16: INT32}
_INTEGERS = (UINT8, INT8, UINT16, INT16, UINT32, INT32, UINT64, INT64)
_WRAPS = {UINT32: INT32, UINT64: INT64}  # the same low bits
_WIDER = {UINT32: INT64}  # the same numbers
_ROOTS = dict.fromkeys((INT32, INT64, UINT32, UINT64), DOUBLE)
_SMALL_FLOATS = dict.fromkeys(MINIFLOATS, FLOAT)
_AS_FLOAT = {DOUBLE: FLOAT, **dict.fromkeys((BOOL, *_INTEGERS), FLOAT)}

# float64 computed in float32
DOUBLES = (
    "AffineGrid",
    "Attention",
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "ConvTranspose",
    "DeformConv",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "GridSample",
    "GroupNormalization",
    "GRU",
    "InstanceNormalization",
    "LayerNormalization",
    "LpNormalization",
    "LpPool",
    "LRN",
    "LSTM",
    "MaxPool",
    "MaxRoiPool",
    "MeanVarianceNormalization",
    "NegativeLogLikelihoodLoss",
    "RMSNormalization",
    "RNN",
    "RoiAlign",
    "SimplifiedLayerNormalization",
    "SoftmaxCrossEntropyLoss",
)

PROMOTIONS = {
    **{("", name): (Promotion({DOUBLE: FLOAT}, None, None),) for name in DOUBLES},
    ("", "Attention"): (
        Promotion({DOUBLE: FLOAT}, (0, 1, 2, 4, 5), None),
        Promotion(dict.fromkeys((DOUBLE, *_INTEGERS), FLOAT), (3,), ()),
    ),
    ("", "Col2Im"): (Promotion(_AS_FLOAT, (0,)),),
    ("", "CumSum"): (Promotion(_WRAPS, (0,)),),
    ("", "Einsum"): (Promotion(_SMALL | _WRAPS),),
    ("", "MatMul"): (Promotion(_WRAPS),),
    ("", "Gemm"): (Promotion(_WRAPS),),
    ("", "GridSample"): (Promotion(_AS_FLOAT, (0,)), Promotion({DOUBLE: FLOAT}, (1,), ())),
    ("", "IsInf"): (Promotion(_SMALL_FLOATS, None, ()),),
    ("", "IsNaN"): (Promotion(_SMALL_FLOATS, None, ()),),
    ("", "ReduceL1"): (Promotion(_WIDER, (0,)),),
    ("", "ReduceL2"): (Promotion(_ROOTS, (0,)),),
    ("", "ReduceMax"): (Promotion(_WIDER, (0,)),),
    ("", "ReduceMin"): (Promotion(_WIDER, (0,)),),
    ("", "ReduceMean"): (Promotion({UINT32: INT64, UINT64: DOUBLE}, (0,)),),
    ("", "ReduceProd"): (Promotion(_WRAPS, (0,)),),
    ("", "ReduceSum"): (Promotion(_WRAPS, (0,)),),
    ("", "ReduceSumSquare"): (Promotion(_WRAPS, (0,)),),
    ("", "Shrink"): (Promotion(dict.fromkeys(_INTEGERS, DOUBLE)),),
    ("com.microsoft", "FusedMatMul"): (Promotion({DOUBLE: FLOAT}),),
    ("com.microsoft", "SimplifiedLayerNormalization"): (Promotion({DOUBLE: FLOAT}, None, None),),
    ("", "TopK"): (Promotion({INT16: INT32, UINT16: INT32, UINT32: INT64}, (0,)),),
}

__all__ = ["PROMOTIONS", "DOUBLES", "Promotion"]
