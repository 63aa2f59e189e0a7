"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, GatherBlockQuantized and the kernels under them."""
from __future__ import annotations

from .kernel import Kernel, read, write

Kernel("dynamic_quantize", {"n": "i32"}, [read("x", 4, "n"), write("y", 1, "n"), write("scale", 4, "1"), write("zero", 1, "1")], require=["n > 0"],
       doc="ONNX DynamicQuantizeLinear: uint8 over the range of x widened to contain 0; round half to even.")

Kernel("quantize", {"type": "i32", "outer": "i32", "axis": "i32", "inner": "i32", "block": "i32"},
       [read("x", 4, "outer*axis*inner"), read("scale", 4, "(outer*ceil_div(axis, block)*inner) if block > 0 else (1 if block < 0 else axis)"),
        read("zero", "bytes_of(type)", "(outer*ceil_div(axis, block)*inner) if block > 0 else (1 if block < 0 else axis)", optional=True), write("y", "bytes_of(type)", "outer*axis*inner")],
       require=["type in (2, 3, 4, 5)"], empty=["outer", "axis", "inner"],
       doc="ONNX QuantizeLinear on [outer, axis, inner]. block -1: one scale; 0: one per axis index; > 0: blocked along axis. Round half to even, saturate.")

Kernel("dequantize", {"type": "i32", "bits": "i32", "outer": "i32", "axis": "i32", "inner": "i32", "block": "i32"},
       [read("x", 1, "ceil_div(outer*axis*inner*bits, 8)"), read("scale", 4, "(outer*ceil_div(axis, block)*inner) if block > 0 else (1 if block < 0 else axis)"),
        read("zero", 1, "ceil_div(((outer*ceil_div(axis, block)*inner) if block > 0 else (1 if block < 0 else axis))*bits, 8)", optional=True), write("y", 4, "outer*axis*inner")],
       require=["type in (2, 3, 4, 5, 6, 21, 22)", "bits == (4 if type >= 21 else 8 * bytes_of(type))"], empty=["outer", "axis", "inner"],
       doc="ONNX DequantizeLinear, float32 out. type: ONNX code of x (21 uint4, 22 int4: two per byte, low nibble first, bits 4; 16- and 32-bit types are in native order).")

Kernel("gather_quantized", {"bits": "i32", "count": "i32", "rows": "i32", "cols": "i32", "block": "i32", "index_type": "i32", "scale_type": "i32", "signed": "i32", "zeros": "i32"},
       [read("x", 1, "rows * ceil_div(cols * bits, 8)"), read("index", "bytes_of(index_type)", "count"), read("scales", "bytes_of(scale_type)", "rows * ceil_div(cols, block)"),
        read("zeros_", 1, "rows * ceil_div(ceil_div(cols, block) * bits, 8)", optional=True), write("y", 4, "count * cols")],
       require=["bits in (2, 4, 8)", "block >= 16", "index_type in (6, 7)", "scale_type in (1, 10)", "rows > 0"], empty=["count", "cols"],
       doc="com.microsoft::GatherBlockQuantized with gather_axis 0, quantize_axis last: rows of a quantized embedding, dequantized to float32 on the way. Packed `bits` wide, low first. "
           "Zero point default: signed (int4): 0; unsigned: 2^(bits-1) for uint8 storage. zeros = 1 when the zeros_ operand is present.")


# ---- ops ----------------------------------------------------------------------------------------------------------------------
from .dtypes import FLOAT, INT4, INT8, INT32, INT64, UINT4, UINT8
from .op import MS, Op, axis_of, fail, product, unsupported

dynamic_quantize = Op("DynamicQuantizeLinear")


@dynamic_quantize.infer
def _(n):
    if n.inputs[0].dtype != FLOAT:
        fail(n, f"it quantizes float32, not {n.inputs[0]}")
    if product(n.inputs[0].shape) == 0:
        fail(n, "it finds no range in an empty tensor")
    return [(UINT8, list(n.inputs[0].shape)), (FLOAT, []), (UINT8, [])]


@dynamic_quantize.lower
def _(n, b):
    x = b.flat(b.view(n.inputs[0]))
    y, scale, zero = (b.out(o) if o is not None else b.temp(t, s) for o, t, s in zip(n.outputs + [None] * 3, (UINT8, FLOAT, UINT8), (n.inputs[0].shape, [], [])))
    b.emit("dynamic_quantize", {"x": x, "y": y, "scale": scale, "zero": zero}, n=product(x.shape))


def _layout(n):
    """(outer, axis, inner, block) of the scales."""
    x, scale = n.inputs[0], n.inputs[1]
    block = n.attr("block_size", 0)
    if product(scale.shape) == 1 and not block:
        return 1, 1, product(x.shape), -1
    axis = axis_of(n, n.attr("axis", 1), x.rank)
    want = [-(-d // block) if i == axis else d for i, d in enumerate(x.shape)] if block else [x.shape[axis]]
    if list(scale.shape) != want:
        fail(n, f"scale {scale} does not fit {x}: {want} is wanted")
    return product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1:]), block


quantize = Op("QuantizeLinear")


@quantize.infer
def _(n):
    dtype = n.inputs[2].dtype if n.has(2) else (n.attr("output_dtype", 0) or UINT8)
    if dtype not in (2, 3, 4, 5):
        unsupported(n, f"quantizing to element type {dtype}")
    _layout(n)
    return [(dtype, list(n.inputs[0].shape))]


@quantize.lower
def _(n, b):
    outer, axis, inner, block = _layout(n)
    y = b.out(n.outputs[0])
    b.emit("quantize", {"x": b.flat(b.view(n.inputs[0])), "scale": b.contiguous(b.view(n.inputs[1])), "zero": b.contiguous(b.view(n.inputs[2])) if n.has(2) else None, "y": y},
           type=y.dtype, outer=outer, axis=axis, inner=inner, block=block)


dequantize = Op("DequantizeLinear")


@dequantize.infer
def _(n):
    x = n.inputs[0]
    if x.dtype not in (2, 3, 4, 5, 6, UINT4, INT4):
        unsupported(n, f"dequantizing {x}")
    _layout(n)
    return [(FLOAT, list(x.shape))]


@dequantize.lower
def _(n, b):
    outer, axis, inner, block = _layout(n)
    x, y = b.flat(b.view(n.inputs[0])), b.out(n.outputs[0])
    b.emit("dequantize", {"x": x, "scale": b.contiguous(b.view(n.inputs[1])), "zero": b.contiguous(b.view(n.inputs[2])) if n.has(2) else None, "y": y},
           type=x.dtype, bits={UINT4: 4, INT4: 4, UINT8: 8, INT8: 8, 4: 16, 5: 16, INT32: 32}[x.dtype], outer=outer, axis=axis, inner=inner, block=block)


gather_quantized = Op("GatherBlockQuantized", MS, half=[2])


def _packed(n):
    """(bits, columns): uint8 storage packs several weights to a byte, 4-bit types are one element each."""
    x = n.inputs[0]
    if x.dtype in (UINT4, INT4):
        return 4, x.shape[-1]
    bits = n.attr("bits", 4)
    return bits, x.shape[-1] * (8 // bits)


@gather_quantized.infer
def _(n):
    x, i, scale = n.inputs[:3]
    rank = x.rank
    if x.dtype not in (UINT4, INT4, UINT8) or rank != 2 or axis_of(n, n.attr("gather_axis", 0), rank) != 0 or axis_of(n, n.attr("quantize_axis", 1), rank) != 1:
        unsupported(n, f"gathering from {x} with these axes")
    bits, cols = _packed(n)
    block = n.attr("block_size", 128)
    if i.dtype not in (INT32, INT64) or block < 16 or bits not in (2, 4, 8) or product(scale.shape) != x.shape[0] * -(-cols // block):
        fail(n, f"scales {scale} do not fit {x} in blocks of {block}")
    return [(FLOAT, list(i.shape) + [cols])]


@gather_quantized.lower
def _(n, b):
    x, i, scale = n.inputs[:3]
    bits, cols = _packed(n)
    b.emit("gather_quantized", {"x": b.view(x), "index": b.flat(b.view(i)), "scales": b.view(scale), "zeros_": b.view(n.inputs[3]) if n.has(3) else None, "y": b.out(n.outputs[0])},
           bits=bits, count=product(i.shape), rows=x.shape[0], cols=cols, block=n.attr("block_size", 128), index_type=i.dtype, scale_type=scale.dtype, signed=int(x.dtype == INT4), zeros=int(n.has(3)))
