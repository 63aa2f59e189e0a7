"""`Trainer`: a model, what it is to learn, and a loop that can be stopped, kept and taken up
again.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from dataclasses import asdict, dataclass, field, replace

from ..engine import Owner, locked
from ..errors import Aborted, EngineError, InputError, ModelError, OutOfMemory, UnsupportedField
from ..ir import Graph
from ..json_text import parse_json
from ..onnx import as_source, read_model
from ..profile import Profile, Watch
from ..schema.training import LANGUAGE_MODEL, OTHER_MODEL
from ..session.decoder import DecoderModel, folder_files
from ..text import Tokenizer
from .adapters import fitted, floats, turned
from .checkpoint import load_checkpoint, save_checkpoint
from .data import (
    ArrayRows,
    TokenRows,
    encode_texts,
    special_token,
    split_rows,
    token_rows,
    total_updates,
    updates_per_epoch,
)
from .export import export_lora, export_parameters
from .language_model import causal_lm_inputs
from .losses import loss_of
from .optimizers import language_model_optimizer, optimizer_of
from .parameters import choose, quantized_count
from .peft import Adapter, LoraConfig, load_adapter, save_adapter
from .program import LOSS, Program
from .schedules import factor
from .session import TrainingSession

KEPT = (
    "parameter",
    "adapter",
    "buffer",
    "optimizer",
    "step",
)  # kinds of states that a checkpoint holds


@dataclass
class Progress:
    """What callbacks get after each update. loss: mean over the update's batches; evaluation: loss
    on the evaluation data, where it was computed now.
    """

    step: int
    total: int
    epoch: float
    loss: float
    learning_rate: float
    tokens_per_second: float
    seconds_left: float
    evaluation: float | None = None


@dataclass
class History:
    """losses: of each update. evaluations: [(step, loss)]. stopped: why the loop ended: "done",
    "early_stopping" or "callback".
    """

    losses: list = field(default_factory=list)
    evaluations: list = field(default_factory=list)
    stopped: str = "done"


@dataclass
class Estimate:
    """Bytes of engine memory that training takes. total: all of it at its peak."""

    weights: int
    states: int
    activations: int
    plans: int

    @property
    def total(self):
        """Bytes of all of it together: the peak."""
        return self.weights + self.states + self.activations + self.plans


class Trainer(Owner):
    """Trains an ONNX model.

    Other threads may use it meanwhile: `generate`, `evaluate`, `save` and so on wait for the end of
    the present step.

        trainer = edgewise.Trainer("smollm2/", adapters=LoraConfig(r=8), sequence_length=128)
        trainer.fit(["text", ...], epochs=3)
        trainer.generate("Once")                       the same weights, at once
        trainer.save("run.safetensors"); trainer.save_adapter("my-style/");
        trainer.export("merged.onnx")

    Args:
        model: a model folder (Hugging Face layout), an .onnx file, or a Graph.
        loss: "causal_lm" (default for language models), "cross_entropy", "mse", "l1", "huber",
        "bce_with_logits", "output:NAME", an object of
            edgewise.training.losses (GraphLoss: an ONNX model of one's own), or a function(g,
            outputs, fed).
        optimizer: "AdamW" (PyTorch's form), ..., an object of edgewise.training.optimizers, or a
        dict with its fields. learning_rate: instead of the optimizer's. adapters: LoraConfig or a
        dict with its fields: adapters are trained and the model stays as it is. None: the model's
        parameters are. trainable, frozen: names and patterns of parameters; default all.
        batch_size; sequence_length (tokens per row, language models); gradient_accumulation_steps.
        schedule: "constant", "linear", "cosine" or a function(step, total); warmup_steps: at its
        beginning; total_steps: updates it spans (default: those of `fit`; `step` alone needs it).
        max_grad_norm, max_grad_value: clipping. no_decay: patterns of parameters without weight
        decay. groups: see Program. memory: most bytes of engine memory; activations are recomputed
        where that is needed. checkpointing: True: always. seed: of order, dropout and adapters'
        first values. dtype: which .onnx file of a folder. engine: default the process's. tokenizer:
        default the folder's.
    Raises:
        MissingGradient, UnsupportedOp, ModelError, InputError; OutOfMemory where `memory` is too
        little, saying what would fit.
    """

    rank = -1  # locked before its session

    def __init__(
        self,
        model,
        loss=None,
        optimizer=LANGUAGE_MODEL.optimizer,
        adapters=None,
        *,
        learning_rate=None,
        trainable="all",
        frozen=(),
        batch_size=None,
        sequence_length=LANGUAGE_MODEL.sequence_length,
        gradient_accumulation_steps=LANGUAGE_MODEL.gradient_accumulation_steps,
        schedule=LANGUAGE_MODEL.schedule,
        warmup_steps=LANGUAGE_MODEL.warmup_steps,
        total_steps=None,
        max_grad_norm="auto",
        max_grad_value=None,
        no_decay="auto",
        groups=(),
        memory=None,
        checkpointing=False,
        seed=LANGUAGE_MODEL.seed,
        dtype=None,
        engine=None,
        tokenizer=None,
    ):
        self.path, self.files, self.dtype = None, None, dtype
        if isinstance(model, Graph):
            self.graph = model
        elif isinstance(model, (str, os.PathLike)):
            from ..compile import pick_model_file

            self.path = os.fsdecode(model)
            if not os.path.exists(self.path):
                raise InputError(
                    "there is no such file or folder",
                    self.path,
                    "Give a model folder or an .onnx file.",
                )
            if self.path.endswith(".edge"):
                raise InputError(
                    "a package holds plans, not the model",
                    self.path,
                    "Give the model folder or .onnx file that it was built from; pages train"
                    " packages that `edgewise build --train` made.",
                )
            self.files, root = folder_files(self.path)
            self.model_file = (
                os.path.relpath(os.path.abspath(self.path), root)
                if os.path.isfile(self.path)
                else pick_model_file(self.files, dtype)
            )
            self.graph = read_model(self.files[self.model_file])
        else:
            self.graph = read_model(as_source(model))
        names = {i.name for i in self.graph.input_names()}
        self.is_lm = (
            "input_ids" in names
            and any(o.name == "logits" for o in self.graph.outputs)
            and (loss is None or loss == "causal_lm")
        )
        if loss is None:
            if not self.is_lm:
                raise InputError(
                    "it is not said what the model is to learn",
                    "loss",
                    "Pass loss='cross_entropy', 'mse' or another.",
                )
            loss = "causal_lm"
        defaults = LANGUAGE_MODEL if self.is_lm else OTHER_MODEL
        batch_size = defaults.batch_size if batch_size is None else batch_size
        max_grad_norm = defaults.max_grad_norm if max_grad_norm == "auto" else max_grad_norm
        no_decay = defaults.no_decay if no_decay == "auto" else no_decay
        loss_of(loss)  # says now what is wrong with it
        self.loss = loss
        made = (
            language_model_optimizer(optimizer, adapters is not None)
            if self.is_lm
            else optimizer_of(optimizer)
        )
        self.optimizer = replace(made)  # a copy: the rate below is this trainer's
        if learning_rate is not None:
            self.optimizer.lr = learning_rate
        _finite("learning_rate", self.optimizer.lr)
        for name, value in (
            ("max_grad_norm", max_grad_norm),
            ("max_grad_value", max_grad_value),
            ("memory", memory),
        ):
            if value is not None:
                _finite(name, value, above=True)
        for name, value, least in (
            ("warmup_steps", warmup_steps, 0),
            ("seed", seed, 0),
            ("total_steps", total_steps, 1),
        ):
            if value is not None and (type(value) is not int or value < least):
                raise InputError(
                    f"{value!r} is not a whole number from {least} on", name, "Give one."
                )
        for group in groups:
            if not (
                isinstance(group, (list, tuple))
                and len(group) == 2
                and isinstance(group[0], str)
                and isinstance(group[1], dict)
            ):
                raise InputError(
                    f"{group!r} is no group",
                    "groups",
                    'Give pairs such as ("*.bias", {"lr_scale": 2.0, "weight_decay": 0.0}).',
                )
        if isinstance(adapters, dict):
            unknown = [k for k in adapters if k not in LoraConfig.__dataclass_fields__]
            if unknown:
                raise UnsupportedField(
                    f"LoraConfig has no field '{unknown[0]}' here",
                    "adapters",
                    f"Its fields are {', '.join(LoraConfig.__dataclass_fields__)}.",
                )
        self.lora = LoraConfig(**adapters) if isinstance(adapters, dict) else adapters
        if self.lora is not None and not isinstance(self.lora, LoraConfig):
            raise InputError(
                f"a {type(adapters).__name__} is no LoraConfig",
                "adapters",
                "Pass edgewise.training.LoraConfig(r=8, ...).",
            )
        for name, value in (
            ("batch_size", batch_size),
            ("gradient_accumulation_steps", gradient_accumulation_steps),
        ):
            if type(value) is not int or value < 1:
                raise InputError(
                    f"{value!r} is not a number from 1 on", name, "Give a whole number."
                )
        if self.lora is None and trainable == "all":
            kept, trained = (
                quantized_count(self.graph),
                sum(self.graph.constants[n].count for n in choose(self.graph, "all", frozen)),
            )
            if kept > trained:
                raise InputError(
                    f"{kept:,} of its {kept + trained:,} weights are quantized, which only adapters"
                    " can train",
                    "trainable",
                    "Pass adapters=LoraConfig(...), take the model's float file (dtype='fp32'), or"
                    " name the parameters that you mean in `trainable`.",
                )
        if (
            self.is_lm
            and (limit := self._positions()) is not None
            and type(sequence_length) is int
            and sequence_length > limit
        ):
            raise InputError(
                f"{sequence_length} tokens are more than the model's {limit} positions",
                "sequence_length",
                "Use shorter rows.",
            )
        self.trainable, self.frozen = (
            ([] if self.lora is not None and trainable == "all" else trainable),
            frozen,
        )
        self.batch_size, self.sequence_length, self.accumulation = (
            batch_size,
            sequence_length,
            gradient_accumulation_steps,
        )
        self.schedule, self.warmup, self.total_steps = schedule, warmup_steps, total_steps
        if not callable(schedule):
            factor(schedule, 0, 1, warmup_steps)
        self.options = {
            "max_grad_norm": max_grad_norm,
            "max_grad_value": max_grad_value,
            "no_decay": no_decay,
            "groups": groups,
        }
        self.memory, self.checkpointing, self.seed, self.engine, self._tokenizer = (
            memory,
            checkpointing,
            int(seed),
            engine,
            tokenizer,
        )
        self.program = self.session = self._lm = None
        self.watch, self.fitting = Watch(), False
        self.start_lock()
        self.epoch, self.cursor, self.total = 0, 0, None
        self.begun, self.first_epoch, self.done = (
            0,
            0,
            False,
        )  # the update and the epoch that the present `fit` began with; whether it has ended

    # ---- what it takes ----
    def _make(self, batch_size=None, sequence_length=None, checkpointing=None, shapes=None):
        shapes = shapes or getattr(self, "shapes", None)
        where = (
            causal_lm_inputs(
                self.graph, batch_size or self.batch_size, sequence_length or self.sequence_length
            )
            if self.is_lm
            else {"shapes": shapes}
        )
        if where["shapes"] is None:
            raise InputError(
                "the shapes of the inputs are not known yet",
                "Trainer",
                "Pass a batch, or call fit, first.",
            )
        return Program(
            self.graph,
            **where,
            loss=self.loss,
            optimizer=self.optimizer,
            trainable=self.trainable,
            frozen=self.frozen,
            lora=self.lora,
            checkpointing=self.checkpointing if checkpointing is None else checkpointing,
            **self.options,
        )

    def estimate(self, batch=None, *, batch_size=None, sequence_length=None, checkpointing=None):
        """What training would take, before anything is allocated.

        Args:
            batch: {name: array} that shows the shapes, for models that are not language models.
            batch_size, sequence_length, checkpointing: instead of the trainer's own.
        Returns:
            Estimate
        """
        return self._estimate(
            self._make(batch_size, sequence_length, checkpointing, _shapes(batch))
        )

    def _estimate(self, program):
        plans = [
            program.plan(k)
            for k in (("train",) if self.accumulation == 1 else ("accumulate", "update"))
        ]
        weights = {
            s.name: s.nbytes for p in plans for s in p.slots if s.kind in ("weight", "computed")
        }
        fed = sum(s.nbytes for p in plans for s in p.slots if s.kind in ("input", "output"))
        return Estimate(
            sum(weights.values()),
            sum(
                s.nbytes
                for s in program.states.values()
                if self.accumulation > 1 or s.kind != "gradient"
            ),
            max(p.arena_bytes for p in plans) + fed,
            sum(len(p.data) for p in plans),
        )

    @locked
    def _prepare(self, batch=None):
        if self.session is not None:
            return
        if not self.is_lm and not hasattr(self, "shapes"):
            self.shapes = _shapes(batch)
        program = self._make()
        if self.memory is not None:
            estimate = self._estimate(program)
            if estimate.total > self.memory and not self.checkpointing:
                tight = self._make(
                    checkpointing=max(1, self.memory - (estimate.total - estimate.activations))
                )
                if self._estimate(tight).total < estimate.total:
                    program, estimate = tight, self._estimate(tight)
            if estimate.total > self.memory:
                raise OutOfMemory(
                    f"training takes {_mb(estimate.total)}, {_mb(self.memory)} may be used",
                    "memory",
                    self._what_fits(estimate),
                )
        self.program, self.session = program, TrainingSession(program, self.engine, self.seed)
        self.session.watch = self.watch
        self.engine = self.session.engine

    @locked
    def _ready(self, batch=None):
        """With states that have values."""
        self._prepare(batch)
        if not self.session.initialized:
            self.session.initialize("train" if self.accumulation == 1 else "accumulate")
            if self.accumulation > 1:  # all states are known by now
                self.program.plan("update")

    def _what_fits(self, estimate):
        """In words: a batch size and sequence length for which `memory` is enough. estimate: of
        what does not fit, recomputing as much as it can.
        """
        rest = self.memory - (estimate.total - estimate.activations)
        if self.is_lm:
            whole = self.batch_size * self.sequence_length
            smaller = [
                (b, s)
                for s in (
                    self.sequence_length,
                    self.sequence_length // 2,
                    self.sequence_length // 4,
                )
                for b in (self.batch_size // 2, self.batch_size // 4, self.batch_size // 8, 1)
                if b and s >= 8
            ]
            made = [
                (
                    (b * s) / whole,
                    f"batch_size={b}, sequence_length={s}",
                    lambda b=b, s=s: self._make(b, s, max(1, rest)),
                )
                for b, s in smaller
            ]
        else:
            first = {s[0] for s in self.shapes.values() if s}
            rows, made = first.pop() if len(first) == 1 else 1, []
            whole = rows
            while rows := rows // 2:
                made.append(
                    (
                        rows / whole,
                        f"batch_size={rows}",
                        lambda rows=rows: self._make(
                            checkpointing=max(1, rest),
                            shapes={n: [rows, *s[1:]] if s else s for n, s in self.shapes.items()},
                        ),
                    )
                )
        for part, words, make in made:
            if (
                part == made[-1][0] or part * estimate.activations <= 1.25 * rest
            ):  # about what it takes: compiling each would take long
                if self._estimate(make()).total <= self.memory:
                    return f"It would fit with {words} and checkpointing=True."
        return "Even a batch of one row does not fit; " + (
            "use a smaller r, or a quantized model."
            if self.lora is not None
            else "train adapters (adapters=LoraConfig(...)) instead of all parameters."
        )

    @property
    def tokenizer(self):
        """The Tokenizer that was passed, or the model folder's, read on first use.

        InputError where there is none; TokenizerError where its file is broken.
        """
        if self._tokenizer is None:
            if self.files is None:
                raise InputError(
                    "there is no tokenizer",
                    "Trainer",
                    "Pass tokenizer=..., or a model folder that has one.",
                )
            self._tokenizer = Tokenizer.from_files(
                lambda f: next(
                    (s.read(0, s.size) for n, s in self.files.items() if n.rsplit("/", 1)[-1] == f),
                    None,
                ),
                self.path,
            )
        elif isinstance(self._tokenizer, (str, os.PathLike)):
            self._tokenizer = Tokenizer.from_pretrained(self._tokenizer)
        return self._tokenizer

    def _rows(self, data, seed):
        if hasattr(data, "get") and hasattr(data, "__len__") and not isinstance(data, dict):
            return data
        if isinstance(data, dict):
            return ArrayRows(data, self.batch_size, seed)
        if (
            self.is_lm
            and not isinstance(data, (bytes, bytearray))
            and (isinstance(data, str) or hasattr(data, "__iter__"))
        ):
            return TokenRows(self._token_rows(data), self.batch_size, seed, self._pad())
        raise InputError(
            f"a {type(data).__name__} is no data",
            "data",
            "Give {name: array}, or texts for a language model.",
        )

    def _data(self, data, evaluation):
        """Batches to train on, and batches to evaluate on or None."""
        if not isinstance(evaluation, float):
            held_out = self._rows(evaluation, self.seed) if evaluation is not None else None
            return self._rows(data, self.seed), held_out
        rows = self._rows(data, self.seed)
        if not isinstance(rows, TokenRows):
            raise InputError(
                "a share can be held back from texts only",
                "evaluation",
                "Give data of the same kind as the training data.",
            )
        parts = split_rows(rows.rows, evaluation, self.seed)
        train, held_out = (TokenRows(p, self.batch_size, self.seed, rows.pad) for p in parts)
        return train, held_out

    def _token_rows(self, data):
        texts = [data] if isinstance(data, str) else list(data)
        ids = encode_texts(texts, lambda: self.tokenizer)
        return token_rows(ids, self.sequence_length, self._end(), self._pad())

    def _config(self, file):
        """The contents of a configuration file of the model's folder, {} where there is none."""
        source = next(
            (s for n, s in (self.files or {}).items() if n.rsplit("/", 1)[-1] == file), None
        )
        try:
            return parse_json(source.read_all(), file) if source is not None else {}
        except ModelError:
            return {}

    def _token(self, field):
        return special_token(
            field, self._config("generation_config.json"), self._config("config.json")
        )

    def _end(self):
        """Id of the end of a text: of the configuration, else of the tokenizer; or None."""
        end = self._token("eos_token_id")
        if end is None and (self._tokenizer is not None or self._has_tokenizer()):
            end = self.tokenizer.eos_token_id
        return end

    def _pad(self):
        """Id of padding, which has no effect on what is learned."""
        pad = self._token("pad_token_id")
        return pad if pad is not None else self._end() or 0

    def _has_tokenizer(self):
        return any(n.rsplit("/", 1)[-1] == "tokenizer.json" for n in self.files or ())

    def _positions(self):
        """Most tokens of a row."""
        for file in ("generation_config.json", "config.json"):
            config = self._config(file)
            for name in ("max_position_embeddings", "n_positions", "n_ctx"):
                if isinstance(config, dict) and config.get(name) is not None:
                    n = config[name]
                    return n if type(n) is int and n > 0 else None
        return None

    # ---- training ----
    @locked
    def step(self, batch):
        """One update on one batch, or on a list of batches whose gradients are averaged.

        Returns the loss as a float.
        """
        batches = batch if isinstance(batch, (list, tuple)) else [batch]
        if not batches or not all(isinstance(b, dict) for b in batches):
            raise InputError(
                "it is no batch", "Trainer.step", "Give {name: array}, or a list of them."
            )
        self._prepare(batches[0])
        rate = self.learning_rate()
        if len(batches) == 1 and self.accumulation == 1:
            loss = float(self.session.train(batches[0], rate)[LOSS])
        else:
            self.session.reset()
            loss = sum(float(self.session.accumulate(b)[LOSS]) for b in batches) / len(batches)
            self.session.update(rate, 1.0 / len(batches))
        return loss

    def learning_rate(self):
        """Of the next update."""
        total, step = (
            self.total_steps or self.total,
            (self.session.step - self.begun if self.session is not None else 0),
        )
        return self.optimizer.lr * factor(self.schedule, step, total, self.warmup)

    def fit(
        self,
        data,
        epochs=None,
        max_steps=None,
        evaluation=None,
        evaluate_every=None,
        early_stopping=None,
        callbacks=(),
        checkpoint=None,
        checkpoint_every=LANGUAGE_MODEL.checkpoint_every,
        progress=None,
        signal=None,
    ):
        """Trains.

        Args:
            data: a text or list of texts or token lists (language models), {name: array} of inputs
            and targets, or an object with __len__ (batches of an epoch) and
                get(index, epoch) -> {name: array}.
            epochs: passes over the data, fractions allowed (default: 1, or as many as `max_steps`
            takes); max_steps: updates at most.
            evaluation: data as `data`, or the share of the texts' rows to hold back (a float
            between 0 and 1); evaluate_every: updates between evaluations (default: once
            per epoch). early_stopping: evaluations without improvement after which to stop.
            callbacks: functions(Progress); one that returns False stops the loop. checkpoint: path
            of a file to keep the run in, every `checkpoint_every` updates and at the end. progress:
            whether to show a line (default: on a terminal). signal: object with `aborted`; raises
            Aborted between two updates.
        Returns:
            History. Where a `fit` was stopped (by a callback, a signal, an error, or the end of the
            process and `resume`) the next one goes on behind the last batch it saw, up to the same
            number of updates in all; where it ended, the next one begins anew with what was
            learned.
        Raises:
            Aborted: by the signal. EngineError: the loss is no number any more; a checkpoint that
            was written before stays.
        """
        if epochs is not None:
            _finite("epochs", epochs, above=True)
        for name, value in (
            ("max_steps", max_steps),
            ("evaluate_every", evaluate_every),
            ("early_stopping", early_stopping),
            ("checkpoint_every", checkpoint_every),
        ):
            if value is not None and (type(value) is not int or value < (name != "max_steps")):
                raise InputError(
                    f"{value!r} is not a number from {int(name != 'max_steps')} on",
                    name,
                    "Give a whole number.",
                )
        with self.lock:
            if self.fitting:
                raise InputError(
                    "another thread is in `fit`",
                    "Trainer.fit",
                    "Let it end, or make a Trainer of your own.",
                )
            self.fitting = True
        try:
            return self._fit(
                data,
                epochs,
                max_steps,
                evaluation,
                evaluate_every,
                early_stopping,
                callbacks,
                checkpoint,
                checkpoint_every,
                progress,
                signal,
            )
        finally:
            self.fitting = False

    def _fit(
        self,
        data,
        epochs,
        max_steps,
        evaluation,
        evaluate_every,
        early_stopping,
        callbacks,
        checkpoint,
        checkpoint_every,
        progress,
        signal,
    ):
        """The loop, by one thread at a time."""
        rows, held_out = self._data(data, evaluation)
        per_epoch = updates_per_epoch(len(rows), self.accumulation)
        self._ready(rows.get(0))
        if self.done:
            self.begun, self.first_epoch, self.cursor, self.done = (
                self.session.step,
                self.epoch + (self.cursor > 0),
                0,
                False,
            )
            self.epoch = self.first_epoch
        self.total = total_updates(per_epoch, epochs, max_steps)
        end = self.begun + self.total
        history, best, waited, started, tokens = History(), None, 0, time.monotonic(), 0
        first = self.session.step
        show = sys.stderr.isatty() if progress is None else progress
        try:
            while self.session.step < end:
                if signal is not None and signal.aborted:
                    raise Aborted(
                        "training was stopped",
                        f"update {self.session.step}",
                        "What was learned so far is kept.",
                    )
                chosen = range(self.cursor, min(self.cursor + self.accumulation, len(rows)))
                loss = self.step([rows.get(i, self.epoch) for i in chosen])
                tokens += (
                    sum(rows.tokens(i, self.epoch) for i in chosen)
                    if hasattr(rows, "tokens")
                    else self.batch_size * len(chosen)
                )
                if loss != loss or abs(loss) == float("inf"):
                    raise EngineError(
                        f"the loss is {loss}",
                        f"update {self.session.step}",
                        "The parameters are damaged: resume from the last checkpoint with a smaller"
                        " learning rate, or set max_grad_norm; and look for such numbers in the"
                        " data.",
                    )
                rate = self.learning_rate()
                self.cursor += self.accumulation
                if self.cursor >= len(rows):
                    self.epoch, self.cursor = self.epoch + 1, 0
                done, seconds = self.session.step, time.monotonic() - started
                at = Progress(
                    done - self.begun,
                    self.total,
                    self.epoch - self.first_epoch + self.cursor / len(rows),
                    loss,
                    rate,
                    tokens / max(seconds, 1e-9),
                    seconds / max(1, done - first) * (end - done),
                )
                history.losses.append(loss)
                if held_out is not None and (
                    (done - self.begun) % (evaluate_every or per_epoch) == 0 or done == end
                ):
                    at.evaluation = self.evaluate(held_out)
                    history.evaluations.append((done, at.evaluation))
                    waited = 0 if best is None or at.evaluation < best else waited + 1
                    best = at.evaluation if best is None else min(best, at.evaluation)
                if show:
                    self._show(at)
                if any(c(at) is False for c in callbacks):
                    history.stopped = "callback"
                    break
                if checkpoint is not None and done % checkpoint_every == 0:
                    self.save(checkpoint)
                if early_stopping and waited >= early_stopping:
                    history.stopped = "early_stopping"
                    self.done = True
                    break
            else:
                self.done = True
        finally:
            if show:
                sys.stderr.write("\n")
            if self._lm is not None:
                self._lm.refresh()
        if checkpoint is not None:
            self.save(checkpoint)
        return history

    def _show(self, p):
        width = 24
        filled = round(width * p.step / max(1, p.total))
        sys.stderr.write(
            f"\r{'#' * filled}{'.' * (width - filled)} {p.step}/{p.total} loss {p.loss:.4f}"
            + (f" evaluation {p.evaluation:.4f}" if p.evaluation is not None else "")
            + f" lr {p.learning_rate:.2e} {p.tokens_per_second:.0f}"
            f" {'tokens' if self.is_lm else 'rows'}/s {p.seconds_left:.0f} s left "
        )
        sys.stderr.flush()

    @locked
    def evaluate(self, data):
        """Mean loss over data (as in `fit`), dropout off."""
        rows = self._rows(data, self.seed)
        self._prepare(rows.get(0))
        losses, weights = 0.0, 0
        for i in range(len(rows)):
            w = rows.tokens(i, None) if hasattr(rows, "tokens") else 1
            losses += w * float(self.session.evaluate(rows.get(i))[LOSS])
            weights += w
        return losses / max(1, weights)

    # ---- results ----
    def generate(self, prompt, **fields):
        """Continues a prompt with the weights as they are now; fields as
        edgewise.pipeline("text-generation")'s. Returns the text, prompt included.
        """
        from ..text import generate

        lm = self.language_model()
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        out = generate(
            lm,
            ids,
            tokenizer=self.tokenizer if isinstance(prompt, str) else None,
            **{"max_new_tokens": 100, **fields},
        )
        return [self.tokenizer.decode(o) for o in out][0] if isinstance(prompt, str) else out[0]

    @locked
    def language_model(self):
        """A DecoderModel that shares this trainer's weights."""
        from ..compile import compile_package

        if self._lm is None:
            self._ready()
            half = [
                n
                for n, s in self.program.states.items()
                if s.kind == "parameter" and self.graph.constants[n].dtype != s.dtype
            ]  # weights of plans lie as the file has them, states as they are trained
            package = compile_package(
                self.files, self.dtype, model_file=self.model_file, lora=self.lora, trainable=half
            )
            self._lm = DecoderModel(
                package,
                engine=self.engine,
                states={
                    n: self.session.place(n)
                    for n, s in self.program.states.items()
                    if s.kind in ("parameter", "adapter")
                },
            )
            self._lm.trained = self.session  # whose memory it reads
            for p in self._lm.plans:
                p.loaded.watch = self.watch  # what it writes is this trainer's work
        return self._lm

    def profile(self):
        """A profile.Profile of what is trained and written in a `with` block: `with
        trainer.profile() as p: trainer.step(batch)`; then `print(p)`, `p.save("trace.json")`.
        """
        from ..engine import default_engine

        self.engine = self.engine or default_engine()
        return Profile(self.engine, [self.watch])

    @locked
    def save(self, path):
        """Keeps the run (parameters or adapters, optimizer state, place in the data) in one
        safetensors file, complete or not at all.
        """
        self._ready()
        s = self.session
        states = {
            n: (x.dtype, x.shape, s.read(n))
            for n, x in self.program.states.items()
            if x.kind in KEPT
        }
        run = {
            "step": s.step,
            "runs": s.runs,
            "seed": self.seed,
            "epoch": self.epoch,
            "cursor": self.cursor,
            "begun": self.begun,
            "first_epoch": self.first_epoch,
            "batch_size": self.batch_size,
            "sequence_length": self.sequence_length,
            "accumulation": self.accumulation,
            "schedule": self.schedule if isinstance(self.schedule, str) else "function",
            "warmup_steps": self.warmup,
            "optimizer": self.optimizer.describe(),
            "lora": asdict(self.lora) if self.lora is not None else None,
            "shapes": getattr(self, "shapes", None),
        }
        save_checkpoint(states, run, path)

    @locked
    def resume(self, path, changed=()):
        """Goes back to where `save` was called. Returns self.

        Args:
            path: of the file. changed: names of what may differ from the run that is taken up:
            "learning_rate", "batch_size", "sequence_length", "accumulation", "schedule",
            "warmup_steps", "seed".
        Raises:
            ModelError, InputError: the file is not of this model, optimizer, adapters and way of
            training; nothing has changed then.
        """
        tensors, run = load_checkpoint(path)
        if not all(
            type(run.get(k, 0)) is int and run.get(k, 0) >= 0 for k in ("begun", "first_epoch")
        ) or not all(
            type(run.get(k)) is int and (run[k] >= 0 or k == "seed")
            for k in ("runs", "seed", "epoch", "cursor")
        ):
            raise ModelError(
                "it is no checkpoint of a Trainer",
                str(path),
                "Give a file that Trainer.save has written.",
            )
        differ = self._differences(run, changed)
        if differ:
            raise InputError(
                "it is of another run: " + "; ".join(differ[:4]),
                str(path),
                "Make the trainer as it was made for the run; what may change can be named in"
                " `changed`.",
            )
        if run.get("shapes") is not None and not hasattr(self, "shapes"):
            self.shapes = {str(k): [int(d) for d in v] for k, v in run["shapes"].items()}
        self._ready()
        s = self.session
        want = {n: x for n, x in self.program.states.items() if x.kind in KEPT}
        wrong = [
            n
            for n, x in want.items()
            if n not in tensors
            or tensors[n].dtype != x.dtype
            or tuple(tensors[n].shape) != tuple(x.shape)
        ] + [n for n in tensors if n not in want]
        if wrong:
            raise InputError(
                f"its tensors are not this model's: {', '.join(wrong[:5])}",
                str(path),
                "Resume with the model, adapters and optimizer of the run.",
            )
        for n in want:
            s.write(n, tensors[n].bytes())
        s.mended()
        s.runs = run["runs"]
        self.epoch, self.cursor, self.begun, self.first_epoch, self.done = (
            run["epoch"],
            run["cursor"],
            run.get("begun", 0),
            run.get("first_epoch", 0),
            False,
        )
        if self._lm is not None:
            self._lm.refresh()
        return self

    def _differences(self, run, changed):
        """In words, what a run's description says otherwise."""
        mine = json.loads(
            json.dumps(
                {
                    "optimizer": self.optimizer.describe(),
                    "lora": asdict(self.lora) if self.lora is not None else None,
                    "batch_size": self.batch_size,
                    "sequence_length": self.sequence_length,
                    "accumulation": self.accumulation,
                    "schedule": self.schedule if isinstance(self.schedule, str) else "function",
                    "warmup_steps": self.warmup,
                    "seed": self.seed,
                }
            )
        )
        out = []
        for name, here in mine.items():
            there = run.get(name)
            if (
                name in changed
                or name == "sequence_length"
                and not self.is_lm
                or name not in run
                and name in ("schedule", "warmup_steps")
            ):
                continue
            if isinstance(here, dict) and isinstance(there, dict):
                keys = [
                    k
                    for k in {**here, **there}
                    if here.get(k) != there.get(k)
                    and not (k == "lr" and "learning_rate" in changed)
                ]
                out += [f"{name}.{k} was {there.get(k)!r}, is {here.get(k)!r}" for k in keys]
            elif here != there:
                words = [
                    x if x is None or not isinstance(x, dict) else "there" for x in (there, here)
                ]
                out.append(f"{name} was {words[0]!r}, is {words[1]!r}")
        return out

    @locked
    def adapter(self):
        """{name in PEFT's files: (dtype code, shape, bytes)} of the adapters, and of what
        modules_to_save and bias name.
        """
        if self.lora is None:
            raise InputError(
                "there are no adapters",
                "Trainer",
                "Make the trainer with adapters=LoraConfig(...).",
            )
        self._ready()
        return {
            n: (s.dtype, s.shape, self.session.read(n))
            for n, s in self.program.states.items()
            if s.kind == "adapter" and ".lora_" in n
        } | self.session.saved()

    @locked
    def save_adapter(self, folder):
        """Keeps the adapters in PEFT's layout: adapter_config.json and
        adapter_model.safetensors.
        """
        save_adapter(Adapter.of(self.lora, self.adapter()), folder)

    @locked
    def load_adapter(self, source):
        """Goes on from an adapter: the path of a folder in PEFT's layout, {file name: bytes}, or a
        peft.Adapter. Its ranks must be this trainer's. Optimizer and place in the data stay as they
        are. Returns self.

        Raises:
            InputError: it does not fit; nothing has changed then.
        """
        adapter = source if isinstance(source, Adapter) else load_adapter(source)
        mine = self.adapter()
        data = fitted(
            adapter,
            {n: shape for n, (_, shape, _) in mine.items() if ".lora_" in n},
            self.lora,
            exact=True,
        )
        saved = {s.name: s for s in self.program.saved}
        for key, x in adapter.saved.items():
            if key not in saved:
                raise InputError(
                    f"it brings '{key}', which this trainer does not train",
                    "adapter",
                    "Make the trainer with the modules_to_save and bias of the adapter.",
                )
            s = saved[key]
            shape = self.program.states[s.parameter].shape
            values = floats(x).tobytes()
            if len(values) != self.program.states[s.parameter].nbytes:
                raise InputError(
                    f"'{key}' has {len(values) // 4} numbers,"
                    f" {self.program.states[s.parameter].nbytes // 4} are wanted",
                    "adapter",
                    "Give an adapter of this model.",
                )
            data[s.parameter] = turned(values, shape[1], shape[0]) if s.turned else values
        for n, values in data.items():
            self.session.write(n, values)
        if self._lm is not None:
            self._lm.refresh()
        return self

    @locked
    def export(self, path=None, external_data=None):
        """Writes the trained model as a plain ONNX file: new weights, or the base with adapters
        merged into it (beside quantized weights they stand as nodes).

        Args:
            path: of the file; None: returns its bytes. external_data: name of a file beside it for
            the weights; needed from 2 GB on.
        """
        self._ready()
        if self.graph.source is None:
            raise InputError(
                "its file is not at hand",
                "Trainer.export",
                "Make the trainer of a path or of bytes.",
            )
        states = self.program.states
        if self.lora is None:
            return export_parameters(
                self.graph.source,
                {
                    n: (s.dtype, s.shape, self.session.read(n))
                    for n, s in states.items()
                    if s.kind in ("parameter", "buffer")
                },
                path,
                external_data,
            )
        merged = {
            n: (self.graph.constants[n].dtype, self.graph.constants[n].shape, data)
            for n, data in self.session.merged().items()
        }
        parameters = {
            n: (s.dtype, s.shape, self.session.read(n))
            for n, s in states.items()
            if s.kind in ("parameter", "buffer") and n not in merged
        }
        return export_lora(
            self.graph.source,
            self.program.lora_layers,
            self.adapter(),
            merged,
            path,
            external_data,
            parameters,
        )

    @locked
    def free(self):
        """Gives back all engine memory."""
        if self._lm is not None:
            self._lm.free()
        if self.session is not None:
            self.session.free()
        self._lm = self.session = self.program = None


def _finite(name, value, above=False):
    if (
        type(value) not in (int, float)
        or not math.isfinite(value)
        or value < 0
        or above
        and value == 0
    ):
        raise InputError(
            f"{value!r} is no number {'above' if above else 'from'} 0{'' if above else ' on'}",
            name,
            "Give one.",
        )


def _shapes(batch):
    if batch is None:
        return None
    from ..arrays import as_input

    return {name: list(as_input(x, name)[1]) for name, x in batch.items()}


def _mb(n):
    return f"{n / 1e6:.0f} MB"


__all__ = ["Estimate", "History", "Progress", "Trainer"]
