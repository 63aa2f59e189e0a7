"""One plan of a language model, bound to the model's memory."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, cast

from ...compiler.plan.plan import Plan, Slot, step_kernels
from ...logic.manifest.limits import FEATURES, POSITIONS, REACH, SELECTED
from .features import feed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...logic.manifest.schema import PlanFile
    from ..engine import Buffer
    from .decoder import DecoderModel


FED = ("input_ids", FEATURES, SELECTED, POSITIONS, REACH)
"""Inputs of a decoder's plans."""


class DecoderPlan:
    """A plan for runs of a fixed number of tokens.

    Args:
        lm: the model.
        described: its description in the manifest.
        tokens: of a run.
        registers: numbers of its registers by name.
        prefix: of the names of the buffers for inputs and outputs that `lm` keeps.

    Attributes:
        inputs, outputs: {name: Buffer}.
    """

    def __init__(
        self,
        lm: DecoderModel,
        described: PlanFile,
        tokens: int,
        registers: Mapping[str, object],
        prefix: str = "",
    ) -> None:
        self.lm, self.tokens = lm, tokens
        self.registers = cast("Mapping[str, int]", registers)
        self.bound: int | None = None
        self.inputs: dict[str, Buffer] = {}
        self.outputs: dict[str, Buffer] = {}
        slots = [
            Slot(s["name"], s["kind"], 2, [s["bytes"]], s["bytes"]) for s in described["slots"]
        ]
        growing = {c["name"] for c in lm.caches if lm.grows and c.get("rows") is not None}
        for slot, s in zip(slots, described["slots"]):
            slot.grows = slot.kind == "cache" and slot.name in growing
            if slot.kind == "weight":
                slot.tensor = lm.weight(s)
        self.slots = slots
        data = bytes(cast("bytes", lm.package.file(described["file"])))
        kernels, init = step_kernels(data)
        plan = Plan(
            data,
            slots,
            list(self.registers),
            lm.package.labels.get(described["file"], []),
            kernels,
            0,
            init,
            notes=lm.notes.get(described["file"]),
        )
        plan.name = getattr(lm.package.sources.get(described["file"]), "name", described["file"])
        self.loaded = lm.device.load_plan(plan)
        self.loaded.watch, self.loaded.ends, self.loaded.title = (
            lm.watch,
            lm.ends,
            described["file"],
        )
        fresh: list[str] = []
        try:
            fresh = lm.store.connect(self.loaded)
            self._bind_shared(prefix)
            if fresh:
                self.bind_caches(None)
            lm.store.init(self.loaded, fresh)
        except BaseException:  # a later plan computes them again
            lm.store.forget(fresh)
            self.loaded.free()
            lm.store.disconnect(self.loaded)
            raise

    def _bind_shared(self, prefix: str) -> None:
        """Binds inputs, outputs and states, whose memory plans share."""
        lm = self.lm
        for i, s in enumerate(self.slots):
            if s.kind in ("input", "output"):
                nbytes = s.nbytes
                if s.name in FED and not prefix:  # shared by plans for any number of ids
                    most = max(p["tokens"] for p in lm.package.manifest["decoder"]["plans"])
                    nbytes = s.nbytes // self.tokens * most
                buffer = lm.buffer(prefix + s.name, nbytes)
                self.loaded.bind(i, buffer)
                (self.inputs if s.kind == "input" else self.outputs)[s.name] = buffer
            elif s.kind == "state":
                self.loaded.bind(i, lm.state_buffer(s.name, s.nbytes))

    def bind_caches(self, sequence: int | None) -> None:
        """Binds the caches of a sequence; None: memory that all sequences share."""
        caches = self.lm.memory_of(sequence) if sequence is not None else None
        for i, s in enumerate(self.slots):
            if s.kind == "cache":
                if caches:
                    self.loaded.bind(i, caches[s.name])
                else:
                    nbytes = self.lm.first_bytes.get(s.name, s.nbytes)
                    self.loaded.bind(i, self.lm.buffer("cache/" + s.name, nbytes))
        self.bound = sequence

    def run(self, sequence: int, ids: list[int], past: int, every: bool = False) -> Buffer:
        """Runs on tokens that follow `past` others. Returns the logits after the last token.
        every: those after each of them.
        """
        if self.bound != sequence:
            self.bind_caches(sequence)
        lm = self.lm
        given = self.inputs["input_ids"]
        lm.device.write(given, struct.pack(f"<{len(ids)}q", *ids))
        if lm.filled > len(ids):  # from a longer run; the memory was zeroed at first
            lm.device.fill(given, 0, 8 * len(ids), 8 * (lm.filled - len(ids)))
        lm.filled = len(ids)
        feed(self, lm.features_of(sequence), past, len(ids))
        if "room" in self.registers:
            self.loaded.register(self.registers["room"], lm.room_of(sequence))
        if lm.window is not None:
            dropped = lm.dropped_of(sequence)
            rows = min(lm.window["rows"], lm.room_of(sequence))
            of_window = {"held": past - dropped, "dropped": dropped, "window": rows}
            for name, value in of_window.items():
                self.loaded.register(self.registers[name], value)
        if "past" in self.registers:
            self.loaded.register(self.registers["past"], past)
            self.loaded.register(self.registers["last"], 0 if every else len(ids) - 1)
        if "rows" in self.registers:
            self.loaded.register(self.registers["rows"], len(ids) if every else 1)
        lm.set_registers(self, sequence)
        self.loaded.run()
        (output,) = self.outputs.values()
        return output
