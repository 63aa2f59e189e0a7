"""Options that several subcommands share, and the values of options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ...compiler.schema.training import LANGUAGE_MODEL
from ...errors import InputError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

T = TypeVar("T")

# Options whose attribute of the parsed arguments has another name.
OPTION_NAMES = {"source": "--from"}
TRAINING_OPTIONS = ("lora_r", "lora_alpha", "batch_size", "sequence_length")


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int | None]
) -> argparse.ArgumentParser:
    """Adds a subcommand, described by the docstring of its function."""
    parser = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
    parser.set_defaults(run=run)
    return parser


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Adds --dtype, which selects the .onnx file of a model folder."""
    parser.add_argument(
        "--dtype",
        help="which .onnx file of the folder: fp32, fp16, int8, uint8, q8, q4, q4f16, bnb4",
    )


def add_input_sizes(parser: argparse.ArgumentParser, dims_help: str, value_help: str) -> None:
    """Adds --dims, --shape and --value, which describe the inputs of a run."""
    parser.add_argument(
        "--dims", action="append", default=[], metavar="NAME=SIZE,...", help=dims_help
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=2x3",
        help="shape of an input, instead of --dims; 'scalar' for one number",
    )
    parser.add_argument(
        "--value", action="append", default=[], metavar="INPUT=1,2", help=value_help
    )


def add_training(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `build --train` and `train`.

    Their defaults are set by `set_training_defaults`: until then, None means that an option was
    not given, which `require` checks.
    """
    default = LANGUAGE_MODEL
    parser.add_argument(
        "--lora-r", type=int, help=f"rank of the adapters (default {default.lora_r})"
    )
    parser.add_argument(
        "--lora-alpha",
        type=float,
        help=f"adapters are scaled by lora_alpha / r (default {default.lora_alpha})",
    )
    parser.add_argument(
        "--learning-rate",
        type=float,
        help=(
            f"default with AdamW: {default.learning_rate_lora} for adapters,"
            f" {default.learning_rate_full} for all parameters; a page that trains a package may"
            " set another"
        ),
    )
    parser.add_argument(
        "--batch-size", type=int, help=f"rows of a training step (default {default.batch_size})"
    )
    parser.add_argument(
        "--sequence-length", type=int, help=f"tokens of a row (default {default.sequence_length})"
    )


def add_variants(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `build --train` and `train` that only they have: how adapters and rates
    differ from plain LoRA with one rate. `variants` reads them.
    """
    parser.add_argument(
        "--target-modules", nargs="+", help="layers to adapt (default: all linear layers)"
    )
    parser.add_argument(
        "--lora-dropout", type=float, help="dropout of the adapters' inputs (default 0)"
    )
    parser.add_argument(
        "--use-dora",
        action="store_true",
        default=None,
        help="DoRA: the norms of the rows of weights are trained by themselves",
    )
    parser.add_argument(
        "--use-rslora",
        action="store_true",
        default=None,
        help="rsLoRA: adapters are scaled by lora_alpha / sqrt(r)",
    )
    for name, value in (("rank", "N"), ("alpha", "X")):
        parser.add_argument(
            f"--{name}-pattern",
            nargs="+",
            metavar=f"MODULE={value}",
            help=f"{'ranks' if name == 'rank' else 'lora_alpha'} of modules that differ",
        )
    parser.add_argument(
        "--modules-to-save",
        nargs="+",
        metavar="MODULE",
        help="modules that are trained as a whole, and kept in the adapter",
    )
    parser.add_argument(
        "--bias", choices=("none", "all", "lora_only"), help="biases that are trained as well"
    )
    parser.add_argument(
        "--loraplus-lr-ratio",
        type=float,
        help="LoRA+: the learning rate of B is so many times that of A",
    )
    parser.add_argument(
        "--ema-decay", type=float, help="end with averages of the weights, such as 0.99"
    )
    parser.add_argument(
        "--router-aux-loss-coef",
        type=float,
        help="of mixtures of experts: factor of the loss that spreads tokens over experts",
    )
    parser.add_argument(
        "--packing",
        action="store_true",
        default=None,
        help="rows have several documents, which do not see each other",
    )


# Options of `add_variants` by what they belong to; names are those of LoraConfig and Trainer.
OF_LORA = (
    "target_modules",
    "lora_dropout",
    "use_dora",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "bias",
)
OF_RATES = ("loraplus_lr_ratio",)
OF_RUNS = ("ema_decay", "router_aux_loss_coef", "packing")
VARIANTS = (*OF_LORA, *OF_RATES, *OF_RUNS)


def variants(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of some options of `add_variants` that were given.

    Raises:
        InputError: a pattern is not MODULE=NUMBER.
    """
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    for name, kind in (("rank_pattern", int), ("alpha_pattern", float)):
        if name in given:
            option = "--" + name.replace("_", "-")
            given[name] = {
                module: _parse_one(text, kind, f"{option} {module}", args.command)
                for module, text in _parse_pairs(given[name], option, args.command).items()
            }
    return given


def set_training_defaults(args: argparse.Namespace) -> None:
    """Sets the options of `add_training` that were not given to their documented defaults."""
    for name in TRAINING_OPTIONS:
        if getattr(args, name) is None:
            setattr(args, name, getattr(LANGUAGE_MODEL, name))


def require(args: argparse.Namespace, main: str, *others: str) -> None:
    """Checks that options which modify another option are given only together with it.

    Args:
        args: parsed arguments.
        main: attribute of the option that is modified.
        others: attributes of the options that modify it.

    Raises:
        InputError: one of `others` was given without `main`.
    """

    def option(name: str) -> str:
        return OPTION_NAMES.get(name) or "--" + name.replace("_", "-")

    if getattr(args, main):
        return
    for name in others:
        if getattr(args, name) is not None:
            raise InputError(
                f"it is for {option(main)}, which was not given",
                option(name),
                f"Add {option(main)}, or remove this option.",
            )


def parse_dims(texts: Iterable[str], command: str) -> dict[str, int]:
    """Sizes by dimension of texts such as "batch=1,sequence=128"."""
    return {
        name: _parse_one(value, int, f"--dims {name}", command)
        for text in texts
        for name, value in _parse_pairs(
            [part for part in text.split(",") if part.strip()], "--dims", command
        ).items()
    }


def parse_shapes(args: argparse.Namespace) -> dict[str, list[int]]:
    """Shapes by input of the --shape options."""
    return {
        name: _parse_list(value, "x", int, f"--shape {name}", args.command)
        for name, value in _parse_pairs(args.shape, "--shape", args.command).items()
    }


def parse_values(args: argparse.Namespace) -> dict[str, list[float]]:
    """Flat numbers by input of the --value options."""
    return {
        name: _parse_list(value, ",", _parse_number, f"--value {name}", args.command)
        for name, value in _parse_pairs(args.value, "--value", args.command).items()
    }


def _parse_pairs(texts: Iterable[str], option: str, command: str) -> dict[str, str]:
    """Splits arguments of the form name=text; the last "=" separates."""
    pairs = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if not name or not value:
            raise InputError(
                f"{text!r} does not have the form name=value",
                option,
                f"See `edgewise {command} --help`.",
            )
        pairs[name.strip()] = value
    return pairs


def _parse_list(
    text: str, separator: str, parse: Callable[[str], T], where: str, command: str
) -> list[T]:
    if text == "scalar":
        return []
    try:
        return [parse(item) for item in text.split(separator)]
    except ValueError:
        raise InputError(
            f"{text!r} is not a list of numbers", where, f"See `edgewise {command} --help`."
        ) from None


def _parse_one(text: str, parse: Callable[[str], T], where: str, command: str) -> T:
    try:
        return parse(text)
    except ValueError:
        raise InputError(
            f"{text!r} is not {'an integer' if parse is int else 'one number'}",
            where,
            f"See `edgewise {command} --help`.",
        ) from None


def _parse_number(text: str) -> float:
    """An int, float or bool ("true", "false")."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.lstrip("-").isdigit() else float(text)


def add_prompt_lookup(parser: argparse.ArgumentParser) -> None:
    """Declares --prompt-lookup."""
    parser.add_argument(
        "--prompt-lookup",
        type=int,
        metavar="N",
        help=(
            "of language models: the default of prompt_lookup_num_tokens, tokens that are read"
            " ahead where a text repeats its prompt (15 is the most that is used; default: none)"
        ),
    )


def checked_prompt_lookup(args: argparse.Namespace) -> int | None:
    """What --prompt-lookup says. Raises InputError."""
    count: int | None = args.prompt_lookup
    if count is not None and count < 1:
        raise InputError(f"it is {count}", "--prompt-lookup", "Give at least 1.")
    return count
