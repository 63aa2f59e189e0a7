"""The programs of a Trainer: for its options, and for smaller batches where memory is limited."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ....compiler.ir import Graph
from ....compiler.targets import Target
from ....compiler.training.language_model import causal_lm_inputs
from ....compiler.training.program import Program
from ....errors import InputError
from .estimate import Candidate, fit_into_memory
from .options import Options

LEAST_TOKENS = 8  # of the rows that are suggested where memory does not suffice

Shapes = dict[str, list[int]]


class ProgramFactory:
    """Makes programs.

    Args:
        graph: the model.
        options: of the trainer.
        target: device that plans are for.

    Attributes:
        shapes: of the inputs and targets, once they are known; not for language models.
    """

    def __init__(self, graph: Graph, options: Options, target: Target):
        self.graph, self.options, self.target = graph, options, target
        self.shapes: Shapes | None = None

    def make(
        self,
        batch_size: int | None = None,
        sequence_length: int | None = None,
        checkpointing: bool | float | None = None,
        shapes: Shapes | None = None,
    ) -> Program:
        """A program for the trainer's options, or for those given.

        Args:
            checkpointing: True, or the bytes that activations may take.

        Raises:
            InputError: the shapes are not known.
        """
        options = self.options
        shapes = shapes or self.shapes
        inputs: dict[str, Any]
        if options.is_lm:
            inputs = causal_lm_inputs(
                self.graph,
                batch_size or options.batch_size,
                sequence_length or options.sequence_length,
            )
        elif shapes is None:
            raise InputError(
                "the shapes of the inputs are not known yet",
                "Trainer",
                "Pass a batch, or call fit, first.",
            )
        else:
            inputs = {"shapes": shapes}
        if checkpointing is None:
            checkpointing = options.checkpointing
        return Program(
            self.graph,
            **inputs,
            checkpointing=checkpointing,
            target=self.target,
            **options.program(),
        )

    def fitting(self) -> Program:
        """A program that takes at most `options.memory` bytes.

        Raises:
            OutOfMemory: there is none; says what would fit.
        """
        options = self.options
        if options.memory is None:
            return self.make()
        return fit_into_memory(
            self.make,
            options.memory,
            options.accumulation > 1,
            options.checkpointing,
            self._smaller,
            "use a smaller r, or a quantized model."
            if options.lora is not None
            else "train adapters (adapters=LoraConfig(...)) instead of all parameters.",
        )

    def _smaller(self, activations: float) -> Iterator[Candidate]:
        """Programs with smaller batches, the largest first.

        Args:
            activations: the bytes that they may take.
        """
        bytes_left = max(1, activations)
        if self.options.is_lm:
            batch, sequence = self.options.batch_size, self.options.sequence_length
            for s in (sequence, sequence // 2, sequence // 4):
                for b in (batch // 2, batch // 4, batch // 8, 1):
                    if b and s >= LEAST_TOKENS:
                        yield Candidate(
                            b * s / (batch * sequence),
                            f"batch_size={b}, sequence_length={s}",
                            partial(self.make, b, s, bytes_left),
                        )
            return
        shapes = self.shapes or {}
        first = {s[0] for s in shapes.values() if s}
        whole = rows = first.pop() if len(first) == 1 else 1
        while rows := rows // 2:
            smaller = {n: [rows, *s[1:]] if s else s for n, s in shapes.items()}
            yield Candidate(
                rows / whole,
                f"batch_size={rows}",
                partial(self.make, checkpointing=bytes_left, shapes=smaller),
            )
