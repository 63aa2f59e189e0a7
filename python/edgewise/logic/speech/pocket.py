"""Pocket TTS, as it is exported in five graphs: a language model whose states read a voice and a
text and then frames of latent numbers, a flow that makes the next frame of noise, and a decoder.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from ...errors import InputError, ModelError
from ..native import Seed, option
from ..options import read_count, read_within
from .flow import normal_numbers
from .graphs import (
    FLOATS,
    INTEGERS,
    Answers,
    Append,
    Feed,
    Numbers,
    Part,
    Port,
    Request,
    Run,
    Signature,
    Slot,
    named,
    ports_of,
)

TASK = "text-to-speech"
ENCODER = "mimi_encoder"
TEXT = "text_conditioner"
MODEL = "flow_lm_main"
FLOW = "flow_lm_flow"
DECODER = "mimi_decoder"
GRAPHS = [ENCODER, TEXT, MODEL, FLOW, DECODER]
SAMPLES = "audio_values"
WAVEFORM = "waveform"
VOICE = ["audio_features"]
OPTIONS = [
    *("audio_values", "temperature", "num_inference_steps", "eos_threshold", "frames_after_eos"),
    "max_frames",
]
SAMPLING_RATE = 24000
CHUNK = 16  # frames that the decoder gets at once
MAX_FRAMES = 1 << 15


def check_options(options: Mapping[str, Any]) -> None:
    """Raises InputError: an option is not valid."""
    _read(options)


def _read(options: Mapping[str, Any]) -> tuple[float, int, float, int, int]:
    """(temperature, steps, threshold, frames after the end, most frames)"""
    steps = read_count(options, "num_inference_steps")
    after = read_count(options, "frames_after_eos", 0)
    most = read_count(options, "max_frames")
    return (
        read_within(options, "temperature", 0.7, 0, 10),
        1 if steps is None else min(1000, steps),
        read_within(options, "eos_threshold", -4.0, -1000, 1000),
        3 if after is None else after,
        500 if most is None else min(MAX_FRAMES, most),
    )


def heard(signature: Signature, count: int) -> Generator[Run, Answers, Numbers]:
    """Hears the reference in the slot "audio_values", [count]: what the model knows of a voice,
    [1, n, size].

    Raises:
        InputError: there are no samples.
        ModelError: the graph does not take samples alone.
    """
    if count == 0:
        raise InputError("there are no samples", option(SAMPLES), "Give a recording.")
    inputs, outputs = ports_of(signature.inputs, FLOATS), ports_of(signature.outputs, FLOATS)
    if len(inputs) != 1 or not outputs:
        raise ModelError("it has to take samples alone", ENCODER, "Export it again.")
    port = inputs[0]
    dims = [*[1 for d in port.shape[1:]], count] if port.shape else [1, 1, count]
    name = outputs[0].name
    made = yield Run(ENCODER, {port.name: Part(SAMPLES, 0, count, dims)}, {}, [name])
    return voice_of(made[name], ENCODER)


def voice_of(value: Numbers, where: str) -> Numbers:
    """A voice as [1, n, size]. Raises ModelError."""
    if not value.dims or math.prod(value.dims[:-2]) != 1:
        raise ModelError(f"{VOICE[0]} are of shape {value.dims}", where, "Give those of a voice.")
    size = value.dims[-1]
    rows = value.dims[-2] if len(value.dims) > 1 else 1
    return Numbers([1, rows, size], value.data)


def spoken(
    graphs: Mapping[str, Signature],
    ids: Sequence[int],
    voice: Numbers,
    options: Mapping[str, Any],
    seed: Seed,
) -> Generator[Request, Answers, None]:
    """Makes the result "waveform" of a text.

    Args:
        graphs: by their names.
        ids: tokens of the text.
        voice: of `heard`.
        options: "temperature" of the noise (default: 0.7), "num_inference_steps" of the flow (1),
            "eos_threshold" of the logit of the end (-4), "frames_after_eos" (3), "max_frames"
            (500).
        seed: of the noise.

    Raises:
        InputError: the text is empty, or an option is not valid.
        ModelError: a graph is not as exporters make it.
    """
    if not ids:
        raise InputError("the text has no tokens", TASK, "Give a text.")
    text = graphs[TEXT]
    tokens, embeds = ports_of(text.inputs, INTEGERS), ports_of(text.outputs, FLOATS)
    if len(tokens) != 1 or not embeds:
        raise ModelError("it has to take tokens alone", TEXT, "Export it again.")
    feeds: dict[str, Feed] = {tokens[0].name: Numbers([1, len(ids)], ids, tokens[0].dtype)}
    made = yield Run(TEXT, feeds, {}, [embeds[0].name])
    size = made[embeds[0].name].dims[-1]
    conditions = Numbers([1, len(ids), size], made[embeds[0].name].data)
    if voice.dims[2] != size:
        raise InputError(
            f"a voice has {voice.dims[2]} features, a token {size}",
            option("speaker_embeddings"),
            "Give those of this model.",
        )
    latents: list[float] = []
    width = yield from _frames(graphs, [voice, conditions], options, seed, latents)
    yield from _sounded(graphs[DECODER], latents, width)


def _frames(
    graphs: Mapping[str, Signature],
    conditions: Sequence[Numbers],
    options: Mapping[str, Any],
    seed: Seed,
    latents: list[float],
) -> Generator[Request, Answers, int]:
    """Adds frames of latent numbers until the model ends them. Gives the size of one."""
    temperature, steps, threshold, after, most = _read(options)
    model = graphs[MODEL]
    states = _states(model)
    others = [p for p in model.inputs if p.name not in states]
    text = [p for p in others if "text" in p.name]
    frames = [p for p in others if "text" not in p.name]
    outputs = [p for p in ports_of(model.outputs, FLOATS) if p.name not in states.values()]
    ends = [p for p in outputs if "eos" in p.name]
    hidden = [p for p in outputs if "eos" not in p.name]
    if len(text) != 1 or len(frames) != 1 or len(ends) != 1 or not hidden:
        raise ModelError(
            f"its inputs are {', '.join([p.name for p in model.inputs])}",
            MODEL,
            "It has to have sequence, text_embeddings, and states, and to give an eos_logit.",
        )
    width, size = frames[0].shape[-1], conditions[0].dims[2]
    if width < 1:
        raise ModelError("the size of a frame is not known", MODEL, "Export it again.")
    first = True
    for condition in conditions:
        feeds, keep = _with_states(model, states, first)
        feeds[frames[0].name] = Numbers([1, 0, width], [])
        feeds[text[0].name] = condition
        yield Run(MODEL, feeds, {**keep, hidden[0].name: "hidden"}, [])
        first = False
    normal = normal_numbers(seed)
    spread = math.sqrt(temperature)
    frame = [math.nan for i in range(width)]
    left = -1  # frames after the end
    for _ in range(most):
        feeds, keep = _with_states(model, states, False)
        feeds[frames[0].name] = Numbers([1, 1, width], frame)
        feeds[text[0].name] = Numbers([1, 0, size], [])
        made = yield Run(MODEL, feeds, {**keep, hidden[0].name: "hidden"}, [ends[0].name])
        if left < 0 and made[ends[0].name].data[0] > threshold:
            left = after
        elif left > 0:
            left -= 1
        if left == 0:
            break
        frame = [spread * normal() for i in range(width)]
        frame = yield from _flowed(graphs[FLOW], made[hidden[0].name].dims[-1], frame, steps)
        for x in frame:
            latents.append(x)
    return width


def _flowed(
    signature: Signature, size: int, noise: Sequence[float], steps: int
) -> Generator[Request, Answers, list[float]]:
    """A frame of noise, under the condition in the slot "hidden"."""
    ports: list[Port] = []
    for i, name in enumerate(["c", "s", "t", "x"]):
        found = named(signature.inputs, [name])
        if found is None and len(signature.inputs) == 4:
            found = signature.inputs[i]
        if found is None:
            raise ModelError(f"it has no input '{name}'", FLOW, "Export it again.")
        ports.append(found)
    output = ports_of(signature.outputs, FLOATS)[0]
    frame = [*noise]
    for step in range(steps):
        feeds: dict[str, Feed] = {}
        many = 3 if len(ports[0].shape) == 3 else 2
        feeds[ports[0].name] = Slot("hidden", [1, 1, size] if many == 3 else [1, size])
        for i in (1, 2):
            time = (step + i - 1) / steps
            feeds[ports[i].name] = Numbers([1 for d in ports[i].shape], [time], ports[i].dtype)
        rank = len(ports[3].shape)
        feeds[ports[3].name] = Numbers([*[1 for i in range(rank - 1)], len(frame)], frame)
        made = yield Run(FLOW, feeds, {}, [output.name])
        change = made[output.name].data
        frame = [x + change[i] / steps for i, x in enumerate(frame)]
    return frame


def _sounded(
    signature: Signature, latents: Sequence[float], width: int
) -> Generator[Request, Answers, None]:
    """Adds the sound of frames to the result "waveform"."""
    states = _states(signature)
    inputs = [p for p in signature.inputs if p.name not in states]
    outputs = [p for p in ports_of(signature.outputs, FLOATS) if p.name not in states.values()]
    if len(inputs) != 1 or not outputs:
        raise ModelError("it has to take latent numbers alone", DECODER, "Export it again.")
    total = len(latents) // width
    if total == 0:
        raise InputError("the model gave no sound", TASK, "Give another text or voice.")
    for start in range(0, total, CHUNK):
        count = min(CHUNK, total - start)
        feeds, keep = _with_states(signature, states, start == 0)
        data = latents[start * width : (start + count) * width]
        feeds[inputs[0].name] = Numbers([1, count, width], data)
        made = yield Run(DECODER, feeds, {**keep, outputs[0].name: WAVEFORM}, [])
        size = made[outputs[0].name].dims[-1]
        yield Append(WAVEFORM, Part(WAVEFORM, 0, size, [size]))


def _states(signature: Signature) -> dict[str, str]:
    """{input: the output that replaces it} of states: `state_0` and `out_state_0`."""
    found: dict[str, str] = {}
    for p in signature.inputs:
        for o in signature.outputs:
            if o.name in (f"out_{p.name}", f"{p.name}_out", f"new_{p.name}"):
                found[p.name] = o.name
    return found


def _with_states(
    signature: Signature, states: dict[str, str], first: bool
) -> tuple[dict[str, Feed], dict[str, str]]:
    """Feeds of the states, and the slots that their outputs are kept in."""
    feeds: dict[str, Feed] = {}
    keep: dict[str, str] = {}
    for p in signature.inputs:
        if p.name in states:
            keep[states[p.name]] = p.name
            if first:
                feeds[p.name] = Numbers([max(0, d) for d in p.shape], [], p.dtype)
            else:
                feeds[p.name] = Slot(p.name)
    return feeds, keep
