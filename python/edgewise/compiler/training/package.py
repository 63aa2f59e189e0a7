"""Adds training programs to packages, so that a page trains without Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from ...errors import InputError, UnsupportedField
from ...logic.manifest.schema import (
    LoraFields,
    OptimizerFields,
    TrainingPlan,
    TrainingPlans,
    TrainingProgram,
)
from ...logic.options import check_known
from ...logic.training.lora import has_patterns
from ...logic.training.options import check_options
from ..compile import CHUNKS, add_plans, compile_package
from ..ir import Graph
from ..onnx.source import Source
from ..package import Package
from ..schema.training import LANGUAGE_MODEL
from ..targets import CPU, Target
from .distillation import DistillationLoss
from .encoder_decoder import encoder_decoder_inputs, source_positions
from .fitting import fit_rows, read_fit
from .language_model import causal_lm_inputs, fixed_rows, special_token
from .losses import CausalLMLoss, balanced
from .optimizers import Optimizer, language_model_optimizer
from .packing import check_packing
from .peft import LoraConfig
from .program import Program

PLANS = ("train", "accumulate", "update", "evaluate", "initialize")
# The options of training that programs take under a name of their own.
PROGRAM = {"batch_size": "batch", "sequence_length": "sequence"}
# Those of them that adapters alone have.
OF_ADAPTERS = ("loraplus_lr_ratio",)
SHARED = (
    "optimizer",
    "max_grad_norm",
    "checkpointing",
    "fit",
    "memory",
    "ema_decay",
    "router_aux_loss_coef",
    "packing",
    "distillation",
)


def default_lora(**fields: Any) -> LoraConfig:
    """LoRA of all linear layers. fields: of LoraConfig."""
    return LoraConfig(
        **{"target_modules": LANGUAGE_MODEL.target_modules, "task_type": "CAUSAL_LM", **fields}
    )


def training_programs(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Arguments of `add_training` for options with the names of pages (`TrainingPrograms`) and of
    the command line.

    Args:
        options: "adapter": "lora" (default), "full" or a list of both; the keys of PROGRAM;
            OF_ADAPTERS and SHARED, as Program's; "learning_rate", which overrides the optimizer's;
            fields of LoraConfig. None: their defaults, but for max_grad_norm.

    Raises:
        InputError: there is no such option, or it is for adapters and there are none.
    """
    fields = [f for f in LoraConfig.__dataclass_fields__ if f != "peft_type"]
    check_known(
        list(options),
        ["adapter", "learning_rate", *PROGRAM, *SHARED, *OF_ADAPTERS, *fields],
        "options.training",
    )
    given = {k: x for k, x in options.items() if x is not None or k == "max_grad_norm"}
    rate = given.pop("learning_rate", None)
    if rate is not None:
        given["optimizer"] = _with_rate(given.get("optimizer"), rate)
    kinds = _kinds_of(given.get("adapter", "lora"))
    for name in (*OF_ADAPTERS, *fields):
        if name in given and "lora" not in kinds:
            raise InputError(
                "it is for adapters",
                f"options.training.{name}",
                "Leave it out, or give the adapter 'lora'.",
            )
    shared = {PROGRAM.get(k, k): x for k, x in given.items() if k in (*PROGRAM, *SHARED)}
    lora = {"r": LANGUAGE_MODEL.lora_r, "lora_alpha": LANGUAGE_MODEL.lora_alpha}
    lora |= {k: given[k] for k in fields if k in given}
    own = {"lora": lora, **{k: given[k] for k in OF_ADAPTERS if k in given}}
    return [
        {"name": kind, **shared, **(own if kind == "lora" else {"lora": None})} for kind in kinds
    ]


def _with_rate(
    optimizer: Optimizer | str | dict[str, Any] | None, rate: float
) -> Optimizer | dict[str, Any]:
    """An optimizer with another learning rate, as a Trainer makes it; None: the default one."""
    check_options({"learning_rate": rate}, "options.training.")
    if isinstance(optimizer, Optimizer):
        return replace(optimizer, lr=rate)
    own = optimizer if isinstance(optimizer, dict) else {"type": optimizer}
    return {**({"type": LANGUAGE_MODEL.optimizer} if optimizer is None else own), "lr": rate}


def _kinds_of(adapter: object) -> list[str]:
    """The kinds of programs, each once. Raises InputError."""
    kinds = [adapter] if isinstance(adapter, str) else adapter
    if not isinstance(kinds, (list, tuple)) or not kinds:
        kinds = [None]
    if any(k not in ("lora", "full") for k in kinds):
        raise InputError(
            f"it is {adapter!r}", "options.training.adapter", "Give 'lora', 'full' or both."
        )
    return list(dict.fromkeys(kinds))


def add_training(
    package: Package,
    name: str,
    *,
    batch: int | None = None,
    sequence: int = LANGUAGE_MODEL.sequence_length,
    lora: LoraConfig | None = None,
    optimizer: Optimizer | str | dict[str, Any] | None = None,
    trainable: str | Sequence[str] = "all",
    frozen: Sequence[str] = (),
    max_grad_norm: float | None = LANGUAGE_MODEL.max_grad_norm,
    loraplus_lr_ratio: float | None = None,
    ema_decay: float | None = None,
    router_aux_loss_coef: float = 0.0,
    packing: bool = False,
    distillation: Mapping[str, Any] | None = None,
    no_decay: Sequence[str] = LANGUAGE_MODEL.no_decay,
    checkpointing: bool | float = False,
    fit: str | None = None,
    memory: float | None = None,
    target: Target = CPU,
) -> TrainingProgram:
    """Adds the plans of a training program to a package.

    Args:
        package: of a causal language model, or of a task with an encoder and a decoder, compiled by
            this process with the adapters.
        name: of the program in the package, such as "lora" or "full".
        batch: rows of a step. Default: 4, or as many as the model was exported for.
        sequence: tokens of a row.
        lora: the adapters; the package must have been compiled with the same. None: the parameters
            are trained.
        optimizer: as optimizers.optimizer_of takes it. Default: AdamW, with a learning rate of 2e-3
            for adapters, 3e-4 for all parameters.
        trainable, frozen, max_grad_norm, no_decay, loraplus_lr_ratio, ema_decay, packing,
            checkpointing, target: as Program's.
        router_aux_loss_coef: of mixtures of experts, as CausalLMLoss's.
        distillation: fields of DistillationLoss; None: next tokens are learned of the data alone.
        fit: "auto" recomputes activations, and then takes fewer rows, where a step would take more
            than `memory`.
        memory: bytes that training may take. Without `fit`, a program that takes more is refused.

    Returns:
        The program's entry in manifest["training"].

    Raises:
        OutOfMemory: it takes more than `memory`.
        InputError: the package has a program of this name, or was read from a file.
    """
    graph = _checked(package, name)
    _check_rates(loraplus_lr_ratio, ema_decay, lora)
    config = package.json("config.json", {})
    batch = batch or fixed_rows(graph) or LANGUAGE_MODEL.batch_size
    fields: dict[str, Any] = {
        "loss": _loss_of(router_aux_loss_coef, distillation, "encoder" in package.manifest),
        "optimizer": language_model_optimizer(optimizer, lora is not None),
        "lora": lora,
        "weighed": _is_weighed(lora),
        "trainable": [] if lora is not None else trainable,
        "frozen": frozen,
        "max_grad_norm": max_grad_norm,
        "no_decay": no_decay,
        "loraplus_lr_ratio": loraplus_lr_ratio,
        "ema_decay": ema_decay,
        "packing": packing,
        "target": target,
    }
    sequence, positions = _row(package, sequence)
    check_packing(packing, not positions)

    def make(rows: int, recompute: bool | float) -> Program:
        inputs = _inputs(graph, rows, sequence, positions, config, packing)
        return Program(graph, **inputs, checkpointing=checkpointing or recompute, **fields)

    wanted = batch
    if memory is not None:
        program, batch = fit_rows(make, memory, batch, fewer=read_fit(fit))
    else:
        program = make(batch, False)
    described = _add_plans(package, name, program, _kinds(program))
    entry = _entry(package, program, name, batch, sequence, described)
    entry |= {"source": positions} if positions else {}
    if batch < wanted:
        entry["gradient_accumulation_steps"] = wanted // batch
    package.manifest.setdefault("training", []).append(entry)
    return entry


def _entry(
    package: Package,
    program: Program,
    name: str,
    batch: int,
    sequence: int,
    plans: dict[str, TrainingPlan],
) -> TrainingProgram:
    configs = [package.json(f, {}) for f in ("generation_config.json", "config.json")]
    lora, loss = program.lora, program.loss
    entry: TrainingProgram = {
        "name": name,
        "task": "causal_lm",
        "batch": batch,
        "sequence": sequence,
        "lora": cast("LoraFields", asdict(lora)) if lora is not None else None,
        "optimizer": cast("OptimizerFields", program.optimizer.describe()),
        "max_grad_norm": program.max_grad_norm,
        "plans": cast("TrainingPlans", plans),
        "states": program.describe_states(),
        "pad_token_id": special_token("pad_token_id", *configs),
        "eos_token_id": special_token("eos_token_id", *configs),
    }
    if isinstance(loss, DistillationLoss):
        entry["top_k"] = loss.top_k
    elif isinstance(loss, CausalLMLoss) and loss.router_aux_loss_coef:
        entry["router_aux_loss_coef"] = loss.router_aux_loss_coef
    if program.packing:
        entry["packing"] = True
    return entry


def _inputs(
    graph: Graph, rows: int, sequence: int, positions: int, config: Mapping[str, Any], packing: bool
) -> dict[str, Any]:
    if positions:
        return encoder_decoder_inputs(graph, rows, sequence, positions, config)
    return causal_lm_inputs(graph, rows, sequence, config, packing)


def _is_weighed(lora: LoraConfig | None) -> bool:
    """Whether runs of pages may have another scaling: not of DoRA, nor of modules that have their
    own.
    """
    return lora is not None and not lora.use_dora and not has_patterns(asdict(lora))


def _loss_of(
    coefficient: float, distillation: Mapping[str, Any] | None, encoded: bool
) -> CausalLMLoss | DistillationLoss:
    """The loss of a program. Raises InputError: options contradict each other."""
    if distillation is None:
        return balanced(coefficient, True) if coefficient else CausalLMLoss()
    if coefficient or encoded:
        raise InputError(
            "a teacher is for language models, without router_aux_loss_coef",
            "distillation",
            "Leave one of them out.",
        )
    names = ("top_k", "temperature", "alpha")
    check_known(list(distillation), names, "distillation")
    return DistillationLoss(**{"top_k": 8, **distillation})


def _kinds(program: Program) -> list[str]:
    """The plans that a page needs."""
    kinds = [*PLANS]
    if program.lora is not None and program.lora.use_dora:
        kinds.append("magnitudes")
    if program.ema_decay is not None:
        kinds.append("swap")
    return kinds


def _check_rates(
    loraplus_lr_ratio: float | None, ema_decay: float | None, lora: LoraConfig | None
) -> None:
    if loraplus_lr_ratio is not None and lora is None:
        raise InputError("it is for adapters", "loraplus_lr_ratio", "Leave it out.")
    check_options({"loraplus_lr_ratio": loraplus_lr_ratio, "ema_decay": ema_decay})


def _row(package: Package, sequence: int) -> tuple[int, int]:
    """(tokens of a row, positions of the encoder's output in it or 0)"""
    encoder = package.manifest.get("encoder")
    if encoder is None:
        return sequence, 0
    sequence = min(sequence, package.manifest["decoder"]["capacity"])
    return sequence, source_positions(encoder, sequence)


def _add_plans(
    package: Package, name: str, program: Program, kinds: Sequence[str]
) -> dict[str, TrainingPlan]:
    """Adds plans of a program to a package; returns their descriptions."""
    plans = [(f"train/{name}/{kind}", program.plan(kind)) for kind in kinds]
    add_plans(package, plans)
    return {
        kind: {
            "file": file,
            "slots": [s.describe() for s in plan.slots],
            "arena_bytes": plan.arena_bytes,
        }
        for kind, (file, plan) in zip(kinds, plans)
    }


def _checked(package: Package, name: str) -> Graph:
    """The model of a package. Raises InputError."""
    if package.graph is None:
        raise InputError(
            "its model is not available",
            f"program '{name}'",
            "Add training when the package is compiled.",
        )
    if any(p["name"] == name for p in package.manifest.get("training", ())):
        raise InputError("there is one of this name", f"program '{name}'", "Choose another name.")
    return package.graph


def check_plain(lora: LoraConfig | None) -> None:
    """Raises UnsupportedField where adapters of a decoder beside an encoder are no plain LoRA."""
    if lora is not None and (lora.modules_to_save or lora.bias != "none" or lora.use_dora):
        raise UnsupportedField(
            "models with an encoder are trained by plain adapters",
            "modules_to_save, bias or use_dora",
            "Leave them out.",
        )


def described_programs(
    programs: Sequence[Mapping[str, Any]] | Mapping[str, Any],
) -> tuple[list[dict[str, Any]], LoraConfig | None]:
    """Arguments of add_training for programs, or for the options of `training_programs`; and the
    adapters that the package is compiled with.

    Raises:
        InputError: more than one program has LoRA.
    """
    if isinstance(programs, Mapping):
        programs = training_programs(programs)
    described = [dict(p) for p in programs]
    configs = []
    for p in described:
        if p.get("lora") is not None:
            if not isinstance(p["lora"], LoraConfig):
                p["lora"] = default_lora(**p["lora"])
            configs.append(p["lora"])
    if len(configs) > 1:
        raise InputError(
            "more than one of them has LoRA",
            "programs",
            "A package's decoder carries the adapters of one; build several packages.",
        )
    return described, configs[0] if configs else None


def adapter_programs(
    programs: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], LoraConfig | None]:
    """As described_programs, of a model with an encoder, whose decoder gets plain adapters.

    Raises:
        UnsupportedField: they train something else.
    """
    described, lora = described_programs(programs)
    if described and (lora is None or len(described) > 1):
        raise UnsupportedField(
            "models with an encoder are trained by adapters", "training", "Give LoRA alone."
        )
    check_plain(lora)
    return described, lora


def compile_training_package(
    files: Mapping[str, Source],
    programs: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    dtype: str | None = None,
    capacity: int | None = None,
    chunks: Sequence[int] = CHUNKS,
    model_file: str | None = None,
    cache_dtype: str | None = None,
    target: Target = CPU,
    dtypes: Mapping[str, str] | None = None,
) -> Package:
    """A Package that can generate and train.

    Args:
        programs: arguments of add_training, {"name": ..., "batch": ..., "lora": LoraConfig, its
            fields or None, ...}; or the options of `training_programs`. At most one has LoRA: the
            decoder's plans have its adapters.
        files, dtype, capacity, chunks, model_file, cache_dtype, target, dtypes: as of
            compile.compile_package.

    Raises:
        InputError: more than one program has LoRA, or as add_training.
    """
    described, lora = described_programs(programs)
    package = compile_package(
        files,
        dtype,
        capacity,
        chunks,
        model_file,
        lora,
        cache_dtype=cache_dtype,
        target=target,
        dtypes=dtypes,
    )
    for p in described:
        add_training(package, p.pop("name"), target=target, **p)
    return package
