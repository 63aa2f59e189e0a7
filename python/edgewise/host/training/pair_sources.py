"""What pipelines make of the sources of pairs: the states of their encoders, which a decoder's
training takes as inputs.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from ...compiler.arrays import as_output
from ...compiler.compile.seq2seq_files import mask_step, read_graphs, with_decoder
from ...compiler.declare.dtypes import FLOAT, INT64
from ...compiler.formats.files import ModelFiles
from ...compiler.ir import Graph
from ...compiler.training.losses import CausalLMLoss
from ...errors import InputError
from ...logic.generation.text2text import call_of, prompt_of
from ...logic.speech.features import HOP
from ...logic.speech.prompts import first_tokens, id_of
from ...logic.speech.recognition import RATE
from ...logic.speech.recognition import call_of as speech_call
from ...logic.speech.requests import Request
from ...logic.training.chat import Example
from ...logic.training.pairs import Pair, PairKind
from ...logic.training.targets import check_window, end_id, target_example, target_ids
from ..drive import drive
from ..media.recording import Recording, open_sound
from ..pipelines.audio import sound_and_others
from ..session.open import folder_files, name_in
from ..text.speech.whisper import FeatureBytes, whisper_model
from .card import Base, base_of

if TYPE_CHECKING:
    from ..pipelines.automatic_speech_recognition import AutomaticSpeechRecognitionPipeline
    from ..pipelines.base import Pipeline
    from ..pipelines.files import ModelFiles as PipelineFiles
    from ..pipelines.seq2seq import Seq2SeqPipeline
    from ..pipelines.text2text import Text2TextGenerationPipeline
    from .trainer.options import TrainedModel

Batch = dict[str, object]


class PairSource(Protocol):
    """What the training of a pipeline's model needs of it.

    Attributes:
        kind: of the pairs.
        most: tokens of its longest row.
        pad: id of padding.
        base: the model, as a card names it.
    """

    kind: PairKind
    base: Base
    most: int
    pad: int

    @property
    def model(self) -> Graph | TrainedModel:
        """The model that is trained."""
        ...

    @property
    def loss(self) -> CausalLMLoss | str:
        """Its loss."""
        ...

    def example(self, pair: Pair) -> tuple[Example, Any]:
        """The tokens of a pair, and what its source gives."""
        ...

    def feeds(self, sources: Sequence[Any], sequence: int) -> Batch:
        """The inputs of a batch besides token ids."""
        ...


def folder_of(pipe: Pipeline) -> PipelineFiles:
    """The files of a pipeline. Raises InputError where they have no model, but what was made of
    it.
    """
    files = pipe.files
    if files is None or files.package is not None:
        raise InputError(
            "a package holds plans, not the model"
            if files is not None
            else "the pipeline was made of a loaded model",
            "fine_tune",
            "Make the pipeline from the model's folder.",
        )
    return files


class Seq2SeqSource:
    """Of a pipeline with an encoder and a decoder.

    Args:
        pipe: of a model folder.

    Raises:
        InputError: it is of a package, or of a model that was loaded before.
    """

    def __init__(self, pipe: Seq2SeqPipeline) -> None:
        files = folder_of(pipe)
        found, _ = folder_files(files.root)
        graphs = {s: name_in(os.path.abspath(files.root), p) for s, p in files.graphs.items()}
        self.model, self.loss = read_graphs(found, None, graphs).first, CausalLMLoss()
        self.base = base_of(ModelFiles(found), os.fspath(files.root))
        model = pipe.model
        self.most, self.pad = model.max_length, 0
        self.end = end_id(model.generation_config, model.config)
        for config in (model.generation_config, model.config):
            pad = id_of(config, "pad_token_id")
            self.pad = self.pad or pad or 0
        self._step = mask_step(with_decoder(model.config))
        self._inputs = {i.name: i for i in self.model.input_names()}

    def feeds(self, sources: Sequence[bytes], sequence: int) -> Batch:
        """The states of the encoder, with zeros after those of shorter sources, and masks."""
        rows, info = len(sources), self._inputs["encoder_hidden_states"]
        width = (info.shape or [0])[-1]
        if not isinstance(width, int):
            raise InputError(
                f"its shape is {info.shape}",
                "input 'encoder_hidden_states'",
                "Export the model with the size of the encoder's output.",
            )
        row = 4 * width
        longest = self.positions * row
        states = b"".join(s + bytes(longest - len(s)) for s in sources)
        made: Batch = {info.name: as_output(FLOAT, [rows, self.positions, width], states)}
        if "encoder_attention_mask" in self._inputs:
            counts = [len(s) // row * self._step for s in sources]
            columns = self.positions * self._step
            mask = [int(i < count) for count in counts for i in range(columns)]
            made["encoder_attention_mask"] = integers([rows, columns], mask)
        elif any(len(s) != longest for s in sources):
            raise InputError(
                "the decoder has no encoder_attention_mask, and the sources have several lengths",
                "pairs",
                "Export the model with the mask, or give sources of one length.",
            )
        return {**made, **counted(self._inputs, rows, sequence)}

    positions = 0
    """Positions of the longest source."""

    def _seen(self, states: bytes) -> bytes:
        """The states, whose length is noted."""
        width = (self._inputs["encoder_hidden_states"].shape or [0])[-1]
        if isinstance(width, int) and width:
            self.positions = max(self.positions, len(states) // (4 * width))
        return states


class SpeechSource(Seq2SeqSource):
    """Of Whisper.

    Args:
        pipe: the pipeline.
        options: of its calls: language and task.
    """

    kind: PairKind = "speech"

    def __init__(
        self, pipe: AutomaticSpeechRecognitionPipeline, options: Mapping[str, Any]
    ) -> None:
        given = pipe.options(options)
        pipe.check(given)
        if pipe.other is not None:
            raise InputError(
                f"'{pipe.config.get('model_type')}' is not trained from pairs",
                "fine_tune",
                "Of speech recognition, Whisper is.",
            )
        super().__init__(pipe)
        self.pipe = pipe
        fields = dict(given["generate_kwargs"] or {})
        self.options = speech_call(given, fields, pipe.model.generation_config).whisper

    def example(self, pair: Pair) -> tuple[Example, bytes]:
        """The tokens that generation begins with, those of the text, and the states of its window.

        Raises:
            InputError: the sound does not open, is empty, or longer than a window.
        """
        pipe, model = self.pipe, self.pipe.model
        sound, _ = sound_and_others(pair.source)
        samples = open_sound(sound, RATE)
        with samples if isinstance(samples, Recording) else nullcontext():
            frames = model.encoders[0][0]
            check_window(samples.size, frames * HOP, RATE, pair.where)
            window = FeatureBytes(pipe.features_of(samples).window(0, frames))

        def scores(request: Request) -> Any:
            assert request.kind == "logits"  # of the language's detection
            source = model.encode(window)
            sequence = source.open()
            try:
                with model.lock:
                    return model.logits(source.forward(sequence, request.tokens))
            finally:
                source.close(sequence)
                source.close()

        prefix, _ = drive(first_tokens(whisper_model(model), self.options), scores)
        ids = list(pipe.tokenizer.encode(pair.target, False))
        return target_example(prefix, ids, self.end), self._seen(model.hidden_states(window))


class TextSource(Seq2SeqSource):
    """Of T5, Marian, BART and other models from text to text.

    Args:
        pipe: the pipeline.
        options: of its calls: prefix, src_lang and tgt_lang, truncation.
    """

    kind: PairKind = "text"

    def __init__(self, pipe: Text2TextGenerationPipeline, options: Mapping[str, Any]) -> None:
        given = pipe.options(options)
        super().__init__(pipe)
        self.pipe = pipe
        self.call = call_of(given, False, pipe.model.config, pipe.special_ids())

    def example(self, pair: Pair) -> tuple[Example, bytes]:
        """The decoder's first token, the tokens of the target, and the states of the source.

        Raises:
            InputError: the source is longer than what the encoder takes.
        """
        pipe, model = self.pipe, self.pipe.model
        most, eos = model.encoders[-1][0], model.generation_config.get("eos_token_id")
        ids = pipe.encode(self.call.prefix + pair.source)
        states = model.hidden_states(prompt_of(self.call, ids, most, eos))
        target = target_ids(pipe.encode(pair.target), self.call.forced, self.call.languages)
        return target_example(model.start_ids(), target, self.end), self._seen(states)


def counted(inputs: Mapping[str, Any], rows: int, sequence: int) -> Batch:
    """Masks and positions of a decoder for whole rows, as far as it has inputs for them."""
    made: Batch = {}
    for name in inputs:
        if name in ("attention_mask", "decoder_attention_mask"):
            made[name] = integers([rows, sequence], [1] * (rows * sequence))
        elif name in ("position_ids", "decoder_position_ids"):
            made[name] = integers([rows, sequence], list(range(sequence)) * rows)
        elif name == "cache_position":
            made[name] = integers([sequence], list(range(sequence)))
    return made


def integers(shape: Sequence[int], numbers: Sequence[int]) -> object:
    """An array of int64."""
    return as_output(INT64, list(shape), struct.pack(f"<{len(numbers)}q", *numbers))
