"""Chatterbox, as transformers.js has it: a graph that hears a speaker, one that embeds tokens, a
language model that writes tokens of speech, and one that makes sound of them in that voice.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError, ModelError
from ..native import option
from ..options import read_within
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
    ports_of,
)

TASK = "text-to-speech"
ENCODER = "speech_encoder"
EMBEDDER = "embed_tokens"
MODEL = "language_model"
DECODER = "conditional_decoder"
GRAPHS = [ENCODER, EMBEDDER, MODEL, DECODER]
SAMPLES = "audio_values"
WAVEFORM = "waveform"
VOICE = ["audio_features", "audio_tokens", "speaker_embeddings", "speaker_features"]
OPTIONS = ["audio_values", "exaggeration", "generate_kwargs"]
SAMPLING_RATE = 24000
START = 6561  # token before those of speech
STOP = 6562
SILENCE = 4299
SILENCES = 3  # tokens of silence at the end
MAX_LENGTH = 4096  # tokens, where the configuration does not say
MAX_SECONDS = 60  # of a reference
ALONE: dict[str, Any] = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "use_cache": True,
    "return_dict_in_generate": False,
}
"""Fields of GenerationConfig that have one value here."""


def rate_of(config: Mapping[str, Any], processor: Mapping[str, Any]) -> int:
    """Hz of the sound, and of references."""
    for fields in (processor, config):
        found: object = fields.get("sampling_rate")
        if isinstance(found, int) and found > 0:
            return found
    return SAMPLING_RATE


def exaggeration_of(options: Mapping[str, Any], embedder: Signature | None = None) -> float:
    """How much emotion a voice gets. Raises InputError: it is no number from 0 to 10, or the model
    does not take it.

    Args:
        options: "exaggeration".
        embedder: signature of the graph that takes it, where it is known.
    """
    if embedder is not None and options.get("exaggeration") is not None:
        if not ports_of(embedder.inputs, FLOATS):
            raise InputError(
                "the model does not have this option", option("exaggeration"), "Leave it out."
            )
    return read_within(options, "exaggeration", 0.5, 0, 10)


def check_fields(own: Mapping[str, Any]) -> None:
    """Raises InputError: a field of GenerationConfig is not for speech."""
    for name in ALONE:
        given: object = own.get(name)
        if given is not None and given != ALONE[name]:
            raise InputError(
                f"it is {given}", option(f"generate_kwargs.{name}"), "Speech is one sequence."
            )


def defaults_of(file: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of GenerationConfig: those of generation_config.json over those of Chatterbox.

    Args:
        file: contents of generation_config.json.
        config: of config.json.
    """
    made: dict[str, Any] = {"repetition_penalty": 1.2}
    stop: object = config.get("stop_speech_token")
    made["eos_token_id"] = stop if isinstance(stop, int) else STOP
    if file.get("max_length") is None:
        made["max_new_tokens"] = 1000
    for name in file:
        if name not in ALONE:
            made[name] = file[name]
    return made


def limit_of(config: Mapping[str, Any]) -> int:
    """Tokens that the language model takes."""
    inner: object = config.get("text_config")
    fields: dict[str, Any] = inner if isinstance(inner, dict) else {}
    for of in (fields.get("max_position_embeddings"), config.get("max_position_embeddings")):
        if isinstance(of, int) and of > 0:
            return of
    return MAX_LENGTH


def vocabulary_of(signature: Signature, config: Mapping[str, Any]) -> int:
    """Number of logits. Raises ModelError: nothing says it."""
    logits = _logits(signature)
    if logits.shape and logits.shape[-1] > 0:
        return logits.shape[-1]
    inner: object = config.get("text_config")
    fields: dict[str, Any] = inner if isinstance(inner, dict) else {}
    for of in (fields.get("vocab_size"), config.get("vocab_size")):
        if isinstance(of, int) and of > 0:
            return of
    raise ModelError("the size of its vocabulary is not known", MODEL, "Add it to config.json.")


# ---- a speaker


@dataclass(frozen=True)
class Voice:
    """What a model knows of a speaker.

    Attributes:
        audio_features: before the text in the language model, [1, n, hidden].
        audio_tokens: before those of the speech, [1, n].
        speaker_embeddings: [1, size].
        speaker_features: [1, frames, bins].
    """

    audio_features: Numbers
    audio_tokens: Numbers
    speaker_embeddings: Numbers
    speaker_features: Numbers


def heard(signature: Signature, count: int) -> Generator[Run, Answers, Voice]:
    """Hears the reference in the slot "audio_values", [count].

    Raises:
        InputError: there are no samples.
        ModelError: the graph gives something else.
    """
    if count == 0:
        raise InputError("there are no samples", option(SAMPLES), "Give a recording.")
    inputs = ports_of(signature.inputs, FLOATS)
    if len(inputs) != 1:
        raise ModelError("it has to take samples alone", ENCODER, "Export it again.")
    port = inputs[0]
    dims = [*[1 for d in port.shape[1:]], count] if port.shape else [1, count]
    names = [p.name for p in signature.outputs]
    made = yield Run(ENCODER, {port.name: Part(SAMPLES, 0, count, dims)}, {}, names)
    values: list[Numbers] = []
    for i, name in enumerate(VOICE):
        found = made.get(name)
        if found is None and i < len(names):
            found = made[names[i]]  # exports of other names have the same order
        if found is None:
            raise ModelError(f"it has no output '{name}'", ENCODER, "Export it again.")
        values.append(found)
    return voice_of(values, ENCODER)


def voice_of(values: Sequence[Numbers], where: str) -> Voice:
    """A voice of its four parts, in the order of VOICE. Raises ModelError."""
    ranks = [3, 2, 2, 3]
    for name, value, rank in zip(VOICE, values, ranks):
        if len(value.dims) != rank or value.dims[0] != 1:
            raise ModelError(f"{name} are of shape {value.dims}", where, "Give those of a voice.")
    return Voice(values[0], values[1], values[2], values[3])


# ---- the language model


@dataclass
class Spoken:
    """A sequence of the language model: its tokens, and a number that its states are named by."""

    number: int
    ids: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Writer:
    """What writes tokens of speech.

    Attributes:
        embedder, model: signatures of the graphs.
        voice: of the speaker.
        exaggeration: see exaggeration_of.
        vocabulary: number of logits.
        prompt: tokens of the text.
    """

    embedder: Signature
    model: Signature
    voice: Voice
    exaggeration: float
    vocabulary: int
    prompt: list[int]


def prompt_of(writer: Writer) -> list[int]:
    """The prompt as generation has it: those of its tokens that have a logit. Where the tokens of a
    text are numbered after those of speech (Chatterbox Turbo), it is the start.
    """
    found = [i for i in writer.prompt if 0 <= i < writer.vocabulary]
    return found or [min(START, writer.vocabulary - 1)]


def positions_of(ids: Sequence[int], count: int) -> list[int]:
    """The positions of the last tokens: text counts from its first token, speech from its start.

    Args:
        ids: all tokens.
        count: of the last ones; a prompt has all, a step one.
    """
    if count == 1 and len(ids) > 1:
        at = len(ids)
        while at > 0 and ids[at - 1] != START:
            at -= 1
        return [len(ids) - at]
    made: list[int] = []
    position = 0
    for token in ids[len(ids) - count :]:
        if token >= START:
            made.append(0)
        else:
            made.append(position)
            position += 1
    return made


def logits_after(
    writer: Writer, spoken: Spoken, ids: Sequence[int]
) -> Generator[Request, Answers, list[float]]:
    """Appends tokens to a sequence. Returns the logits after the last one.

    Args:
        ids: the tokens; the first ones stand for the prompt.

    Raises:
        InputError: the voice is that of another model.
        ModelError: a graph has an input that nobody knows.
    """
    past = _length(writer, spoken)
    if past == 0:
        ids = writer.prompt
    spoken.ids = [*spoken.ids, *ids]
    count = len(ids)
    feeds: dict[str, Feed] = {}
    for p in writer.embedder.inputs:
        if p.dtype in FLOATS:
            feeds[p.name] = Numbers([1 for d in p.shape], [writer.exaggeration], p.dtype)
        elif "position" in p.name:
            feeds[p.name] = Numbers([1, count], positions_of(spoken.ids, count), p.dtype)
        else:
            feeds[p.name] = Numbers([1, count], [*ids], p.dtype)
    embeds = ports_of(writer.embedder.outputs, FLOATS)[0]
    made = yield Run(EMBEDDER, feeds, {}, [embeds.name])
    found = made[embeds.name]
    if past == 0:
        voice, hidden = writer.voice.audio_features, found.dims[2]
        if voice.dims[2] != hidden:
            raise InputError(
                f"a voice has {voice.dims[2]} features, a token {hidden}",
                option("speaker_embeddings"),
                "Give those of this model.",
            )
        count += voice.dims[1]
        found = Numbers([1, count, hidden], [*voice.data, *found.data])
    model = writer.model
    given: dict[str, Feed] = {}
    keep: dict[str, str] = {}
    for p in model.inputs:
        present = _present(p.name, model.outputs)
        if present is not None:
            slot = f"{p.name}#{spoken.number}"
            keep[present.name] = slot
            if past > 0:
                given[p.name] = Slot(slot)
            else:
                dims = [d if d > 0 else 1 if i == 0 else 0 for i, d in enumerate(p.shape)]
                given[p.name] = Numbers(dims, [], p.dtype)
        else:
            given[p.name] = _fed(p, past, count, found)
    logits = _logits(model)
    answers = yield Run(MODEL, given, keep, [logits.name])
    data = answers[logits.name].data
    if answers[logits.name].dims[-1] != writer.vocabulary:
        raise ModelError(
            f"it gives {answers[logits.name].dims[-1]} logits, not {writer.vocabulary}",
            MODEL,
            "Check vocab_size in config.json.",
        )
    return [*data[len(data) - writer.vocabulary :]]


def _length(writer: Writer, spoken: Spoken) -> int:
    """What the states of a sequence hold: the voice, and its tokens."""
    many = len(spoken.ids)
    return many if many == 0 else many + writer.voice.audio_features.dims[1]


def _fed(port: Port, past: int, count: int, embeds: Numbers) -> Feed:
    """An input of the language model that is no state."""
    if port.dtype in FLOATS and len(port.shape) == 3:
        return embeds
    if "mask" in port.name:
        total = past + count
        return Numbers([1, total], [1.0 for i in range(total)], port.dtype)
    if "position" in port.name:
        dims = [count] if len(port.shape) == 1 else [1, count]
        return Numbers(dims, [past + i for i in range(count)], port.dtype)
    if port.dtype in INTEGERS and len(port.shape) < 2:  # num_logits_to_keep
        return Numbers([1 for d in port.shape], [1], port.dtype)
    raise ModelError(f"it has an input '{port.name}'", MODEL, "Export it for transformers.js.")


def _present(name: str, outputs: Sequence[Port]) -> Port | None:
    """The output that replaces a state."""
    for new in ("present", "present_key_values"):
        for p in outputs:
            if "past_key_values" in name and p.name == name.replace("past_key_values", new):
                return p
    return None


def _logits(signature: Signature) -> Port:
    for p in signature.outputs:
        if p.name == "logits":
            return p
    return signature.outputs[0]


# ---- the sound


def spoken_tokens(sequence: Sequence[int], prompt: int) -> list[int]:
    """The tokens of speech of a sequence: those after the prompt, without the last one."""
    return [*sequence[prompt : max(prompt, len(sequence) - 1)]]


def sounded(
    signature: Signature, voice: Voice, tokens: Sequence[int]
) -> Generator[Request, Answers, None]:
    """Makes the result "waveform" of tokens of speech.

    Raises:
        ModelError: the graph has an input that nobody knows, or gives no sound.
    """
    all_tokens = [*voice.audio_tokens.data, *tokens, *[SILENCE for i in range(SILENCES)]]
    feeds: dict[str, Feed] = {}
    for p in signature.inputs:
        if p.dtype in INTEGERS:
            feeds[p.name] = Numbers([1, len(all_tokens)], all_tokens, p.dtype)
        elif len(p.shape) == 2:
            feeds[p.name] = voice.speaker_embeddings
        elif len(p.shape) == 3:
            feeds[p.name] = voice.speaker_features
        else:
            raise ModelError(f"it has an input '{p.name}'", DECODER, "Export it again.")
    outputs = ports_of(signature.outputs, FLOATS)
    if not outputs:
        raise ModelError("it gives no sound", DECODER, "Export it again.")
    made = yield Run(DECODER, feeds, {outputs[0].name: WAVEFORM}, [])
    count = made[outputs[0].name].dims[-1]
    yield Append(WAVEFORM, Part(WAVEFORM, 0, count, [count]))
