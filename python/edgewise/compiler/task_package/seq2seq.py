"""Packages of tasks that generate text with an encoder: speech recognition, translation, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InputError
from ...json_text import parse_json
from ..compile.programs import Programs
from ..compile.seq2seq import compile_seq2seq
from ..processors.reader import audio_processor
from ..training.package import adapter_programs, add_training
from .sounds import add_sound_encoder

if TYPE_CHECKING:
    from ...logic.manifest.processor import AudioFields
    from ..package import Package
    from . import Request

CONFIG = "preprocessor_config.json"


def seq2seq_package(request: Request) -> Package:
    """The package of an encoder-decoder model. That of Whisper has the programs "pre" and "clip",
    from sound to features: of a window, and of a part of a longer recording. That of Moonshine has
    "pre" and "encoder", since its encoder hears samples.

    Raises:
        InputError: there is no processor of sound, or an option has no sensible value.
        UnsupportedOp: an operator is missing, or the graphs are no encoder and decoder.
    """
    trained, lora = adapter_programs(request.training)
    package = compile_seq2seq(
        request.files,
        capacity=request.max_length,
        cache_dtype=request.cache_dtype,
        target=request.target,
        graphs=request.graphs,
        task=request.task,
        halves=lora is None,
        lora=lora,
    )
    package.blobs |= request.texts
    for program in trained:
        program["lora"].task_type = "SEQ_2_SEQ_LM"
        add_training(package, program.pop("name"), target=request.target, **program)
    speech = request.task == "automatic-speech-recognition"
    if speech != (package.manifest["encoder"]["input"] != "input_ids"):
        raise InputError(
            f"its encoder reads {package.manifest['encoder']['input']}",
            request.task,
            "It is a model of another task.",
        )
    programs = Programs(request.task, request.files, {}, request.target, request.compare, package)
    encoder = package.manifest["encoder"]
    if speech and encoder["input"] == "encoder_hidden_states":
        positions = max(p["positions"] for p in encoder["plans"])
        graph = request.read("encoder_model")
        described = add_sound_encoder(programs, graph, request.texts, positions)
        package.manifest["processor"] = {"audio": described, "moonshine": True}
    elif speech:
        package.manifest["processor"] = {"audio": _add_audio(programs, request)}
    return package


def _add_audio(programs: Programs, request: Request) -> AudioFields:
    """Adds the graphs of features; returns what happens to a sound before them."""
    if CONFIG not in request.texts:
        raise InputError(
            "there is none", CONFIG, "Put the model's preprocessor_config.json into its folder."
        )
    config = parse_json(request.texts[CONFIG], CONFIG)
    processor = audio_processor(config if isinstance(config, dict) else {})
    if processor.kind != "Whisper":
        raise InputError(
            f"{processor.kind} is not Whisper's feature extractor",
            CONFIG,
            "Take the one of the model.",
        )
    for name, variant in (("pre", ""), ("clip", "clip")):
        graph = processor.graph(variant)
        shapes = {i.name: list(i.shape or []) for i in graph.input_names()}
        programs.add(name, graph, [(shapes, None)])
    return processor.description()
