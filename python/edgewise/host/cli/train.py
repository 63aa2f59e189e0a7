"""`edgewise train`."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

from ...compiler.schema.training import LANGUAGE_MODEL
from ...errors import InputError
from ...logic.training.chat import stated
from ..training.data import read_data
from .options import (
    OF_LORA,
    OF_RATES,
    OF_RUNS,
    add_command,
    add_dtype,
    add_training,
    add_variants,
    require,
    set_training_defaults,
    variants,
)

if TYPE_CHECKING:
    from ..training.trainer import Trainer
    from .options import Commands


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise train`."""
    parser = add_command(commands, "train", run)
    parser.add_argument("model", help="model folder (Hugging Face layout) or .onnx file")
    parser.add_argument(
        "data",
        nargs="+",
        help="text files; or .jsonl and .csv with messages, prompt and completion, text,"
        " conversations, or instruction and output",
    )
    parser.add_argument("-o", "--output", help="the .onnx file to write: the trained model")
    add_dtype(parser)
    _add_adapters(parser)
    add_training(parser)
    add_variants(parser)
    _add_optimization(parser)
    _add_evaluation(parser)
    parser.add_argument(
        "--checkpoint", help="file to save the run to, and to resume from if it exists"
    )
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        default=LANGUAGE_MODEL.checkpoint_every,
        help="updates between two checkpoints (default %(default)s)",
    )
    parser.add_argument(
        "--memory",
        type=float,
        help="maximum memory in MB; activations are recomputed if that is needed",
    )
    parser.add_argument(
        "--checkpointing", action="store_true", help="recompute activations to save memory"
    )
    parser.add_argument("--seed", type=int, default=LANGUAGE_MODEL.seed)
    parser.add_argument("--threads", type=int, help="default: all cores")


def _add_adapters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lora", action="store_true", help="train LoRA adapters instead of the parameters"
    )
    parser.add_argument("--adapter", help="folder to write the adapters to, in the format of PEFT")


def _add_optimization(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--epochs",
        type=float,
        help="passes over the texts (default 1, or as many as --steps takes)",
    )
    parser.add_argument("--steps", type=int, help="maximum number of updates")
    parser.add_argument(
        "--accumulate",
        type=int,
        default=LANGUAGE_MODEL.gradient_accumulation_steps,
        help="batches per update",
    )
    parser.add_argument(
        "--optimizer",
        default=LANGUAGE_MODEL.optimizer,
        help="AdamW, Adam, AdamW8bit, SGD, Adagrad, RMSprop, Lion, Muon",
    )
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument(
        "--schedule",
        default=LANGUAGE_MODEL.schedule,
        choices=("constant", "linear", "cosine"),
        help="of the learning rate (default %(default)s)",
    )
    parser.add_argument(
        "--warmup",
        type=int,
        default=LANGUAGE_MODEL.warmup_steps,
        help="number of updates at the beginning in which the learning rate rises",
    )
    parser.add_argument(
        "--max-grad-norm",
        type=float,
        default=LANGUAGE_MODEL.max_grad_norm,
        help="0: no clipping (default %(default)s)",
    )


def _add_evaluation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--evaluation", nargs="+", help="text files that are not trained on")
    parser.add_argument(
        "--evaluate-every", type=int, help="updates between evaluations (default: once an epoch)"
    )
    parser.add_argument(
        "--early-stopping-patience",
        type=int,
        help="stop after so many evaluations without improvement",
    )
    parser.add_argument(
        "--load-best-model-at-end",
        action="store_true",
        default=None,
        help="end with the weights of the best evaluation",
    )


def run(args: argparse.Namespace) -> None:
    """Trains a language model, or adapters for one, on text files."""
    require(args, "lora", "lora_r", "lora_alpha", *OF_LORA, *OF_RATES)
    require(
        args, "evaluation", "evaluate_every", "early_stopping_patience", "load_best_model_at_end"
    )
    set_training_defaults(args)
    trainer = _make_trainer(args)
    if args.checkpoint and os.path.exists(args.checkpoint):
        trainer.resume(args.checkpoint)
    estimate = trainer.estimate()
    print(
        f"{estimate.total / 1e6:.0f} MB: weights {estimate.weights / 1e6:.0f}, parameters and"
        f" optimizer {estimate.states / 1e6:.0f}, activations {estimate.activations / 1e6:.0f}"
    )
    records = [record for path in args.data for record in read_data(path)]
    evaluation = [record for path in args.evaluation or () for record in read_data(path)]
    history = trainer.fit(
        records,
        epochs=args.epochs,
        max_steps=args.steps,
        evaluation=evaluation or None,
        evaluate_every=args.evaluate_every,
        early_stopping_patience=args.early_stopping_patience,
        load_best_model_at_end=bool(args.load_best_model_at_end),
        checkpoint=args.checkpoint,
        checkpoint_every=args.checkpoint_every,
    )
    if history.report is not None and (words := stated(history.report, args.sequence_length)):
        print(words)
    if history.losses:
        held_out = f", held out {history.evaluations[-1][1]:.4f}" if history.evaluations else ""
        print(
            f"loss {history.losses[0]:.4f} -> {history.losses[-1]:.4f} in {trainer.session.step}"
            f" updates{held_out}"
        )
    if args.adapter:
        trainer.save_adapter(args.adapter)
        print(f"{args.adapter}: adapters")
    if args.output:
        trainer.export(args.output)
        print(f"{args.output}: {os.path.getsize(args.output) / 1e6:.2f} MB")


def _make_trainer(args: argparse.Namespace) -> Trainer:
    from ...compiler.training.package import default_lora
    from ..engine import open_engine
    from ..training.trainer import Trainer

    adapters = None
    if args.lora:
        lora = {"r": args.lora_r, "lora_alpha": args.lora_alpha, **variants(args, *OF_LORA)}
        adapters = default_lora(**lora)
    optimizer = {"type": args.optimizer}
    if args.weight_decay is not None:
        optimizer["weight_decay"] = args.weight_decay
    return Trainer(
        args.model,
        optimizer=optimizer,
        adapters=adapters,
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        sequence_length=args.sequence_length,
        gradient_accumulation_steps=args.accumulate,
        schedule=args.schedule,
        warmup_steps=args.warmup,
        max_grad_norm=args.max_grad_norm or None,
        memory=int(args.memory * 1e6) if args.memory else None,
        checkpointing=args.checkpointing,
        seed=args.seed,
        dtype=args.dtype,
        engine=None if args.threads is None else open_engine(args.threads),
        **variants(args, *OF_RATES, *OF_RUNS),
    )


def read_texts(path: str) -> list[str]:
    """Texts of a file: the field "text" of each line of a .jsonl file, else the whole file."""
    with open(path, encoding="utf-8") as f:
        try:
            if not path.endswith(".jsonl"):
                return [f.read()]
            return [json.loads(line)["text"] for line in f if line.strip()]
        except UnicodeDecodeError as e:
            raise InputError(
                f"it is not UTF-8 text ({e.reason})", path, "Convert it to UTF-8."
            ) from None
        except (ValueError, KeyError, TypeError) as e:
            raise InputError(
                f'a line is not {{"text": ...}} ({e})',
                path,
                "Write one JSON object with a field text per line.",
            ) from None
