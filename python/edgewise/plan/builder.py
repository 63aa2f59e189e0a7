"""Lowering: each bound node becomes calls of kernels with concrete parameters.

Ops use the methods of Builder (`b`) to do so.
"""

from __future__ import annotations

import hashlib

from ..declare.dtypes import BITS, BOOL, FLOAT, FLOAT16, NAME, UINT8, bytes_for, pack, size_of
from ..declare.kernel import KERNELS, MAX_DIMS, evaluate
from ..declare.symbolic import NotStatic, Sym, extent, most, product, strides_of
from ..errors import EdgewiseError, UnsupportedOp
from ..ir import BROKEN
from ..ops.elementwise.contracts import BINARY
from .hoist import hoist_updates
from .memory import plan_memory
from .plan import Plan, Slot
from .view import Buffer, View, merge_dims


class Step:
    """A call of a kernel. kernel: ops.kernel.Kernel; params: {name: number, Sym, or list of them};
    operands: Views in the kernel's order, None where absent; label: the BoundNode it comes from, or
    None.
    """

    __slots__ = ("kernel", "params", "operands", "label")

    def __init__(self, kernel, params, operands, label):
        self.kernel, self.params, self.operands, self.label = kernel, params, operands, label


def lower(bound, cache_shapes=None, registers=(), name="", cache_dtype=FLOAT):
    """Lowers a BoundGraph to a Plan.

    Args:
        bound: BoundGraph.
        cache_shapes: {input name: full shape of the cache it lives in}.
        registers: [(name, lowest, highest)] in the order of their numbers in Syms.
        cache_dtype: what caches of float32 numbers are stored as: FLOAT or FLOAT16.
    """
    b = Builder(cache_shapes or {}, cache_dtype)
    for node in bound.nodes:
        b.label = node
        b.init = all(o is None or o.constant for o in node.outputs)
        if node.decl.lower_fn is None:
            raise UnsupportedOp(f"{node.op} cannot be lowered", node.where, "Report this model.")
        try:
            node.decl.lower_fn(node, b)
        except EdgewiseError:
            raise
        except BROKEN as e:
            raise node.broken(e) from e
    b.init, b.label = False, None
    b.finish(bound)
    return Plan.assemble(b, list(registers), name)


class Builder:
    """What `lower` of an op writes to: `view` says where a Value lies, `out` makes room for one,
    `emit` and what is built on it add steps.

    `steps` are those of each run, `init_steps` those of nodes whose outputs are constants, run once
    when weights are there (`init`: which of both is being written). cache_shapes, cache_dtype: as
    `lower`'s.

    A cache of halves holds float32 numbers as far as the graph is concerned: `stored` gives the
    halves to who reads them as they are, `view` a widened copy to all others.
    """

    merge_dims = staticmethod(merge_dims)

    def __init__(self, cache_shapes, cache_dtype=FLOAT):
        self.cache_shapes, self.cache_dtype = cache_shapes, cache_dtype
        self.views, self.widened, self.steps, self.init_steps = {}, {}, [], []
        self.keep = []  # values whose id is a key of views
        self.slots, self.slot_of = [], {}
        self.constants, self.constant_at = bytearray(), {}
        self.const_buffer = Buffer("const", 0, "constants")
        self.init, self.label = False, None
        self.keys, self.laid_out = {}, {}

    # ---- tensors ----
    def view(self, value):
        """Where a value lies, as elements of its dtype."""
        v = self.stored(value)
        if v.dtype == FLOAT16 and value.dtype == FLOAT:  # of a cache
            if id(value) not in self.widened:
                self.widened[id(value)] = self.cast(v, FLOAT)
            return self.widened[id(value)]
        return v

    def stored(self, value):
        """Where a value lies; one of a cache as elements of the cache's dtype, which need not be
        its own.
        """
        v = self.views.get(id(value))
        if v is None:
            v = self._first_view(value)
            self.alias(value, v)
        return v

    def alias(self, value, view):
        """Lets a value lie where a view does: no step, nothing moves."""
        self.views[id(value)] = view
        self.keep.append(value)

    def _first_view(self, value):
        if value.tensor is not None:
            t = value.tensor
            if t.nbytes > 64 or t.data is None:
                buffer = self.slot(t.name, "weight", t.dtype, t.shape, t.nbytes)
                buffer.key = t
                return View(buffer, 0, t.shape, strides_of(t.shape), t.dtype)
            return self.const_bytes(t.data, t.dtype, t.shape)
        if value.numbers is not None:
            if any(isinstance(x, Sym) for x in value.numbers):
                return self._register_numbers(value)
            return self.const_bytes(pack(value.dtype, value.numbers), value.dtype, value.shape)
        if value.role == "cache":
            full = self.cache_shapes[value.name]
            dtype = self.cache_dtype if value.dtype == FLOAT else value.dtype
            buffer = self.slot(value.name, "cache", dtype, full, bytes_for(dtype, product(full)))
            return View(buffer, 0, value.shape, strides_of(full), dtype)
        if value.role == "state":
            buffer = self.slot(
                value.name,
                "state",
                value.dtype,
                value.shape,
                bytes_for(value.dtype, product(value.shape)),
            )
            return View(buffer, 0, value.shape, strides_of(value.shape), value.dtype)
        if value.role == "input":
            shape = [most(d) for d in value.shape]
            buffer = self.slot(
                value.name, "input", value.dtype, shape, bytes_for(value.dtype, product(shape))
            )
            return View(buffer, 0, value.shape, strides_of(value.shape), value.dtype)
        raise AssertionError(f"{value} is used before it is computed")

    def _register_numbers(self, value):
        """A small integer tensor that depends on registers, written element by element."""
        v = self.temp(value.dtype, value.shape)
        flat = v.reshape([len(value.numbers)])
        was, self.init = self.init, False
        for i, x in enumerate(value.numbers):
            self.range(flat.slice(0, i, 1), x, 0)
        self.init = was
        return v

    def slot(self, name, kind, dtype, shape, nbytes):
        """Buffer of the slot of this name, made on first use. kind: as plan.Slot's; nbytes: its
        size.
        """
        key = (
            ("state", name) if kind == "state" else name
        )  # a parameter has the name of the weight that it begins as
        if key not in self.slot_of:
            buffer = Buffer("slot", nbytes, name)
            buffer.index = len(self.slots)
            self.slots.append(Slot(name, kind, dtype, list(shape), nbytes))
            self.slot_of[key] = buffer
        return self.slot_of[key]

    def const_bytes(self, data, dtype, shape):
        """View of bytes in the plan's constant section, where the same bytes lie once."""
        align = 48 if BITS.get(dtype) == 6 else 16  # offsets are in elements
        at = self.constant_at.get((data, align))
        if at is None:
            self.constants += bytes(-len(self.constants) % align)
            at = self.constant_at[data, align] = len(self.constants)
            self.constants += data + bytes(-len(data) % 16)
        return View(
            self.const_buffer,
            at * 8 // BITS[dtype] if dtype in BITS else at // size_of(dtype),
            shape,
            strides_of(shape),
            dtype,
        )

    def scalar(self, dtype, number):
        """View of one number in the constant section."""
        return self.const_bytes(pack(dtype, [number]), dtype, [])

    def temp(self, dtype, shape):
        """View of a new contiguous tensor in the arena, room for the largest value of its Syms; it
        lives from the first step that uses it to the last.
        """
        buffer = Buffer(
            "arena", bytes_for(dtype, product([most(d) for d in shape])), init=self.init
        )
        return View(buffer, 0, shape, strides_of(shape), dtype)

    def out(self, value):
        """A new contiguous buffer for a value that the node computes."""
        v = self.temp(value.dtype, value.shape)
        if self.init:
            v.buffer.key = self.content_key(value)
        self.alias(value, v)
        return v

    def _scratch(self, nbytes):
        """View of nbytes in the arena as uint8, for a kernel's own use."""
        return View(Buffer("arena", nbytes, init=self.init), 0, [nbytes], [1], 2)

    def content_key(self, value):
        """Names a constant by what it is computed from, so that plans of one model share it."""
        key = self.keys.get(id(value))
        if key is None:
            h = hashlib.sha256()
            if value.tensor is not None:
                h.update(value.tensor.name.encode())
            elif value.numbers is not None:
                h.update(repr((value.dtype, value.shape, value.numbers)).encode())
            else:
                n = value.producer
                plain = {k: a.bytes() if hasattr(a, "bytes") else a for k, a in n.attrs.items()}
                h.update(
                    repr(
                        (
                            n.op,
                            n.domain,
                            n.opset,
                            sorted(plain.items(), key=str),
                            n.outputs.index(value),
                            value.shape,
                            value.dtype,
                        )
                    ).encode()
                )
                for v in n.inputs:
                    h.update(self.content_key(v).encode() if v is not None else b"-")
            key = self.keys[id(value)] = h.hexdigest()[:24]
            self.keep.append(value)
        return key

    # ---- layouts ----
    def contiguous(self, v):
        """The tensor laid out row-major; of a constant, copied once in the init steps."""
        if v.plain:
            return v
        name = self.constant_name(v.buffer)
        if name is None:
            t = self.temp(v.dtype, v.shape)
            self.copy(v, t)
            return t
        key = f"{name}[{v.offset}:{v.shape}:{v.strides}:{v.dtype}]"
        if key not in self.laid_out:
            was, self.init = self.init, True
            t = self.temp(v.dtype, v.shape)
            t.buffer.key = hashlib.sha256(key.encode()).hexdigest()[:24]
            self.copy(v, t)
            self.init = was
            self.laid_out[key] = t
        return self.laid_out[key]

    def constant_name(self, buffer):
        """What names a buffer whose content is the same in every run; None for others.

        Scalars and tables in the constant section stay where they are.
        """
        if (
            buffer.kind == "slot"
            and buffer.index >= 0
            and self.slots[buffer.index].kind == "weight"
        ):
            return buffer.name
        return buffer.key if buffer.init and buffer.kind == "arena" else None

    def flat(self, v):
        """As one dense dimension; NotStatic where a register-dependent dimension leaves gaps."""
        return self.reshaped(self.contiguous(v), [product(v.shape)])

    def dense(self, v):
        """(view, order): the tensor without gaps, its dimensions in the order in which they lie in
        memory, which need not be their own.
        """
        order = list(range(len(v.shape)))
        if not v.plain and all(isinstance(d, int) for d in [*v.shape, *v.strides]):
            order.sort(key=lambda i: (-abs(v.strides[i]), i))
            if (t := v.transpose(order)).plain:
                return t, order
            order.sort()
        return self.contiguous(v), order

    def out_in_order(self, value, order):
        """`out`, laid out in another order of its dimensions; the view is in this order."""
        y = self.out(value)
        if order == list(range(len(order))):
            return y
        y = View(
            y.buffer,
            0,
            [value.shape[i] for i in order],
            strides_of([value.shape[i] for i in order]),
            value.dtype,
        )
        self.alias(value, y.transpose([order.index(i) for i in range(len(order))]))
        return y

    def inner_contiguous(self, v):
        """Innermost dimension contiguous, all strides >= 0."""
        if (v.strides[-1] == 1 or v.shape[-1] == 1) and min(v.strides) >= 0:
            return v
        return self.contiguous(v)

    def reshaped(self, v, shape):
        """A view of another shape, copied where strides cannot express it; NotStatic where a
        register-dependent dimension leaves no shape at all.
        """
        r = v.reshape(shape)
        if r is None:
            r = self.contiguous(v).reshape(shape)
            if r is None:
                raise NotStatic(f"reshape of {v.shape} to {shape}")
        return r

    def as_rows(self, v, cols=None):
        """[rows, cols] with contiguous columns; cols (default: the last dimension) is the product
        of the last dimensions.
        """
        if cols is None:
            cols = v.shape[-1] if v.shape else 1
        if isinstance(cols, Sym):
            i = len(v.shape) - 1
            rows = v.shape[:-1]
        else:
            i, n = len(v.shape), 1
            while i and n != cols:
                i -= 1
                n = n * v.shape[i]
            while i and v.shape[i - 1] == 1 and n == cols and cols == 1 and i > len(v.shape) - 1:
                i -= 1
            rows = v.shape[:i]
        r = v.reshape([product(rows), cols])
        if r is None or (r.strides[1] != 1 and r.shape[1] != 1) or r.strides[0] < 0:
            r = self.reshaped(self.contiguous(v), [product(rows), cols])
        if (
            r.shape[0] == 1
        ):  # one row: its stride is never used, but rules compare it with the width
            r.strides[0] = extent(cols)
        if r.shape[1] == 1:
            r.strides[1] = 1
        return r

    def rows_from(self, v, axis):
        """A view whose dimensions behind `axis` are contiguous and whose dimensions before it have
        one stride.
        """
        if (
            v.plain_from(axis + 1)
            and min(v.strides, default=0) >= 0
            and (axis == 0 or axis == 1 or v.plain_from(0))
        ):
            return v
        return self.contiguous(v)

    def view_like(self, value, target):
        """A value laid out contiguously in a target's shape."""
        v = self.view(value)
        return (
            v
            if list(v.shape) == list(target.shape) and v.plain
            else self.reshaped(self.contiguous(v), target.shape)
        )

    # ---- steps ----
    def emit(self, kernel, operands, *, scratch=True, **params):
        """Adds a call of a kernel.

        Nothing is added where a parameter that the kernel's `empty` names is 0.

        Args:
            kernel: name of the kernel.
            operands: {name: View}; optional ones may be absent or None.
            scratch: whether a kernel that also works without its scratch gets it.
            params: the kernel's parameters, numbers or Syms.
        Raises:
            UnsupportedOp: an operand has an element type that the kernel does not take.
        """
        k = KERNELS[kernel]
        for name in k.empty:
            value = params[name]
            if any(
                not isinstance(d, Sym) and d == 0
                for d in (value if isinstance(value, list) else [value])
            ):
                return
        views = [operands.get(o.name) for o in k.operands]
        # Sizes that fit are not enough: a double read as two floats is a wrong number.
        for o, v in zip(k.operands, views):
            if v is not None and not o.type.accepts(v.dtype, params):
                raise UnsupportedOp(
                    f"{kernel} takes no {NAME.get(v.dtype, v.dtype)} as its {o.name}",
                    self.label.where if self.label else "graph",
                    "Check the element types that were fed; if they are right, export the model"
                    " with float32.",
                )
        if k.c.scratch and (scratch or not k.c.optional_scratch):
            largest = {
                name: [most(x) for x in value] if isinstance(value, list) else most(value)
                for name, value in params.items()
            }
            views[-1] = self._scratch(4 * evaluate(k.c.scratch, largest))
        (self.init_steps if self.init else self.steps).append(Step(k, params, views, self.label))

    def nd(self, kernel, shape, views, strides, **params):
        """Emits an elementwise kernel over `shape`; `strides` maps parameter names to view
        names.
        """
        dims, merged = merge_dims(shape, [views[name].strides for name in strides.values()])
        if len(dims) > MAX_DIMS:
            self._nd_in_parts(kernel, dims, views, dict(zip(strides, merged)), strides, params)
            return
        pad = MAX_DIMS - len(dims)
        self.emit(
            kernel,
            views,
            dims=[1] * pad + dims,
            **{p: [0] * pad + s for p, s in zip(strides, merged)},
            **params,
        )

    def _nd_in_parts(self, kernel, dims, views, merged, strides, params):
        """More dimensions than a kernel counts: the smallest one is taken apart, one call for each
        of its indices.
        """
        i = min((i for i, d in enumerate(dims) if not isinstance(d, Sym)), key=dims.__getitem__)
        rest = dims[:i] + dims[i + 1 :]
        inner = {name: s[:i] + s[i + 1 :] for name, s in merged.items()}
        for k in range(dims[i]):
            parts = {
                name: View(v.buffer, v.offset, rest, [0] * len(rest), v.dtype)
                for name, v in views.items()
            }
            for stride, name in strides.items():
                parts[name] = View(
                    views[name].buffer,
                    views[name].offset + k * merged[stride][i],
                    rest,
                    inner[stride],
                    views[name].dtype,
                )
            self.nd(kernel, rest, parts, strides, **params)

    def copy(self, x, y):
        """Copies a view into another of the same shape and dtype, whatever their strides.

        UnsupportedOp where the dtypes differ, or packed elements of less than a byte are not
        contiguous.
        """
        if x.dtype != y.dtype:
            raise UnsupportedOp(
                f"{NAME.get(x.dtype, x.dtype)} is to be stored as {NAME.get(y.dtype, y.dtype)}",
                self.label.where if self.label else "graph",
                "Check the element types that were fed; if they are right, export the model with"
                " float32.",
            )
        if y.dtype in BITS:
            if not (x.plain and y.plain):
                raise UnsupportedOp(
                    f"{NAME[y.dtype]} elements that are not read in the order they are stored in",
                    self.label.where if self.label else "graph",
                    "Store them in the order that the operator wants.",
                )
            x, y = (View(v.buffer, v.byte_offset(), [v.nbytes()], [1], UINT8) for v in (x, y))
        self.nd("copy", y.shape, {"x": x, "y": y}, {"xs": "x", "ys": "y"}, size=size_of(y.dtype))

    def store(self, x, y):
        """Copies a view into another of the same shape, converted to its dtype."""
        (self.copy if x.dtype == y.dtype else self.cast_into)(x, y)

    def fill(self, y, number):
        """Sets every element to a number, or to the bits in `bytes` of one element."""
        data = pack(y.dtype, [number]) if not isinstance(number, bytes) else number
        size = size_of(y.dtype)
        data = data + bytes(8 - len(data))
        low, high = (int.from_bytes(data[i : i + 4], "little", signed=True) for i in (0, 4))
        self.nd("fill", y.shape, {"y": y}, {"ys": "y"}, size=size, value_low=low, value_high=high)

    def range(self, y, start, delta):
        """y[i] = start + i * delta, for a flat view; start and delta may be Syms where y is of
        integers.
        """
        whole = y.dtype != FLOAT and y.dtype != 11
        self.emit(
            "range",
            {"y": y},
            type=y.dtype,
            n=product(y.shape),
            start=start if whole else 0,
            delta=delta if whole else 0,
            f_start=0.0 if whole else start,
            f_delta=0.0 if whole else delta,
        )

    def cast(self, v, dtype):
        """The view as another dtype: itself, or a converted copy."""
        if v.dtype == dtype:
            return v
        t = self.temp(dtype, v.shape)
        self.cast_into(v, t)
        return t

    def cast_into(self, x, y, mode=0):
        """Converts x into y, of the same shape, as ONNX's Cast. mode: the cast kernel's, for what
        is out of range in 8-bit floats.
        """
        from_, to = self.unpacked(x), y if y.dtype not in BITS else self.temp(UINT8, y.shape)
        self.nd(
            "cast",
            y.shape,
            {"x": from_, "y": to},
            {"xs": "x", "ys": "y"},
            x_type=x.dtype,
            y_type=y.dtype,
            mode=mode,
        )
        if to is not y:
            self.pack_into(to, y)

    def unpacked(self, v):
        """Elements of less than a byte with the bits of each in a byte; others as they are."""
        if v.dtype not in BITS:
            return v
        t = self.temp(UINT8, v.shape)
        self.unpack_into(v, t)
        return t

    def unpack_into(self, v, codes):
        """Elements of less than a byte, the bits of each into a byte of `codes`."""
        self.emit(
            "pack",
            {"x": self.contiguous(v), "y": codes},
            bits=BITS[v.dtype],
            n=product(v.shape),
            unpack=1,
        )

    def pack_into(self, codes, y):
        """What `unpacked` gives back into its type."""
        self.emit(
            "pack",
            {"x": self.contiguous(codes), "y": y},
            bits=BITS[y.dtype],
            n=product(y.shape),
            unpack=0,
        )

    def emit_binary(self, op, a, c, y, dtype):
        """y = op(a, c), broadcast to y's shape; op: a name in ops.binary.BINARY, dtype: that of the
        operands.
        """
        self.nd(
            "binary",
            y.shape,
            {"a": a.broadcast(y.shape), "b": c.broadcast(y.shape), "y": y},
            {"as": "a", "bs": "b", "ys": "y"},
            op=BINARY[op],
            type=dtype,
        )

    def float_mask(self, m):
        """A bool mask as the number to add: 0 where true, -inf where false."""
        if m.dtype == FLOAT:
            return m
        t = self.temp(FLOAT, m.shape)
        zero, low = (
            self.scalar(FLOAT, 0.0).broadcast(m.shape),
            self.scalar(FLOAT, float("-inf")).broadcast(m.shape),
        )
        self.nd(
            "where",
            m.shape,
            {"condition": m, "a": zero, "b": low, "y": t},
            {"cs": "condition", "as": "a", "bs": "b", "ys": "y"},
            size=4,
        )
        return t

    def add_masks(self, a, c):
        """Two attention masks as one: of bools `and`, else the sum of what is added to scores."""
        rank = max(len(a.shape), len(c.shape))
        shapes = [[1] * (rank - len(v.shape)) + v.shape for v in (a, c)]
        shape = [y if x == 1 else x for x, y in zip(*shapes)]
        if a.dtype == c.dtype == BOOL:
            t = self.temp(BOOL, shape)
            self.emit_binary("and", a, c, t, BOOL)
        else:
            t = self.temp(FLOAT, shape)
            self.emit_binary("add", self.float_mask(a), self.float_mask(c), t, FLOAT)
        return t

    # ---- the end ----
    def finish(self, bound):
        """Gives outputs their slots, keeps what init steps compute for the main steps, and places
        everything in the arena.
        """
        for name, value in bound.outputs.items():
            where = self.stored(value).buffer
            if (
                where.kind == "slot"
                and where.index >= 0
                and self.slots[where.index].kind == "cache"
            ):
                continue  # the cache itself
            v = self.view(value)
            shape = [most(d) for d in v.shape]
            nbytes = bytes_for(v.dtype, product(shape))
            if (
                v.buffer.kind == "arena"
                and not v.buffer.init
                and v.plain
                and v.offset == 0
                and v.buffer.nbytes == nbytes
                and name not in self.slot_of
            ):
                self._to_slot(v.buffer, name, "output", v.dtype, shape)
            else:
                y = View(
                    self.slot(
                        name if name not in self.slot_of else name + "~output",
                        "output",
                        v.dtype,
                        shape,
                        nbytes,
                    ),
                    0,
                    v.shape,
                    strides_of(v.shape),
                    v.dtype,
                )
                self.copy(v, y)
        for step in self.steps:
            for v in step.operands:
                if v is not None and v.buffer.kind == "arena" and v.buffer.init:
                    self._to_computed_slot(v.buffer)

        def is_state(buffer):
            return buffer.kind == "slot" and self.slots[buffer.index].kind == "state"

        last = -1
        if bound.writes_after is not None:
            guard = self.view(bound.outputs[bound.writes_after]).buffer
            last = max(
                (
                    i
                    for i, s in enumerate(self.steps)
                    if any(
                        o.output and v is not None and v.buffer is guard
                        for o, v in zip(s.kernel.operands, s.operands)
                    )
                ),
                default=-1,
            )
        self.steps = hoist_updates(self.steps, is_state, last)
        self.arena_bytes, self.arena_least = map(
            max, plan_memory(self.init_steps), plan_memory(self.steps)
        )

    def _to_computed_slot(self, buffer: Buffer) -> None:
        """Moves what init steps compute to a slot. Equal nodes of equal constants have one slot."""
        name = f"computed/{buffer.key or len(self.slots)}"
        same = self.slot_of.get(name)
        if same is None:
            self._to_slot(buffer, name, "computed", 2, [buffer.nbytes])
        else:
            buffer.kind, buffer.name, buffer.index = "slot", name, same.index

    def _to_slot(self, buffer, name, kind, dtype, shape):
        buffer.kind, buffer.name, buffer.index = "slot", name, len(self.slots)
        self.slots.append(Slot(name, kind, dtype, list(shape), buffer.nbytes))
        self.slot_of[name] = buffer
