"""The arguments of a Trainer, checked, with defaults for those that were not given; and the model
that it is made for: its graph, and the files of its folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from ....compiler.compile import pick_model_file
from ....compiler.compile.join import join_embedding, takes_embeddings
from ....compiler.compile.model_file import find_embedding_file
from ....compiler.ir import Graph, Value
from ....compiler.onnx import as_source, read_model
from ....compiler.onnx.source import Source
from ....compiler.passes.lora import check_dora
from ....compiler.schema.training import LANGUAGE_MODEL, OTHER_MODEL
from ....compiler.training.distillation import DistillationLoss
from ....compiler.training.fitting import read_fit
from ....compiler.training.language_model import fixed_rows, special_token
from ....compiler.training.losses import CausalLMLoss, Loss, balanced, loss_of
from ....compiler.training.optimizers import Optimizer, language_model_optimizer, optimizer_of
from ....compiler.training.packing import check_packing
from ....compiler.training.parameters import choose, quantized_count
from ....compiler.training.peft import LoraConfig
from ....errors import InputError, ModelError, NoSuchFile, UnsupportedField, list_of
from ....json_text import parse_json
from ....logic.training.options import check_options, check_whole
from ....logic.training.preferences import LOSSES, RATE, Preference, check_preference
from ....logic.training.schedules import Schedule, check_schedule
from ...hub import local_path
from ...session.open import folder_files, name_in
from ...text import Tokenizer

CONFIGS = ("generation_config.json", "config.json")
# Fields of config.json that models of several networks have.
COMPOSED = ("is_encoder_decoder", "vision_config", "audio_config", "text_config")


class TrainedModel:
    """A model and the files beside it.

    Args:
        model: path of a model folder or an .onnx file; the id of a model of the hub; a Graph; or
            the bytes of a file.
        dtype: which .onnx file of a folder.
        tokenizer: a Tokenizer or the path of one; None: the folder's.

    Attributes:
        graph: the model.
        path: where it is, or None.
        files: {relative name: Source} of its folder; empty without a path.
        model_file: the .onnx file's name in `files`, or None.
        is_causal_lm: whether it has an input `input_ids` and an output `logits`.

    Raises:
        InputError: there is no such file, or it is a package.
    """

    def __init__(
        self,
        model: Graph | str | os.PathLike[str] | bytes,
        dtype: str | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    ):
        self.dtype, self._tokenizer = dtype, tokenizer
        self.path: str | None = None
        self.given = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
        self.model_file: str | None = None
        self.files: Mapping[str, Source] = {}
        self.is_joined = False  # from a file that embeds tokens and one that takes embeddings
        if isinstance(model, Graph):
            self.graph = model
        elif isinstance(model, (str, os.PathLike)):
            self.path = _checked(local_path(model, dtype))
            self.files, root = folder_files(self.path)
            self.model_file = (
                name_in(root, self.path)
                if os.path.isfile(self.path)
                else pick_model_file(self.files, dtype)
            )
            self.graph = self._with_embedding(read_model(self.files[self.model_file]))
        else:
            self.graph = read_model(as_source(model))
        self.is_causal_lm = "input_ids" in {i.name for i in self.graph.input_names()} and any(
            o.name == "logits" for o in self.graph.outputs
        )

    def _with_embedding(self, graph: Graph) -> Graph:
        """The graph, joined with that of the file beside it which embeds token ids, if it takes
        embeddings.
        """
        beside = None
        if takes_embeddings(graph) and self.model_file is not None:
            beside = find_embedding_file(self.files, self.model_file, None)
        self.is_joined = beside is not None
        return graph if beside is None else join_embedding(read_model(self.files[beside]), graph)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that was passed, or the folder's, read on first use.

        Raises:
            InputError: there is none. TokenizerError: its file is broken.
        """
        tokenizer = self._tokenizer
        if tokenizer is None:
            if not self.files:
                raise InputError(
                    "there is no tokenizer",
                    "Trainer",
                    "Pass tokenizer=..., or a model folder that has one.",
                )
            tokenizer = Tokenizer.from_files(self._contents, cast(str, self.path))
        elif isinstance(tokenizer, (str, os.PathLike)):
            tokenizer = Tokenizer.from_pretrained(tokenizer)
        self._tokenizer = tokenizer
        return tokenizer

    def _file(self, name: str) -> Source | None:
        return next((s for n, s in self.files.items() if n.rsplit("/", 1)[-1] == name), None)

    def _contents(self, name: str) -> bytes | None:
        source = self._file(name)
        return None if source is None else source.read_all()

    def config(self, name: str) -> object:
        """The contents of a configuration file; {} if there is none, or it is not JSON."""
        source = self._file(name)
        try:
            return {} if source is None else parse_json(source.read_all(), name)
        except ModelError:
            return {}

    @property
    def end(self) -> int | None:
        """Id of the end token: of the configuration, else of the tokenizer; or None."""
        end = special_token("eos_token_id", *map(self.config, CONFIGS))
        if end is None and (self._tokenizer is not None or self._file("tokenizer.json")):
            end = getattr(self.tokenizer, "eos_token_id")  # noqa: B009 (set by name)
        return end

    @property
    def pad(self) -> int:
        """Id of padding, which does not affect training."""
        pad = special_token("pad_token_id", *map(self.config, CONFIGS))
        return pad if pad is not None else self.end or 0

    @property
    def is_part(self) -> bool:
        """Whether the whole model has other layers beside the graph's: an encoder, or towers of
        pictures and sounds.
        """
        config = self.config("config.json")
        composed = isinstance(config, dict) and any(config.get(name) for name in COMPOSED)
        return composed or self.is_joined

    @property
    def positions(self) -> int | None:
        """Maximum tokens of a sequence, where the configuration has it."""
        for config in map(self.config, CONFIGS):
            for name in ("max_position_embeddings", "n_positions", "n_ctx"):
                if isinstance(config, dict) and config.get(name) is not None:
                    n = config[name]
                    return n if type(n) is int and n > 0 else None
        return None


def _checked(path: str) -> str:
    """The path of a model's file or folder. Raises InputError for others."""
    if not os.path.exists(path):
        raise NoSuchFile(
            "there is no such file or folder", path, "Give a model folder or an .onnx file."
        )
    if path.endswith(".edge"):
        raise InputError(
            "a package holds plans, not the model",
            path,
            "Give the model folder or .onnx file that it was built from; pages train packages that"
            " `edgewise build --train` made.",
        )
    return path


@dataclass
class Options:
    """Fields are the Trainer's arguments."""

    is_lm: bool
    loss: object
    optimizer: Optimizer
    lora: LoraConfig | None
    trainable: object
    frozen: Sequence[str]
    batch_size: int
    sequence_length: int
    accumulation: int
    schedule: Schedule
    warmup: int
    total_steps: int | None
    max_grad_norm: float | None
    max_grad_value: float | None
    no_decay: Sequence[str]
    groups: Sequence[tuple[str, dict[str, Any]]]
    memory: float | None
    checkpointing: bool
    seed: int
    router_aux_loss_coef: float = 0.0
    preference: Preference | None = None
    fits: bool = False
    ema_decay: float | None = None
    packing: bool = False
    loraplus: tuple[float | None, float | None] = None, None  # the ratio, that of embeddings
    asked: int | None = None  # batch_size as it was given, where batches have fewer rows

    def take_rows(self, rows: int) -> None:
        """Takes batches of fewer rows, a divisor of those so far, and more of them for an
        update.
        """
        if rows != self.batch_size:
            self.asked = self.asked or self.batch_size
        self.accumulation *= self.batch_size // rows
        self.batch_size = rows

    def of_run(self, run: Mapping[str, object]) -> Options:
        """The options with the rows that `fit` has chosen for a run, where updates have as many.

        Args:
            run: what `record` has said of it.
        """
        rows, batches = run.get("batch_size"), run.get("accumulation")
        own = replace(self)
        if self.fits and type(rows) is int and type(batches) is int and rows > 0:
            if rows * batches == self.batch_size * self.accumulation:
                if self.batch_size % rows == 0:
                    own.take_rows(rows)
        return own

    @property
    def learns_tokens(self) -> bool:
        """Whether next tokens are learned, from labels or of a teacher."""
        return self.is_lm or isinstance(self.loss, (CausalLMLoss, DistillationLoss))

    @property
    def accumulates(self) -> bool:
        """Whether an update adds the gradients of several runs."""
        return self.accumulation > 1 or self.preference is not None

    def program(self) -> dict[str, Any]:
        """Arguments of Program."""
        return {
            "loss": self.loss,
            "optimizer": self.optimizer,
            "trainable": self.trainable,
            "frozen": self.frozen,
            "lora": self.lora,
            "max_grad_norm": self.max_grad_norm,
            "max_grad_value": self.max_grad_value,
            "no_decay": self.no_decay,
            "groups": self.groups,
            "ema_decay": self.ema_decay,
            "packing": self.packing,
            **self.loraplus_fields(),
        }

    def on_card(self) -> dict[str, object]:
        """What a model card says of the options."""
        lora = self.lora
        return {
            "loss": self.preference.loss if self.preference else _named(self.loss),
            "optimizer": self.optimizer.op_name(),
            "learning_rate": self.optimizer.lr,
            "schedule": self.schedule if isinstance(self.schedule, str) else "function",
            "warmup_steps": self.warmup,
            "batch_size": self.batch_size,
            "gradient_accumulation_steps": self.accumulation,
            "sequence_length": self.sequence_length if self.is_lm else None,
            "r": None if lora is None else lora.r,
            "lora_alpha": None if lora is None else lora.lora_alpha,
            "seed": self.seed,
        }

    def loraplus_fields(self) -> dict[str, float]:
        """The arguments of LoRA+ that were given."""
        names = ("loraplus_lr_ratio", "loraplus_lr_embedding")
        return {n: x for n, x in zip(names, self.loraplus) if x is not None}

    def record(self) -> dict[str, object]:
        """What a checkpoint says about the run."""
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "sequence_length": self.sequence_length,
            "accumulation": self.accumulation,
            "schedule": self.schedule if isinstance(self.schedule, str) else "function",
            "warmup_steps": self.warmup,
            "optimizer": self.optimizer.describe(),
            "lora": _recorded(self.lora) if self.lora is not None else None,
            **self.loraplus_fields(),
            **({"ema_decay": self.ema_decay} if self.ema_decay is not None else {}),
            **({"packing": True} if self.packing else {}),
            **({"preference": asdict(self.preference)} if self.preference is not None else {}),
            **(
                {"router_aux_loss_coef": self.router_aux_loss_coef}
                if self.router_aux_loss_coef
                else {}
            ),
        }


def _recorded(lora: LoraConfig) -> dict[str, object]:
    """The fields of a configuration; use_dora, which older checkpoints lack, only where it is
    set.
    """
    return {k: v for k, v in asdict(lora).items() if k != "use_dora" or v}


def _named(loss: object) -> str:
    return loss if isinstance(loss, str) else type(loss).__name__


def options_of(
    model: TrainedModel,
    loss: Loss | str | Graph | Callable[..., Value] | None,
    optimizer: Optimizer | str | dict[str, Any] | None,
    adapters: LoraConfig | dict[str, Any] | None,
    learning_rate: float | None,
    given: dict[str, Any],
) -> Options:
    """Options of a Trainer's arguments.

    Args:
        model: to be trained.
        loss, optimizer, adapters, learning_rate: the arguments of these names.
        given: Options' other fields; None or "auto" where there is a default.

    Raises:
        InputError, UnsupportedField: a value cannot be used.
    """
    given["fits"] = read_fit(given.pop("fit"))
    preference = _preference(model, loss, given)
    loss = loss if preference is None else "causal_lm"
    is_lm = model.is_causal_lm and loss in (None, "causal_lm")
    if loss is None and not is_lm:
        raise InputError(
            "no loss was given", "loss", "Pass loss='cross_entropy', 'mse' or another."
        )
    loss = "causal_lm" if loss is None else loss
    if given["router_aux_loss_coef"]:
        loss = balanced(given["router_aux_loss_coef"], is_lm and preference is None)
    loss_of(loss)  # raises if there is no such loss
    check_packing(given["packing"], is_lm and preference is None)
    defaults = LANGUAGE_MODEL if is_lm else OTHER_MODEL
    lora = _lora(adapters)
    made = (
        language_model_optimizer(optimizer, lora is not None) if is_lm else optimizer_of(optimizer)
    )
    made = replace(made)  # a copy, since the rate below is this trainer's
    if learning_rate is not None:
        made.lr = learning_rate
    elif preference is not None:
        made.lr *= RATE
    if given["batch_size"] is None:
        rows = fixed_rows(model.graph) if is_lm else None
        given["batch_size"] = rows or defaults.batch_size
    for name in ("max_grad_norm", "no_decay"):
        if isinstance(given[name], str) and given[name] == "auto":
            given[name] = getattr(defaults, name)
    options = Options(
        is_lm=is_lm, loss=loss, optimizer=made, lora=lora, preference=preference, **given
    )
    _check_numbers(options)
    if options.fits and (not is_lm or preference is not None):
        raise InputError(
            "rows are chosen for next tokens of language models alone",
            "fit",
            "Leave it out, and give batch_size and memory.",
        )
    _check_groups(options.groups)
    if lora is None and options.trainable == "all":
        _check_quantized(model.graph, options.frozen)
    if lora is not None:
        check_dora(model.graph, lora)
    if lora is not None and options.trainable == "all":
        options.trainable = []
    if is_lm:
        _check_positions(model, options)
    if not callable(options.schedule):
        check_schedule(options.schedule, "schedule")
    return options


def _check_numbers(options: Options) -> None:
    check_options(
        {
            "learning_rate": options.optimizer.lr,
            "max_grad_norm": options.max_grad_norm,
            "max_grad_value": options.max_grad_value,
            "memory": options.memory,
            "batch_size": options.batch_size,
            "gradient_accumulation_steps": options.accumulation,
            "warmup_steps": options.warmup,
            "total_steps": options.total_steps,
            "sequence_length": options.sequence_length if options.learns_tokens else None,
            "ema_decay": options.ema_decay,
            **options.loraplus_fields(),
        }
    )
    check_whole(options.seed, "seed", 0)
    if options.checkpointing not in (True, False, None):
        raise InputError(f"it is {options.checkpointing!r}", "checkpointing", "Give True or False.")
    _check_loraplus(options)


def _check_loraplus(options: Options) -> None:
    given = options.loraplus_fields()
    if given and options.lora is None:
        raise InputError(
            "it is for adapters", next(iter(given)), "Give adapters, or groups with lr_scale."
        )
    if given and "loraplus_lr_ratio" not in given:
        raise InputError(
            "it has no effect without loraplus_lr_ratio",
            "loraplus_lr_embedding",
            "Give both, or groups with lr_scale.",
        )


def _check_positions(model: TrainedModel, options: Options) -> None:
    limit = model.positions
    if limit is not None and options.sequence_length > limit:
        raise InputError(
            f"{options.sequence_length} tokens are more than the model's {limit} positions",
            "sequence_length",
            "Use shorter rows.",
        )


def _preference(model: TrainedModel, loss: object, given: dict[str, Any]) -> Preference | None:
    """The settings of a loss of preferences, whose arguments are taken out of `given`."""
    beta, gamma, desirable, undesirable = given.pop("preference")
    if isinstance(loss, str) and loss in LOSSES:
        if not model.is_causal_lm:
            raise InputError(
                "preferences are learned by causal language models alone",
                "loss",
                "Take a model with input_ids and logits.",
            )
        return check_preference(loss, beta, gamma, desirable, undesirable, "")
    if (beta, gamma, desirable, undesirable) != (None,) * 4:
        raise InputError(
            f"they belong to the losses {', '.join(LOSSES)}",
            "beta, simpo_gamma, desirable_weight, undesirable_weight",
            "Leave them out.",
        )
    return None


def _check_groups(groups: Sequence[object]) -> None:
    for group in list_of(groups, "groups", "a list of (pattern, options)"):
        if not (
            isinstance(group, (list, tuple))
            and len(group) == 2
            and isinstance(group[0], str)
            and isinstance(group[1], dict)
        ):
            raise InputError(
                f"{group!r} is not a valid group",
                "groups",
                'Give pairs such as ("*.bias", {"lr_scale": 2.0, "weight_decay": 0.0}).',
            )


def _check_quantized(graph: Graph, frozen: Sequence[str]) -> None:
    """Raises InputError if most weights are quantized, which only adapters can train."""
    kept = quantized_count(graph)
    trained = sum(graph.constants[n].count for n in choose(graph, "all", frozen))
    if kept > trained:
        raise InputError(
            f"{kept:,} of its {kept + trained:,} weights are quantized, which only adapters can"
            " train",
            "trainable",
            "Pass adapters=LoraConfig(...), take the model's float file (dtype='fp32'), or name the"
            " parameters that you mean in `trainable`.",
        )


def _lora(adapters: object) -> LoraConfig | None:
    if isinstance(adapters, dict):
        unknown = [k for k in adapters if k not in LoraConfig.__dataclass_fields__]
        if unknown:
            raise UnsupportedField(
                f"LoraConfig has no field '{unknown[0]}' here",
                "adapters",
                f"Its fields are {', '.join(LoraConfig.__dataclass_fields__)}.",
            )
        return LoraConfig(**adapters)
    if adapters is not None and not isinstance(adapters, LoraConfig):
        raise InputError(
            f"a {type(adapters).__name__} is not a LoraConfig",
            "adapters",
            "Pass edgewise.training.LoraConfig(r=8, ...).",
        )
    return adapters
