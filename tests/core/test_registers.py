"""Registers that follow from others: their normal forms, and what the engine makes of them."""

import ctypes
import itertools
import struct

import pytest
import raw_plan
from edgewise.compiler.declare.kernel import KERNELS
from edgewise.compiler.declare.registers import Registers, ceil_div, floor_div
from edgewise.compiler.declare.symbolic import NotStatic, Sym
from edgewise.compiler.ops.elementwise.binary import _int_div
from edgewise.compiler.ops.table import word_of

LENGTHS = [(2, 60), (3, 9)]


def value(x, lengths, registers):
    return x if not isinstance(x, Sym) else x.scale * registers.values(lengths)[x.reg] + x.add


# Each as a function of two lengths, in numbers and in Syms.
EXPRESSIONS = [
    lambda n, t: n * t,
    lambda n, t: (n + 1) * (2 * n - 1),
    lambda n, t: 2 * n * n + n - 1,
    lambda n, t: floor_div(n - 2, 3),
    lambda n, t: floor_div(floor_div(n + 7, 2) - 1, 5) * 3 + t,
    lambda n, t: ceil_div(5 * n + t, 4),
    lambda n, t: floor_div(6 * n + 5, 4),
    lambda n, t: n * n * t - 2 * t + 3,
    lambda n, t: -floor_div(-n, 2),
    lambda n, t: (n * t + n) % 7,
    lambda n, t: ceil_div(n, 8) * 8 - n,
    lambda n, t: 3 * ceil_div(floor_div(n - 1, 2) + 1, 6) * 2 - floor_div(n - 1, 2) + t,
    lambda n, t: (n * n * t + n * t) // (n + 1) if isinstance(n, Sym) else n * t,
]


@pytest.mark.parametrize("i", range(len(EXPRESSIONS)))
def test_values_and_ranges(i):
    registers = Registers(LENGTHS)
    found = EXPRESSIONS[i](registers.length(0), registers.length(1))
    for lengths in itertools.product(*(range(low, high + 1) for low, high in LENGTHS)):
        expected = EXPRESSIONS[i](*lengths)
        assert value(found, lengths, registers) == expected
        assert found.min <= expected <= found.max
        for (low, high), one in zip(registers.ranges, registers.values(lengths), strict=True):
            assert low <= one <= high


def test_sizes_that_are_rounded_up():
    """What is added to reach a multiple is not negative, and less than the multiple."""
    registers = Registers([(3, 5000)])
    n = registers.length(0)
    half = floor_div(n - 1, 2) + 1  # of a convolution
    for size in (n, half):
        for multiple in (2, 8, 15, 200):
            more = ceil_div(size, multiple) * multiple - size
            assert more.min == 0 and more.max == multiple - 1
            assert size < ceil_div(size, multiple) * multiple + 1


def test_equal_values_are_one_register():
    registers = Registers(LENGTHS)
    n, t = registers.length(0), registers.length(1)
    assert (n + 1) * (2 * n - 1) == 2 * n * n + n - 1
    assert n * t == t * n and n * t != n * n
    assert floor_div(floor_div(n, 2), 3) == floor_div(n, 6) == floor_div(2 * n, 12)
    assert floor_div(4 * n + 3, 4) == n and (n * t) // t == n
    count = len(registers.rules)
    assert (n - 1) * (n + 1) + 1 == n * n and len(registers.rules) == count
    with pytest.raises(NotStatic):
        (n * t) // (n + 1)
    with pytest.raises(NotStatic):
        assert n < t
    assert n * t > t and n * n >= n


@pytest.mark.parametrize("apart", [-9, -3, -1, 0, 1, 2, 3, 5, 7])
def test_quotients_that_differ_by_little(apart):
    """What a convolution leaves of a length, and a slice of another: both follow the length."""
    registers = Registers([(40, 90)])
    length = registers.length(0)
    one, other = floor_div(length + apart, 3), floor_div(length, 3)
    differences = {(n + apart) // 3 - n // 3 for n in range(40, 91)}
    found = one - other
    ends = (found.min, found.max) if isinstance(found, Sym) else (found, found)
    assert ends == (min(differences), max(differences))
    assert (one < other + max(differences) + 1) and not one < other + min(differences)


def test_whole_numbers_are_divided():
    """Div rounds towards zero, so only numbers that are not negative are rounded down."""
    length = Registers([(40, 90)]).length(0)
    quotient = _int_div(length - 7, 4)
    assert (quotient.min, quotient.max) == (33 // 4, 83 // 4)
    with pytest.raises(NotStatic):
        _int_div(length - 50, 4)


def test_values_beyond_the_engine():
    n = Registers([(2, 1 << 24)]).length(0)
    assert (n * n).max == 1 << 48
    for beyond in (
        lambda: n * n * n,
        lambda: floor_div(n * n * (1 << 20) + n, 1 << 30),
        lambda: n * n + n * (1 << 62),
        lambda: floor_div(n + 1, 1 << 62),
    ):
        with pytest.raises(NotStatic, match="62 bits"):
            beyond()


REGISTERS = [
    (2, 9, 0, 0, 0, 0, 0, 0, 0),
    (4, 81, 0, 0, 1, 0, 0, 0, 1),  # n * n
    (1, 29, 1, 0, 0, 1, 1, -1, 3),  # (n * n + n - 1) // 3
]


def fill(registers, size, field=0):
    """A plan that fills as many bytes as the last register says."""
    params = {"dims": [1] * 6, "ys": [0, 0, 0, 0, 0, 1], "size": 1}
    step = bytearray(raw_plan.step("fill", params, [(raw_plan.SLOT0, 0)]))
    patch = struct.pack("<IIqq", word_of(KERNELS["fill"], "dims") + 5, len(registers) - 1, 1, 0)
    at = 16 + -(-struct.unpack_from("<I", step, 8)[0] // 8) * 8
    step[at:at] = patch
    struct.pack_into("<H", step, 4, 1)
    struct.pack_into("<I", step, 12, len(step))
    data = raw_plan.plan([bytes(step)], [(size, True)])
    entries = b"".join(struct.pack("<qqIIqqqqq", *r) for r in registers)
    entries += bytes(-len(entries) % 16)
    out = bytearray(data[:96] + entries + data[96:])
    struct.pack_into("<I", out, 12, len(registers))
    for place in (48, 56, 72, 80):  # the sections after, and the size
        struct.pack_into("<Q", out, place, struct.unpack_from("<Q", out, place)[0] + len(entries))
    return bytes(out)


@pytest.mark.parametrize(
    ("change", "accepted"),
    [
        ({}, True),
        ({2: (1, 28, *REGISTERS[2][2:])}, False),  # a range that its values exceed
        ({2: (1, 29, 2, *REGISTERS[2][3:])}, False),  # follows itself
        ({1: (4, 81, 0, 0, 1 << 62, 0, 0, 0, 1)}, False),  # overflows
        ({2: (*REGISTERS[2][:8], -3)}, False),
        ({0: (*REGISTERS[0][:8], 1)}, False),  # nothing is before the first
        ({1: (4, 81, 0, 0, 0, 0, 0, 0, 0)}, True),  # a second length
        ({1: (4, 90, 0, 0, 0, 0, 0, 0, 0)}, False),
    ],
)
def test_what_the_engine_accepts(change, accepted):
    registers = [change.get(i, r) for i, r in enumerate(REGISTERS)]
    raw = raw_plan.Raw()
    code, _ = raw.load(fill(registers, 29))
    assert (code == raw_plan.OK) == accepted, code
    raw.close()


def test_lengths_set_what_follows():
    raw, memory = raw_plan.Raw(), ctypes.create_string_buffer(b"x" * 29, 29)
    code, plan = raw.load(fill(REGISTERS, 29))
    assert code == raw_plan.OK
    assert raw.bind(plan, 0, ctypes.addressof(memory), 29) == raw_plan.OK
    set_register = raw.library.ew_plan_register
    set_register.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64]
    for n in (9, 2, 5):
        memory.raw = b"x" * 29
        assert set_register(plan, 0, n) == raw_plan.OK and raw.run(plan) == raw_plan.OK
        assert memory.raw.count(0) == (n * n + n - 1) // 3
    for register, wrong in ((0, 10), (1, 16), (2, 5)):
        assert set_register(plan, register, wrong) != raw_plan.OK
    raw.close()
