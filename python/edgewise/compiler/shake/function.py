"""Bodies of functions: reachable code, and code for given values of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .encoding import (
    ADD,
    BLOCK,
    BRANCH,
    BRANCH_IF,
    BRANCH_TABLE,
    CALL,
    CONST,
    DROP,
    ELSE,
    END,
    EQUAL,
    EQUAL_ZERO,
    IF,
    LOCAL_GET,
    LOCAL_SET,
    LOCAL_TEE,
    LOOP,
    NOT_EQUAL,
    REF_FUNC,
    RETURN,
    RETURN_CALL,
    RETURN_CALL_INDIRECT,
    SUBTRACT,
    UNREACHABLE,
    Reader,
    instruction,
    unsigned,
)

# The values of each variant that stay; None: all.
Allowed = Sequence[set[int] | None]


class FunctionBody:
    """The body of a function.

    Attributes:
        data, start, end: its bytes are data[start:end].
        calls: (first byte, end, function) of each number of a function in it.
        numbers: constants that may be function pointers: no arithmetic uses them.
    """

    def __init__(self, r: Reader) -> None:
        self.data, self.start, self.end = r.data, r.at, r.end
        self.calls: list[tuple[int, int, int]] = []
        self.numbers: set[int] = set()
        constant = None
        _skip_locals(r)
        while r.at < r.end:
            at = r.at
            op, number = instruction(r)
            if constant is not None and not 0x45 <= op <= 0x78:
                self.numbers.add(constant)
            constant = number if op == CONST else None
            if op in (CALL, RETURN_CALL, REF_FUNC):
                assert number is not None
                self.calls.append((at + 1, r.at, number))

    def specialized(self, choice: int, uses: int, allowed: Allowed) -> FunctionBody:
        """The body without code for values that are not allowed.

        Args:
            choice, uses: numbers of the functions that mark such code (EW_CHOICE, EW_USES).
            allowed: values by number of a variant.
        """
        r = Reader(self.data, self.start, self.end)
        _skip_locals(r)
        writer = _Specializer(bytearray(self.data[self.start : r.at]), choice, uses, allowed)
        while writer.frames:
            at, targets = r.at, list[int]()
            op, number = instruction(r, targets)
            writer.add(op, number, targets, self.data[at : r.at])
        return FunctionBody(Reader(bytes(writer.out), 0, len(writer.out)))

    def renumbered(self, new: Mapping[int, int]) -> bytes:
        """The body after its size, with other numbers of functions: {old: new}."""
        out, at = bytearray(), self.start
        for first, end, function in self.calls:
            out += self.data[at:first] + unsigned(new[function])
            at = end
        out += self.data[at : self.end]
        return unsigned(len(out)) + out


def _skip_locals(r: Reader) -> None:
    for _ in r.items():
        r.unsigned()
        r.byte()


class _Frame:
    """An open block, loop or if.

    Attributes:
        kind: its opcode.
        known: value of an if's condition, where it is known.
        reached: whether a branch leads to its end.
    """

    def __init__(self, kind: int, known: int | None = None) -> None:
        self.kind, self.known, self.reached = kind, known, False


class _Top:
    """What is known of the value on top of the stack.

    Attributes:
        constant: its value, where it was just pushed as a constant.
        variant: number of the variant that it holds, less `shift`.
        known: its value, where it is a condition that the allowed values decide.
    """

    def __init__(
        self,
        constant: int | None = None,
        variant: int | None = None,
        shift: int = 0,
        known: int | None = None,
    ) -> None:
        self.constant, self.variant, self.shift, self.known = constant, variant, shift, known


class _Specializer:
    """Copies a body instruction by instruction, without what is decided at compile time.

    Dead code is left out: code after a branch that is always taken, up to the end of a block that
    is reached otherwise.

    Attributes:
        out: the bytes so far.
        frames: open blocks; empty at the end of the body.
    """

    def __init__(self, out: bytearray, choice: int, uses: int, allowed: Allowed) -> None:
        self.out, self.frames = out, [_Frame(BLOCK)]
        self._choice, self._uses, self._allowed = choice, uses, allowed
        self._dead = False  # whether control does not get here
        self._skipped = 0  # blocks that were opened in dead code
        self._top = _Top()
        # {local: (what it holds, the frame in which it was set)}
        self._held: dict[int, tuple[_Top, _Frame]] = {}

    def add(self, op: int, number: int | None, targets: list[int], code: bytes) -> None:
        """Adds an instruction: its opcode, its immediate, labels that it branches to, its bytes."""
        if self._dead and op not in (ELSE, END) or self._skipped:
            self._skipped += (op in (BLOCK, LOOP, IF)) - (op == END and self._skipped > 0)
            return
        was, self._top = self._top, self._after(op, number)
        code = self._decided(op, was, code)
        if op == BRANCH_TABLE:
            code, targets = self._table(was, targets, code)
        elif op == BRANCH_IF and was.known == 0:  # never taken
            code, targets = bytes([DROP]), []
        elif op == BRANCH_IF and was.known == 1:  # always taken
            assert number is not None
            code, op = bytes([DROP, BRANCH]) + unsigned(number), BRANCH
        for target in targets:
            self.frames[-1 - target].reached = True
        if op in (BLOCK, LOOP, IF):
            self._open(op, was.known, code)
        elif op == ELSE:
            frame = self.frames[-1]
            frame.reached, frame.kind = frame.reached or not self._dead, ELSE
            self._dead = frame.known == 1
            self.out += code + bytes([UNREACHABLE]) * self._dead
        elif op == END:
            frame = self.frames.pop()
            skips_if = frame.kind == IF and frame.known != 1
            self._dead = self._dead and not frame.reached and not skips_if
            self.out += code + (bytes([UNREACHABLE]) if self._dead and self.frames else b"")
        else:
            self.out += code
            self._dead = op in _NEVER_RETURN

    def _open(self, op: int, known: int | None, code: bytes) -> None:
        self.frames.append(_Frame(op, known))
        self.out += code
        if op == IF and known == 0:
            self.out += bytes([UNREACHABLE])
            self._dead = True

    # ---- what is known
    def _after(self, op: int, number: int | None) -> _Top:
        """What is known of the top of the stack after an instruction."""
        was = self._top
        if op == CALL and number == self._uses and was.constant is not None:
            # The argument is ~(variant * 64 + value).
            values = self._allowed[~was.constant >> 6]
            return _Top(known=None if values is None else int((~was.constant & 63) in values))
        if op == CALL and number == self._choice and was.constant is not None:
            return _Top(variant=was.constant)
        if op == EQUAL_ZERO and was.known is not None:
            return _Top(known=1 - was.known)
        if op in (EQUAL, NOT_EQUAL):
            return _Top(known=self._compared(op, was))
        if op in (LOCAL_SET, LOCAL_TEE):
            assert number is not None
            self._held.pop(number, None)
            if was.variant is not None and was.shift == 0 or was.known is not None:
                self._held[number] = was, self.frames[-1]
                if op == LOCAL_TEE:
                    return _Top(variant=was.variant, shift=was.shift, known=was.known)
            return _Top()
        if op == LOCAL_GET and number in self._held and self._in_reach(self._held[number][1]):
            held = self._held[number][0]
            return _Top(variant=held.variant, known=held.known)
        if op == CONST:
            return _Top(constant=number, variant=was.variant, shift=was.shift)
        if op in (ADD, SUBTRACT) and was.variant is not None and was.constant is not None:
            shift = was.constant if op == ADD else -was.constant
            return _Top(variant=was.variant, shift=shift)
        return _Top()

    def _compared(self, op: int, was: _Top) -> int | None:
        """The result of comparing a variant with a constant, where the allowed values decide."""
        if was.variant is None or was.constant is None:
            return None
        values = self._allowed[was.variant]
        if values is None:
            return None
        if was.constant - was.shift not in values:
            equal = 0
        elif len(values) == 1:
            equal = 1
        else:
            return None
        return equal if op == EQUAL else 1 - equal

    def _in_reach(self, frame: _Frame) -> bool:
        """Whether what was set in a frame is still known: it is open, and no loop is around us in
        it, which might set it again.
        """
        around = next((i for i, f in enumerate(self.frames) if f is frame), None)
        return around is not None and not any(f.kind == LOOP for f in self.frames[around + 1 :])

    def _decided(self, op: int, was: _Top, code: bytes) -> bytes:
        """The bytes of an instruction; where its result is known, it is replaced by the result."""
        if self._top.known is None:
            return code
        result = bytes([DROP, CONST, self._top.known])
        if op == CALL:  # the marker is not called at all: its argument is dropped
            return result
        return code + result if op in (EQUAL, NOT_EQUAL) else code

    def _table(self, was: _Top, targets: list[int], code: bytes) -> tuple[bytes, list[int]]:
        """A branch table on a variant, without the labels of values that are not allowed."""
        allowed = self._allowed[was.variant] if was.variant is not None else None
        if allowed is None:
            return code, targets
        values = {v + was.shift for v in allowed}
        *labels, default = targets
        wanted = [t for i, t in enumerate(labels) if i in values]
        if any(not 0 <= v < len(labels) for v in values):
            wanted.append(default)
        if not wanted:
            return code, targets
        labels = [t if i in values else wanted[0] for i, t in enumerate(labels)]
        targets = [*labels, default if default in wanted else wanted[0]]
        count = unsigned(len(targets) - 1)
        return bytes([BRANCH_TABLE]) + count + b"".join(map(unsigned, targets)), targets


_NEVER_RETURN = (UNREACHABLE, BRANCH, BRANCH_TABLE, RETURN, RETURN_CALL, RETURN_CALL_INDIRECT)
