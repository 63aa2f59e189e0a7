"""Adds training programs to packages, so that a page trains without Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from ...errors import InputError
from ...logic.manifest.schema import (
    LoraFields,
    OptimizerFields,
    TrainingPlan,
    TrainingPlans,
    TrainingProgram,
)
from ...logic.training.options import check_options
from ..compile import CHUNKS, add_plans, compile_package
from ..onnx.source import Source
from ..package import Package
from ..schema.training import LANGUAGE_MODEL
from ..targets import CPU, Target
from .fitting import fit_rows
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
        package: of a causal language model, compiled by this process.
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
    graph = package.graph
    assert graph is not None  # _check
    config = package.json("config.json", {})
    batch = batch or fixed_rows(graph) or LANGUAGE_MODEL.batch_size
    fields: dict[str, Any] = {
        "loss": CausalLMLoss(),
        "optimizer": language_model_optimizer(optimizer, lora is not None),
        "lora": lora,
        "trainable": [] if lora is not None else trainable,
        "frozen": frozen,
        "max_grad_norm": max_grad_norm,
        "no_decay": no_decay,
        "loraplus_lr_ratio": loraplus_lr_ratio,
        "target": target,
    }
    if loraplus_lr_ratio is not None and lora is None:
        raise InputError("it is for adapters", "loraplus_lr_ratio", "Leave it out.")
    check_options({"loraplus_lr_ratio": loraplus_lr_ratio})

    def make(rows: int, recompute: bool | float) -> Program:
        inputs = causal_lm_inputs(graph, rows, sequence, config)
        return Program(graph, **inputs, checkpointing=checkpointing or recompute, **fields)

    wanted = batch
    if memory is None:
        program = make(batch, False)
    else:
        program, batch = fit_rows(make, memory, batch, fewer=_fits(fit))
    kinds = [*PLANS, *(["magnitudes"] if lora is not None and lora.use_dora else [])]
    plans = [(f"train/{name}/{kind}", program.plan(kind)) for kind in kinds]
    add_plans(package, plans)
    described: dict[str, TrainingPlan] = {
        kind: {
            "file": file,
            "slots": [s.describe() for s in plan.slots],
            "arena_bytes": plan.arena_bytes,
        }
        for kind, (file, plan) in zip(kinds, plans)
    }
    configs = package.json("generation_config.json", {}), config
    entry: TrainingProgram = {
        "name": name,
        "task": "causal_lm",
        "batch": batch,
        "sequence": sequence,
        "lora": cast("LoraFields", asdict(lora)) if lora is not None else None,
        "optimizer": cast("OptimizerFields", program.optimizer.describe()),
        "max_grad_norm": max_grad_norm,
        "plans": cast("TrainingPlans", described),
        "states": program.describe_states(),
        "pad_token_id": special_token("pad_token_id", *configs),
        "eos_token_id": special_token("eos_token_id", *configs),
    }
    if batch < wanted:
        entry["gradient_accumulation_steps"] = -(-wanted // batch)
    package.manifest.setdefault("training", []).append(entry)
    return entry


def _fits(fit: object) -> bool:
    if fit not in (None, "auto"):
        raise InputError(f"it is {fit!r}", "fit", "Give 'auto', or leave it out.")
    return fit is not None


def _check(package: Package, name: str) -> None:
    if package.graph is None:
        raise InputError(
            "its model is not available",
            f"program '{name}'",
            "Add training when the package is compiled.",
        )
    if any(p["name"] == name for p in package.manifest.get("training", ())):
        raise InputError("there is one of this name", f"program '{name}'", "Choose another name.")


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
    package = compile_package(
        files,
        dtype,
        capacity,
        chunks,
        model_file,
        configs[0] if configs else None,
        cache_dtype=cache_dtype,
        target=target,
        dtypes=dtypes,
    )
    for p in described:
        add_training(package, p.pop("name"), target=target, **p)
    return package
