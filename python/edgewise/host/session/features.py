"""Features of pictures or sounds, which replace embeddings of tokens of a prompt."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...logic.manifest.limits import FEATURES, POSITIONS, REACH, SELECTED
from ...logic.multimodal.prompt import Prepared, positions_of_run, reach_of_run, rows_of_run

if TYPE_CHECKING:
    from .decoder_plan import DecoderPlan

__all__ = ["Features", "Prompted", "feed"]


@dataclass
class Features:
    """What a prompt has besides its ids.

    Attributes:
        prompt: with places and positions.
        parts: for each picture or sound its features, float32 [count, hidden].
        counts: how many each has.
    """

    prompt: Prepared
    parts: Sequence[bytes]
    counts: Sequence[int]


class Prompted:
    """A decoder whose sequences begin with a certain prompt; otherwise as the decoder.

    Args:
        model: a DecoderModel whose plans take features.
        features: of the prompt.
    """

    def __init__(self, model: Any, features: Features) -> None:
        self._model, self._features = model, features
        self.formats_with = model  # tables of response_format are kept longer than a prompt
        # prompts are not divided where tokens belong together
        self.prefill_chunk = None if features.prompt.together else model.prefill_chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def open(self) -> int:
        """A new empty sequence."""
        return int(self._model.open(self._features))


def feed(plan: DecoderPlan, features: Features | None, past: int, count: int) -> None:
    """Writes the inputs of a run besides ids, as far as a plan has them.

    Args:
        plan: of the run.
        features: of the sequence; None: it has none.
        past: tokens before the run.
        count: tokens of the run.
    """
    lm, tokens = plan.lm, plan.tokens
    if SELECTED in plan.inputs:
        chosen = [0] * max(tokens, lm.selected)
        lm.selected = 0
        found = (
            rows_of_run(features.prompt.places, features.counts, past, count) if features else []
        )
        for rows in found:
            assert features is not None
            part = memoryview(features.parts[rows.part])
            size = len(part) // features.counts[rows.part]
            data = bytes(part[size * rows.first : size * (rows.first + rows.count)])
            lm.device.write(plan.inputs[FEATURES], data, size * rows.at)
            chosen[rows.at : rows.at + rows.count] = [1] * rows.count
            lm.selected = tokens
        lm.device.write(plan.inputs[SELECTED], struct.pack(f"<{len(chosen)}q", *chosen))
    if POSITIONS in plan.inputs:
        known = features.prompt.positions if features else []
        rest = [0] * (tokens - count)
        numbers = [x for row in positions_of_run(known, past, count) for x in (*row, *rest)]
        lm.device.write(plan.inputs[POSITIONS], struct.pack(f"<{len(numbers)}q", *numbers))
    if REACH in plan.inputs:
        seen = reach_of_run(features.prompt.reach if features else [], past, count)
        seen += [0] * (tokens - count)
        lm.device.write(plan.inputs[REACH], struct.pack(f"<{tokens}q", *seen))
