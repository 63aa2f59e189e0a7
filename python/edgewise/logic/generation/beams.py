"""Beam search: transformers' _beam_search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import InputError
from ..native import int32_bytes
from .fields import REASONS
from .records import offset, size, unpack
from .requests import Logits, Loop, Step, Steps
from .run import FinishReason, Recorded, Run

_REASONS: dict[int, FinishReason] = {
    1: "eos",
    2: "length",
    3: "stop_string",
    4: "max_time",
    5: "stopping_criteria",
}


class Caches(NamedTuple):
    """The caches of the new beams, by number; numbers from the count of the old ones on are new.

    Attributes:
        of_beams: the number of each beam's cache.
        copies: (source, target) of the caches that are copied.
        unused: caches that no beam needs any more.
    """

    of_beams: list[int]
    copies: list[tuple[int, int]]
    unused: list[int]


def caches_of(parents: Sequence[int], count: int) -> Caches:
    """Assigns `count` caches to new beams; beam i continues parents[i]. The first child of a parent
    takes its cache, the others get copies in unused caches.
    """
    unused = [cache for cache in range(count) if cache not in parents]
    taken: set[int] = set()
    made: list[int] = []
    copies: list[tuple[int, int]] = []
    for parent in parents:
        cache = parent
        if parent in taken:
            if unused:
                cache = unused.pop()
            else:
                cache = count
                count += 1
            copies.append((parent, cache))
        taken.add(parent)
        made.append(cache)
    return Caches(made, copies, unused)


class BeamSearch(Run):
    """Generates the num_return_sequences best of num_beams beams."""

    places: list[Any]  # of the running beams in the format
    state: int  # address of the search's state
    head: Mapping[str, int]  # members of ew_beams

    def steps(self) -> Loop:
        """Adds the sequences to the output."""
        self.allocate()
        if self.constraint is not None and not self.config.eos_token_ids:
            raise InputError(
                "beams end by a token, and the model has none",
                "response_format",
                "Set eos_token_id, or num_beams to 1.",
            )
        self.state = self.alloc(self.call("ew_beams_bytes", self.params))
        self.call("ew_beams_start", self.params, self.state, self.ids_at, len(self.prompt))
        self.seed_random(0)
        self.places = [None if self.constraint is None else self.constraint.first()]
        caches = [self.begin()]
        logits: Logits = yield from self.prefill(caches[0])
        records: list[list[Recorded]] = []
        bounded = self.task.stop is not None or self.task.deadline is not None
        self._read_head()
        while True:
            records.append((yield from self._offer(caches, logits)))
            found = self.call("ew_beams_rank", self.params, self.lists, self.state)
            if bounded or self.host.criteria:
                self._mark_ended(found)
            continues = self.call("ew_beams_advance", self.params, self.state)
            self._read_head()
            if not continues:
                break
            parents = self.integers(self.state + self.head["parents_at"], self.head["n_running"])
            caches = self._reorder(caches, parents)
            self._follow(parents)
            yield Step(None)
        self._finish()
        self.record(records)

    def _offer(self, caches: list[Any], first: Logits) -> Steps[list[Recorded]]:
        """Runs each beam and offers its candidates. first: the logits after the prompt."""
        made: list[Recorded] = []
        length = self.head["length"]
        for beam in range(self.head["n_running"]):
            self.check_abort()
            logits: Any = first
            if length > len(self.prompt):
                logits = yield from self.forward(caches[beam], self._row(beam))
            self._score(beam, logits)
            if self.output_scores or self.output_logits:
                made.append(self.recorded(logits))
            self.call("ew_beams_offer", self.params, self.state, beam, self.work, self.rng)
        return made

    def _score(self, beam: int, logits: int) -> None:
        """Writes the processed and warped logits of a running beam to `work`."""
        length = self.head["length"]
        self.process(self._row_at(beam), length, lambda: self._row(beam), logits)
        if self.constraint is not None:
            self.constrain(self.places[beam])
        self.call("ew_sampling_warp", self.params, self.work)

    def _finish(self) -> None:
        """Adds the best sequences to the output."""
        head, output = self.head, self.output
        count: int = self.config.get("num_return_sequences")
        done = self._records("ew_finished", head["done_at"], head["n_done"])
        output.sequences_scores = output.sequences_scores or []
        for one in done[:count]:
            at = self.state + head["finished_at"] + 4 * head["max_length"] * one["row"]
            output.sequences.append(self.integers(at, one["length"]))
            output.finish_reasons.append(_REASONS[one["reason"]])
            output.sequences_scores.append(one["score"])

    def _read_head(self) -> None:
        self.head = unpack("ew_beams", self.engine.read(self.state, size("ew_beams")))[0]

    def _records(self, name: str, at: int, n: int) -> list[Mapping[str, Any]]:
        """`n` structs of the state."""
        return unpack(name, self.engine.read(self.state + at, n * size(name))) if n else []

    def _row_at(self, beam: int) -> int:
        """The address of the ids of a running beam."""
        return self.state + self.head["rows_at"] + 4 * self.head["max_length"] * beam

    def _row(self, beam: int) -> list[int]:
        """The ids of a running beam."""
        return self.integers(self._row_at(beam), self.head["length"])

    def _mark_ended(self, found: int) -> None:
        """Sets `done` of the candidates that end by the caller's criteria. found: how many
        candidates there are.
        """
        at = self.head["candidates_at"]
        for i, one in enumerate(self._records("ew_candidate", at, found)):
            if one["done"]:
                continue
            reason = self.ended([*self._row(one["beam"]), one["token"]])
            if reason is not None:
                where = self.state + at + i * size("ew_candidate") + offset("ew_candidate", "done")
                self.engine.write(where, int32_bytes([REASONS[reason]]))

    def _follow(self, parents: Sequence[int]) -> None:
        """Sets the places of the new beams in the format; beam i continues parents[i]."""
        constraint = self.constraint
        if constraint is not None:
            self.places = [
                constraint.after(self.places[parent], self._row(beam)[-1])
                for beam, parent in enumerate(parents)
            ]

    def _reorder(self, caches: list[Any], parents: Sequence[int]) -> list[Any]:
        """The caches of the new beams; beam i continues parents[i]."""
        found, all_ = caches_of(parents, len(caches)), list(caches)
        for source, target in found.copies:
            if target == len(all_):
                all_.append(self.open())
            self.host.copy(all_[source], all_[target])
        for number in found.unused:  # fewer beams run than before, which is rare
            self.close(all_[number])
        return [all_[number] for number in found.of_beams]
