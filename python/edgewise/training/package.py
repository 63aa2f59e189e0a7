"""Training programs inside packages, so that a page can train without Python; and what a page with
Python calls.
"""

from __future__ import annotations

import os
from dataclasses import asdict

from ..compile import CHUNKS, add_plans, compile_package
from ..errors import InputError, UnsupportedField
from ..schema.training import LANGUAGE_MODEL
from ..session.decoder import folder_files
from .data import special_token
from .language_model import causal_lm_inputs
from .losses import CausalLMLoss
from .optimizers import AdamW, language_model_optimizer
from .peft import LoraConfig
from .program import Program

PLANS = ("train", "accumulate", "update", "evaluate", "initialize")


def default_lora(**fields):
    """LoRA of all linear layers."""
    return LoraConfig(
        **{"target_modules": LANGUAGE_MODEL.target_modules, "task_type": "CAUSAL_LM", **fields}
    )


def add_training(
    package,
    name,
    *,
    batch=LANGUAGE_MODEL.batch_size,
    sequence=LANGUAGE_MODEL.sequence_length,
    lora=None,
    optimizer=None,
    trainable="all",
    frozen=(),
    max_grad_norm=LANGUAGE_MODEL.max_grad_norm,
    no_decay=LANGUAGE_MODEL.no_decay,
    checkpointing=False,
):
    """Adds the plans of a program to a package of a causal language model that this process
    compiled.

    Args:
        package: Package. name: of the program in the package, such as "lora" or "full".
        batch, sequence: of a step. lora: LoraConfig; the decoder's plans must have been compiled
        with the same. None: the parameters are trained. optimizer: as optimizers.optimizer_of takes
        it; default AdamW with lr 2e-3 for adapters, 3e-4 for all parameters.
    Returns:
        the program's entry in manifest["training"]
    """
    graph = package.graph
    if graph is None:
        raise InputError(
            "its model is not at hand",
            f"program '{name}'",
            "Add training when the package is compiled.",
        )
    if any(p["name"] == name for p in package.manifest.get("training", ())):
        raise InputError("there is one of this name", f"program '{name}'", "Choose another name.")
    if lora is not None and (lora.modules_to_save or lora.bias != "none"):
        raise UnsupportedField(
            "pages train adapters alone",
            "modules_to_save or bias",
            "Leave them out; edgewise.Trainer has them.",
        )
    optimizer = language_model_optimizer(optimizer, lora is not None)
    program = Program(
        graph,
        **causal_lm_inputs(graph, batch, sequence),
        loss=CausalLMLoss(),
        optimizer=optimizer,
        lora=lora,
        trainable=[] if lora is not None else trainable,
        frozen=frozen,
        max_grad_norm=max_grad_norm,
        no_decay=no_decay,
        checkpointing=checkpointing,
    )
    plans = [(f"train/{name}/{kind}", program.plan(kind)) for kind in PLANS]
    add_plans(package, plans)
    configs = package.json("generation_config.json", {}), package.json("config.json", {})
    entry = {
        "name": name,
        "task": "causal_lm",
        "batch": batch,
        "sequence": sequence,
        "lora": asdict(lora) if lora is not None else None,
        "optimizer": program.optimizer.describe(),
        "max_grad_norm": max_grad_norm,
        "plans": {
            kind: {
                "file": file,
                "slots": [s.describe() for s in plan.slots],
                "arena_bytes": plan.arena_bytes,
            }
            for kind, (file, plan) in zip(PLANS, plans)
        },
        "states": [
            {**d, "initial": list(program.states[d.name].initial)}
            for d in program.describe_states()
        ],
        "pad_token_id": special_token("pad_token_id", *configs),
        "eos_token_id": special_token("eos_token_id", *configs),
    }
    package.manifest.setdefault("training", []).append(entry)
    return entry


def compile_training_package(
    files, programs, dtype=None, capacity=None, chunks=CHUNKS, model_file=None, cache_dtype=None
):
    """A Package that can generate and train.

    Args:
        programs: [{"name": ..., "batch": ..., "sequence": ..., "lora": {LoraConfig's fields} or
        None, ...}] as add_training's arguments. At most one has
            LoRA: the decoder's plans carry its adapters.
        Others as compile.compile_package's.
    """
    programs = [dict(p) for p in programs]
    configs = []
    for p in programs:
        if p.get("lora") is not None:
            p["lora"] = (
                p["lora"] if isinstance(p["lora"], LoraConfig) else default_lora(**p["lora"])
            )
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
    )
    for p in programs:
        add_training(package, p.pop("name"), **p)
    return package


def compile_model_for_training(
    path,
    kinds,
    dtype=None,
    capacity=None,
    *,
    batch=LANGUAGE_MODEL.batch_size,
    sequence=LANGUAGE_MODEL.sequence_length,
    r=LANGUAGE_MODEL.lora_r,
    lora_alpha=LANGUAGE_MODEL.lora_alpha,
    learning_rate=None,
    cache_dtype=None,
):
    """A Package of a model folder or .onnx file that can generate and train: what `edgewise build
    --train` writes.

    Args:
        kinds: "lora" and "full". batch, sequence: of a step. r, lora_alpha: of adapters.
        learning_rate: of AdamW, what pages
            begin with unless they say otherwise; default 2e-3 for adapters, 3e-4 for all
            parameters.
    """
    if not os.path.exists(path):
        raise InputError(
            "there is no such file or folder", str(path), "Give a model folder or an .onnx file."
        )
    files, root = folder_files(path)
    model_file = os.path.relpath(os.path.abspath(path), root) if os.path.isfile(path) else None
    programs = [
        {
            "name": kind,
            "batch": batch,
            "sequence": sequence,
            "lora": {"r": r, "lora_alpha": lora_alpha} if kind == "lora" else None,
            "optimizer": None if learning_rate is None else AdamW(lr=learning_rate),
        }
        for kind in dict.fromkeys(kinds)
    ]
    return compile_training_package(
        files, programs, dtype, capacity, model_file=model_file, cache_dtype=cache_dtype
    )
