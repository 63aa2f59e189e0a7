"""Adds training programs to packages, so that a page trains without Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from ...errors import InputError, UnsupportedField
from ...logic.manifest.schema import (
    LoraFields,
    OptimizerFields,
    TrainingPlan,
    TrainingPlans,
    TrainingProgram,
)
from ...logic.training.lora import has_patterns
from ...logic.training.options import check_options
from ..compile import CHUNKS, add_plans, compile_package
from ..ir import Graph
from ..onnx.source import Source
from ..package import Package
from ..schema.training import LANGUAGE_MODEL
from ..targets import CPU, Target
from .encoder_decoder import encoder_decoder_inputs, source_positions
from .fitting import fit_rows, read_fit
from .language_model import causal_lm_inputs, fixed_rows, special_token
from .losses import CausalLMLoss
from .optimizers import Optimizer, language_model_optimizer
from .peft import LoraConfig
from .program import Program

PLANS = ("train", "accumulate", "update", "evaluate", "initialize")


def default_lora(**fields: Any) -> LoraConfig:
    """LoRA of all linear layers. fields: of LoraConfig."""
    return LoraConfig(
        **{"target_modules": LANGUAGE_MODEL.target_modules, "task_type": "CAUSAL_LM", **fields}
    )


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
        trainable, frozen, max_grad_norm, no_decay, loraplus_lr_ratio, checkpointing, target: as
            Program's.
        fit: "auto" recomputes activations, and then takes fewer rows, where a step would take more
            than `memory`.
        memory: bytes that training may take. Without `fit`, a program that takes more is refused.

    Returns:
        The program's entry in manifest["training"].

    Raises:
        OutOfMemory: it takes more than `memory`.
        InputError: the package has a program of this name, or was read from a file.
    """
    _check(package, name)
    _check_rates(loraplus_lr_ratio, lora)
    graph = package.graph
    assert graph is not None  # _check
    config = package.json("config.json", {})
    batch = batch or fixed_rows(graph) or LANGUAGE_MODEL.batch_size
    fields: dict[str, Any] = {
        "loss": CausalLMLoss(),
        "optimizer": language_model_optimizer(optimizer, lora is not None),
        "lora": lora,
        # runs of pages may have another scaling, but of DoRA, and of modules that have their own
        "weighed": lora is not None and not lora.use_dora and not has_patterns(asdict(lora)),
        "trainable": [] if lora is not None else trainable,
        "frozen": frozen,
        "max_grad_norm": max_grad_norm,
        "no_decay": no_decay,
        "loraplus_lr_ratio": loraplus_lr_ratio,
        "target": target,
    }
    sequence, positions = _row(package, sequence)

    def make(rows: int, recompute: bool | float) -> Program:
        inputs = _inputs(graph, rows, sequence, positions, config)
        return Program(graph, **inputs, checkpointing=checkpointing or recompute, **fields)

    wanted = batch
    if memory is None:
        program = make(batch, False)
    else:
        program, batch = fit_rows(make, memory, batch, fewer=read_fit(fit))
    kinds = [*PLANS, *(["magnitudes"] if lora is not None and lora.use_dora else [])]
    described = _add_plans(package, name, program, kinds)
    configs = package.json("generation_config.json", {}), config
    entry = _entry(program, name, batch, sequence, described, configs)
    if positions:
        entry["source"] = positions
    if batch < wanted:
        entry["gradient_accumulation_steps"] = wanted // batch
    package.manifest.setdefault("training", []).append(entry)
    return entry


def _entry(
    program: Program,
    name: str,
    batch: int,
    sequence: int,
    plans: dict[str, TrainingPlan],
    configs: Sequence[Any],
) -> TrainingProgram:
    lora = program.lora
    return {
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


def _check_rates(loraplus_lr_ratio: float | None, lora: LoraConfig | None) -> None:
    if loraplus_lr_ratio is not None and lora is None:
        raise InputError("it is for adapters", "loraplus_lr_ratio", "Leave it out.")
    check_options({"loraplus_lr_ratio": loraplus_lr_ratio})


def _row(package: Package, sequence: int) -> tuple[int, int]:
    """(tokens of a row, positions of the encoder's output in it or 0)"""
    encoder = package.manifest.get("encoder")
    if encoder is None:
        return sequence, 0
    sequence = min(sequence, package.manifest["decoder"]["capacity"])
    return sequence, source_positions(encoder, sequence)


def _inputs(
    graph: Graph, rows: int, sequence: int, positions: int, config: Mapping[str, Any]
) -> dict[str, Any]:
    if positions:
        return encoder_decoder_inputs(graph, rows, sequence, positions, config)
    return causal_lm_inputs(graph, rows, sequence, config)


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


def _check(package: Package, name: str) -> None:
    if package.graph is None:
        raise InputError(
            "its model is not available",
            f"program '{name}'",
            "Add training when the package is compiled.",
        )
    if any(p["name"] == name for p in package.manifest.get("training", ())):
        raise InputError("there is one of this name", f"program '{name}'", "Choose another name.")


def check_plain(lora: LoraConfig | None) -> None:
    """Raises UnsupportedField where adapters of a decoder beside an encoder are no plain LoRA."""
    if lora is not None and (lora.modules_to_save or lora.bias != "none" or lora.use_dora):
        raise UnsupportedField(
            "models with an encoder are trained by plain adapters",
            "modules_to_save, bias or use_dora",
            "Leave them out.",
        )


def described_programs(
    programs: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], LoraConfig | None]:
    """Arguments of add_training for programs, and the adapters that the package is compiled with.

    Raises:
        InputError: more than one program has LoRA.
    """
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


def compile_training_package(
    files: Mapping[str, Source],
    programs: Sequence[Mapping[str, Any]],
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
            fields or None, ...}. At most one has LoRA: the decoder's plans have its adapters.
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
