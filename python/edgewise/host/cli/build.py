"""`edgewise build`."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any, cast

from ...errors import InputError
from ...logic.generation.arguments import model_defaults
from ...logic.generation.prefix import PREFIX
from ...logic.manifest.limits import CACHE_DTYPES, TARGETS
from ..hub import local_path
from .options import (
    TRAINING_OPTIONS,
    VARIANTS,
    add_command,
    add_dtype,
    add_prompt_lookup,
    add_training,
    add_variants,
    checked_prompt_lookup,
    parse_dims,
    require,
    set_training_defaults,
    variants,
)

if TYPE_CHECKING:
    from ...compiler.package import Package
    from ...compiler.targets import Target
    from .options import Commands


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise build`."""
    parser = add_command(commands, "build", run)
    parser.add_argument(
        "model",
        nargs="+",
        help=(
            "model folder (Hugging Face layout) or .onnx file; with --engine also .edge packages,"
            " and more than one"
        ),
    )
    parser.add_argument("-o", "--output", help="the .edge file to write")
    _add_engine(parser)
    add_dtype(parser)
    parser.add_argument(
        "--task",
        metavar="TASK",
        help=(
            "the pipeline that the package is for, such as feature-extraction (default:"
            " text-generation, or any model with --dims)"
        ),
    )
    parser.add_argument(
        "--max-length",
        "--capacity",
        type=int,
        help=(
            "maximum number of tokens of a sequence (default: the model's own context; of tasks"
            " that read texts at most 512)"
        ),
    )
    parser.add_argument(
        "--cache-dtype",
        choices=CACHE_DTYPES,
        help=(
            "type of a language model's keys and values (float16, int8 and int4 take less memory;"
            " default: float16 if the model declares it, else float32)"
        ),
    )
    parser.add_argument(
        "--prefix",
        metavar="CHAT.json",
        help=(
            "what all conversations begin with, which the package has read: a list of messages, or"
            ' {"messages": [...], "tools": [...]}, or a text'
        ),
    )
    add_prompt_lookup(parser)
    parser.add_argument(
        "--dims",
        action="append",
        metavar="NAME=SIZE,...",
        help=(
            "compile a model of any kind, not only a language model, for these sizes of its free"
            " dimensions ('' if it has none); may be given several times. With --task"
            " text-to-image: height=512,width=512"
        ),
    )
    _add_target(parser)
    _add_learning(parser)


def _add_learning(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--train",
        action="append",
        choices=("lora", "full"),
        help=(
            "make it trainable in a page: LoRA adapters, or all parameters; may be given twice."
            " With --task of a model with an encoder and a decoder of text, lora."
            " With --personalize, lora: adapters are trained with the labels (--lora-r,"
            " --lora-alpha)"
        ),
    )
    parser.add_argument(
        "--personalize",
        action="store_true",
        default=None,
        help="with --task: a page can teach the model labels of its user (`personalize`)",
    )
    add_training(parser)
    add_variants(parser)


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        choices=TARGETS,
        default="cpu",
        help=(
            "device that the plans are for: webgpu for a page's GPU; such a package also runs in"
            " WebAssembly (default: cpu)"
        ),
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        metavar="OUT",
        help=(
            "make an engine that has only the kernels of these models: a folder for env.engineUrl,"
            " or one .wasm file"
        ),
    )
    parser.add_argument(
        "--flavour",
        choices=("simd128", "simd128-threads", "relaxed-threads"),
        help="of the engine (default: all into a folder, simd128 into a file)",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FOLDER",
        help=(
            "folder of the full engines (default: the package's own, or web/dist/engine of the"
            " checkout)"
        ),
    )


def run(args: argparse.Namespace) -> None:
    """Compiles a model ahead of time into one file that pages load without Python; with --engine,
    makes an engine that has only the kernels of the given models.
    """
    if not args.output and not args.engine:
        raise InputError(
            "neither a package nor an engine is requested",
            "edgewise build",
            "Add -o FILE.edge, or --engine FOLDER.",
        )
    if args.output and len(args.model) > 1:
        raise InputError(
            "more than one model",
            "edgewise build",
            "Name one model and -o FILE.edge, or models and --engine FOLDER.",
        )
    require(args, "output", "prefix", "prompt_lookup")
    require(args, "engine", "flavour", "source")
    require(args, "task", "personalize")
    require(args, "train", *TRAINING_OPTIONS, "learning_rate", *VARIANTS)
    packages = [_compile(args, model) for model in args.model]
    if args.prompt_lookup is not None:
        _add_prompt_lookup(packages[0], args)
    if args.prefix:
        _add_prefix(packages[0], args.prefix)
    if args.output:
        _write_package(args.output, packages[0])
    if args.engine:
        _write_engine(args, packages)


def _check_language_model(package: Package, option: str) -> None:
    """Raises InputError if a package is for something else."""
    if package.manifest["task"] != "text-generation":
        raise InputError("it is for language models", option, "Remove it, or --task and --dims.")


def _hold_files(package: Package) -> None:
    """Takes the files of a package to memory, where they can be replaced."""
    parts = package.blobs or package.manifest["files"]
    package.blobs = {name: package.file(name) or b"" for name in parts if name != "weights"}


def _add_prompt_lookup(package: Package, args: argparse.Namespace) -> None:
    """Makes prompt_lookup_num_tokens a default of a package of a language model."""
    from ...json_text import parse_json_object

    count, name = checked_prompt_lookup(args), "generation_config.json"
    _check_language_model(package, "--prompt-lookup")
    _hold_files(package)
    own = package.blobs.get(name)
    if own is None:  # the defaults of a model without the file are those of its config.json
        config = parse_json_object(package.blobs.get("config.json") or b"{}", "config.json")
        settings = dict(model_defaults({}, config))
    else:
        settings = parse_json_object(own, name)
    settings["prompt_lookup_num_tokens"] = count
    package.blobs[name] = json.dumps(settings).encode()


def _add_prefix(package: Package, path: str) -> None:
    """Adds the states after a prefix of conversations to a package of a language model."""
    from ...json_text import parse_json
    from ..pipelines.text_generation import TextGenerationPipeline
    from ..training.adapters import CausalLM

    _check_language_model(package, "--prefix")
    with open(path, "rb") as file:
        given = parse_json(file.read(), path)
    tools = given.get("tools") if isinstance(given, dict) else None
    messages = given.get("messages") if isinstance(given, dict) else given
    if not messages or not isinstance(messages, (list, str)):
        raise InputError(
            "it has no messages", path, 'Write [{"role": "system", "content": "..."}, ...].'
        )
    _hold_files(package)
    package.blobs.pop(PREFIX, None)  # of a package that was built so
    model = CausalLM(package)
    try:
        prefix = TextGenerationPipeline(model).save_prefix(messages, tools=tools)
    finally:
        model.free()
    package.blobs[PREFIX] = cast("bytes", prefix)


def _target(args: argparse.Namespace) -> Target:
    """What --target names."""
    from ...compiler.targets import target_named

    return target_named(args.target)


def _compile(args: argparse.Namespace, model: str) -> Package:
    """Compiles one model, or opens it if it is an .edge package."""
    from ..session.decoder import open_package

    if args.task not in (None, "text-generation") and not model.endswith(".edge"):
        return _compile_task(args, model)
    if args.dims is not None and not model.endswith(".edge"):
        return _compile_inference(args, model)
    if args.train:
        from ..training.package import compile_model_for_training

        r, lora_alpha = args.lora_r, args.lora_alpha  # if given: they are of adapters alone
        set_training_defaults(args)
        return compile_model_for_training(
            model,
            args.train,
            args.dtype,
            args.max_length,
            batch=args.batch_size,
            sequence=args.sequence_length,
            r=r,
            lora_alpha=lora_alpha,
            learning_rate=args.learning_rate,
            training=variants(args, *VARIANTS),
            cache_dtype=args.cache_dtype,
            target=_target(args),
        )
    return open_package(
        model, args.dtype, args.max_length, cache_dtype=args.cache_dtype, target=_target(args)
    )


def _compile_task(args: argparse.Namespace, model: str) -> Package:
    """Compiles a model for a pipeline."""
    from ...compiler.task_package import compile_task
    from ...compiler.task_package.graphs import folders_of
    from ..session.open import folder_files, name_in

    sized = args.task == "text-to-image"
    training = _training(args)
    personalize = False if training else _personalize(args)
    for option in () if sized else ("dims",):
        if getattr(args, option) is not None:
            raise InputError(
                "it is for other packages", f"--{option.replace('_', '-')}", "Remove it or --task."
            )
    dtype = _dtypes(args.dtype)
    path = local_path(model, dtype if isinstance(dtype, str) else None)
    files, root = folder_files(path, folders_of(args.task))
    chosen = name_in(root, path) if os.path.isfile(path) else None
    dims = parse_dims(args.dims, args.command) if sized and args.dims else None
    return compile_task(
        files,
        args.task,
        dtype,
        args.max_length,
        chosen,
        target=_target(args),
        cache_dtype=args.cache_dtype,
        dims=dims,
        personalize=personalize,
        training=training,
    )


def _training(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The programs that --train says, of a task whose model has an encoder and a decoder."""
    if not args.train or args.personalize or args.train != ["lora"]:
        return []
    from ...compiler.training.package import training_programs

    set_training_defaults(args)
    return training_programs(
        {
            "batch_size": args.batch_size,
            "sequence_length": args.sequence_length,
            "r": args.lora_r,
            "lora_alpha": args.lora_alpha,
            "learning_rate": args.learning_rate,
            **variants(args, *VARIANTS),
        }
    )


def _personalize(args: argparse.Namespace) -> bool | dict[str, Any]:
    """What --personalize and --train say. Raises InputError: there is no such training."""
    if not args.train:
        return bool(args.personalize)
    other = [
        name
        for name in ("learning_rate", "batch_size", "sequence_length", *VARIANTS)
        if getattr(args, name)
    ]
    if not args.personalize or args.train != ["lora"] or other:
        name = "--" + (other[0].replace("_", "-") if other else "train")
        raise InputError("it is for other packages", name, "With --task there is --train lora.")
    given = {"rank": args.lora_r, "alpha": args.lora_alpha}
    return {"lora": {name: value for name, value in given.items() if value is not None}}


def _dtypes(given: str | None) -> str | dict[str, str] | None:
    """--dtype of a task: for all graphs, or for each: "encoder_model=fp32,decoder_model=q8"."""
    if given is None or "=" not in given:
        return given
    pairs = [pair.partition("=") for pair in given.split(",")]
    if wrong := [file for file, equals, _ in pairs if not equals]:
        raise InputError(
            f"'{wrong[0]}' names no file", "--dtype", "Write encoder_model=fp32,decoder_model=q8."
        )
    return {file: dtype for file, _, dtype in pairs}


def _compile_inference(args: argparse.Namespace, model: str) -> Package:
    """Compiles a model of any kind for the fixed shapes of --dims."""
    from ...compiler.compile import compile_inference, pick_model_file
    from ..session.open import folder_files, name_in

    if args.train:
        raise InputError("--train is for language models", "--dims", "Remove one of the two.")
    files, root = folder_files(model)
    chosen = name_in(root, model) if os.path.isfile(model) else pick_model_file(files, args.dtype)
    return compile_inference(
        files, [parse_dims([dims], args.command) for dims in args.dims], chosen, _target(args)
    )


def _write_package(path: str, package: Package) -> None:
    """Writes the package and describes it."""
    package.save(path)
    size = f"{path}: {os.path.getsize(path) / 1e6:.2f} MB"
    if "programs" in package.manifest:
        counts = {n: len(p["plans"]) for n, p in package.manifest["programs"].items()}
        for part in ("encoder", "decoder"):
            if part in package.manifest:
                counts[part] = len(package.manifest[part]["plans"])
        programs = ", ".join(f"{name} ({count} plans)" for name, count in counts.items())
        print(f"{size}, {package.manifest['task']}: {programs}")
        return
    if "inference" in package.manifest:
        for plan in package.manifest["inference"]["plans"]:
            inputs = [f"{name} {dtype}{shape}" for name, (dtype, shape) in plan["inputs"].items()]
            outputs = [
                f"{name} {dtype}{shape}" for name, (_, dtype, shape, _) in plan["outputs"].items()
            ]
            outputs += [
                f"{name} (the input {source})" for name, source in plan.get("passed", {}).items()
            ]
            print(f"{size}, {', '.join(inputs)} -> {', '.join(outputs)}")
        return
    decoder = package.manifest["decoder"]
    print(
        f"{size}, up to {decoder['capacity']} tokens, vocabulary {decoder['vocab_size']}, "
        f"plans for {', '.join(str(plan['tokens']) for plan in decoder['plans'])} tokens at once"
        + "".join(
            f", training '{program['name']}' on {program['batch']} x {program['sequence']} tokens"
            for program in package.manifest.get("training", ())
        )
    )


def _write_engine(args: argparse.Namespace, packages: list[Package]) -> None:
    """Writes the engines of --engine and prints their kernels and sizes."""
    from ...compiler.custom_engine import FLAVOURS, build_engine, needs_media, plans_of

    if args.flavour:
        flavours = [args.flavour]
    else:
        flavours = list(FLAVOURS[:1] if args.engine.endswith(".wasm") else FLAVOURS)
    plans = [plan for package in packages for plan in plans_of(package)]
    media = any(map(needs_media, packages))
    kernels, written = build_engine(plans, args.engine, flavours, args.source, media)
    print(f"{len(kernels)} kernels: {', '.join(kernels)}")
    for path, size, compressed in written:
        print(f"{path}: {size / 1000:.1f} kB, {compressed / 1000:.1f} kB as deflate")
