"""The class `Trainer`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, cast

from ....compiler.compile.model_file import read_config
from ....compiler.formats.files import ModelFiles
from ....compiler.ir import Graph, Value
from ....compiler.onnx.sink import write_folder
from ....compiler.passes.lora import check_targets
from ....compiler.schema.training import LANGUAGE_MODEL
from ....compiler.targets import CPU, target_of
from ....compiler.training.fitting import estimate_of
from ....compiler.training.losses import CausalLMLoss, Loss
from ....compiler.training.optimizers import Optimizer
from ....compiler.training.peft import Adapter, LoraConfig, adapter_parts, load_adapter
from ....compiler.training.program import AVERAGED, LOSS, Program
from ....errors import InputError, list_of, memory_in_words, number_of, path_of, token_ids
from ....logic.training.checkpoints import BEST, is_result
from ....logic.training.memory import Estimate
from ....logic.training.preferences import Preference, Unit, judged, preferred, refer
from ....logic.training.records import Record
from ....logic.training.run import UNKNOWN, UpdateRequest, mean_loss, update
from ....logic.training.schedules import Schedule, factor
from ...arguments import Described, options_in_words
from ...drive import drive
from ...engine import Engine, Owner, default_engine, locked
from ...profile import Profile, Watch
from ...session.decoder import DecoderModel
from ...text import Tokenizer, generate
from ..card import CARD, TrainingRun, base_of, may_write
from ..data import Preview, Rows, preview
from ..preferences import PreferenceHost, UnitRows
from ..session import TrainingSession, learned_labels, weighed
from .checkpoint import check_run, check_tensors, kept_states, load_checkpoint, save_checkpoint
from .loop import (
    Data,
    Fit,
    History,
    Loop,
    Progress,
    Signal,
    patience_of,
    refuse_paths,
    rows_of,
    shapes_of,
    tokens_of,
    training_and_evaluation,
)
from .options import TrainedModel, options_of
from .programs import ProgramFactory
from .results import adapter_card, adapter_states, export_model, language_model_of

Batch = Mapping[str, object]


class Trainer(Described, Owner):
    """Trains an ONNX model.

        trainer = edgewise.Trainer("smollm2/", adapters=LoraConfig(r=8), sequence_length=128)
        trainer.fit(["text", ...], epochs=3)
        trainer.generate("Once")  # with the trained weights
        trainer.save("run.safetensors")
        trainer.save_adapter("my-style/")
        trainer.export("merged.onnx")

    Several threads may use it: a call waits for the end of the present step. docs/guide/
    training-runs.md describes what a run on texts is.

    Args:
        model: a model folder (Hugging Face layout), an .onnx file, its bytes, or a Graph.
        loss: "causal_lm" (default for language models), "cross_entropy", "mse", "l1", "huber",
            "bce_with_logits", "output:NAME", an object of edgewise.training.losses (GraphLoss: an
            ONNX model), or a function(graph, outputs, fed). Language models learn preferences with
            "dpo", "orpo", "kto" and "simpo".
        optimizer: a name such as "AdamW" (PyTorch's form), an object of
            edgewise.training.optimizers, or a dict of its fields with "type".
        adapters: LoraConfig, or a dict of its fields: adapters are trained and the model stays as
            it is. None: the model's parameters are trained.
        learning_rate: overrides the optimizer's. Default for language models with AdamW: 2e-3 for
            adapters, 3e-4 for parameters.
        trainable, frozen: names and patterns of parameters that are trained or not. Default: all
            are trained.
        batch_size: rows per batch. Default: for language models the number that the export fixes,
            else 4; 8 for other models.
        sequence_length: tokens per row; language models only.
        gradient_accumulation_steps: batches whose gradients are averaged for one update; of
            language models over all of their tokens.
        schedule: "constant", "linear", "cosine", or a function(step, total) that returns the factor
            of the learning rate.
        warmup_steps: updates over which the learning rate rises from 0.
        total_steps: updates that the schedule spans. Default: those of `fit`; `step` alone needs
            it.
        max_grad_norm: maximum norm of the gradient; None: no clipping. "auto": 1 for language
            models, else None.
        max_grad_value: maximum absolute value of a gradient's elements, or None.
        no_decay: patterns of parameters without weight decay. "auto": ("*norm*", "*bias*") for
            language models, else none.
        groups: [(pattern, {"lr_scale": ..., "weight_decay": ...})] for parameters that differ.
        ema_decay: averages of what is trained are made after each update, with this weight of the
            average before. Evaluations in `fit` are of them, and at its end they become the
            weights. None: no averages.
        packing: of language models: rows have several documents (records, texts), as many as fit,
            which do not see each other: less padding is computed.
        loraplus_lr_ratio, loraplus_lr_embedding: LoRA+ with PEFT's names: the learning rate of B
            (and of biases and magnitudes) is so many times that of A; that of adapters of
            embeddings. Default: one rate for all; 1e-6.
        memory: maximum bytes of engine memory. Activations are recomputed if that is needed.
        fit: "auto" makes training of a language model fit into `memory`, by default 3/4 of the
            free memory (of Linux, and of a container's limit; elsewhere there is no default):
            activations are recomputed, then batches have fewer rows, and updates more batches.
            None: `batch_size` stays.
        checkpointing: recompute activations in the backward pass, which takes less memory and
            more time.
        seed: of the order of the rows, of dropout, and of adapters' first values. An int from 0 on.
        beta, simpo_gamma, desirable_weight, undesirable_weight: of preferences, as TRL's: default
            0.1, 0.5, 1, 1.
        router_aux_loss_coef: of language models that are mixtures of experts, the factor of the
            loss that spreads tokens over experts (Mixtral's is 0.02); 0: none.
        dtype: which .onnx file of a folder: "fp32", "fp16", "q4", ...
        engine: default: the process's.
        tokenizer: a Tokenizer or a path. Default: the folder's.

    Attributes:
        graph: the model.
        session: the TrainingSession, from the first step on.
        program: the compiled Program, from the first step on.
        epoch: the present epoch.
        cursor: batches of it that were used.

    Raises:
        InputError: an argument cannot be used.
        ModelError: the file is damaged.
        UnsupportedOp, MissingGradient: the model cannot be trained.
        OutOfMemory: `memory` is too little; the message says what would fit. Raised by the first
            step.
    """

    rank = -1  # locked before its session
    # Position in the run: the epoch, its batches that were used, the update and the epoch that the
    # present `fit` began with, its updates, and whether it has ended.
    epoch = cursor = first_update = first_epoch = total = 0
    done = False
    # Of the last `fit`, for model cards: what is known, its data, and the loss of its first update.
    learned: TrainingRun | None = None
    learned_rows: Rows | None = None
    first_loss: float | None = None

    # long: a line for each argument
    @options_in_words
    @memory_in_words
    def __init__(
        self,
        model: Graph | str | os.PathLike[str] | bytes | TrainedModel,
        loss: Loss | str | Callable[..., Value] | None = None,
        optimizer: Optimizer | str | dict[str, Any] = LANGUAGE_MODEL.optimizer,
        adapters: LoraConfig | dict[str, Any] | None = None,
        *,
        learning_rate: float | None = None,
        trainable: str | Sequence[str] = "all",
        frozen: Sequence[str] = (),
        batch_size: int | None = None,
        sequence_length: int = LANGUAGE_MODEL.sequence_length,
        gradient_accumulation_steps: int = LANGUAGE_MODEL.gradient_accumulation_steps,
        schedule: Schedule = LANGUAGE_MODEL.schedule,
        warmup_steps: int = LANGUAGE_MODEL.warmup_steps,
        total_steps: int | None = None,
        max_grad_norm: float | Literal["auto"] | None = "auto",
        max_grad_value: float | None = None,
        no_decay: Sequence[str] | Literal["auto"] = "auto",
        groups: Sequence[tuple[str, dict[str, Any]]] = (),
        ema_decay: float | None = None,
        packing: bool = False,
        loraplus_lr_ratio: float | None = None,
        loraplus_lr_embedding: float | None = None,
        memory: float | None = None,
        checkpointing: bool = False,
        fit: Literal["auto"] | None = None,
        seed: int = LANGUAGE_MODEL.seed,
        beta: float | None = None,
        simpo_gamma: float | None = None,
        desirable_weight: float | None = None,
        undesirable_weight: float | None = None,
        router_aux_loss_coef: float = 0.0,
        dtype: str | None = None,
        engine: Engine | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    ):
        if not isinstance(model, TrainedModel):
            model = TrainedModel(model, dtype, tokenizer)
        self.model = model
        given: dict[str, Any] = {
            "trainable": trainable,
            "frozen": frozen,
            "batch_size": batch_size,
            "sequence_length": sequence_length,
            "accumulation": gradient_accumulation_steps,
            "schedule": schedule,
            "warmup": warmup_steps,
            "total_steps": total_steps,
            "max_grad_norm": max_grad_norm,
            "max_grad_value": max_grad_value,
            "no_decay": no_decay,
            "groups": groups,
            "memory": memory,
            "checkpointing": checkpointing,
            "fit": fit,
            "seed": seed,
            "router_aux_loss_coef": router_aux_loss_coef,
            "ema_decay": ema_decay,
            "packing": packing,
            "loraplus": (loraplus_lr_ratio, loraplus_lr_embedding),
            "preference": (beta, simpo_gamma, desirable_weight, undesirable_weight),
        }
        self.options = options_of(self.model, loss, optimizer, adapters, learning_rate, given)
        self.graph, self.engine = self.model.graph, engine
        if self.options.lora is not None:
            check_targets(self.graph, self.options.lora)
        target, config = CPU, read_config(self.model.files)
        if engine is not None:
            target = target_of(engine.device)
        self._programs = ProgramFactory(self.graph, self.options, target, config)
        self._session: TrainingSession | None = None
        self._lm: DecoderModel | None = None
        self.watch, self.fitting = Watch(), False
        # Of the present run: (its updates, loss) of evaluations, and the weights of the best one.
        self.evaluated: list[tuple[int, float]] = []
        self.best: dict[str, bytes] = {}
        self.kept = 0  # updates of the run before the best evaluation; UNKNOWN in older files
        self.start_lock()

    def _described(self) -> Sequence[tuple[str, object]]:
        options = self.options
        lora = options.lora
        trained = "parameters" if lora is None else f"LoRA of rank {lora.r}"
        sequence = options.sequence_length if options.is_lm else None
        fields: list[tuple[str, object]] = [("model", self.model.path), ("trains", trained)]
        fields += [("learning_rate", options.optimizer.lr)]
        fields += [("batch_size", options.batch_size), ("sequence_length", sequence)]
        return fields

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that was passed, or the model folder's, read on first use.

        Raises:
            InputError: there is none. TokenizerError: its file is broken.
        """
        return self.model.tokenizer

    @memory_in_words
    def estimate(
        self,
        batch: Batch | None = None,
        *,
        batch_size: int | None = None,
        sequence_length: int | None = None,
        checkpointing: bool | None = None,
    ) -> Estimate:
        """The memory that training takes, before any is allocated.

        Args:
            batch: {name: array}, for the shapes; not for language models.
            batch_size, sequence_length, checkpointing: override the trainer's.
        """
        program = self._programs.make(batch_size, sequence_length, checkpointing, shapes_of(batch))
        return estimate_of(program, self.options.accumulates)

    @property
    def session(self) -> TrainingSession:
        """The session with the plans and states; there is one from the first step on."""
        if self._session is None:
            raise InputError(
                "nothing has been trained yet", "Trainer", "Call `fit` or `step` first."
            )
        return self._session

    @property
    def program(self) -> Program:
        """The session's program."""
        return self.session.program

    @locked
    def _prepare(self, batch: Batch | None = None, chosen: bool = False) -> None:
        """Compiles the program and opens the session, if that has not been done. chosen: whether
        batches keep their rows, also with `fit`.
        """
        if self._session is not None:
            return
        if not self.options.is_lm and self._programs.shapes is None:
            self._programs.shapes = shapes_of(batch)
        program = self._programs.fitting(chosen)
        self._session = TrainingSession(program, self.engine, self.options.seed)
        self._session.watch = self.watch
        self.engine = self._session.engine

    def ready(self, batch: Batch) -> None:
        """Compiles the program for the shapes of a batch, and gives all states their first values,
        as the first step does.
        """
        self._ready(batch)

    @locked
    def _ready(self, batch: Batch | None = None) -> None:
        """As _prepare; gives all states their first values."""
        self._prepare(batch)
        if not self.session.initialized:
            accumulates = self.options.accumulates
            self.session.initialize("accumulate" if accumulates else "train")
            if accumulates:  # all states are known by now
                self.program.plan("update")

    @property
    def optimizer(self) -> Optimizer:
        """The trainer's optimizer, with its learning rate `lr`."""
        return self.options.optimizer

    def preview(self, data: str | Sequence[str] | Sequence[Record], count: int = 1) -> Preview:
        """What the model will see of the first `count` records, or rows of texts: of each its
        tokens, with their texts, whether they are learned, and whether they fit into a row.

        A notebook shows them with the learned ones marked; `print` writes them as lines.

        Raises:
            InputError: a record is invalid.
        """
        refuse_paths(data)
        given: Any = list_of([data] if isinstance(data, str) else data, "data", "texts or records")
        sequence = self.options.sequence_length
        return preview(given, count, self.tokenizer, self.model.end, sequence)

    # ---- training ----
    @locked
    @memory_in_words
    def step(self, batch: Batch | Sequence[Batch]) -> float:
        """One update.

        Args:
            batch: {input or target name: array}, or a list of batches whose gradients are
                averaged: over the batches, or the tokens of all of them (language models).

        Returns:
            The loss before the update, averaged alike.

        Raises:
            InputError: a batch has another shape or type than the first one, or lacks an input.
        """
        batches: Sequence[Any] = batch if isinstance(batch, (list, tuple)) else [batch]
        if not batches or not all(isinstance(b, dict) for b in batches):
            raise InputError(
                "it is not a batch", "Trainer.step", "Give {name: array}, or a list of them."
            )
        self._prepare(batches[0])
        self._check_rows(batches)
        session, count = self.session, len(batches)
        accumulates = count > 1 or self.options.accumulates
        of_tokens = isinstance(session.program.loss, CausalLMLoss)

        def accumulated() -> list[float]:
            if not of_tokens:
                return [float(session.accumulate(b)[LOSS]) for b in batches]
            total = sum(learned_labels(b, session.program) for b in batches)
            return [
                float(session.accumulate({**b, **weighed(b, session.program, total)})[LOSS])
                for b in batches
            ]

        def answer(request: UpdateRequest) -> list[float] | None:
            if request.kind == "reset":
                session.reset()
            elif request.kind == "apply":
                session.update(request.rate, request.scale)
            elif request.rate is None:
                return accumulated()
            else:
                return [float(session.train(batches[0], request.rate)[LOSS])]
            return None

        return drive(update(count, self.learning_rate(), accumulates, of_tokens), answer)

    def _check_rows(self, batches: Sequence[Batch]) -> None:
        """Raises InputError for a batch of more rows than those that `fit` has left."""
        rows, asked = self.options.batch_size, self.options.asked
        if asked is None:
            return
        for batch in batches:
            shape = (shapes_of(batch) or {}).get("input_ids")
            if shape and shape[0] > rows:
                raise InputError(
                    f"the batch has {shape[0]} rows, and fit='auto' has reduced batch_size from"
                    f" {asked} to {rows}, which fit into memory",
                    "Trainer.step",
                    f"Give a list of batches of {rows} rows, whose gradients are averaged.",
                )

    @locked
    @memory_in_words
    def prefer(self, units: Sequence[Unit]) -> float:
        """One update on preferences. Returns the loss before it."""
        units = list_of(units, "units", "a list of Unit")
        if self.options.preference is None or not all(isinstance(u, Unit) for u in units):
            raise InputError(
                "they are no units of a loss of preferences",
                "units",
                'Make the trainer with loss="dpo" or another of them, and call fit with records.',
            )
        self._ready()
        by, size = self.options.preference, self.options.batch_size
        answer = PreferenceHost(self.session, self.model.pad).answer
        return drive(preferred(units, by, size, self.learning_rate()), answer)

    @locked
    def refer(self, rows: Rows | None) -> None:
        """Computes the log-probabilities of the reference, the model as it was read."""
        if not isinstance(rows, UnitRows) or rows.units[0].reference:
            return
        session, by = self.session, cast(Preference, self.options.preference)
        host = PreferenceHost(session, self.model.pad)
        with host.first_states(self.program.states):
            drive(refer(rows.units, by, rows.size, rows.size), host.answer)

    def learning_rate(self) -> float:
        """The learning rate of the next update.

        Raises:
            InputError: the schedule needs `total_steps`.
        """
        return self.rate_at(
            self._session.step - self.first_update if self._session is not None else 0
        )

    def rate_at(self, step: int) -> float:
        """The learning rate of the update after `step` ones of the run."""
        step = number_of(step, "step", "an integer")
        options = self.options
        total = options.total_steps or self.total or None
        return options.optimizer.lr * factor(options.schedule, step, total, options.warmup)

    @options_in_words
    @memory_in_words
    def fit(
        self,
        data: Data,
        epochs: float | None = None,
        max_steps: int | None = None,
        evaluation: Data | float | None = None,
        evaluate_every: int | None = None,
        early_stopping: int | None = None,
        early_stopping_patience: int | None = None,
        load_best_model_at_end: bool = False,
        callbacks: Sequence[Callable[[Progress], object]] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = LANGUAGE_MODEL.checkpoint_every,
        progress: bool | None = None,
        signal: Signal | None = None,
    ) -> History:
        """Trains on data.

        A `fit` that was stopped (by a callback, a signal, an error, or the end of the process and
        `resume`) is continued by the next one, from the batch after the last and up to the same
        number of updates. After one that ended, the next begins a new run with the trained
        weights.

        Args:
            data: a text, or a list of texts, of lists of token ids or of records (language
                models); {name: array} of inputs and targets; or an object with `__len__` (batches
                per epoch) and `get(index, epoch)` that returns {name: array}. Records, of
                `read_data`, make one row each: {"messages": [...]}, of which the assistant's turns
                are learned; {"prompt": ..., "completion": ...}; {"text": ...}; and ShareGPT's and
                Alpaca's fields. Preferences are {"prompt", "chosen", "rejected"}, of KTO also
                {"prompt", "completion", "label"}.
            epochs: passes over the data, fractions allowed. Default: 1, or as many as `max_steps`
                takes.
            max_steps: maximum number of updates.
            evaluation: data like `data`; for texts also a float between 0 and 1: the share of the
                rows to hold back.
            evaluate_every: updates between evaluations. Default: once per epoch. The last update is
                always evaluated.
            early_stopping, early_stopping_patience: stop after so many evaluations without
                improvement.
            load_best_model_at_end: end with the weights of the best evaluation. A run that is
                stopped goes on first.
            callbacks: functions(Progress), called after each update. One that returns False stops
                the loop.
            checkpoint: file to save the run in, every `checkpoint_every` updates, at the end, and
                where the signal stops it.
            progress: show a line on stderr. Default: if that is a terminal.
            signal: an object with `aborted`, which is read before each update.

        Raises:
            Aborted: by the signal. What was learned stays.
            EngineError: the loss is not finite; a checkpoint that was written before stays.
            InputError: an argument cannot be used, or another thread is running `fit`.
        """
        fit = Fit(
            epochs,
            max_steps,
            evaluate_every,
            patience_of(early_stopping, early_stopping_patience),
            load_best_model_at_end,
            callbacks,
            checkpoint,
            checkpoint_every,
            progress,
            signal,
        )
        with self.lock:
            if self.fitting:
                raise InputError(
                    "another thread is running `fit`",
                    "Trainer.fit",
                    "Let it end, or make another Trainer.",
                )
            self.fitting = True
        try:
            if self.options.fits:
                self._prepare()  # chooses the rows of batches
            rows, held_out = training_and_evaluation(data, evaluation, self.model, self.options)
            self._ready(rows.get(0))
            self.refer(rows)
            self.refer(held_out)
            return Loop(self, rows, held_out, fit).run()
        finally:
            self.fitting = False

    def begin_run(self, total: int) -> None:
        """Begins a run of `total` updates, or goes on with one that was stopped."""
        if self.done:
            self.first_update = self.session.step
            self.epoch = self.first_epoch = self.epoch + (self.cursor > 0)
            self.cursor, self.done = 0, False
            self.evaluated, self.best, self.kept = [], {}, 0
        self.total = total

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within, the weights are their averages, where there are some."""
        swaps = self.session.averaged > 0
        if swaps:
            self.session.swap()
        try:
            yield
        finally:
            if swaps:
                self.session.swap()

    def keep_best(self, step: int) -> None:
        """Copies what is trained, or its averages, after `step` updates of the run."""
        states = self.program.states.items()
        with self.averaged():
            self.best = {n: self.session.read(n) for n, s in states if is_result(s.kind)}
        self.kept = step

    def take_best(self) -> None:
        """Puts back what `keep_best` has copied, and keeps no copy of it."""
        for name, data in self.best.items():
            self.session.write(name, data)
        self.best = {}

    def take_averages(self) -> None:
        """Makes the averages the weights; the next update begins new ones."""
        if self.session.averaged:
            self.session.swap()
            self.session.write(AVERAGED, bytes(8))

    def refresh(self) -> None:
        """Lets the language model see weights that have changed."""
        if self._lm is not None:
            self._lm.refresh()

    @locked
    @memory_in_words
    def evaluate(self, data: Data) -> float:
        """The mean loss over data, without dropout. Does not change the model.

        Args:
            data: as `fit`'s.

        Returns:
            Per token for language models, else per batch.
        """
        rows: Rows = rows_of(data, self.model, self.options)
        self._prepare(rows.get(0))
        if isinstance(rows, UnitRows):
            return self._judge(rows)

        def answer(i: int) -> tuple[float, int]:
            return float(self.session.evaluate(rows.get(i))[LOSS]), tokens_of(rows, i, None, 1)

        return drive(mean_loss(len(rows)), answer)

    def _judge(self, rows: UnitRows) -> float:
        """The mean loss over preferences."""
        self._ready()
        self.refer(rows)
        by, host = cast(Preference, self.options.preference), PreferenceHost(self.session, rows.pad)

        def answer(i: int) -> tuple[float, int]:
            units = rows.at(i, None)
            return drive(judged(units, by, rows.size), host.answer).loss, len(units)

        return drive(mean_loss(len(rows)), answer)

    # ---- results ----
    def generate(self, prompt: str | Sequence[int], **fields: Any) -> str | list[int]:
        """Continues a prompt with the present weights.

        Args:
            prompt: a text or token ids.
            fields: of transformers' GenerationConfig. Default: max_new_tokens=100.

        Returns:
            The text without special tokens, or the token ids, with the prompt.
        """
        lm: Any = self.language_model()
        text = isinstance(prompt, str)
        out = generate(
            lm,
            self.tokenizer.encode(prompt)
            if isinstance(prompt, str)
            else token_ids(prompt, "prompt"),
            tokenizer=self.tokenizer if text else None,
            **{"max_new_tokens": 100, **fields},
        )
        ids = out["sequences"][0] if isinstance(out, dict) else out[0]
        return self.tokenizer.decode(ids, skip_special_tokens=True) if text else ids

    @locked
    def language_model(self) -> DecoderModel:
        """A DecoderModel that shares this trainer's weights. It is freed with the trainer."""
        if self._lm is None:
            self._ready()
            self._lm = language_model_of(self.model, self.session, self.options.lora, self.watch)
        return self._lm

    def profile(self) -> Profile:
        """A Profile of the training and generation in a `with` block.

        with trainer.profile() as p:
            trainer.step(batch)
        print(p)
        p.save("trace.json")
        """
        self.engine = self.engine or default_engine()
        return Profile(self.engine, [self.watch])

    @locked
    @memory_in_words
    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the run in one safetensors file: parameters or adapters, optimizer states, and the
        position in the data. The file is complete or not written at all.
        """
        path = path_of(path, "path")
        self._ready()
        session = self.session
        states = {
            n: (s.dtype, s.shape, session.read(n))
            for n, s in kept_states(self.program.states).items()
        }
        for n, data in self.best.items():
            s = self.program.states[n]
            states[BEST + n] = s.dtype, s.shape, data
        run = {
            "step": session.step,
            "runs": session.runs,
            "epoch": self.epoch,
            "cursor": self.cursor,
            "first_update": self.first_update,
            "first_epoch": self.first_epoch,
            "evaluations": self.evaluated,
            "first_loss": self.first_loss,
            "best_step": self.kept,
            **self.options.record(),
            "shapes": self._programs.shapes,
        }
        save_checkpoint(states, run, path)

    @locked
    @memory_in_words
    def resume(self, path: str | os.PathLike[str], changed: Collection[str] = ()) -> Trainer:
        """Goes back to where `save` was called.

        Args:
            path: of the file.
            changed: what may differ from the run: "learning_rate", "batch_size",
                "sequence_length", "accumulation", "schedule", "warmup_steps", "seed".

        Returns:
            This trainer.

        Raises:
            ModelError: it is not a checkpoint, or damaged.
            InputError: it is of another model, optimizer or adapters, or of other options. Nothing
                has changed then.
        """
        tensors, run = load_checkpoint(path)
        is_free = self._session is None and "batch_size" not in changed
        options = self.options.of_run(run) if is_free else self.options
        check_run(run, options, changed, path)
        if run.get("shapes") is not None and self._programs.shapes is None:
            self._programs.shapes = {str(k): [int(d) for d in v] for k, v in run["shapes"].items()}
        self.options.take_rows(options.batch_size)
        self._prepare(chosen=is_free)
        self._ready()
        states = kept_states(self.program.states)
        best = {n: tensors.pop(n) for n in list(tensors) if n.startswith(BEST)}
        check_tensors(tensors, states, path)
        if best:
            results = {BEST + n: s for n, s in states.items() if is_result(s.kind)}
            check_tensors(best, results, path)
        for n in states:
            self.session.write(n, tensors[n].bytes())
        self.session.mended()
        self.session.runs = run["runs"]
        self.best = {n.removeprefix(BEST): x.bytes() for n, x in best.items()}
        self.evaluated = [(step, loss) for step, loss in run.get("evaluations", ())]
        self.epoch, self.cursor, self.done = run["epoch"], run["cursor"], False
        self.first_update, self.first_epoch = run["first_update"], run.get("first_epoch", 0)
        loss = run.get("first_loss")  # older checkpoints have none
        self.first_loss = loss if isinstance(loss, float) else None
        self.kept = run.get("best_step", UNKNOWN if best else 0)
        if self.kept > 0 and not best:  # it was put back: the weights are the copy
            self.keep_best(self.kept)
        self.refresh()
        return self

    def _check_lora(self) -> LoraConfig:
        """The trainer's LoraConfig. Raises InputError if it has none."""
        if self.options.lora is None:
            raise InputError(
                "there are no adapters",
                "Trainer",
                "Make the trainer with adapters=LoraConfig(...).",
            )
        return self.options.lora

    @locked
    def adapter(self) -> dict[str, tuple[int, Sequence[int], bytes]]:
        """The adapters, and the modules of modules_to_save and bias.

        Returns:
            {name in PEFT's files: (dtype code, shape, bytes)}

        Raises:
            InputError: the trainer has no adapters.
        """
        self._check_lora()
        self._ready()
        adapters = {
            n: (s.dtype, s.shape, self.session.read(n))
            for n, s in self.program.states.items()
            if s.kind == "adapter" and ".lora_" in n
        }
        return {**adapters, **self.session.saved()}

    @locked
    @memory_in_words
    def save_adapter(self, folder: str | os.PathLike[str]) -> None:
        """Writes the adapters in PEFT's layout: adapter_config.json and
        adapter_model.safetensors; and a model card, README.md, unless there is another one.
        """
        folder = path_of(folder, "folder")
        lora, base = self._check_lora(), base_of(ModelFiles(self.model.files), self.model.given)
        lora = replace(  # peft's AutoPeftModelForCausalLM needs both
            lora,
            task_type=lora.task_type or ("CAUSAL_LM" if self.options.learns_tokens else None),
            base_model_name_or_path=lora.base_model_name_or_path or base.id,
        )
        adapter = Adapter.of(lora, self.adapter())
        parts = adapter_parts(adapter.of_part() if self.model.is_part else adapter)
        if may_write(folder):
            parts[CARD] = [adapter_card(base, self.learned, self.learned_rows)]
        write_folder(parts, folder)

    @locked
    @memory_in_words
    def load_adapter(self, source: Adapter | str | os.PathLike[str] | dict[str, Any]) -> Trainer:
        """Continues from an adapter. The optimizer and the position in the data stay.

        Args:
            source: a folder in PEFT's layout, {file name: bytes}, or a peft.Adapter. Its ranks must
                be this trainer's.

        Returns:
            This trainer.

        Raises:
            InputError: it does not fit; nothing has changed then.
        """
        adapter = source if isinstance(source, Adapter) else load_adapter(source)
        own = self.adapter()
        for n, values in adapter_states(adapter, own, self.session, self._check_lora()).items():
            self.session.write(n, values)
        self.refresh()
        return self

    @locked
    @memory_in_words
    def export(
        self, path: str | os.PathLike[str] | None = None, external_data: str | None = None
    ) -> bytes | None:
        """Writes the trained model as an ONNX file: with new weights, or with the adapters merged
        into the base. Beside quantized weights, adapters are added as nodes.

        Args:
            path: of the file. None: returns its bytes.
            external_data: name of a file beside it for the weights; needed from 2 GB on.
        """
        self._ready()
        adapter = None if self.options.lora is None else self.adapter()
        return export_model(self.session, adapter, path, external_data)

    @locked
    def free(self) -> None:
        """Frees all engine memory."""
        if self._lm is not None:
            self._lm.free()
        if self._session is not None:
            self._session.free()
        self._lm = self._session = None
