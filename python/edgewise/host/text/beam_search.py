"""Beam search: transformers' _beam_search."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...logic.generation.beams import caches_of
from ...logic.generation.fields import REASONS
from .fields import offsets, size, unpack
from .run import Generation, Recorded

_REASON_NAMES = {number: name for name, number in REASONS.items()}


class BeamSearch(Generation):
    """Generates the num_return_sequences best of num_beams beams."""

    def loop(self) -> Iterator[int | None]:
        """Yields None after each step."""
        state = self.state = self.alloc(self.checked("ew_beams_bytes", self.params))
        self.checked("ew_beams_start", self.params, state, self.ids, len(self.prompt))
        self.seed_stream(self.stream)
        caches = [self.open_sequence()]
        logits = yield from self.prefill(caches[0])
        head = self.head()
        recorded: list[list[Recorded]] = []
        host = self.host
        while True:
            recorded.append(self._offer(head, caches, logits))
            found = self.checked("ew_beams_rank", self.params, self.lists, state)
            if host.stop is not None or host.deadline is not None or host.criteria:
                self.mark_ended(head, found)
            continues = self.checked("ew_beams_advance", self.params, state)
            head = self.head()
            if not continues:
                break
            n = head["n_running"]
            data = self.engine.read(state + head["parents_at"], 4 * n)
            caches = self.reorder(caches, struct.unpack(f"<{n}i", bytes(data)))
            yield None
        self._finish(head)
        self.record(recorded)

    def _offer(self, head: dict[str, Any], caches: list[Any], logits: int) -> list[Recorded]:
        """Runs each beam and offers its candidates. logits: address of those after the prompt."""
        config, step = self.config, []
        for beam in range(head["n_running"]):
            self.check_abort([])
            self.length = head["length"]
            ids_at = self.state + head["rows_at"] + 4 * head["max_length"] * beam
            if self.length > len(self.prompt):
                logits = self.forward(caches[beam], self.row(head, beam))
            raw = self.floats(logits) if config.output_logits else None
            row = partial(self.row, head, beam)
            self.process(ids_at, row, logits)
            self.checked("ew_sampling_warp", self.params, self.work)
            step.append((self.floats(self.work) if config.output_scores else None, raw))
            self.checked("ew_beams_offer", self.params, self.state, beam, self.work, self.rng)
        return step

    def _finish(self, head: dict[str, Any]) -> None:
        """Adds the best sequences to the result."""
        done = self.records("ew_finished", self.state + head["done_at"], head["n_done"])
        for one in done[: self.config.num_return_sequences]:
            at = self.state + head["finished_at"] + 4 * head["max_length"] * one["row"]
            data = bytes(self.engine.read(at, 4 * one["length"]))
            self.result["sequences"].append(list(struct.unpack(f"<{one['length']}i", data)))
            self.result["finish_reasons"].append(_REASON_NAMES[one["reason"]])
            self.result.setdefault("sequences_scores", []).append(one["score"])

    def head(self) -> dict[str, Any]:
        """The members of ew_beams."""
        return unpack("ew_beams", self.engine.read(self.state, size("ew_beams")))

    def records(self, name: str, address: int, n: int) -> list[dict[str, Any]]:
        """`n` structs of the engine."""
        data = bytes(self.engine.read(address, n * size(name))) if n else b""
        return [unpack(name, data[i : i + size(name)]) for i in range(0, len(data), size(name))]

    def row(self, head: dict[str, Any], beam: int) -> list[int]:
        """The ids of a running beam."""
        at = self.state + head["rows_at"] + 4 * head["max_length"] * beam
        return list(
            struct.unpack(f"<{head['length']}i", bytes(self.engine.read(at, 4 * head["length"])))
        )

    def mark_ended(self, head: dict[str, Any], found: int) -> None:
        """Sets `done` of the candidates that end by the caller's criteria. found: how many
        candidates there are.
        """
        at = self.state + head["candidates_at"]
        for i, candidate in enumerate(self.records("ew_candidate", at, found)):
            if candidate["done"]:
                continue
            reason = self.ended_by_host(self.row(head, candidate["beam"]) + [candidate["token"]])
            if reason:
                where = at + i * size("ew_candidate") + offsets("ew_candidate")["done"]
                self.engine.write(where, struct.pack("<I", REASONS[reason]))

    def reorder(self, caches: list[Any], parents: Sequence[int]) -> list[Any]:
        """The caches of the new beams; beam i continues parents[i]."""
        found = caches_of(parents, len(caches))
        for source, target in found.copies:
            if target == len(caches):
                caches = [*caches, self.open_sequence()]
            self.decoder.copy(caches[source], caches[target])
        for number in found.unused:  # fewer beams run than before (rare)
            self.open_sequences.remove(caches[number])
            self.decoder.close(caches[number])
        return [caches[number] for number in found.of_beams]
