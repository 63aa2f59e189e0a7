"""Steps that one dispatch runs, whatever memory they are bound to: their shaders, what they would
bind, and why they cannot run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...logic.gpu.arrange import Arrangement, Span, arrange, families_of
from ...logic.gpu.link import MAX_CHOICES, Role
from ...logic.gpu.self_test import forms_of
from ...logic.gpu.wgsl import Batch, Part
from ..schema.plan_format import ARENA, CONST, SLOT0
from .batches import Group, swapped, varied_in
from .steps import (
    StepOperand,
    constants_of,
    first_registers,
    is_scratch,
    register_ranges,
    slot_bytes,
    steps_of,
    touched_by,
)
from .variants import apart_of, columns_of, count_of, declaring, shader_of, stages_of
from .work import excess, operations_of

NO_BUFFER = -1  # number of the constants' GPUBuffer
SHARED = {"weight": -2, "state": -3}  # slots that are expected to share GPUBuffers


def buffer_bytes(nbytes: int) -> int:
    """Size of a GPUBuffer with that many bytes."""
    return -(-max(nbytes, 16) // 16) * 16


class Facts:
    """What it takes to decide how a GPU runs a plan that the engine in C has checked.

    Args:
        data: the plan.
        kinds: of its slots.
        serial: whether the GPU is one in software.
        bindings: buffers that a step can bind besides uniforms.
        binding_bytes: largest range of a buffer that it can bind.
        tuned: values of tunables (steps.steps_of).

    Attributes:
        steps: init steps first.
        touched: by each of them, with registers that have not been set.
        operations: of each.
        ranges: (lowest, highest value) of each register.
        slots: bytes of each.
        constants: bytes of the GPUBuffer with the constants.
    """

    def __init__(
        self,
        data: bytes,
        kinds: Sequence[str],
        serial: bool,
        bindings: int,
        binding_bytes: int,
        tuned: Mapping[str, int] | None = None,
    ) -> None:
        self.kinds, self.bindings, self.binding_bytes = list(kinds), bindings, binding_bytes
        self.steps = steps_of(data, serial, tuned)
        self.ranges = register_ranges(data)
        self.largest = [high for _, high in self.ranges]
        self.slots = slot_bytes(data)
        self.constants = buffer_bytes(len(constants_of(data)))
        registers = first_registers(data)
        self.touched = [touched_by(step, registers) for step in self.steps]
        self.operations = [
            operations_of(step, t, self.slots, self.largest)
            for step, t in zip(self.steps, self.touched)
        ]

    def window(self, index: int, operand: int) -> tuple[int, int]:
        """The bytes of its slot that an operand binds: all, or, of a slot that is too large, those
        that it touches. index: of the step.
        """
        step, found = self.steps[index], self.touched[index][operand]
        assert found is not None
        nbytes = self.slots[found.buffer - SLOT0]
        if nbytes <= self.binding_bytes or step.moves:
            return 0, nbytes
        return found.begin, found.end


class Grouped:
    """How neighbouring steps are run: one alone, or several in one dispatch.

    Args:
        facts: of the plan.
        group: the steps.

    Attributes:
        reason: why it cannot run on this GPU; "" if it can.
        parts: the steps that the body runs.
        kinds: the same by their kind.
        ends: after the steps of each kind.
        stages: the shaders of `step`, the first of them.
        counts: workgroups of each of `parts`, of several steps; total: of their dispatch.
    """

    def __init__(self, facts: Facts, group: Group) -> None:
        self.facts, self.group, self.index = facts, group, group.first
        self.head, self.tail = group.head, group.tail
        self.takers, self.chain = group.takers, group.chain
        self.steps = steps = facts.steps[group.first : group.end]
        self.step, self.largest = steps[group.head], facts.largest
        self.parts = steps[group.head : len(steps) - group.tail - group.takers]
        self.ends = [end - group.first for end in group.ends] or [len(self.parts)]
        self.kinds = [self.parts[a:b] for a, b in zip([0, *self.ends], self.ends)]
        self.varied = [() if group.tail else varied_in(kind) for kind in self.kinds]
        self.stages = stages_of(self.step, self.largest)
        self.counts: list[int] = []
        self.total = 0
        self.reason = self._obstacle()
        if not self.reason and len(steps) > 1:
            if not self.fits(self.expected()):
                self.reason = "more buffers than this GPU binds"
            else:
                self._count()

    @property
    def forms(self) -> list[str]:
        """Names of what it runs (logic.gpu.self_test.forms_of)."""
        takers = self.steps[len(self.steps) - self.takers :]
        bodies = [*(kind[0] for kind in self.kinds), *takers]
        shaders = [v.name for step in bodies for v in stages_of(step, self.largest)]
        head = self.steps[0].kernel.name if self.head else ""
        tail = self.steps[-1].kernel.name if self.tail else ""
        kernels = [step.kernel.name for step in takers]
        return forms_of(shaders, self.step.kernel.name, head, tail, kernels, self.chain)

    def _count(self) -> None:
        """Finds the workgroups of several steps."""
        self.counts = [
            count_of(stages_of(kind[0], self.largest)[-1], part.values(self.largest))
            // (2 if self.takers else 1)
            for kind in self.kinds
            for part in kind
        ]
        self.total = 1 if self.chain else self.counts[0] if self.tail else sum(self.counts)

    def fits(self, arrangement: Arrangement) -> bool:
        """Whether several steps with this arrangement can run."""
        most = 1 if self.step.serial else MAX_CHOICES
        return (
            len(arrangement.bindings) < self.facts.bindings
            and all(len(r.bindings) <= most for roles in arrangement.roles for r in roles)
            and all(b - a <= self.facts.binding_bytes for _, a, b in arrangement.ranges)
        )

    def _obstacle(self) -> str:
        """Why the steps cannot run on this GPU; "" if they can."""
        facts = self.facts
        if not self.stages:
            return "no shader for these parameters and types"
        work = facts.operations[self.index : self.index + len(self.steps)]
        if reason := excess(self.steps, work, self.largest):
            return reason
        if len(self.steps) > 1:
            return ""  # each alone can run
        count = len({v.buffer for v in self.step.operands if v is not None}) + 1
        if count > facts.bindings:
            return f"{count} buffers: this GPU binds {facts.bindings}"
        for i, v in enumerate(self.step.operands):
            if v is None or v.buffer < SLOT0:
                if v is not None and v.buffer == ARENA and not is_scratch(self.step, i):
                    return "its values lie in the engine's arena"
                continue
            begin, end = facts.window(self.index, i)
            if end - begin > facts.binding_bytes:
                return f"{end - begin} bytes: this GPU binds {facts.binding_bytes}"
        return ""

    def is_virtual(self, member: int, index: int) -> bool:
        """Whether an operand of step `member` is computed where it is used, so that the dispatch
        neither reads nor writes its memory.
        """
        step, declared = self.steps[member], self.stages[0].declared
        o = step.kernel.operands[index]
        if self.head and member == 0:
            return o.output
        if self.tail and member == len(self.steps) - 1:
            return not o.output
        if member >= len(self.steps) - self.takers:
            rule = stages_of(step, self.largest)[0].declared["takes"]
            return o.name == rule.partition(" if ")[0]
        before = declared.get("before", "").partition(" if ")[0] if self.head else ""
        after = declared.get("after", "").partition(" if ")[0] if self.tail or self.takers else ""
        return o.name in (before, after)

    def arranged(self, place: Callable[[int], tuple[int, int]]) -> Arrangement:
        """What it binds. place: (number of its GPUBuffer, offset in it) of the memory of a slot."""
        out: list[list[Span | None]] = []
        for member, step in enumerate(self.steps):
            spans: list[Span | None] = []
            for i, v in enumerate(step.operands):
                if v is None or is_scratch(step, i) or self.is_virtual(member, i):
                    spans.append(None)
                elif v.buffer == CONST:
                    spans.append(Span(NO_BUFFER, 0, self.facts.constants, v.offset))
                else:
                    spans.append(self._span(member, i, v, place))
            out.append(spans)
        ends = [] if self.head or self.tail or self.takers else self.ends
        return arrange([step.linked for step in self.steps], out, ends)

    def _span(
        self, member: int, index: int, v: StepOperand, place: Callable[[int], tuple[int, int]]
    ) -> Span:
        begin, end = self.facts.window(self.index + member, index)
        number, at = place(v.buffer - SLOT0)
        return Span(number, at + begin, at + end, at + v.offset)

    def expected(self) -> Arrangement:
        """What it binds if memory is bound as it usually is: what is alike shares a GPUBuffer."""
        kinds, several = self.facts.kinds, len(self.steps) > 1

        def place(slot: int) -> tuple[int, int]:
            return (SHARED.get(kinds[slot], SLOT0 + slot) if several else SLOT0 + slot), 0

        return self.arranged(place)

    def batch(self, arrangement: Arrangement) -> Batch | None:
        """What a dispatch of several steps runs."""
        if len(self.steps) == 1:
            return None
        steps, roles = self.steps, arrangement.roles
        families = families_of([step.kernel.name for step in steps], self.ends)
        others = [
            self._part(begin, roles[families[begin]], varied, begin)
            for begin, varied in zip(self.ends, self.varied[1:])
        ]
        head, tail = None, None
        if self.head:
            shader = shader_of(declaring(steps[0].kernel.name, "computes"), steps[0])
            head = Part(steps[0].linked, shader, roles[0])
        if self.tail:
            shader = shader_of(declaring(steps[-1].kernel.name, "joins"), steps[-1])
            tail = Part(steps[-1].linked, shader, roles[-1])
        takers, apart, columns = [], 0, 0
        if self.takers:
            families = families_of([step.kernel.name for step in steps])
            last = range(len(steps) - self.takers, len(steps))
            takers = [self._part(i, roles[families[i]]) for i in last]
            apart = max(apart_of(steps[i], self.largest) for i in last)
            columns = columns_of(self.step, self.largest)
        return Batch(
            len(steps),
            self.varied[0],
            head,
            tail,
            self.tail and swapped(steps),
            others,
            takers,
            apart,
            columns,
            self.chain,
        )

    def _part(
        self, index: int, roles: Sequence[Role], varied: Sequence[str] = (), first: int = 0
    ) -> Part:
        """Step `index` as a part of a program with its own body."""
        step = self.steps[index]
        shader = shader_of(stages_of(step, self.largest)[0], step)
        return Part(step.linked, shader, roles, varied, first)
