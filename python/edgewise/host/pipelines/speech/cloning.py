"""text-to-speech in the voice of a reference: Chatterbox and Pocket TTS."""

from __future__ import annotations

import array
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ....compiler.arrays import as_input, as_output
from ....compiler.declare.dtypes import FLOAT, INT64, NAME
from ....errors import InputError
from ....logic.native import Seed
from ....logic.speech import chatterbox, pocket
from ....logic.speech.graphs import Numbers
from ....seeds import check_seed
from ...media.decode import read_sound
from ...text.generate import generate
from ...text.signals import check_signal
from ..files import Stem
from .graph_speech import GraphSpeechPipeline
from .graphs import GraphHost, numbers_of

__all__ = ["CloningPipeline"]

RULES: Mapping[str, Any] = {"chatterbox": chatterbox, "pocket": pocket}
SHARED = ("speaker_embeddings", "split", "seed", "signal", "forward_params")


class CloningPipeline(GraphSpeechPipeline):
    """Speaks texts in the voice of a reference: Chatterbox as transformers.js has it
    (speech_encoder, embed_tokens, language_model, conditional_decoder), Pocket TTS as five graphs
    (mimi_encoder, text_conditioner, flow_lm_main, flow_lm_flow, mimi_decoder).

    Args:
        model, tokenizer, options: as of Pipeline.

    Options of a call; an option that the model does not have is refused:
        audio_values: the reference: a sound, as pipelines of sounds take it.
        speaker_embeddings: instead of it, what `encode_speech` returned for one.
        exaggeration: of Chatterbox: how much emotion the voice has. Default: 0.5.
        generate_kwargs: of Chatterbox: fields of GenerationConfig. Defaults: as in
            generation_config.json, else {"repetition_penalty": 1.2, "max_new_tokens": 1000}.
        temperature: of Pocket TTS: of the noise. Default: 0.7.
        num_inference_steps: of the flow of Pocket TTS. Default: 1.
        eos_threshold, frames_after_eos, max_frames: where the speech of Pocket TTS ends. Defaults:
            -4 (a logit), 3, 500.
        split, seed, signal, forward_params: as of GraphSpeechPipeline.
    """

    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **dict.fromkeys((*chatterbox.OPTIONS, *pocket.OPTIONS, *SHARED))
    }

    def stems(self, model: Any) -> tuple[Sequence[Stem], Sequence[str]]:
        rules = RULES[self.kind]
        return tuple(n for n in rules.GRAPHS if n != rules.ENCODER), (rules.ENCODER,)

    @property
    def sampling_rate(self) -> int:
        """Hz of the sound, and of references."""
        return chatterbox.rate_of(self.config, self._json("preprocessor_config.json"))

    def check(self, options: Mapping[str, Any]) -> None:
        check_seed(options["seed"], "seed")
        rules = RULES[self.kind]
        for name in (*chatterbox.OPTIONS, *pocket.OPTIONS):
            if name not in rules.OPTIONS and options[name] is not None:
                raise InputError(
                    "the model does not have this option",
                    name,
                    f"It has {', '.join([*rules.OPTIONS, 'speaker_embeddings'])}.",
                )
        if self.kind == "pocket":
            pocket.check_options(options)
            return
        chatterbox.exaggeration_of(options)
        fields = options["generate_kwargs"]
        if fields is not None and not isinstance(fields, Mapping):
            raise InputError(f"it is {fields!r}", "generate_kwargs", "Give {name: value}.")
        chatterbox.check_fields(fields or {})

    def encode_speech(self, sound: Any, *, signal: Any = None) -> dict[str, Any]:
        """What the model knows of a voice, for `speaker_embeddings`: arrays by their names in
        transformers.js.

        Args:
            sound: the reference: a path, samples, or {"array", "sampling_rate"}.
            signal: as of edgewise.generate.

        Raises:
            InputError: it is no sound.
        """
        with self.lock:
            voice = self._heard(sound, signal)
        return {name: _array(value) for name, value in zip(RULES[self.kind].VOICE, voice)}

    # ---- the models
    def ready(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options whose voice is known."""
        given, sound = options["speaker_embeddings"], options["audio_values"]
        if given is not None and sound is not None:
            raise InputError("there are two voices", "speaker_embeddings", "Give one of them.")
        if given is None and sound is None:
            raise InputError(
                "the model needs a voice",
                "audio_values",
                "Give a recording of it, or speaker_embeddings.",
            )
        voice = self._heard(sound, options["signal"]) if given is None else self._known(given)
        return {**options, "voice": voice}

    def _heard(self, sound: Any, signal: Any) -> list[Numbers]:
        rules = RULES[self.kind]
        samples = read_sound(sound, self.sampling_rate).samples
        host = GraphHost(self.session, lambda: check_signal(signal, self.task))
        host.put(rules.SAMPLES, samples)
        made = host.drive(rules.heard(self._signatures()[rules.ENCODER], samples.size))
        return [made] if isinstance(made, Numbers) else [getattr(made, n) for n in rules.VOICE]

    def _known(self, given: Any) -> list[Numbers]:
        name = "speaker_embeddings"
        names = RULES[self.kind].VOICE
        if not isinstance(given, Mapping) or any(n not in given for n in names):
            raise InputError("they are none of a voice", name, "Give what encode_speech returned.")
        values = []
        for n in names:
            dtype, shape, data = as_input(given[n], f"{name}.{n}")
            kind = NAME[dtype]
            values.append(Numbers(list(shape), numbers_of(dtype, list(shape), data), kind))
        return values

    def _spoken(self, text: str, options: Mapping[str, Any]) -> bytes:
        seed, signal = options["seed"], options["signal"]
        found = self.tokenizer.encode(text)
        ids = list(getattr(found, "ids", found))
        host = GraphHost(self.session, lambda: check_signal(signal, self.task), seed)
        values = options["voice"]
        if self.kind == "pocket":
            voice = pocket.voice_of(values[0], "speaker_embeddings")
            own = Seed(secrets.randbits(63) if seed is None else seed)
            host.drive(pocket.spoken(self._signatures(), ids, voice, options, own))
        else:
            self._written(host, ids, chatterbox.voice_of(values, "speaker_embeddings"), options)
        _, _, data = as_input(host.result(pocket.WAVEFORM), pocket.WAVEFORM)
        return memoryview(data).cast("B").tobytes()

    def _written(
        self, host: GraphHost, ids: list[int], voice: chatterbox.Voice, options: Mapping[str, Any]
    ) -> None:
        """Chatterbox: a language model writes tokens, of which sound is made."""
        graphs = self._signatures()
        model = graphs[chatterbox.MODEL]
        writer = chatterbox.Writer(
            graphs[chatterbox.EMBEDDER],
            model,
            voice,
            chatterbox.exaggeration_of(options, graphs[chatterbox.EMBEDDER]),
            chatterbox.vocabulary_of(model, self.config),
            ids,
        )
        prompt = chatterbox.prompt_of(writer)
        file = self._json("generation_config.json")
        decoder = GraphDecoder(self, host, writer, chatterbox.defaults_of(file, self.config))
        fields = dict(options["generate_kwargs"] or {})
        if options["seed"] is not None:
            fields.setdefault("seed", options["seed"])
        made: Any = generate(decoder, prompt, signal=options["signal"], **fields)
        tokens = chatterbox.spoken_tokens(made[0], len(prompt))
        host.drive(chatterbox.sounded(graphs[chatterbox.DECODER], voice, tokens))


class GraphDecoder:
    """A decoder of `generate` whose logits a graph gives: one sequence at a time."""

    def __init__(
        self,
        pipe: CloningPipeline,
        host: GraphHost,
        writer: chatterbox.Writer,
        defaults: dict[str, Any],
    ) -> None:
        self.host, self.writer, self.generation_config = host, writer, defaults
        self.vocab_size = writer.vocabulary
        self.max_length = chatterbox.limit_of(pipe.config)
        self.engine = pipe.session(chatterbox.MODEL).engine
        self.opened = 0

    def open(self) -> tuple[chatterbox.Spoken, int]:
        """A new sequence, and memory for its logits."""
        self.opened += 1
        return chatterbox.Spoken(self.opened), self.engine.alloc(4 * self.vocab_size)

    def close(self, sequence: tuple[chatterbox.Spoken, int]) -> None:
        """Frees a sequence."""
        self.engine.free(sequence[1])

    def copy(self, source: Any, target: Any) -> None:
        """Several sequences are refused before."""
        raise InputError("speech is one sequence", "generate_kwargs", "Leave num_beams out.")

    def truncate(self, sequence: Any, n: int) -> None:
        """As `copy`."""
        raise InputError("speech is one sequence", "generate_kwargs", "Leave use_cache out.")

    def forward(self, sequence: tuple[chatterbox.Spoken, int], ids: list[int]) -> int:
        """The address of the logits after ids that are appended."""
        spoken, address = sequence
        made = self.host.drive(chatterbox.logits_after(self.writer, spoken, ids))
        self.engine.write(address, array.array("f", made).tobytes())
        return address


def _array(value: Numbers) -> Any:
    """Numbers as an array: float32 or int64."""
    if value.dtype in ("float16", "float64", "bfloat16", "float32"):
        return as_output(FLOAT, value.dims, array.array("f", value.data).tobytes())
    return as_output(INT64, value.dims, array.array("q", [int(x) for x in value.data]).tobytes())
