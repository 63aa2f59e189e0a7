"""The programs of a Trainer: for its options, and for smaller batches where memory is limited; the
memory that they take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ....compiler.ir import Graph
from ....compiler.targets import Target
from ....compiler.training.fitting import Candidate, fit_into_memory, fit_rows
from ....compiler.training.language_model import causal_lm_inputs, without_past
from ....compiler.training.program import Program
from ....errors import InputError
from ....logic.training.memory import MIN_TOKENS
from .free_memory import free_memory
from .options import Options

Shapes = dict[str, list[int]]


class ProgramFactory:
    """Makes programs.

    Args:
        graph: the model.
        options: of the trainer.
        target: device that plans are for.
        config: the model's config.json.

    Attributes:
        shapes: of the inputs and targets, once they are known; not for language models.
    """

    def __init__(
        self, graph: Graph, options: Options, target: Target, config: Mapping[str, Any]
    ) -> None:
        self.graph, self.options, self.target, self.config = graph, options, target, config
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
                self.config,
                options.packing,
            )
        elif shapes is None:
            raise InputError(
                "the shapes of the inputs are not known yet",
                "Trainer",
                "Pass a batch, or call fit, first.",
            )
        else:
            inputs = without_past(self.graph, shapes, self.config)
        if checkpointing is None:
            checkpointing = options.checkpointing
        return Program(
            self.graph,
            **inputs,
            checkpointing=checkpointing,
            target=self.target,
            **options.program(),
        )

    def fitting(self, chosen: bool = False) -> Program:
        """A program that takes at most `options.memory` bytes.

        Args:
            chosen: whether the rows are those of a run so far, so that there cannot be fewer.

        Raises:
            OutOfMemory: there is none; says what would fit.
        """
        options = self.options
        limit = options.memory
        if options.fits and limit is None:
            limit = free_memory()
        if options.fits and limit is not None and not chosen:
            program, rows = fit_rows(
                lambda rows, checkpointing: self.make(
                    rows, checkpointing=options.checkpointing or checkpointing
                ),
                limit,
                options.batch_size,
                options.accumulation,
            )
            options.take_rows(rows)
            return program
        if limit is None:
            return self.make()
        return fit_into_memory(
            self.make,
            limit,
            options.accumulates,
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
                    if b and s >= MIN_TOKENS:
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
