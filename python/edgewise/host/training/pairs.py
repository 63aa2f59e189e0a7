"""`fine_tune`: a pipeline whose model has an encoder learns from pairs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...compiler.onnx.sink import write_folder
from ...compiler.schema.training import LANGUAGE_MODEL
from ...compiler.training.optimizers import Optimizer, language_model_optimizer
from ...compiler.training.package import check_plain
from ...compiler.training.peft import Adapter, LoraConfig, adapter_parts, load_adapter
from ...errors import Aborted, InputError, memory_in_words
from ...logic.multimodal.asking import PICTURES
from ...logic.native import Seed
from ...logic.options import check_known
from ...logic.training.chat import Example, Report, kept_rows
from ...logic.training.data import Row, split_rows
from ...logic.training.options import check_whole
from ...logic.training.pairs import pairs_of
from ...logic.training.targets import row_length
from ..arguments import options_of
from .card import CARD, may_write
from .data import TokenRows
from .pair_sources import PairSource, SpeechSource, TextSource
from .picture_pairs import PictureSource
from .trainer import Trainer
from .trainer.results import adapter_card

if TYPE_CHECKING:
    from .trainer.loop import Progress

Placed = tuple[Row, Any]  # a row, and what its source gives


@dataclass
class FineTuned:
    """Result of `fine_tune`.

    Attributes:
        adapter: that was learned. The pipeline uses it.
        losses: of each update, in nats per token of the targets.
        evaluations: [(update, loss on the held-out pairs)].
        stopped: why it ended: "done", "early_stopping" or "callback".
        best_step: updates before the best evaluation; None: there was none.
        report: how many targets are too long, and the tokens that were cut off.
        card: README.md beside the adapter; empty: none is written.
    """

    adapter: Adapter
    losses: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    stopped: str = "done"
    report: Report | None = None
    best_step: int | None = None
    card: bytes = field(default=b"", repr=False)

    def save_adapter(self, folder: str | os.PathLike[str]) -> None:
        """Writes the adapter in PEFT's layout; and a model card, README.md, unless there is another
        one.
        """
        parts = adapter_parts(self.adapter)
        if self.card and may_write(folder):
            parts[CARD] = [self.card]
        write_folder(parts, folder)


class PairRows(TokenRows):
    """Batches of pairs: as TokenRows, with what the sources give."""

    def __init__(
        self, placed: list[Placed], source: PairSource, batch: int, seed: int, report: Report
    ) -> None:
        super().__init__([row for row, _ in placed], batch, seed, source.pad, report)
        self.source, self.given = source, [given for _, given in placed]

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Batch `index` of an epoch; epoch None: in order."""
        chosen = self.order.chosen(index, epoch)
        # rows without labels get a source, too
        chosen = chosen + chosen[:1] * (self.order.batch - len(chosen))
        fed = self.source.feeds([self.given[i] for i in chosen], len(self.rows[0][0]))
        return {**super().get(index, epoch), **fed}


# Arguments of Trainer.fit that `fine_tune` passes on.
FIT = (
    "evaluate_every",
    "early_stopping",
    "early_stopping_patience",
    "load_best_model_at_end",
    "checkpoint_every",
    "progress",
    "signal",
)
# Arguments of Trainer that `fine_tune` does not take, since the pipeline and the pairs say them.
OWN = ("model", "loss", "engine", "tokenizer", "dtype", "fit")


# long: 20 parameters
@memory_in_words
def fine_tune(
    pipe: Any,
    pairs: Sequence[Mapping[str, Any]],
    *,
    adapters: LoraConfig | dict[str, Any] | None = None,
    name: str = "default",
    initial: Adapter | str | os.PathLike[str] | None = None,
    epochs: float | None = None,
    max_steps: int | None = None,
    learning_rate: float | None = None,
    optimizer: Optimizer | str | dict[str, Any] | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    seed: int = LANGUAGE_MODEL.seed,
    evaluation: Sequence[Mapping[str, Any]] | float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    on_step: Callable[[Progress], object] | None = None,
    call_options: Mapping[str, Any] | None = None,
    **training: Any,
) -> FineTuned:
    """Trains adapters of the decoder of a pipeline's model from pairs; the pipeline then uses them.

        asr = edgewise.pipeline("automatic-speech-recognition", "whisper-tiny/")
        result = edgewise.fine_tune(asr, [{"audio": "one.wav", "text": "Edgewise"}], epochs=3)
        asr("two.wav")
        asr.set_adapter(None)  # the model as it was
        result.save_adapter("my-words/")

    The source of each pair goes through the pipeline's own processor and the encoder once. The
    tokens of the target alone are learned, after those with which generation begins: Whisper's
    tokens of language and task, decoder_start_token_id; of a model that sees, after the question as
    its chat template writes it. The encoder stays as it is.

    Args:
        pipe: an automatic-speech-recognition pipeline of Whisper, with pairs {"audio", "text"};
            text2text-generation, translation or summarization, with {"source", "target"};
            image-text-to-text, with {"image", "prompt", "answer"}, or "images", a list. It was made
            from a model folder.
        pairs: the records. A recording is what the pipeline takes, of at most a window; so is a
            picture.
        adapters: LoraConfig, or a dict of its fields. Default: rank 8 beside all linear layers.
        name: of the adapter in the pipeline.
        initial: an adapter that training continues; without `adapters` with its configuration.
        epochs, max_steps, learning_rate, optimizer, batch_size, seed: as of Trainer and
            Trainer.fit, with the defaults of language models.
        sequence_length: tokens of a row; longer targets are cut. Default: those of the longest
            target, of a model that sees with its question and pictures.
        evaluation: held-out pairs, or the share of the pairs to hold out.
        checkpoint: file to save the run in, as of Trainer.fit.
        resume: continue from `checkpoint`, if there is that file.
        on_step: called with the Progress after each update; False stops the run.
        call_options: options of the pipeline's calls that say what stands before the target:
            language and task; prefix, src_lang and tgt_lang; add_special_tokens.
        training: more arguments of Trainer, and evaluate_every, early_stopping_patience (or
            early_stopping), load_best_model_at_end, checkpoint_every, progress and signal of
            Trainer.fit.

    Raises:
        InputError: an argument or a pair cannot be used; the message says which. Nothing has
            changed then.
        Aborted: by the signal. What was learned stays.
        EngineError: the loss is not finite; the pipeline stays as it was.
    """
    _check_names(training)
    source, begun = source_of(pipe, call_options or {}), _adapter_of(initial)
    config = begun.config if begun is not None and adapters is None else lora_of(adapters)
    data = _data(source, pairs, evaluation, sequence_length, seed)
    usual = min(LANGUAGE_MODEL.batch_size, len(data.rows))
    batch = usual if batch_size is None else check_whole(batch_size, "batch_size", 1)
    rows = PairRows(data.rows, source, batch, seed, data.report)
    held_out = PairRows(data.held, source, batch, seed, data.report) if data.held else None
    fit = {n: training.pop(n) for n in FIT if n in training}
    trainer = Trainer(
        source.model,
        source.loss,
        language_model_optimizer(optimizer, True),
        config,
        learning_rate=learning_rate,
        batch_size=batch,
        sequence_length=len(data.rows[0][0][0]),
        seed=seed,
        engine=pipe.engine,
        **{"max_grad_norm": LANGUAGE_MODEL.max_grad_norm, "no_decay": LANGUAGE_MODEL.no_decay}
        | training,
    )
    try:
        trainer.ready(rows.get(0))
        if begun is not None:
            trainer.load_adapter(begun)
        if resume and checkpoint is not None and os.path.exists(checkpoint):
            trainer.resume(checkpoint)
        calls = [] if on_step is None else [on_step]
        more = {"evaluation": held_out, "callbacks": calls, "checkpoint": checkpoint, **fit}
        try:
            history = trainer.fit(rows, epochs, max_steps, **more)
        except Aborted:
            _adopt(pipe, trainer, config, name)
            raise
        adapter = _adopt(pipe, trainer, config, name)
        card = adapter_card(source.base, trainer.learned, trainer.learned_rows)
    finally:
        trainer.free()
    losses, evaluations = history.losses, history.evaluations
    best, report = history.best_step, data.report
    return FineTuned(adapter, losses, evaluations, history.stopped, report, best, card)


def _check_names(training: Mapping[str, Any]) -> None:
    """Raises InputError for an argument that neither Trainer nor Trainer.fit gets."""
    known = [n for n in options_of(Trainer.__init__) if n not in OWN]
    check_known(list(training), [*options_of(fine_tune), *FIT, *known], "fine_tune")


@dataclass
class _Data:
    """Rows to train on, rows that are held out, and a report of the first ones."""

    rows: list[Placed]
    held: list[Placed]
    report: Report


def _data(
    source: PairSource, pairs: Any, evaluation: Any, sequence_length: int | None, seed: int
) -> _Data:
    found = _examples(source, pairs, "pairs")
    apart = evaluation is not None and not isinstance(evaluation, float)
    held = _examples(source, evaluation, "evaluation") if apart else []
    length = row_length([e for e, _ in found + held], sequence_length, source.most)
    rows, report = _placed(found, length, source, "pairs")
    others = _placed(held, length, source, "evaluation")[0] if held else []
    if isinstance(evaluation, float):
        rows, others = split_rows(rows, evaluation, Seed(seed))
    return _Data(rows, others, report)


def _adapter_of(initial: Adapter | str | os.PathLike[str] | None) -> Adapter | None:
    return initial if initial is None or isinstance(initial, Adapter) else load_adapter(initial)


def source_of(pipe: Any, options: Mapping[str, Any]) -> PairSource:
    """What a pipeline makes of pairs. Raises InputError for others."""
    from ..pipelines.automatic_speech_recognition import AutomaticSpeechRecognitionPipeline
    from ..pipelines.image_text_to_text import ImageTextToTextPipeline
    from ..pipelines.text2text import Text2TextGenerationPipeline

    if isinstance(pipe, AutomaticSpeechRecognitionPipeline):
        return SpeechSource(pipe, options)
    if isinstance(pipe, Text2TextGenerationPipeline):
        return TextSource(pipe, options)
    if isinstance(pipe, ImageTextToTextPipeline) and pipe.task == PICTURES.task:
        return PictureSource(pipe, options)
    what = f"a pipeline of {pipe.task}" if hasattr(pipe, "task") else f"a {type(pipe).__name__}"
    raise InputError(
        f"{what} does not learn from pairs",
        "fine_tune",
        "Pipelines of automatic-speech-recognition, text2text-generation, translation,"
        " summarization and image-text-to-text do; language models are trained by"
        " edgewise.Trainer.",
    )


def lora_of(adapters: LoraConfig | dict[str, Any] | None) -> LoraConfig:
    """The adapters of an argument, with the defaults of language models."""
    if isinstance(adapters, LoraConfig):
        config = adapters
    elif adapters is None or isinstance(adapters, dict):
        defaults = {
            "r": LANGUAGE_MODEL.lora_r,
            "lora_alpha": LANGUAGE_MODEL.lora_alpha,
            "target_modules": LANGUAGE_MODEL.target_modules,
        }
        config = LoraConfig(**{**defaults, **(adapters or {})})
    else:
        raise InputError(
            f"a {type(adapters).__name__} is no configuration of adapters",
            "adapters",
            "Give a LoraConfig, or a dict of its fields.",
        )
    check_plain(config)
    return config


def _examples(source: PairSource, pairs: Any, where: str) -> list[tuple[Example, Any]]:
    """The tokens of pairs, and what their sources give. Errors say which pair they are of."""
    if not isinstance(pairs, (list, tuple)):
        raise InputError(f"a {type(pairs).__name__} is no list of pairs", where, "Give a list.")
    made = []
    for pair in pairs_of(pairs, source.kind, where):
        try:
            made.append(source.example(pair))
        except InputError as e:
            at = f"{pair.where}: {e.where}" if e.where not in ("", pair.where) else pair.where
            raise InputError(e.what, at, e.remedy) from e
        except OSError as e:
            raise InputError(e.strerror or e, f"{pair.where}: {e.filename}", "Is it there?") from e
    return made


def _placed(
    examples: list[tuple[Example, Any]], sequence: int, source: PairSource, where: str
) -> tuple[list[Placed], Report]:
    kept = kept_rows([example for example, _ in examples], sequence, source.pad, where)
    placed = [(row, examples[i][1]) for row, i in zip(kept.rows, kept.examples)]
    return placed, kept.report


def _adopt(pipe: Any, trainer: Trainer, config: LoraConfig, name: str) -> Adapter:
    """Gives the pipeline what was learned."""
    adapter = Adapter.of(config, trainer.adapter()).of_part()
    pipe.load_adapter(adapter, name)
    pipe.set_adapter(name)
    return adapter


__all__ = ["FineTuned", "fine_tune"]
