"""The command `edgewise`."""

from __future__ import annotations

import argparse
import os
import sys

from .errors import EdgewiseError
from .manifest_limits import CACHE_DTYPES


def build(a):
    """Compiles a model ahead of time into one file that pages load without Python; with --engine,
    makes an engine with the kernels alone that the given models need.
    """
    from .errors import InputError

    if not (a.output or a.engine) or a.output and len(a.model) > 1:
        raise InputError(
            "more than one model" if a.output else "neither a package nor an engine is asked for",
            "edgewise build",
            "Name one model and -o FILE.edge, or models and --engine FOLDER.",
        )
    _only_with(a, "engine", "flavour", "source")
    _only_with(a, "train", "lora_r", "lora_alpha", "learning_rate", "batch_size", "sequence_length")
    packages = [_package(a, model) for model in a.model]
    if a.output:
        _write(a, packages[0])
    if a.engine:
        from .custom_engine import FLAVOURS, build_engine, plans_of

        plans = [plan for package in packages for plan in plans_of(package)]
        kernels, written = build_engine(
            plans,
            a.engine,
            [a.flavour] if a.flavour else FLAVOURS[:1] if a.engine.endswith(".wasm") else FLAVOURS,
            a.source,
        )
        print(f"{len(kernels)} kernels: {', '.join(kernels)}")
        for path, size, packed in written:
            print(f"{path}: {size / 1000:.1f} kB, {packed / 1000:.1f} kB as deflate")


def _package(a, model):
    from .session.decoder import open_package

    if a.dims is not None and not model.endswith(".edge"):
        return _any_model(a, model)
    if a.train:
        from .training.package import compile_model_for_training

        _sizes(a)
        return compile_model_for_training(
            model,
            a.train,
            a.dtype,
            a.max_length,
            batch=a.batch_size,
            sequence=a.sequence_length,
            r=a.lora_r,
            lora_alpha=a.lora_alpha,
            learning_rate=a.learning_rate,
            cache_dtype=a.cache_dtype,
        )
    return open_package(model, a.dtype, a.max_length, cache_dtype=a.cache_dtype)


def _write(a, package):
    part = a.output + ".part"
    try:
        with open(part, "wb") as f:
            package.write(f)
        os.replace(part, a.output)
    finally:
        if os.path.exists(part):
            os.unlink(part)
    size = f"{a.output}: {os.path.getsize(a.output) / 1e6:.2f} MB"
    if "inference" in package.manifest:
        for p in package.manifest["inference"]["plans"]:
            outputs = [f"{n} {t}{s}" for n, (_, t, s, _) in p["outputs"].items()]
            outputs += [f"{n} (the input {i})" for n, i in p.get("passed", {}).items()]
            print(
                f"{size}, {', '.join(f'{n} {t}{s}' for n, (t, s) in p['inputs'].items())} ->"
                f" {', '.join(outputs)}"
            )
        return
    d = package.manifest["decoder"]
    print(
        f"{size}, up to {d['capacity']} tokens, vocabulary {d['vocab_size']}, "
        f"plans for {', '.join(str(p['tokens']) for p in d['plans'])} tokens at once"
        + "".join(
            f", training '{p['name']}' on {p['batch']} x {p['sequence']} tokens"
            for p in package.manifest.get("training", ())
        )
    )


def _any_model(a, model):
    """A package of a model that is no language model, for fixed shapes."""
    from .compile import compile_inference, pick_model_file
    from .errors import InputError
    from .session.decoder import folder_files

    if a.train:
        raise InputError("--train is for language models", "--dims", "Leave one of them out.")
    files, root = folder_files(model)
    chosen = (
        os.path.relpath(os.path.abspath(model), root)
        if os.path.isfile(model)
        else pick_model_file(files, a.dtype)
    )
    return compile_inference(files, [_dims([text], a.command) for text in a.dims], chosen)


def train(a):
    """Trains a language model, or adapters for one, on text files."""
    from .training import LoraConfig, Trainer
    from .training.package import usual_rate

    _only_with(a, "lora", "lora_r", "lora_alpha", "lora_dropout", "target_modules")
    _sizes(a)
    engine = None
    if a.threads is not None:
        from .engine import open_engine

        engine = open_engine(a.threads)
    lora = (
        LoraConfig(
            r=a.lora_r,
            lora_alpha=a.lora_alpha,
            lora_dropout=a.lora_dropout or 0.0,
            target_modules=a.target_modules or "all-linear",
            task_type="CAUSAL_LM",
        )
        if a.lora
        else None
    )
    trainer = Trainer(
        a.model,
        optimizer={
            "type": a.optimizer,
            **({"weight_decay": a.weight_decay} if a.weight_decay is not None else {}),
        },
        adapters=lora,
        learning_rate=a.learning_rate or usual_rate(a.lora),
        batch_size=a.batch_size,
        sequence_length=a.sequence_length,
        gradient_accumulation_steps=a.accumulate,
        schedule=a.schedule,
        warmup_steps=a.warmup,
        max_grad_norm=a.max_grad_norm or None,
        memory=int(a.memory * 1e6) if a.memory else None,
        checkpointing=a.checkpointing,
        seed=a.seed,
        dtype=a.dtype,
        engine=engine,
    )
    if a.checkpoint and os.path.exists(a.checkpoint):
        trainer.resume(a.checkpoint)
    e = trainer.estimate()
    print(
        f"{e.total / 1e6:.0f} MB: weights {e.weights / 1e6:.0f}, parameters and optimizer"
        f" {e.states / 1e6:.0f}, activations {e.activations / 1e6:.0f}"
    )
    texts = [t for path in a.data for t in _texts(path)]
    held_out = [t for path in a.evaluation or () for t in _texts(path)]
    history = trainer.fit(
        texts,
        epochs=a.epochs,
        max_steps=a.steps,
        evaluation=held_out or None,
        checkpoint=a.checkpoint,
        checkpoint_every=a.checkpoint_every,
    )
    if history.losses:
        print(
            f"loss {history.losses[0]:.4f} -> {history.losses[-1]:.4f} in {trainer.session.step}"
            " updates"
            + (f", held out {history.evaluations[-1][1]:.4f}" if history.evaluations else "")
        )
    if a.adapter:
        trainer.save_adapter(a.adapter)
        print(f"{a.adapter}: adapters")
    if a.output:
        trainer.export(a.output)
        print(f"{a.output}: {os.path.getsize(a.output) / 1e6:.2f} MB")


def _texts(path):
    """Texts of a file: each line's "text" of .jsonl, else the whole file."""
    import json

    from .errors import InputError

    with open(path, encoding="utf-8") as f:
        try:
            if not path.endswith(".jsonl"):
                return [f.read()]
            return [json.loads(line)["text"] for line in f if line.strip()]
        except UnicodeDecodeError as e:
            raise InputError(f"it is not UTF-8 text ({e.reason})", path, "Convert it.") from None
        except (ValueError, KeyError, TypeError) as e:
            raise InputError(
                f'a line is not {{"text": ...}} ({e})',
                path,
                "Write one JSON object with a field text per line.",
            ) from None


def generate(a):
    """Writes a continuation of a prompt to the terminal."""
    from .pipelines import pipeline
    from .text.streamers import TextStreamer

    pipe = pipeline("text-generation", a.model)
    options = {
        k: v
        for k, v in (
            ("max_new_tokens", a.max_new_tokens),
            ("temperature", a.temperature),
            ("top_k", a.top_k),
            ("top_p", a.top_p),
            ("seed", a.seed),
        )
        if v is not None
    }
    if a.sample or a.temperature is not None or a.top_k is not None or a.top_p is not None:
        options["do_sample"] = True
    sys.stdout.write(a.prompt)
    pipe(a.prompt, streamer=TextStreamer(pipe.tokenizer, skip_prompt=True), **options)


def inspect(a):
    """Says what a model takes, gives and needs, before anything of it runs."""
    from .errors import InputError
    from .inspect import inspect as look

    if a.model.endswith(".edge"):
        raise InputError("it is a package", a.model, "Give the .onnx file that it was built from.")
    shapes = {
        n: _numbers(v, "x", int, f"--shape {n}", a.command)
        for n, v in _pairs(a.shape, "--shape", a.command).items()
    }
    values = {
        n: _numbers(v, ",", _value, f"--value {n}", a.command)
        for n, v in _pairs(a.value, "--value", a.command).items()
    }
    report = look(a.model, _dims(a.dims, a.command), shapes, values, a.length)
    if a.json:
        import json

        print(json.dumps(report.as_dict(), indent=1))
    else:
        print(report)
        for name, dtype, shape in report.parameters.trainable if a.parameters else ():
            print(f"  parameter {name}: {dtype} {shape}")
    return 1 if report.unsupported or report.problem and not report.needs else 0


def bench(a):
    """Measures how fast a model runs on this machine, beside onnxruntime where that is
    installed.
    """
    from .bench import bench as measure

    shapes = {
        n: _numbers(v, "x", int, f"--shape {n}", a.command)
        for n, v in _pairs(a.shape, "--shape", a.command).items()
    }
    values = {
        n: _numbers(v, ",", _value, f"--value {n}", a.command)
        for n, v in _pairs(a.value, "--value", a.command).items()
    }
    report = measure(
        a.model,
        _dims(a.dims, a.command),
        shapes,
        values,
        dtype=a.dtype,
        prompt=a.prompt,
        tokens=a.tokens,
        threads=a.threads,
        seconds=a.seconds,
        profile=a.profile or bool(a.trace),
        against=not a.alone,
    )
    if a.trace:
        report.profile.save(a.trace)
    if a.json:
        import json

        print(json.dumps(report.as_dict(), indent=1))
    else:
        print(report)


def _dims(texts, command):
    """{dimension: size} of texts like "batch=1,sequence=128"."""
    return {
        n: _numbers(v, ",", int, f"--dims {n}", command)[0]
        for text in texts
        for n, v in _pairs([p for p in text.split(",") if p.strip()], "--dims", command).items()
    }


def _pairs(texts, option, command):
    """{name: text} of name=text arguments."""
    from .errors import InputError

    pairs = [t.rpartition("=") for t in texts]
    bad = next((t for t, (name, _, value) in zip(texts, pairs) if not name or not value), None)
    if bad is not None:
        raise InputError(f"{bad!r} is no name=value", option, f"See `edgewise {command} --help`.")
    return {name.strip(): value for name, _, value in pairs}


def _numbers(text, separator, kind, where, command):
    from .errors import InputError

    try:
        return [kind(t) for t in text.split(separator)] if text != "scalar" else []
    except ValueError:
        raise InputError(
            f"{text!r} are no numbers", where, f"See `edgewise {command} --help`."
        ) from None


def _value(text):
    return (
        {"true": True, "false": False}[text.lower()]
        if text.lower() in ("true", "false")
        else int(text)
        if text.lstrip("-").isdigit()
        else float(text)
    )


def _only_with(a, main, *others):
    """Raises InputError where options were given that say something about another one, which was
    not.
    """
    from .errors import InputError

    option = lambda name: "--" + {"source": "from"}.get(name, name.replace("_", "-"))  # noqa: E731
    if not getattr(a, main):
        for name in others:
            if getattr(a, name) is not None:
                raise InputError(
                    f"it is for {option(main)}, which was not given",
                    option(name),
                    f"Add {option(main)}, or leave it out.",
                )


def _sizes(a):
    """Fills in what `_training_sizes` says about options that were not given."""
    for name, value in (
        ("lora_r", 8),
        ("lora_alpha", 16),
        ("batch_size", 4),
        ("sequence_length", 128),
    ):
        if getattr(a, name) is None:
            setattr(a, name, value)


def _training_sizes(p):
    p.add_argument("--lora-r", type=int, help="rank of adapters (default 8)")
    p.add_argument("--lora-alpha", type=float, help="adapters count lora_alpha / r (default 16)")
    p.add_argument(
        "--learning-rate",
        type=float,
        help=(
            "default: 2e-3 for adapters, 3e-4 for all parameters; a page that trains a package may"
            " say otherwise"
        ),
    )
    p.add_argument("--batch-size", type=int, help="rows of a training step (default 4)")
    p.add_argument("--sequence-length", type=int, help="tokens of a row (default 128)")


def main(argv=None):
    """Entry point; returns the exit status. Errors are one line on stderr, status 1."""
    p = argparse.ArgumentParser(
        prog="edgewise", description="Runs and trains ONNX models, in a web page as on a desktop."
    )
    commands = p.add_subparsers(dest="command", required=True)
    b = commands.add_parser("build", help=build.__doc__, description=build.__doc__)
    b.add_argument(
        "model",
        nargs="+",
        help=(
            "model folder (Hugging Face layout) or .onnx file; for --engine also .edge packages,"
            " and more than one"
        ),
    )
    b.add_argument("-o", "--output", help="the .edge file to write")
    b.add_argument(
        "--engine",
        metavar="OUT",
        help=(
            "make an engine with the kernels of these models alone: a folder for env.engineUrl, or"
            " one .wasm file"
        ),
    )
    b.add_argument(
        "--flavour",
        choices=("simd128", "relaxed-threads"),
        help="of the engine (default: both into a folder, simd128 into a file)",
    )
    b.add_argument(
        "--from",
        dest="source",
        metavar="FOLDER",
        help=(
            "where the full engines are (default: the package's own, or web/dist/engine of the"
            " checkout)"
        ),
    )
    b.add_argument(
        "--dtype",
        help="which .onnx file of the folder: fp32, fp16, int8, uint8, q8, q4, q4f16, bnb4",
    )
    b.add_argument(
        "--max-length",
        type=int,
        help="most tokens of a sequence (default: the model's limit, at most 1024)",
    )
    b.add_argument(
        "--cache-dtype",
        choices=CACHE_DTYPES,
        help=(
            "what a language model's keys and values are kept as (float16 takes half the memory;"
            " default: float16 where the model declares it so, else float32)"
        ),
    )
    b.add_argument(
        "--dims",
        action="append",
        metavar="NAME=SIZE,...",
        help=(
            "compile any model, not only a language model, for these sizes of its free dimensions"
            " ('' where it has none); may be given several times"
        ),
    )
    b.set_defaults(run=build)
    b.add_argument(
        "--train",
        action="append",
        choices=("lora", "full"),
        help=(
            "make it trainable in a page: adapters beside its layers, or all its parameters; may be"
            " given twice"
        ),
    )
    _training_sizes(b)
    t = commands.add_parser("train", help=train.__doc__, description=train.__doc__)
    t.add_argument("model", help="model folder (Hugging Face layout) or .onnx file")
    t.add_argument("data", nargs="+", help="text files, or .jsonl with a field text per line")
    t.add_argument("-o", "--output", help="the .onnx file to write: the model with what it learned")
    t.add_argument(
        "--dtype",
        help="which .onnx file of the folder: fp32, fp16, int8, uint8, q8, q4, q4f16, bnb4",
    )
    t.add_argument("--lora", action="store_true", help="train adapters instead of the parameters")
    t.add_argument("--adapter", help="folder to write the adapters to, as PEFT keeps them")
    t.add_argument("--target-modules", nargs="+", help="layers to adapt (default: all linear ones)")
    t.add_argument(
        "--lora-dropout",
        type=float,
        help="share of a layer's input that adapters do not see (default 0)",
    )
    _training_sizes(t)
    t.add_argument("--epochs", type=int, default=1)
    t.add_argument("--steps", type=int, help="updates at most")
    t.add_argument("--accumulate", type=int, default=1, help="batches per update")
    t.add_argument(
        "--optimizer",
        default="AdamW",
        help="AdamW, Adam, AdamW8bit, SGD, Adagrad, RMSprop, Lion, Muon",
    )
    t.add_argument("--weight-decay", type=float)
    t.add_argument("--schedule", default="cosine", choices=("constant", "linear", "cosine"))
    t.add_argument(
        "--warmup",
        type=int,
        default=0,
        help="updates at the beginning in which the learning rate rises",
    )
    t.add_argument("--max-grad-norm", type=float, default=1.0, help="0: no clipping")
    t.add_argument("--evaluation", nargs="+", help="text files that are not trained on")
    t.add_argument(
        "--checkpoint", help="file to keep the run in, and to go on from where it is there"
    )
    t.add_argument("--checkpoint-every", type=int, default=100)
    t.add_argument(
        "--memory",
        type=float,
        help="most MB of memory; activations are recomputed where that is needed",
    )
    t.add_argument(
        "--checkpointing", action="store_true", help="recompute activations to save memory"
    )
    t.add_argument("--seed", type=int, default=0)
    t.add_argument("--threads", type=int, help="default: all cores")
    t.set_defaults(run=train)
    g = commands.add_parser("generate", help=generate.__doc__, description=generate.__doc__)
    g.add_argument("model", help="model folder, .onnx file or .edge package")
    g.add_argument("prompt")
    g.add_argument("--max-new-tokens", type=int, default=100)
    g.add_argument(
        "--sample", action="store_true", help="sample instead of taking the likeliest token"
    )
    g.add_argument("--temperature", type=float)
    g.add_argument("--top-k", type=int)
    g.add_argument("--top-p", type=float)
    g.add_argument("--seed", type=int)
    g.set_defaults(run=generate)
    i = commands.add_parser("inspect", help=inspect.__doc__, description=inspect.__doc__)
    i.add_argument("model", help=".onnx file")
    i.add_argument(
        "--dims",
        action="append",
        default=[],
        metavar="NAME=SIZE,...",
        help=(
            "sizes of the inputs' symbolic dimensions, for which memory is computed:"
            " batch=1,sequence=128"
        ),
    )
    i.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=2x3",
        help="shape of an input, instead of --dims; 'scalar' for one number",
    )
    i.add_argument(
        "--value",
        action="append",
        default=[],
        metavar="INPUT=1,2",
        help="numbers of an input that shapes or branches depend on: use_cache_branch=true",
    )
    i.add_argument(
        "--length", type=int, help="tokens that a language model's cache is to hold (default 1024)"
    )
    i.add_argument(
        "--parameters", action="store_true", help="also list what looks like a parameter"
    )
    i.add_argument("--json", action="store_true", help="everything as JSON")
    i.set_defaults(run=inspect)
    m = commands.add_parser("bench", help=bench.__doc__, description=bench.__doc__)
    m.add_argument(
        "model",
        help=".onnx file, model folder (Hugging Face layout), or .edge package of a language model",
    )
    m.add_argument(
        "--dims",
        action="append",
        default=[],
        metavar="NAME=SIZE,...",
        help=(
            "sizes of the inputs' symbolic dimensions: batch=1,sequence=128; a language model is"
            " then measured as one run, not as it writes"
        ),
    )
    m.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=2x3",
        help="shape of an input, instead of --dims; 'scalar' for one number",
    )
    m.add_argument(
        "--value",
        action="append",
        default=[],
        metavar="INPUT=1,2",
        help="numbers of an input (one: everywhere); others are made up",
    )
    m.add_argument(
        "--dtype",
        help="which .onnx file of the folder: fp32, fp16, int8, uint8, q8, q4, q4f16, bnb4",
    )
    m.add_argument(
        "--prompt",
        type=int,
        help="tokens of a language model's prompt (default 256, at most half of what it can hold)",
    )
    m.add_argument(
        "--tokens", type=int, default=16, help="tokens that are decoded behind it (default 16)"
    )
    m.add_argument("--threads", type=int, help="default: all cores")
    m.add_argument("--seconds", type=float, default=10, help="how long to measure (default 10)")
    m.add_argument("--alone", action="store_true", help="without onnxruntime")
    m.add_argument("--profile", action="store_true", help="also where the time goes, step by step")
    m.add_argument(
        "--trace", metavar="FILE", help="write that as a trace for https://ui.perfetto.dev"
    )
    m.add_argument("--json", action="store_true", help="everything as JSON")
    m.set_defaults(run=bench)
    a = p.parse_args(argv)
    try:
        return a.run(a) or 0
    except EdgewiseError as e:
        print(f"edgewise: {e}", file=sys.stderr)
        return 1
    except OSError as e:
        print(
            f"edgewise: {e.filename or a.command}: {e.strerror or e}. Check the path, its"
            " permissions and the space that is left.",
            file=sys.stderr,
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
