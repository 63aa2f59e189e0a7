"""Smaller engines: takes kernels out of an engine's .wasm, and every function that only they
reached.

- `shake(wasm, keep) -> bytes`: an engine with only the kernels named in `keep`; of kernels with
  `values`, only the code for these values of their parameters.
- `kernels_of(wasm) -> [name]`: the kernels that an engine has.
- `python -m edgewise.shake full.wasm base.wasm`: without the kernels declared `rare`, as
  wasm/Makefile does.

Kernels are reached through one block of data, `ew_code` in core/table.h: a mark, the table's hash,
then two function pointers per kernel. A kernel is taken out by putting zeros there, and the engine
then refuses plans that call it. What is left is found as a garbage collector finds it, from exports
and the kernels that stay: by calls, and by function pointers. A pointer is a number of the table's
range; the linker begins the table at 513 (wasm/Makefile), so few other constants look like one, and
those that do only keep a function that nobody needs. Code for values of parameters that no plan has
is marked in C (EW_CHOICE and EW_USES in core/kernel.h) by calls of two functions; what is chosen
behind them is cut off before anything is looked for. Functions that nothing reaches are removed,
and the calls to the others numbered anew. Plain Python: it needs no toolchain.
"""

from __future__ import annotations

import struct

from ..errors import EngineError
from ..ops.table import kernel_table, variant_names, variants

MARK = b"EDGEWISE KERNELS"  # EW_CODE_MARK
HEAD = struct.Struct("<16sII")
VARIANT = struct.Struct(
    "<HHQ"
)  # of which kernel, which word of its parameters, the values that there is code for
IMPORT, FUNCTION, EXPORT, START, ELEMENT, CODE, DATA = 2, 3, 7, 8, 9, 10, 11  # sections


class _Broken(Exception):
    """What is wrong with the file."""


def _leb(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


class _Reader:
    """Numbers out of data[at:end]."""

    def __init__(self, data, at, end):
        self.data, self.at, self.end = data, at, end

    def skip(self, n):
        self.at += n
        if self.at > self.end:
            raise _Broken(f"it is cut off at byte {self.end}")

    def byte(self):
        self.skip(1)
        return self.data[self.at - 1]

    def u(self):
        """unsigned LEB128"""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise _Broken(f"a number at byte {self.at} is too long")

    def s(self):
        """signed LEB128"""
        first, value = self.at, self.u()
        bits = 7 * (self.at - first)
        return value - (1 << bits) if value >> (bits - 1) else value

    def vector(self):
        return range(self.u())

    def part(self):
        """A stretch with its size in front, as a reader of its own."""
        size = self.u()
        self.skip(size)
        return _Reader(self.data, self.at - size, self.at)

    def rest(self):
        return self.data[self.at : self.end]

    def done(self):
        if self.at != self.end:
            raise _Broken(f"something ends at byte {self.at} instead of {self.end}")


# What follows an opcode: u(nsigned), s(igned), m(emory: alignment and offset), or so many bytes.
# Behind the prefixes: by the number that comes next.
_PLAIN = {
    **dict.fromkeys((0, 1, 5, 11, 15, 26, 27, 209, *range(69, 197)), ""),
    **dict.fromkeys((2, 3, 4, 65, 66, 208), "s"),
    **dict.fromkeys((12, 13, 16, 18, *range(32, 39), 63, 64, 210), "u"),
    0x11: "uu",
    0x13: "uu",
    **dict.fromkeys(range(40, 63), "m"),
    0x43: "1" * 4,
    0x44: "1" * 8,
}
_PREFIXED = {
    0xFC: {
        **dict.fromkeys(range(8), ""),
        **dict.fromkeys((9, 11, 13, 15, 16, 17), "u"),
        **dict.fromkeys((8, 10, 12, 14), "uu"),
    },  # saturating, bulk memory, tables
    0xFD: {
        **dict.fromkeys(range(276), ""),
        **dict.fromkeys((*range(12), 92, 93), "m"),
        **dict.fromkeys(range(21, 35), "1"),
        12: "1" * 16,
        13: "1" * 16,  # SIMD, relaxed SIMD
        **dict.fromkeys(range(84, 92), "m1"),
    },
    0xFE: {**dict.fromkeys((0, 1, 2, *range(16, 79)), "m"), 3: "1"},
}  # threads


def _instruction(r, targets=None):
    """Reads one: (opcode, the number that follows it where it is alone). targets: a list that gets
    the labels that it may branch to, but those of loops' beginnings are among them.
    """
    op, number = r.byte(), None
    if op == 0x0E:  # br_table
        for _ in range(r.u() + 1):
            label = r.u()
            if targets is not None:
                targets.append(label)
        return op, None
    if op == 0x1C:  # select with types
        for _ in r.vector():
            r.byte()
        return op, None
    follows = _PREFIXED[op].get(sub := r.u()) if op in _PREFIXED else _PLAIN.get(op)
    if follows is None:
        raise _Broken(
            f"the instruction {op:#x}{f' {sub}' if op in _PREFIXED else ''} at byte {r.at} is"
            " unknown"
        )
    for what in follows:
        if what == "u":
            number = r.u()
        elif what == "s":
            number = r.s()
        elif what == "1":
            r.skip(1)
        elif r.u() & 64:  # a memory argument that says which memory
            r.u(), r.u()
        else:
            r.u()
    if targets is not None and op in (0x0C, 0x0D):
        targets.append(number)
    return op, number


class _Frame:
    """A block, loop or if that is open.

    `reached`: a branch leads to its end; `known`: what is known of an if's condition.
    """

    def __init__(self, kind, known=None):
        self.kind, self.known, self.reached = kind, known, False


class _Function:
    """A body. `calls`: [(first byte, end, function)] where another's number stands; `numbers`:
    constants that may be function pointers: no arithmetic takes them up.
    """

    def __init__(self, r):
        self.data, self.start, self.end = r.data, r.at, r.end
        self.calls, self.numbers, constant = [], set(), None
        for _ in r.vector():  # locals
            r.u(), r.byte()
        while r.at < r.end:
            at = r.at
            op, number = _instruction(r)
            if constant is not None and not 0x45 <= op <= 0x78:
                self.numbers.add(constant)
            constant = number if op == 0x41 else None
            if op in (0x10, 0x12, 0xD2):  # call, return_call, ref.func
                self.calls.append((at + 1, r.at, number))

    def without(self, choice, uses, allowed):
        """The body without what EW_CHOICE and EW_USES choose for values that are not in `allowed`
        ([set of values or None] by number of a variant), as a _Function.

        choice, uses: numbers of the two functions. Dead code is left out: what follows a branch
        that is always taken, up to the end of a block that something leads to.
        """
        r = _Reader(self.data, self.start, self.end)
        for _ in r.vector():
            r.u(), r.byte()
        out, frames = bytearray(self.data[self.start : r.at]), [_Frame(0x02)]
        dead = skipped = 0  # whether control gets here; blocks begun in dead code
        constant, chosen, known, shift = (
            None,
            None,
            None,
            0,
            # the constant just pushed; the variant just pushed, what is known of a condition just
            # pushed, and what was added to the variant
        )
        held = {}  # local: (variant, condition, the frame in which it was set)
        while frames:
            at = r.at
            op, number = _instruction(r, targets := [])
            if dead and op not in (0x05, 0x0B) or skipped:
                skipped += (op in (0x02, 0x03, 0x04)) - (op == 0x0B and skipped > 0)
                continue
            was, before = known, chosen
            known = chosen = None
            code = self.data[at : r.at]
            if (
                op == 0x10
                and number == uses
                and constant is not None
                and allowed[~constant >> 6] is not None
            ):
                known = int((~constant & 63) in allowed[~constant >> 6])
                code = b"\x1a\x41" + bytes(
                    [known]
                )  # drop the argument, and what it would have given
            elif op == 0x10 and number == choice and constant is not None:
                chosen, shift = constant, 0
            elif op == 0x45 and was is not None:  # not
                known = 1 - was
            elif (
                op in (0x46, 0x47)
                and before is not None
                and constant is not None
                and allowed[before] is not None
            ):  # equal, not equal
                equal = (
                    0
                    if constant - shift not in allowed[before]
                    else 1
                    if len(allowed[before]) == 1
                    else None
                )
                known = equal if equal is None or op == 0x46 else 1 - equal
                if known is not None:
                    code += b"\x1a\x41" + bytes([known])
            elif op in (
                0x21,
                0x22,
            ):  # local.set, local.tee: held, where what follows in these blocks knows it, too
                held.pop(number, None)
                if (before is not None and shift == 0) or was is not None:
                    held[number] = before, was, frames[-1]
                    if op == 0x22:
                        chosen, known = before, was
            elif (
                op == 0x20
                and number in held
                and (around := next((i for i, f in enumerate(frames) if f is held[number][2]), -1))
                >= 0
                and not any(f.kind == 0x03 for f in frames[around + 1 :])
            ):
                chosen, known, _ = held[number]
                shift = 0
            elif op == 0x41 and before is not None:
                chosen = before  # perhaps subtracted
            elif op in (0x6A, 0x6B) and before is not None and constant is not None:
                chosen, shift = before, constant if op == 0x6A else -constant
            elif op == 0x0E and before is not None and allowed[before] is not None:
                values = {v + shift for v in allowed[before]}
                wanted = [t for i, t in enumerate(targets[:-1]) if i in values] + [
                    targets[-1]
                ] * any(not 0 <= v < len(targets) - 1 for v in values)
                if wanted:
                    targets = [
                        t if i in values else wanted[0] for i, t in enumerate(targets[:-1])
                    ] + [targets[-1] if targets[-1] in wanted else wanted[0]]
                    code = b"\x0e" + _leb(len(targets) - 1) + b"".join(map(_leb, targets))
            elif op == 0x0D and was == 0:  # a branch never taken, or always
                code, targets = b"\x1a", []
            elif op == 0x0D and was == 1:
                code, op = b"\x1a\x0c" + _leb(number), 0x0C
            constant = number if op == 0x41 else None
            for target in targets:
                frames[-1 - target].reached = True
            if op in (0x02, 0x03, 0x04):
                frames.append(_Frame(op, was))
                out += code
                if op == 0x04 and was == 0:
                    out += b"\0"
                    dead = 1
                continue
            if op == 0x05:
                f = frames[-1]
                f.reached, f.kind, dead = f.reached or not dead, 0x05, int(f.known == 1)
                out += code + b"\0" * dead
                continue
            if op == 0x0B:
                f = frames.pop()
                dead = int(dead and not f.reached and not (f.kind == 0x04 and f.known != 1))
                out += code + (b"\0" if dead and frames else b"")
                continue
            out += code
            dead = int(op in (0x00, 0x0C, 0x0E, 0x0F, 0x12, 0x13))
        return _Function(_Reader(bytes(out), 0, len(out)))

    def renumbered(self, new):
        out, at = bytearray(), self.start
        for first, end, function in self.calls:
            out += self.data[at:first] + _leb(new[function])
            at = end
        out += self.data[at : self.end]
        return _leb(len(out)) + out


class _Module:
    """What an engine's .wasm consists of, as far as taking functions out needs it."""

    def __init__(self, wasm):
        if wasm[:8] != b"\0asm\1\0\0\0":
            raise _Broken("it is no WebAssembly module")
        r = _Reader(wasm, 8, len(wasm))
        self.sections = {}
        while r.at < r.end:
            kind, section = r.byte(), r.part()
            if kind:  # not what tools note about it
                if kind in self.sections:
                    raise _Broken(f"it has two sections {kind}")
                self.sections[kind] = section
        self.wasm, self.allowed = wasm, None
        self.imported = self.read(IMPORT, self.imports) or 0
        self.types = self.read(FUNCTION, lambda r: [r.u() for _ in r.vector()])
        self.exports = self.read(
            EXPORT, lambda r: [(r.part().rest(), r.byte(), r.u()) for _ in r.vector()]
        )
        self.start = self.read(START, lambda r: r.u())
        self.slots = self.read(ELEMENT, self.elements)  # of the function table: {slot: function}
        self.functions = self.read(CODE, lambda r: [_Function(r.part()) for _ in r.vector()])
        if (
            not self.functions
            or len(self.types or ()) != len(self.functions)
            or self.slots is None
            or self.exports is None
        ):
            raise _Broken("it has no functions that could be taken out")
        self.find_block()

    def read(self, kind, f):
        if kind not in self.sections:
            return None
        r = _Reader(self.wasm, self.sections[kind].at, self.sections[kind].end)
        result = f(r)
        r.done()
        return result

    @staticmethod
    def imports(r):
        count = 0
        for _ in r.vector():
            r.part(), r.part()
            kind = r.byte()
            if kind == 0:  # a function, of a type
                r.u()
                count += 1
            elif kind == 2:  # a memory: which limits, what they are
                for _ in range(1 + (r.byte() & 1)):
                    r.u()
            else:
                raise _Broken("it imports more than functions and a memory")
        return count

    @staticmethod
    def elements(r):
        slots = {}
        for _ in r.vector():
            if r.u() or (first := _instruction(r))[0] != 0x41 or r.byte() != 0x0B:
                raise _Broken("its function table is filled in a way that the linker does not use")
            for i in r.vector():
                slots[first[1] + i] = r.u()
        return slots

    def find_block(self):
        """ew_code, wherever in the data it lies."""
        data, table = self.sections.get(DATA), kernel_table()
        at = self.wasm.find(MARK, data.at, data.end) if data else -1
        if at < 0 or at + HEAD.size > data.end:
            raise _Broken("it is no engine of this version: it has no list of its kernels")
        _, version, count = HEAD.unpack_from(self.wasm, at)
        if (
            version != table.hash
            or count != len(table.kernels)
            or at + HEAD.size + 8 * count > data.end
        ):
            raise _Broken(f"its kernel table is {version:#010x}, this version's {table.hash:#010x}")
        self.block = at + HEAD.size
        pairs = struct.iter_unpack("<II", self.wasm[self.block : self.block + 8 * count])
        self.kernels = {k.name: pair for k, pair in zip(table.kernels, pairs) if pair[0]}
        self.variants = self.block + 8 * count
        functions = {name: index for name, kind, index in self.exports if kind == 0}
        self.markers = functions.get(b"ew_choice"), functions.get(b"ew_uses")
        end = self.variants + VARIANT.size * len(variants())
        if end > data.end or None in self.markers:
            raise _Broken("its list of kernels is cut off")
        self.data_numbers = {
            n
            for part in ((data.at, at), (end, data.end))
            for at in range(part[0], part[1] - 3)
            if (n := int.from_bytes(self.wasm[at : at + 4], "little")) in self.slots
        }

    def reached(self, kernels):
        """(functions, slots of the table) that are needed when only these kernels are."""
        functions, slots = set(), set()
        waiting = [index for _, kind, index in self.exports if kind == 0] + (
            [self.start] if self.start is not None else []
        )
        pointers = set(self.data_numbers).union(*(self.kernels[k] for k in kernels))
        while waiting or pointers:
            for n in pointers - slots:
                slots.add(n)
                waiting.append(self.slots[n])
            pointers = set()
            while waiting:
                index = waiting.pop()
                if index in functions or index < self.imported:
                    continue
                functions.add(index)
                f = self.functions[index - self.imported]
                waiting += [function for _, _, function in f.calls]
                pointers |= f.numbers & self.slots.keys()
        return functions, slots

    def narrow(self, kernels, values):
        """Leaves out the code for values that parameters of these kernels do not have: values
        {(kernel, parameter): a set, or None for any}.
        """
        names = variant_names()
        allowed = [set() for _ in names]
        self.allowed = []  # of each (kernel, parameter)
        for k, parameter, name in variants():
            mine = values.get((k.name, parameter)) if k.name in kernels else set()
            i = names.index(name)
            allowed[i] = None if mine is None or allowed[i] is None else allowed[i] | mine
        self.allowed = [allowed[names.index(name)] for _, _, name in variants()]
        marked = set(self.markers)
        self.functions = [
            f.without(*self.markers, allowed) if any(c in marked for _, _, c in f.calls) else f
            for f in self.functions
        ]

    def without(self, kernels):
        """The bytes of the module with these kernels alone."""
        functions, slots = self.reached(kernels)
        kept = sorted(functions)
        new = {index: self.imported + i for i, index in enumerate(kept)} | {
            i: i for i in range(self.imported)
        }
        data = bytearray(self.sections[DATA].rest())
        for i, k in enumerate(kernel_table().kernels):
            if k.name not in kernels:
                at = self.block - self.sections[DATA].at + 8 * i
                data[at : at + 8] = bytes(8)
        for i, mine in enumerate(self.allowed or ()):
            if mine is not None:
                VARIANT.pack_into(
                    data,
                    self.variants - self.sections[DATA].at + i * VARIANT.size,
                    *VARIANT.unpack_from(
                        data, self.variants - self.sections[DATA].at + i * VARIANT.size
                    )[:2],
                    sum(1 << v for v in mine),
                )
        runs = []  # of neighbouring slots
        for slot in sorted(slots):
            if not runs or runs[-1][-1] != slot - 1:
                runs.append([])
            runs[-1].append(slot)
        body = {
            FUNCTION: _vector(_leb(self.types[i - self.imported]) for i in kept),
            EXPORT: _vector(
                _leb(len(name)) + name + bytes([kind]) + _leb(new[index] if kind == 0 else index)
                for name, kind, index in self.exports
            ),
            ELEMENT: _vector(
                b"\0\x41"
                + _signed(run[0])
                + b"\x0b"
                + _vector(_leb(new[self.slots[n]]) for n in run)
                for run in runs
            ),
            CODE: _vector(self.functions[i - self.imported].renumbered(new) for i in kept),
            DATA: bytes(data),
        }
        if self.start is not None:
            body[START] = _leb(new[self.start])
        out = bytearray(b"\0asm\1\0\0\0")
        for kind, section in self.sections.items():
            part = body.get(kind, section.rest())
            out += bytes([kind]) + _leb(len(part)) + part
        return bytes(out)


def _vector(items):
    items = list(items)
    return _leb(len(items)) + b"".join(items)


def _signed(n):
    out = bytearray()
    while not -64 <= n < 64:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n & 127])


def _guarded(f, wasm, name):
    try:
        return f(_Module(bytes(wasm)))
    except (_Broken, IndexError, KeyError) as e:
        raise EngineError(
            str(e) if isinstance(e, _Broken) else "its parts do not fit together",
            name,
            "Give a .wasm of `make wasm` of this version of Edgewise, as it was built.",
        ) from None


def shake(wasm, keep, name="engine", values=None):
    """An engine with the kernels named in `keep` alone, and what they need.

    Args:
        wasm: bytes of an engine, of either flavour. keep: names of kernels (ops/kernel.py); the
        engine must have them. name: of the file, for errors. values: {(kernel, parameter): the
        values that plans have, or None for any} of parameters that Kernel's `variants` name; None:
        all values stay.
    Raises:
        EngineError: it is not an engine of this version, or lacks one of the kernels.
    """
    keep = set(keep)

    def without(module):
        for k in sorted(keep - module.kernels.keys()):
            raise EngineError(
                f"it has no kernel '{k}'",
                name,
                "Take it from a full engine: edgewise-simd128-full.wasm or"
                " edgewise-relaxed-threads-full.wasm.",
            )
        if values is not None:
            module.narrow(keep, values)
        return module.without(keep)

    return _guarded(without, wasm, name)


def kernels_of(wasm, name="engine"):
    """Names of the kernels that an engine has. Raises EngineError where it is none of this
    version.
    """
    return _guarded(lambda m: list(m.kernels), wasm, name)


def main(arguments):
    """`python -m edgewise.shake SOURCE TARGET`: the base engine from the full one, without the
    kernels declared `rare`.
    """
    source, target = arguments
    with open(source, "rb") as f:
        wasm = f.read()
    with open(target, "wb") as f:
        f.write(shake(wasm, [k.name for k in kernel_table().kernels if not k.c.rare], source))
