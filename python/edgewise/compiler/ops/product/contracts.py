"""Contracts of the kernels of product operators."""

from __future__ import annotations

from ...declare.dtypes import DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8
from ...declare.kernel import CImplementation, Cost, Enum, Kernel, params, read, typed, write
from ..elementwise.formulas import ACTIVATIONS

ACTIVATION = Enum("activation", " ".join(ACTIVATIONS))

Kernel(
    "gemm",
    params(
        "batch0 batch1 m n k a0 a1 a_row a_col b0 b1 b_row b_col y0 y1 y_row bias_row "
        "bias_col b_type b_normal activation alpha:f32 beta:f32"
    ),
    [
        read("a", FLOAT, "batch0:a0, batch1:a1, m:a_row, k:a_col"),
        read(
            "b",
            typed("b_type", FLOAT, UINT8, INT8, FLOAT16),
            "batch0:b0, batch1:b1, k:b_row, n:b_col",
        ),
        read("bias", FLOAT, "m:bias_row, n:bias_col", optional=True),
        read("residual", FLOAT, "batch0:y0, batch1:y1, m:y_row, n", optional=True),
        write("y", FLOAT, "batch0:y0, batch1:y1, m:y_row, n", inplace=["residual"]),
    ],
    require=[
        "min(a0, a1, a_row, a_col, b0, b1, b_row, b_col) >= 0",
        "min(y0, y1, y_row, bias_row, bias_col) >= 0",
        "max(m, n, k) <= 1073741824",
        "m*n*k <= 1152921504606846976",
        "distinct(batch0, y0, batch1, y1, m, y_row, n, 1)",
        "k <= 1 or a_col + b_row > 0",
        "min(a_row, a_col) <= 1 or m <= 1 or k <= 1",
        "k >= 0",
        "batch0 * batch1 <= 2147483647",
    ],
    enums={"activation": ACTIVATION},
    empty=["batch0", "batch1", "m", "n"],
    cost=Cost("2*batch0*batch1*m*n*k"),
    c=CImplementation(
        scratch="131072 + 65536",
        optional_scratch=True,
        variants={"b_type": "B_TYPE", "activation": "ACTIVATION"},
    ),
    doc=(
        "y[b] = activation(alpha * a[b] @ b[b] + beta * bias) + residual, float32 "
        "accumulation; b may be float16, int8 or uint8 in memory; b_normal: its float16 numbers "
        "are zero or normal, none is subnormal, infinite or NaN. a and b may be row- or "
        "column-major (strides); all batches share the bias (strides bias_row, bias_col; 0 "
        "broadcasts). k = 0: y is the bias. m = 1 with contiguous rows (b_col = 1) or columns "
        "(b_row = 1) of b is a GEMV that reads b once. scratch: packing buffers, 131072 floats "
        "of packed b that the threads share, then 65536 floats of packed a divided among them."
    ),
)

Kernel(
    "matmul_nbits",
    params(
        "m n k bits block format scale_type zero_type a_row y_row activation accuracy transposed"
    ),
    [
        read("a", FLOAT, "m:a_row, n if transposed else k"),
        read("b", UINT8, "n, ceil_div(k, block), ceil_div(block * bits, 8)"),
        read("scales", typed("scale_type", FLOAT, FLOAT16), "n, ceil_div(k, block)"),
        read(
            "zeros",
            typed("zero_type", FLOAT, UINT8, FLOAT16),
            "n, ceil_div(ceil_div(k, block) * bits, 8) if zero_type == 2 else ceil_div(k, block)",
            optional=True,
        ),
        read("bias", FLOAT, "k if transposed else n", optional=True),
        read("residual", FLOAT, "m:y_row, k if transposed else n", optional=True),
        write("y", FLOAT, "m:y_row, k if transposed else n", inplace=["residual"]),
    ],
    require=[
        "bits in (2, 4, 8)",
        "block >= 16",
        "format in (0, 1, 2)",
        "format == 0 or bits == 4",
        "a_row >= 0",
        "y_row >= 0",
        "k > 0",
        "max(m, n, k, block) <= 1073741824",
        "m*n*k <= 1152921504606846976",
        "distinct(m, y_row, k if transposed else n, 1)",
    ],
    enums={"activation": ACTIVATION},
    empty=["m", "n"],
    cost=Cost(
        "2*m*n*k",
        integer="not format and not transposed and (accuracy == 4 or bits < 8 and m <= 8)",
    ),
    c=CImplementation(
        scratch="262144",
        optional_scratch=True,
        variants={
            "bits": "NBITS",
            "format": "NBITS_FORMAT",
            "accuracy": "NBITS_ACCURACY",
            "activation": "ACTIVATION",
            "transposed": "NBITS_TRANSPOSED",
            "scale_type": "NBITS_SCALES",
        },
    ),
    doc=(
        "com.microsoft::MatMulNBits: b is [n, blocks, block*bits/8] with the low bits first, "
        "w = (q - zero) * scale; zero is 2^(bits-1) by default. zero_type 2 (uint8): zeros are "
        "packed in `bits` bits each, rows padded to a byte; else one float for each block. "
        "format 0: integers; 1 and 2: the fp4 and nf4 codes of MatMulBnb4 (blocks of the "
        "flattened [n, k], k a multiple of block; w = code[q] * absmax; the high nibble comes "
        "first). accuracy 4: activations may be quantized to int8 in blocks. transposed: "
        "y [m, k] = a [m, n] @ b, the product of the gradient."
    ),
)

# Working memory of the products of experts: that of `gemm` and `matmul_nbits`, the slots in the
# order of their experts, and the rows of up to 256 slots of one expert.
_EXPERT_ROWS = "262144 + slots + experts + min(slots, 256) * (n + k)"
_EXPERT_RULES = [
    "each > 0",
    "experts > 0",
    "max(slots, n, k) <= 1073741824",
    "slots*n*k <= 1152921504606846976",
]

Kernel(
    "expert_gemm",
    params(
        "slots each experts n k a_row b_expert b_row b_col b_type b_normal index_type alpha:f32"
    ),
    [
        read("a", FLOAT, "ceil_div(slots, each):a_row, k"),
        read("index", typed("index_type", INT32, INT64), "slots"),
        read(
            "b", typed("b_type", FLOAT, FLOAT16), "experts:b_expert, k:b_row, n:b_col", pages=True
        ),
        read("bias", FLOAT, "experts, n", optional=True, pages=True),
        write("y", FLOAT, "slots, n"),
    ],
    require=[*_EXPERT_RULES, "k > 0", "min(a_row, b_expert, b_row, b_col) >= 0"],
    empty=["slots", "n"],
    cost=Cost("2*slots*n*k"),
    c=CImplementation(scratch=_EXPERT_ROWS, rare=True, variants={"b_type": "B_TYPE"}),
    doc=(
        "y[s] = alpha * a[s / each] @ b[index[s]] + bias[index[s]]: a row of each slot with the "
        "weights of its expert. b_normal: as in gemm."
    ),
)

Kernel(
    "expert_nbits",
    params(
        "slots each experts n k a_row bits block scale_type zero_type accuracy transposed "
        "index_type"
    ),
    [
        read("a", FLOAT, "ceil_div(slots, each):a_row, n if transposed else k"),
        read("index", typed("index_type", INT32, INT64), "slots"),
        read("b", UINT8, "experts, n, ceil_div(k, block), ceil_div(block * bits, 8)", pages=True),
        read(
            "scales",
            typed("scale_type", FLOAT, FLOAT16),
            "experts, n, ceil_div(k, block)",
            pages=True,
        ),
        read(
            "zeros",
            typed("zero_type", FLOAT, UINT8, FLOAT16),
            "experts, n, ceil_div(ceil_div(k, block) * bits, 8) if zero_type == 2 else "
            "ceil_div(k, block)",
            optional=True,
            pages=True,
        ),
        read("bias", FLOAT, "experts, k if transposed else n", optional=True, pages=True),
        write("y", FLOAT, "slots, k if transposed else n"),
    ],
    require=[
        *_EXPERT_RULES,
        "k > 0",
        "bits in (2, 4, 8)",
        "block >= 16",
        "block <= 1073741824",
        "a_row >= 0",
    ],
    empty=["slots", "n"],
    cost=Cost("2*slots*n*k", integer="not transposed and accuracy == 4"),
    c=CImplementation(
        scratch=_EXPERT_ROWS,
        rare=True,
        variants={
            "bits": "NBITS",
            "accuracy": "NBITS_ACCURACY",
            "transposed": "NBITS_TRANSPOSED",
            "scale_type": "NBITS_SCALES",
        },
    ),
    doc=(
        "matmul_nbits of each slot's row a[s / each] with the weights of its expert index[s]: y[s] "
        "= a[s / each] @ b[index[s]] + bias[index[s]]; transposed: y [slots, k], the product of "
        "the gradient."
    ),
)

Kernel(
    "expert_outer",
    params("slots a_each b_each experts n k a_row b_row index_type"),
    [
        read("a", FLOAT, "ceil_div(slots, a_each):a_row, n"),
        read("b", FLOAT, "ceil_div(slots, b_each):b_row, k"),
        read("index", typed("index_type", INT32, INT64), "slots"),
        write("y", FLOAT, "experts, n, k"),
    ],
    require=[
        "min(slots, a_each, b_each) > 0",
        "max(slots, n, k) <= 1073741824",
        "slots*n*k <= 1152921504606846976",
        "min(a_row, b_row) >= 0",
    ],
    empty=["experts", "n", "k"],
    cost=Cost("2*slots*n*k"),
    c=CImplementation(scratch=_EXPERT_ROWS, rare=True),
    doc=(
        "The gradient of experts' weights: y[e] is the sum of the products of a[s / a_each] as a "
        "column with b[s / b_each] as a row, over the slots s with index[s] = e."
    ),
)

Kernel(
    "product",
    params("type dims[6] k as[6] bs[6] a_k b_k"),
    [
        read("a", typed("type", INT32, INT64, DOUBLE), "dims:as, k:a_k"),
        read("b", "type", "dims:bs, k:b_k"),
        write("y", "type", "dims"),
    ],
    require=[
        "k > 0",
        "min(a_k, b_k) >= 0",
        "k <= 1 or a_k + b_k > 0",
        "min(as[0], as[1], as[2], as[3], as[4], as[5]) >= 0",
        "min(bs[0], bs[1], bs[2], bs[3], bs[4], bs[5]) >= 0",
    ],
    empty=["dims"],
    cost=Cost("2*dims[0]*dims[1]*dims[2]*dims[3]*dims[4]*dims[5]*k"),
    doc=(
        "y[i] = sum over k of a[i] * b[i], in float64, int32 or int64; integers wrap around. "
        "y is contiguous."
    ),
)
