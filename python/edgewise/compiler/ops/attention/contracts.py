"""Contracts of the kernels of attention operators."""

from __future__ import annotations

from ...declare.dtypes import BOOL, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8
from ...declare.kernel import CImplementation, Cost, Kernel, params, read, typed, write


def _row(columns: str, kind: str) -> str:
    """The elements of a row of so many columns as it is stored: see store_rows."""
    blocks = f"ceil_div({columns}, 32)"
    of_bytes = f"34*{blocks} if {kind} == {INT8} else 18*{blocks}"
    return f"({of_bytes} if {kind} in ({UINT8}, {INT8}) else {columns})"


Kernel(
    "softmax_and_grad",
    params("rows cols period first span scale:f32 slope:f32"),
    [
        read("x", FLOAT, "rows, cols"),
        read("dy", FLOAT, "rows, cols"),
        write("y", FLOAT, "rows, cols", inplace=["x"]),
        write("dx", FLOAT, "rows, cols", inplace=["dy"]),
    ],
    require=["period > 0", "first >= 0", "span >= 0"],
    empty=["rows", "cols"],
    grid="rows",
    doc=(
        "y = softmax(scale * x) over the last axis, and dx = slope * y * (dy - sum(y * dy)). "
        "Row i sees the columns below first + i % period, with span > 0 only the last `span` of "
        "them; the others are zero in both outputs. A row of all -inf is zero, too: it has no "
        "gradient."
    ),
)

Kernel(
    "attention",
    params(
        "batch heads kv_heads q_len kv_len head_dim v_dim q_b q_h q_s k_b k_h k_s v_b "
        "v_h v_s y_b y_h y_s mask_type m_b m_h m_q m_k causal past window kv_type "
        "nan_to_zero scale:f32 softcap:f32"
    ),
    [
        read("q", FLOAT, "batch:q_b, heads:q_h, q_len:q_s, head_dim"),
        read(
            "k",
            typed("kv_type", FLOAT, FLOAT16, INT8, UINT8),
            f"batch:k_b, kv_heads:k_h, kv_len:k_s, {_row('head_dim', 'kv_type')}",
        ),
        read("v", "kv_type", f"batch:v_b, kv_heads:v_h, kv_len:v_s, {_row('v_dim', 'kv_type')}"),
        read(
            "mask",
            typed("mask_type", FLOAT, BOOL),
            "batch:m_b, heads:m_h, q_len:m_q, kv_len:m_k",
            optional=True,
        ),
        read("lengths", INT32, "batch", optional=True),
        read("sink", FLOAT, "heads", optional=True),
        write("y", FLOAT, "batch:y_b, heads:y_h, q_len:y_s, v_dim"),
    ],
    require=[
        "kv_heads > 0",
        "heads % kv_heads == 0",
        "head_dim > 0",
        "v_dim > 0",
        "kv_len >= 0",
        "min(q_b, q_h, q_s) >= 0",
        "min(k_b, k_h, k_s) >= 0",
        "min(v_b, v_h, v_s) >= 0",
        "min(y_b, y_h, y_s) >= 0",
        "min(m_b, m_h, m_q, m_k) >= 0",
        "batch * heads * q_len <= 2147483647",
        "distinct(batch, y_b, heads, y_h, q_len, y_s, v_dim, 1)",
        "kv_len <= 1 or k_s + v_s > 0",
        "max(head_dim, v_dim) <= 1073741824",
        "kv_type in (1, 10) or max(head_dim, v_dim) <= 512",
    ],
    empty=["batch", "heads", "q_len"],
    grid="batch, heads, q_len",
    cost=Cost(
        "2*batch*heads*(q_len*kv_len - (q_len*(q_len - 1)//2 if causal else 0))*(head_dim + v_dim)"
    ),
    c=CImplementation(variants={"kv_type": "B_TYPE"}),
    doc=(
        "y = softmax(softcap(scale * q k^T) + mask) v, with kv head h*kv_heads/heads for query "
        "head h (grouped queries). The innermost dimension of q, k, v and y is contiguous; the "
        "others have strides. mask_type 1: float32, added; 9: bool, true = attend. causal > 0: "
        "query i attends to keys j < i + past + causal (1: up to its own position). window > 0: "
        "only to j > i + past - window. lengths: int32 for each item of the batch, the number "
        "of valid keys (then query i of item b is at position lengths[b] - q_len + i, and "
        "`past` is not used). softcap > 0: c*tanh(x/c). sink: a score for each head that takes "
        "a share of the softmax without a value. A row without any key to attend to is NaN, or "
        "zeros with nan_to_zero. Blocked over queries with online softmax where q_len is large; "
        "k and v are read once for each block of queries. With kv_type int8 and uint8 they are "
        "rows of 8 and 4 bits (store_rows), and their strides bytes."
    ),
)

Kernel(
    "store_rows",
    params("batch heads count dim x_b x_h x_s y_b y_h y_s type"),
    [
        read("x", FLOAT, "batch:x_b, heads:x_h, count:x_s, dim"),
        write(
            "y",
            typed("type", INT8, UINT8),
            f"batch:y_b, heads:y_h, count:y_s, {_row('dim', 'type')}",
        ),
    ],
    require=[
        "dim > 0",
        "min(x_b, x_h, x_s) >= 0",
        "min(y_b, y_h, y_s) >= 0",
        "batch * heads <= 2147483647",
        f"distinct(batch, y_b, heads, y_h, count, y_s, {_row('dim', 'type')}, 1)",
    ],
    empty=["batch", "heads", "count"],
    doc=(
        "Rows of keys or values in 8 bits (type int8) or 4 (uint8): blocks of 32 columns, each "
        "with its own scale, the last one padded. A block of 8 bits is a float16 scale and a byte "
        "for each column, x / scale + 128; one of 4 bits 16 bits with the scale and a zero of 4 "
        "bits, and 16 bytes: x / scale + zero of columns 0 to 15 in the low bits, of 16 to 31 "
        "in the high ones. Strides of y are in bytes."
    ),
)

Kernel(
    "load_rows",
    params("batch heads count dim x_b x_h x_s y_b y_h y_s type"),
    [
        read(
            "x",
            typed("type", INT8, UINT8),
            f"batch:x_b, heads:x_h, count:x_s, {_row('dim', 'type')}",
        ),
        write("y", FLOAT, "batch:y_b, heads:y_h, count:y_s, dim"),
    ],
    require=[
        "dim > 0",
        "min(x_b, x_h, x_s) >= 0",
        "min(y_b, y_h, y_s) >= 0",
        "batch * heads <= 2147483647",
        "distinct(batch, y_b, heads, y_h, count, y_s, dim, 1)",
    ],
    empty=["batch", "heads", "count"],
    doc="What store_rows has stored, as float32.",
)

Kernel(
    "linear_attention",
    params("batch heads kv_heads seq dim v_dim decay_dim beta_heads scale:f32"),
    [
        read("q", FLOAT, "batch, seq, heads, dim"),
        read("k", FLOAT, "batch, seq, kv_heads, dim"),
        read("v", FLOAT, "batch, seq, kv_heads, v_dim"),
        read("past", FLOAT, "batch, kv_heads, dim, v_dim", optional=True),
        read("decay", FLOAT, "batch, seq, kv_heads, decay_dim", optional=True),
        read("beta", FLOAT, "batch, seq, beta_heads", optional=True),
        write("y", FLOAT, "batch, seq, max(heads, kv_heads), v_dim"),
        write("state", FLOAT, "batch, kv_heads, dim, v_dim", inplace=["past"]),
    ],
    require=[
        "heads > 0",
        "kv_heads > 0",
        "max(heads, kv_heads) % heads == 0",
        "max(heads, kv_heads) % kv_heads == 0",
        "decay_dim in (1, dim)",
        "beta_heads in (1, kv_heads)",
        "batch * kv_heads * v_dim <= 2147483647",
        "max(heads, kv_heads) * max(dim, v_dim) <= 2147483647",
    ],
    empty=["batch", "dim", "v_dim"],
    grid="batch, kv_heads",
    cost=Cost("4*batch*heads*seq*dim*v_dim"),
    c=CImplementation(rare=True),
    doc=(
        "For each position: S = decay * S + k u^T, y = scale * q^T S, with a state S [dim, "
        "v_dim] for each key head that begins as past, or zeros. u is v, or, with beta, beta * "
        "(v - k^T (decay * S)). All operands are contiguous: q, k, v and y [batch, seq, heads, "
        "dim or v_dim]. decay is a factor for each key head or for each row of S, beta a number "
        "for each key head or for all."
    ),
)

# Reach of the tables of cosines and sines: a row for each position, or for each token.
_TABLE = (
    "(c_rows-1)*c_s + rotary_dim // 2 if positions >= 1 "
    "else (batch-1)*c_b + (seq-1)*c_s + rotary_dim // 2"
)

Kernel(
    "rope",
    params(
        "batch heads seq head_dim rotary_dim interleaved x_b x_h x_s y_b y_h y_s c_b c_s "
        "c_rows position positions scale:f32"
    ),
    [
        read("x", FLOAT, "batch:x_b, heads:x_h, seq:x_s, head_dim"),
        read("cos", FLOAT, reach=_TABLE),
        read("sin", FLOAT, reach=_TABLE),
        read(
            "position_ids",
            INT64,
            "batch * seq if positions == 2 else batch if positions == 3 else 1",
            optional=True,
        ),
        write("y", FLOAT, "batch:y_b, heads:y_h, seq:y_s, head_dim", inplace=["x"]),
    ],
    require=[
        "rotary_dim > 0",
        "rotary_dim % 2 == 0",
        "rotary_dim <= head_dim",
        "positions >= 0",
        "positions < 4",
        "c_rows > 0",
        "min(x_b, x_h, x_s) >= 0",
        "min(y_b, y_h, y_s) >= 0",
        "min(c_b, c_s) >= 0",
        "batch * seq <= 2147483647",
        "distinct(batch, y_b, heads, y_h, seq, y_s, head_dim, 1)",
    ],
    empty=["batch", "heads", "seq"],
    c=CImplementation(variants={"interleaved": "ROPE_INTERLEAVED"}),
    doc=(
        "Rotary embedding of the first rotary_dim elements of each head; the rest is copied. "
        "Row of the cos/sin tables for (b, s): positions 0: b*c_b + s*c_s directly; 1: row "
        "position + s; 2: row position_ids[b, s] (int64); 3: row position_ids[b] + s. A row "
        "outside [0, c_rows) is EW_E_INDEX. interleaved: pairs (2i, 2i+1), else (i, i + "
        "rotary_dim/2)."
    ),
)
