"""Supertonic: an encoder of text, a denoiser of latents that runs some steps, and a decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from typing import Any

from ...errors import InputError, ModelError
from ..native import Seed, option, random_words
from ..options import read_count, read_within
from .graphs import Answers, Append, Feed, Numbers, Part, Port, Request, Run, Signature, Slot, named

TASK = "text-to-speech"
ENCODER = "text_encoder"
DENOISER = "latent_denoiser"
DECODER = "voice_decoder"
STYLE = "style"  # the slot of a voice, [1, rows, style_dim]
WAVEFORM = "waveform"
OPTIONS = ["speed", "num_inference_steps"]
MAX_SECONDS = 600


def _field(config: Mapping[str, Any], name: str) -> int:
    value: object = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 24:
        raise ModelError(f"its {name} is no number", "config.json", "Copy it from the model.")
    return value


def style_dims(config: Mapping[str, Any], count: int) -> list[int]:
    """The dimensions of a style of so many numbers. Raises InputError: it is of another model."""
    size = _field(config, "style_dim")
    if count == 0 or count % size:
        raise InputError(
            f"it has {count} numbers, which are no rows of {size}",
            option("speaker_embeddings"),
            "Give a file of the model's folder `voices`.",
        )
    return [1, count // size, size]


def normal_numbers(seed: Seed) -> Callable[[], float]:
    """A function that returns numbers of a normal distribution, by the method of Box and Muller."""
    words = random_words(seed, 0)
    kept: list[float] = []

    def following() -> float:
        if kept:
            return kept.pop()
        radius = math.sqrt(-2 * math.log((words() + 1) / 4294967297))
        angle = 2 * math.pi * words() / 4294967296
        kept.append(radius * math.sin(angle))
        return radius * math.cos(angle)

    return following


def flowed(
    graphs: Mapping[str, Signature],
    ids: list[int],
    config: Mapping[str, Any],
    options: Mapping[str, Any],
    seed: Seed,
) -> Generator[Request, Answers, None]:
    """Makes the result "waveform" of a text, with the style in the slot "style".

    Args:
        graphs: the signatures of the graphs.
        ids: of the text.
        config: of config.json.
        options: "speed" (default: 1.05), "num_inference_steps" (default: 5).
        seed: of the noise that the latents begin with.

    Raises:
        InputError: the text is empty or too long, or an option is not valid.
        ModelError: a graph is not as it is known.
    """
    speed = read_within(options, "speed", 1.05, 0.01, 100)
    given = read_count(options, "num_inference_steps")
    steps = 5 if given is None else given
    if not ids:
        raise InputError("the text has no tokens", TASK, "Give a text.")
    if steps > 1000:
        raise InputError(f"there are {steps} steps", option("num_inference_steps"), "Give fewer.")
    rate, size = _field(config, "sampling_rate"), _field(config, "base_chunk_size")
    factor = _field(config, "chunk_compress_factor")
    channels = _field(config, "latent_dim") * factor
    feeds: dict[str, Feed] = {}
    for p in graphs[ENCODER].inputs:
        feeds[p.name] = _text_feed(p, ids)
    hidden = _output(graphs[ENCODER], ENCODER, ["last_hidden_state"])
    durations = _output(graphs[ENCODER], ENCODER, ["durations"])
    made = yield Run(ENCODER, feeds, {hidden: "hidden"}, [durations])
    samples = made[durations].data[0] / speed * rate
    if not 0 < samples <= MAX_SECONDS * rate:
        raise InputError(
            f"the model speaks the text in {samples / rate:g} s",
            TASK,
            "Divide it, or choose another speed.",
        )
    frames = math.ceil(samples / (size * factor))
    normal = normal_numbers(seed)
    noise = [normal() for i in range(channels * frames)]
    mask = [1.0 for i in range(frames)]
    signature = graphs[DENOISER]
    output = _output(signature, DENOISER, ["denoised_latents"])
    for step in range(steps):
        feeds = {}
        for p in signature.inputs:
            if p.name == "noisy_latents":
                first = Numbers([1, channels, frames], noise, p.dtype)
                feeds[p.name] = first if step == 0 else Slot("latents")
            elif p.name == "latent_mask":
                feeds[p.name] = Numbers([1, frames], mask, p.dtype)
            elif p.name == "encoder_outputs":
                feeds[p.name] = Slot("hidden")
            elif p.name == "timestep":
                feeds[p.name] = Numbers([1], [step], p.dtype)
            elif p.name == "num_inference_steps":
                feeds[p.name] = Numbers([1], [steps], p.dtype)
            else:
                feeds[p.name] = _text_feed(p, ids)
        yield Run(DENOISER, feeds, {output: "latents"}, [])
    port = graphs[DECODER].inputs[0]
    sound = _output(graphs[DECODER], DECODER, ["waveform"])
    made = yield Run(DECODER, {port.name: Slot("latents")}, {sound: WAVEFORM}, [])
    there = made[sound].dims[-1]
    count = min(math.ceil(samples), there)
    yield Append(WAVEFORM, Part(WAVEFORM, 0, count, [count]))


def _text_feed(port: Port, ids: list[int]) -> Feed:
    if port.name == "input_ids":
        return Numbers([1, len(ids)], ids, port.dtype)
    if port.name == "attention_mask":
        return Numbers([1, len(ids)], [1 for i in ids], port.dtype)
    if port.name == STYLE:
        return Slot(STYLE)
    raise ModelError(f"it has an input '{port.name}'", TASK, "Models are Supertonic's.")


def _output(signature: Signature, graph: str, names: list[str]) -> str:
    found = named(signature.outputs, names)
    if found is None:
        raise ModelError(
            f"its outputs are {', '.join([p.name for p in signature.outputs])}",
            graph,
            f"It has to have {' and '.join(names)}.",
        )
    return found.name
