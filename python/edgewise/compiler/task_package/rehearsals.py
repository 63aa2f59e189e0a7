"""What is rehearsed of each kind of model that rules of logic/speech run (graph_models.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import InputError, ModelError, UnsupportedOp
from ...logic.native import Seed
from ...logic.speech import chatterbox, codecs, diarization, enhancement, flow, pocket
from ...logic.speech import spectrograms as frames
from ...logic.speech.graphs import Port, Signature
from ..declare.symbolic import NeedsHost, NotStatic
from ..ir import Graph
from .rehearsal import Rehearsal

SECONDS = 12  # of what a model speaks, unless `max_length` says otherwise
STEPS = 32  # most steps of a model that speaks, for a second of sound
HEARD = 30  # of sound that a model hears at once
TEXTS = (1, 2, 5, 9, 64, 512)  # tokens
FAILS = (NotStatic, NeedsHost, UnsupportedOp, ModelError, InputError)
"""What graphs raise that a length is too short or too long for."""


@dataclass(frozen=True)
class Model:
    """A model that is rehearsed.

    Attributes:
        config, processor: contents of config.json and preprocessor_config.json.
        seconds: of sound at once, where the caller says so.
        styles: numbers of a style of a voice; 0: there is no file of one.
    """

    config: Mapping[str, Any]
    processor: Mapping[str, Any]
    seconds: int | None
    styles: int

    @property
    def spoken(self) -> int:
        """Seconds that a model speaks at once."""
        return self.seconds or SECONDS

    def counts(self, rate: int) -> list[int]:
        """Samples of sounds that are heard, the longest last."""
        most = (self.seconds or HEARD) * rate
        parts = (0, 1, 3, 11, 50, 259, 613)
        return [*[1 + i + most * n // 960 for i, n in enumerate(parts)], most]


def _tried(work: Callable[[], Any]) -> bool:
    """Rehearses a length. Gives whether the graphs take it."""
    try:
        work()
        return True
    except FAILS:
        return False


def _driven(r: Rehearsal, steps: Any) -> bool:
    """As _tried, of a generator of requests."""
    return _tried(lambda: r.drive(steps))


def _some(found: Iterable[bool]) -> bool:
    """Whether graphs take a length; all are rehearsed."""
    return any(list(found))


# ---- codecs, and sound for sound


def roles_of(graphs: Mapping[str, Graph]) -> dict[str, Graph]:
    """The graphs of a codec by what they do."""
    found: dict[str, Graph] = {}
    for name, graph in graphs.items():
        role = codecs.role_of(Rehearsal({name: graph}).signature(name))
        if role:
            found.setdefault(role, graph)
    if found:
        return found
    raise UnsupportedOp(
        "they make neither codes of sound nor sound of codes", ", ".join(graphs), "Give a codec's."
    )


def _codec(r: Rehearsal, model: Model) -> bool:
    codec = codecs.codec_of(model.config, model.processor, None)
    encoder, decoder = (
        r.signature(n) if n in r.graphs else None for n in (codecs.ENCODER, codecs.DECODER)
    )
    counts = model.counts(codec.sampling_rate)
    if codec.chunk:  # frames of one length, and the last one
        parts = (3, 11, 259, 613)
        counts = [*[i + codec.chunk * n // 960 for i, n in enumerate(parts)], codec.chunk]
    if encoder is None:
        assert decoder is not None
        return _some(_decoded(r, codec, decoder, count) for count in counts)
    return _some(_tried(partial(_coded, r, codec, encoder, decoder, count)) for count in counts)


def _coded(
    r: Rehearsal, codec: codecs.Codec, encoder: Signature, decoder: Signature | None, count: int
) -> None:
    r.put(codecs.SAMPLES, [1, codec.channels, count])
    made = r.drive(codecs.encoded(codec, encoder, codec.channels, count))
    names = [codecs.CODES, *(f"{codecs.CODES}.{i}" for i in range(1, made.streams))]
    dims = [r.result(name) for name in names]
    if decoder is None:
        return
    for name, of in zip(names, dims):
        r.put(name, of)
    scales = [1.0] * dims[0][0] if made.scales else []
    r.drive(codecs.decoded(codec, decoder, dims, scales, None, made.padding))


def _decoded(r: Rehearsal, codec: codecs.Codec, decoder: Signature, count: int) -> bool:
    """Codes that nobody has made: of one tensor."""
    books = codecs.books_of(codec, decoder)
    if codecs.streams_of(decoder) > 1 or not codec.hop or not books:
        raise UnsupportedOp(
            "how many codes its codebooks have is not known",
            "decoder",
            "Put the encoder beside it.",
        )
    dims = [1, books, max(1, count // codec.hop)]
    r.put(codecs.CODES, dims)
    return _driven(r, codecs.decoded(codec, decoder, [dims], [], None, 0))


def _enhanced(r: Rehearsal, model: Model) -> bool:
    said = model.processor.get("sampling_rate", model.config.get("sampling_rate", 16000))
    rate = enhancement.rate_of(
        said, {}, {}
    )  # where nobody says it, the caller of the pipeline will
    found = enhancement.model_of(r.signature(enhancement.GRAPH))

    def run(count: int) -> None:
        r.put(enhancement.SAMPLES, [1, count])
        r.drive(enhancement.enhanced(found, count, rate, True))

    counts = [3 * found.size] if found.size else model.counts(rate)
    return _some(_tried(partial(run, count)) for count in counts)


def _segmented(r: Rehearsal, model: Model) -> bool:
    signature = r.signature(diarization.GRAPH)
    r.put(diarization.SAMPLES, [1])
    r.drive(diarization.segmented(signature, model.processor, 1, diarization.OPTIONS, True))
    return True


# ---- voices


def _ids(count: int) -> list[int]:
    return [1] * count


def _speecht5(r: Rehearsal, model: Model) -> bool:
    graphs = r.signatures()
    found = []
    for many in TEXTS:
        for step in (3, 6):
            options = {"threshold": 0.0, "minlenratio": (step + 0.5) * _reduction(model) / many}
            found.append(_tried(partial(_spectrogram, r, graphs, many, model, options)))
    rows = [1, 2, *(model.spoken * STEPS * n // 960 for n in (11, 50, 259, 613, 960))]
    if frames.VOCODER in graphs:
        for many in [_reduction(model) * n for n in rows]:
            r.put(frames.SPECTROGRAM, [many, *r._dims(frames.SPECTROGRAM)[1:]])
            found.append(_driven(r, frames.vocoded(graphs[frames.VOCODER])))
    return any(found)


def _reduction(model: Model) -> int:
    given = model.config.get("reduction_factor")
    return given if isinstance(given, int) and given > 0 else 2


def _spectrogram(
    r: Rehearsal,
    graphs: Mapping[str, Signature],
    many: int,
    model: Model,
    options: Mapping[str, Any],
) -> None:
    decoder = next(graphs[n] for n in (frames.MERGED, frames.FIRST) if n in graphs)
    port = _port(decoder, frames.SPEAKER)
    if port is not None:
        r.put(frames.SPEAKER, [1, _size(port, model.config.get("speaker_embedding_dim"))])
    r.drive(frames.spectrogram(graphs, _ids(many), model.config, options))
    r.put(frames.SPECTROGRAM, r.result(frames.SPECTROGRAM))


def _port(signature: Signature, name: str) -> Port | None:
    return next((p for p in signature.inputs if p.name == name), None)


def _size(port: Port, otherwise: object) -> int:
    """The last dimension of an input."""
    size = port.shape[-1] if port.shape else 0
    if size > 0:
        return size
    if isinstance(otherwise, int) and otherwise > 0:
        return otherwise
    raise UnsupportedOp(
        "its size is not known", f"input '{port.name}'", "Export the model with it."
    )


def _supertonic(r: Rehearsal, model: Model) -> bool:
    graphs, config = r.signatures(), model.config
    port = _port(graphs[flow.ENCODER], flow.STYLE)
    rows = port.shape[1] if port is not None and len(port.shape) == 3 else 0
    if rows < 1:
        if not model.styles:
            raise UnsupportedOp(
                "the rows of a style are not known", flow.ENCODER, "Put voices/NAME.bin beside it."
            )
        rows = flow.style_dims(config, model.styles)[1]
    size = config.get("style_dim")
    found = []
    for many in TEXTS:
        for part in (11, 259, 613, 960):  # of the longest sound
            options = {"speed": 960 / (part * model.spoken), "num_inference_steps": 2}
            r.put(flow.STYLE, [1, rows, size if isinstance(size, int) else 1])
            steps = flow.flowed(graphs, _ids(many), config, options, Seed(1))
            found.append(_driven(r, steps))
    return any(found)


def _voices(r: Rehearsal, rate: int, model: Model, rules: Any) -> list[Any]:
    """Voices of references of several lengths."""
    found = []
    most = (model.seconds or HEARD) * rate
    for count in [most * n // 960 - i for i, n in enumerate((5, 61, 259, 960))]:
        r.put(rules.SAMPLES, [count])
        steps = rules.heard(r.signature(rules.ENCODER), count)
        try:
            found.append(r.drive(steps))
        except FAILS:
            continue
    return found


def _chatterbox(r: Rehearsal, model: Model) -> bool:
    graphs = r.signatures()
    voices = _voices(r, chatterbox.rate_of(model.config, model.processor), model, chatterbox)
    embedder, language = graphs[chatterbox.EMBEDDER], graphs[chatterbox.MODEL]
    size = chatterbox.vocabulary_of(language, model.config)
    found = []

    def write(voice: Any, many: int) -> None:
        writer = chatterbox.Writer(embedder, language, voice, 0.5, size, _ids(many))
        spoken = chatterbox.Spoken(1)
        for _ in range(4):
            r.drive(chatterbox.logits_after(writer, spoken, [1]))

    for voice in voices:
        for many in TEXTS:
            found.append(_tried(partial(write, voice, many)))
        for many in (0, 5, 40, model.spoken * 25):
            steps = chatterbox.sounded(graphs[chatterbox.DECODER], voice, _ids(many))
            found.append(_driven(r, steps))
    return any(found)


def _pocket(r: Rehearsal, model: Model) -> bool:
    graphs = r.signatures()
    voices = _voices(r, chatterbox.rate_of(model.config, model.processor), model, pocket)
    found = []
    for voice in voices:
        for many, after in zip(TEXTS, (3, 5, 8, 2 + pocket.CHUNK, 3, 3)):
            options = {"frames_after_eos": after}
            steps = pocket.spoken(graphs, _ids(many), voice, options, Seed(1))
            found.append(_driven(r, steps))
    return any(found)


REHEARSALS: Mapping[str, Callable[[Rehearsal, Model], bool]] = {
    codecs.TASK: _codec,
    enhancement.TASK: _enhanced,
    diarization.TASK: _segmented,
    "speecht5": _speecht5,
    "supertonic": _supertonic,
    "chatterbox": _chatterbox,
    "pocket": _pocket,
}
"""{task, or kind of voice: rehearses its rules; gives whether they take any length}"""
