"""Which neighbouring steps of a plan run in one dispatch.

They have been put side by side (plan/batches.py). Here it is found out which of them are alike, and
that none writes what another one touches; the result is a part of the plan (program.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...logic.gpu.link import MAX_STEPS, MAX_VARIED, strided
from ...logic.gpu.steps import Linear
from ..declare.kernel import dimensions, evaluate
from .gen.shaders import ALIKE
from .steps import PlanStep, StepOperand, Touched, element_dtype, is_scratch
from .variants import Variant, apart_of, columns_of, conditions_of, count_of, stages_of, variants_of

MAX_KINDS = 4  # of steps in one program
MAX_IN_CHAIN = 16  # steps of one workgroup
ROUNDS = 32  # of it, for a step whose length follows registers
IDLE = 1024  # workgroups that may have nothing to do


def varied_in(steps: Sequence[PlanStep]) -> tuple[str, ...]:
    """Names of the parameters in which steps may differ; none for a step alone."""
    return ALIKE[steps[0].kernel.name][0] if len(steps) > 1 else ()


class Group(NamedTuple):
    """Steps first to end - 1, which one dispatch runs.

    Attributes:
        head: whether the first one computes an operand of the others (Batch.head in wgsl.py).
        tail: whether the last one joins the results of the two before it.
        ends: after the steps of each kind, where several have bodies of single elements.
        takers: steps at the end, each of which takes a result of one before them (wgsl.Taker).
        chain: whether one workgroup runs one kind after the other.
    """

    first: int
    end: int
    head: bool = False
    tail: bool = False
    ends: tuple[int, ...] = ()
    takers: int = 0
    chain: bool = False


class Grouping:
    """Finds the groups of a plan.

    Args:
        steps, touched: those of the plan, and what their operands touch (steps.touched_by).
        largest: highest values of the registers.
        temporary: {buffer of an operand: whether its contents end with the run}.
        kept: {buffer of an operand: whether a run that fails must not change it}.
    """

    def __init__(
        self,
        steps: Sequence[PlanStep],
        touched: Sequence[Sequence[Touched | None]],
        largest: Sequence[int],
        temporary: Sequence[bool],
        kept: Sequence[bool],
    ) -> None:
        self.steps, self.touched, self.largest = steps, touched, largest
        self.temporary, self.kept = temporary, kept

    def at(self, first: int, end: int) -> Group:
        """The group that begins with step `first`; end: after its last step at most."""
        head = self._head_reads(first, end)
        begin = first + head
        after = self._alike(begin, end)
        if head and not self._head_fits(first, after):
            head, begin = False, first
            after = self._alike(first, end)
        tail = after < end and after - begin == 2 and self._tail_fits(first, begin, after)
        takers = 0 if tail else self._takers(first, begin, after, end)
        if head or tail or takers:
            return Group(first, after + tail + takers, head, tail, takers=takers)
        ends, chain = self._kinds(first, after, end)
        return Group(first, ends[-1], ends=tuple(ends) if len(ends) > 1 else (), chain=chain)

    def _kinds(self, first: int, after: int, end: int) -> tuple[list[int], bool]:
        """Returns where each group of similar steps ends, for groups that can share a dispatch with
        the steps before them; and whether the groups run in sequence in one workgroup.
        """
        ends = [after]
        touched = [r for i in range(first, after) for r in self._ranges(i)]
        group, fails, chain = self._single(first), self._fails(first), False
        end = min(end, first + MAX_STEPS - 2)
        while group and ends[-1] < end and len(ends) < MAX_KINDS * (1 + chain):
            begin = ends[-1]
            after = self._alike(begin, end)
            ranges = [r for i in range(begin, after) for r in self._ranges(i)]
            if self._single(begin) != group:
                break
            if chain or any(_clash(a, b) for a in ranges for b in touched):
                if after - first > MAX_IN_CHAIN or not all(map(self._small, range(first, after))):
                    break
                chain = True
            fails = fails or self._fails(begin)
            if fails and any(r[3] and self.kept[r[0]] for r in touched + ranges):
                break  # states are not written once an index was out of range
            touched += ranges
            ends.append(after)
        return ends, chain

    def _small(self, step: int) -> bool:
        """Whether one workgroup suffices for a step with a body of single elements."""
        it = self.steps[step]
        stage = stages_of(it, self.largest)[0]
        most = ROUNDS if _count_follows(it, stage) else 1
        return not it.serial and count_of(stage, it.values(self.largest)) <= most

    def _single(self, step: int) -> int:
        """Invocations in a workgroup of a step whose body computes single elements; 0 for others.

        Where registers decide how many there are, the dispatch has workgroups for the most.
        """
        it = self.steps[step]
        stages = stages_of(it, self.largest)
        if len(stages) != 1 or "threads" not in stages[0].declared:
            return 0
        if _count_follows(it, stages[0]) and count_of(stages[0], it.values(self.largest)) > IDLE:
            return 0
        return stages[0].group

    def _fails(self, step: int) -> bool:
        """Whether the body of a step can find an index that is out of range."""
        parts = stages_of(self.steps[step], self.largest)[0].parts
        return any("fail(" in text for text in parts.values())

    def _alike(self, first: int, end: int) -> int:
        """The step after neighbours that one body can run."""
        steps = self.steps
        stages = stages_of(steps[first], self.largest)
        common = _common(steps[first], stages, self.largest)
        if common is None:
            return first + 1
        touched: list[_Range] = []
        last = first
        while last < min(end, first + MAX_STEPS - 2):
            if last > first and (
                _common(steps[last], stages, self.largest) != common
                or stages_of(steps[last], self.largest) != stages
            ):
                break
            ranges = self._ranges(last)
            if any(_clash(a, b) for a in ranges for b in touched):
                break
            touched += ranges
            last += 1
        return max(last, first + 1)

    def _ranges(self, step: int, without: str = "") -> list[_Range]:
        """What a step touches, all of a buffer where that follows registers.

        without: name of an operand that is left out.
        """
        out = []
        it = self.steps[step]
        of = zip(it.kernel.operands, it.operands, self.touched[step])
        for i, (o, v, r) in enumerate(of):
            if v is None or r is None or is_scratch(it, i) or o.name == without:
                continue
            if it.dynamic or v.register >= 0:
                begin, end = 0, 1 << 62
                if v.register < 0 and (nbytes := _most_bytes(it, i, self.largest)):
                    begin, end = v.offset, v.offset + nbytes
                out.append((v.buffer, begin, end, o.output, 0, 0))
            else:
                out.append((v.buffer, r.begin, r.end, o.output, *_rows(it, i)))
        return out

    # ---- a step that computes an operand of those after it
    def _head_reads(self, first: int, end: int) -> bool:
        """Whether a step can be computed within the body of the one after it."""
        if first + 1 >= end or _declares(self.steps[first], "computes", self.largest) is None:
            return False
        return self._operand_from(first + 1, first) is not None

    def _operand_from(self, part: int, head: int) -> str | None:
        """The operand of step `part` that step `head` computes; None where it cannot."""
        made = _declares(self.steps[head], "computes", self.largest)
        stages = stages_of(self.steps[part], self.largest)
        rule = stages[0].declared.get("before") if len(stages) == 1 else None
        if made is None or rule is None or not self._holds(part, rule):
            return None
        name = rule.partition(" if ")[0]
        read, written = self._operand(part, name), self._operand(head, made)
        if read is None or read != written or read.register >= 0:
            return None
        return name if self._elements(part, name) == self._elements(head, made) else None

    def _operand(self, step: int, name: str) -> StepOperand | None:
        kernel = self.steps[step].kernel
        return self.steps[step].operands[kernel.index[name]]

    def _holds(self, step: int, rule: str) -> bool:
        it = self.steps[step]
        return not it.dynamic and bool(
            evaluate(rule.partition(" if ")[2], conditions_of(it, self.largest))
        )

    def _head_fits(self, head: int, end: int) -> bool:
        """Whether step `head` need not be run if the steps after it, up to `end`, compute it."""
        made = _declares(self.steps[head], "computes", self.largest)
        assert made is not None
        touched = [r for r in self._ranges(head) if not r[3]]
        for part in range(head + 1, end):
            name = self._operand_from(part, head)
            if name is None:
                return False
            if any(_clash(a, b) for a in self._ranges(part, name) for b in touched):
                return False
        return self._unread(head, made, end)

    def _unread(self, step: int, name: str, end: int) -> bool:
        """Whether nothing from step `end` on reads what a step writes."""
        found = self.touched[step][self.steps[step].kernel.index[name]]
        assert found is not None
        if not self.temporary[found.buffer]:
            return False
        nbytes = found.end - found.begin
        for later in range(end, len(self.steps)):
            it = self.steps[later]
            hits = [
                o.output and not o.updated
                for o, v, r in zip(it.kernel.operands, it.operands, self.touched[later])
                if v is not None
                and r is not None
                and r.buffer == found.buffer
                # what follows registers may be longer, but begins in the tensor that it reads
                and (
                    r.begin < found.end
                    and found.begin < r.end
                    or 0 <= v.offset - found.begin < nbytes
                )
            ]
            if hits:  # what is written there next is another tensor
                return all(hits)
        return True

    # ---- a step that joins the results of two
    def _tail_fits(self, first: int, begin: int, tail: int) -> bool:
        """Whether step `tail` only joins the results of steps `begin` and `begin` + 1."""
        joined = _declares(self.steps[tail], "joins", self.largest)
        rule = stages_of(self.steps[begin], self.largest)[0].declared.get("after")
        if joined is None or rule is None or not self._holds(begin, rule):
            return False
        params = [repr(self.steps[i].params) for i in (begin, begin + 1)]  # 0.0 equals -0.0
        if params[0] != params[1] or not _plain(self.steps[tail]):
            return False
        name = rule.partition(" if ")[0]
        a, b, y = joined.split()
        results = [self._operand(part, name) for part in (begin, begin + 1)]
        inputs = [self._operand(tail, a), self._operand(tail, b)]
        if results[0] == results[1] or inputs not in (results, results[::-1]):
            return False
        one = self.touched[begin][self.steps[begin].kernel.index[name]]
        all_ = self.touched[tail][self.steps[tail].kernel.index[y]]
        if one is None or all_ is None or one.end - one.begin != all_.end - all_.begin:
            return False
        virtual = {r[:3] for r in self._ranges(first) if r[3] and first < begin}
        read = [
            r
            for part in range(first, tail)
            for r in self._ranges(part)
            if not r[3] and r[:3] not in virtual
        ]
        out = [r for r in self._ranges(tail) if r[3]]
        if any(_clash(x, r) for x in out for r in read):
            return False
        return all(
            any(_clash(x, r) for x in out for r in self._ranges(part) if r[3])  # or in its place
            or self._unread(part, name, tail + 1)
            for part in (begin, begin + 1)
        )

    # ---- steps that take the results of as many products
    def _takers(self, first: int, begin: int, after: int, end: int) -> int:
        """Number of steps after steps `begin` to `after` - 1 that take their results; 0: none."""
        count = after - begin
        stage = stages_of(self.steps[begin], self.largest)[0]
        rule = stage.declared.get("after")
        if after + count > min(end, first + MAX_STEPS) or rule is None:
            return 0
        if "columns" not in stage.declared:
            return 0
        name = rule.partition(" if ")[0]
        pairs = list(zip(range(begin, after), range(after, after + count)))
        if not all(self._holds(p, rule) and self._takes(p, name, t) for p, t in pairs):
            return 0
        halves = {apart_of(self.steps[t], self.largest) for _, t in pairs} - {0}
        columns = columns_of(self.steps[begin], self.largest)
        if len(halves) != 1 or min(halves) % columns:
            return 0
        if any(self._elements(p, name) % (2 * min(halves)) for p, _ in pairs):
            return 0
        taken = [self._takes(p, name, t) for p, t in pairs]
        virtual = {r[:3] for r in self._ranges(first) if r[3] and first < begin}
        read = [
            r
            for part in range(first, after)
            for r in self._ranges(part)
            if not r[3] and r[:3] not in virtual
        ]
        of = [self._ranges(t, x) for (_, t), x in zip(pairs, taken)]
        more = [r for ranges in of for r in ranges if not r[3]]
        out = [r for ranges in of for r in ranges if r[3]]
        made = [r for part in range(first, after) for r in self._ranges(part) if r[3]]
        if any(_clash(x, r) for x in made for r in more):
            return 0  # they are not written
        if any(_clash(x, r) for x in out for r in read + more):
            return 0
        if any(map(self._fails, range(after, after + count))) and any(self.kept[r[0]] for r in out):
            return 0  # as in _kinds
        if any(_clash(a, b) for i, a in enumerate(out) for b in out[:i]):
            return 0
        unread = all(
            any(_clash(x, r) for x in out for r in self._ranges(p) if r[3])
            or self._unread(p, name, after + count)
            for p, _ in pairs
        )
        return count if unread else 0

    def _takes(self, part: int, name: str, taker: int) -> str:
        """The operand of step `taker` that is the result `name` of step `part`; "" if none is."""
        it = self.steps[taker]
        stages = stages_of(it, self.largest)
        rule = stages[0].declared.get("takes") if len(stages) == 1 else None
        if rule is None or _count_follows(it, stages[0]):
            return ""
        operand, _, condition = rule.partition(" if ")
        if any(_follows(it.params.get(x)) for x in re.findall(r"[a-z]\w*", condition)):
            return ""
        read, written = self._operand(taker, operand), self._operand(part, name)
        values = conditions_of(it, self.largest)
        if read != written or read is None or read.register >= 0 or not evaluate(condition, values):
            return ""
        index = it.kernel.index[operand]
        count = int(evaluate(stages[0].declared["threads"], values))
        each = 2 if "apart" in stages[0].declared else 1
        if count * each != self._elements(part, name) or not _in_order(it, index):
            return ""
        return operand if element_dtype(it.kernel, index, it.params)[1] == 4 else ""

    def _elements(self, part: int, name: str) -> int:
        """Number of float32 elements of an operand."""
        found = self.touched[part][self.steps[part].kernel.index[name]]
        assert found is not None
        return (found.end - found.begin) // 4


def _in_order(step: PlanStep, index: int) -> bool:
    """Whether elements of an operand are read by their numbers, one after the other."""
    layout = step.kernel.operands[index].layout or ""
    dims, strides = dimensions(layout)[0]
    sizes, steps = step.params.get(dims), step.params.get(strides)
    if not isinstance(sizes, list) or not isinstance(steps, list):
        return True
    return strided(sizes, steps) == strided([2], [1])


def swapped(steps: Sequence[PlanStep]) -> bool:
    """Whether the last step, which joins the results of the two before it, has them in reverse."""
    tail, part = steps[-1], steps[-3]
    name = next(v.declared["joins"] for v in variants_of(tail.kernel.name) if "joins" in v.declared)
    written = [v for o, v in zip(part.kernel.operands, part.operands) if o.output]
    return tail.operands[tail.kernel.index[name.split()[0]]] not in written


def _declares(step: PlanStep, key: str, largest: Sequence[int]) -> str | None:
    """What a shader of a step declares under a key; None where none does, or it does not apply."""
    for variant in variants_of(step.kernel.name):
        if key in variant.declared and not step.dynamic:
            condition = variant.declared.get("when", "True")
            if evaluate(condition, conditions_of(step, largest)):
                return variant.declared[key]
    return None


def _plain(step: PlanStep) -> bool:
    """Whether a step reads and writes float32 one after the other."""
    for i, o in enumerate(step.kernel.operands):
        dims, strides = dimensions(o.layout)[0]
        sizes, steps = step.params[dims], step.params[strides]
        if not isinstance(sizes, list) or not isinstance(steps, list):
            return False
        if sizes[:-1] != [1] * (len(sizes) - 1) or steps[-1] != 1:
            return False
        if element_dtype(step.kernel, i, step.params)[0] != 1:
            return False
    return True


# (buffer, first byte, end, whether it is written, bytes from one row to the next, bytes that are
# touched of each); no rows: 0, 0
_Range = tuple[int, int, int, bool, int, int]


def _clash(a: _Range, b: _Range) -> bool:
    if a[0] != b[0] or not (a[3] or b[3]) or a[1] >= b[2] or b[1] >= a[2]:
        return False
    period = a[4]
    if not period or period != b[4]:
        return True
    after = (b[1] - a[1]) % period  # columns of one matrix, side by side
    return not a[5] <= after <= period - b[5]


def _spans(step: PlanStep, index: int, largest: Sequence[int] = ()) -> list[tuple[int, int]] | None:
    """(extent, stride) of the dimensions of an operand that are not 1, smallest stride first; None
    where its layout does not say them, or a stride is not positive.
    """
    layout = step.kernel.operands[index].layout or ""
    values = step.values(largest)
    dims: list[tuple[int, int]] = []
    if not re.fullmatch(r"((\w+:\w+), )*(\w+|\w+:\w+)", layout):
        return None
    for extent, stride in dimensions(layout):
        sizes, steps = (values.get(x, x) for x in (extent, stride or "1"))
        if isinstance(sizes, list) and isinstance(steps, list):
            dims += zip(sizes, steps)
        elif isinstance(sizes, list) or isinstance(steps, list):
            return None
        else:
            dims.append((int(sizes), int(steps)))
    dims = sorted(((d, s) for d, s in dims if d != 1), key=lambda x: x[1])
    return None if any(d < 1 or s < 1 for d, s in dims) else dims


def _rows(step: PlanStep, index: int) -> tuple[int, int]:
    """(bytes from one row of an operand to the next, bytes of a row that it touches); (0, 0) where
    it has none.
    """
    key = "rows", index
    if key not in step.memo:
        step.memo[key] = _rows_of(step, index)
    found: tuple[int, int] = step.memo[key]
    return found


def _rows_of(step: PlanStep, index: int) -> tuple[int, int]:
    dims = _spans(step, index) or []
    span, size = 1, element_dtype(step.kernel, index, step.params)[1]
    for i, (d, s) in enumerate(dims):
        if i and span <= s and all(more % s == 0 for _, more in dims[i:]):
            return s * size, span * size
        span += (d - 1) * s
    return 0, 0


def _most_bytes(step: PlanStep, index: int, largest: Sequence[int]) -> int:
    """Bytes from element 0 of an operand that a step touches with any values of the registers; 0
    where that is not known.
    """
    numbers = (x for v in step.params.values() for x in (v if isinstance(v, list) else [v]))
    if any(isinstance(x, Linear) and x.scale < 0 for x in numbers):
        return 0
    dims = _spans(step, index, largest)
    if dims is None:
        return 0
    size = element_dtype(step.kernel, index, step.params)[1]
    return size * (1 + sum((d - 1) * s for d, s in dims))


def _common(step: PlanStep, stages: Sequence[Variant], largest: Sequence[int]) -> object:
    """What steps of a batch agree in; None where a step runs alone."""
    key = "common", *map(id, stages), *largest
    if key not in step.memo:
        step.memo[key] = _common_of(step, stages, largest)
    return step.memo[key]


def _common_of(step: PlanStep, stages: Sequence[Variant], largest: Sequence[int]) -> object:
    rule = ALIKE.get(step.kernel.name)
    if rule is None or len(stages) != 1 or len(rule[0]) > MAX_VARIED:
        return None
    vary, same = rule
    if _count_follows(step, stages[0]) or any(_follows(step.params.get(name)) for name in vary):
        return None
    values = step.values(largest)
    return (
        step.kernel.name,
        [value for name, value in step.params.items() if name not in vary],
        [bool(evaluate(condition, values)) for condition in same],
        [
            None
            if v is None or is_scratch(step, i)
            else (element_dtype(step.kernel, i, step.params), v.register, v.scale)
            for i, v in enumerate(step.operands)
        ],
    )


def _count_follows(step: PlanStep, variant: Variant) -> bool:
    """Whether registers decide how many workgroups a step has, or whether it does anything."""
    count = variant.declared.get("threads") or variant.declared["groups"]
    counted = {*re.findall(r"[a-z]\w*", count), *step.kernel.empty}
    return any(_follows(step.params.get(name)) for name in counted)


def _follows(value: object) -> bool:
    return any(isinstance(x, Linear) for x in (value if isinstance(value, list) else [value]))
