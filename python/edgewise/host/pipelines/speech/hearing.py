"""Speech to text with models that hear pieces of words: CTC of features of any length, and
transducers. The sound and the graphs of logic/speech/transducer.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array, as_input
from ....compiler.declare.dtypes import unpack
from ....compiler.onnx import FileSource, read_model
from ....compiler.task_package import hearing_graphs as hear
from ....compiler.task_package.hearing import hearing_of
from ....errors import InputError
from ....logic.manifest.processor import AudioFields, HearingFields
from ....logic.speech import canary, ctc, transducer
from ....logic.speech.chunks import Hear
from ....logic.speech.pieces import Heard, Pieces, times_of, tokens_of, transcript
from ....logic.speech.samples import check_longest, longest, plan_length, total_of
from ...drive import drive
from ...engine import Owner
from ...media.decode import read_sound
from ...media.recording import part
from ...session import InferenceSession
from ...session.packaged import ProgramSession
from ...text.signals import check_signal
from ..audio import sound_and_others

if TYPE_CHECKING:
    from ..base import Pipeline

__all__ = ["HearingRecognizer"]

WHOLE = 240  # seconds of sound that a model's own graphs get at once
TASK = "automatic-speech-recognition"
_OTHERS = (
    "return_timestamps",
    "chunk_length_s",
    "stride_length_s",
    "on_progress",
    "signal",
    "ignore_warning",
)
"""The options of automatic-speech-recognition that apply, besides num_beams."""


class HearingRecognizer(Owner):
    """The part of automatic-speech-recognition that is of CTC models of features, and transducers.

    Args:
        outer: the pipeline, whose files are used.

    Raises:
        UnsupportedOp, ModelError, TokenizerError, InputError: see hearing_of.
    """

    def __init__(self, outer: Pipeline) -> None:
        self.start_lock()
        self.defaults = {**outer.CALL}
        self.sessions: dict[str, Any] = {}
        files = outer.files
        assert files is not None
        if files.package is not None:
            described = files.package.manifest["processor"]
            self.fields: HearingFields = described["hearing"]
            self.audio: AudioFields = described["audio"]
            for name in files.package.manifest["programs"]:
                self.sessions[name] = ProgramSession(files.package, name, outer.engine)
        else:
            graphs = {name: read_model(FileSource(path)) for name, path in files.graphs.items()}
            found = hearing_of(graphs, files.names, files.read)
            self.fields, self.audio = found.fields, found.audio
            for name, graph in found.graphs.items():
                self.sessions[name] = InferenceSession(
                    graph, None if name == "pre" else outer.session_options, engine=outer.engine
                )
        fields = self.fields
        self.pieces = Pieces(fields["tokens"], fields["blank"], fields["hidden"])
        self.search = transducer.Transducer(
            fields["blank"], fields["durations"], fields["symbols"], fields["context"]
        )

    def check(self, options: Mapping[str, Any]) -> None:
        """Checks the options of a call. Raises InputError."""
        times = times_of(options)
        fields = dict(options["generate_kwargs"] or {})
        transducer.beams_of(fields)
        searches = self.fields["kind"] == "transducer"
        for name in fields:
            if name != "num_beams" or (not searches and fields[name] not in (None, 1)):
                raise InputError("the model has no such option", name, "Leave it out.")
        others: tuple[str, ...] = (*_OTHERS, "generate_kwargs")
        if self.fields["kind"] == "prompted":
            others = (*others, *canary.OPTIONS)
            canary.prompt_of(self.pieces, options, times)
        for name, value in options.items():
            known = name in others
            if not known and value not in (self.defaults[name], None, {}):
                raise InputError("the model has no such option", name, "Leave it out.")

    def one(self, given: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The text of a recording."""
        fields, rate = self.fields, self.audio["sampling_rate"]
        given, others = sound_and_others(given)
        samples = read_sound(given, rate).samples
        encoded = _Encoded(self)

        def answer(request: Hear | canary.Request | transducer.Request) -> Any:
            if request.kind == "join":
                return encoded.join(request)
            if request.kind == "decode":
                return encoded.decode(request)
            check_signal(options["signal"], TASK)
            if request.kind == "done":
                if options["on_progress"] is not None:
                    options["on_progress"](request.done, request.total)
                return None
            data = part(samples, request.start, request.length)
            return encoded.hear(data, request.kind == "hear")

        most = longest(self.audio) or WHOLE * rate
        frames = ctc.Frames(rate, fields["samples"], [], most, False)
        total_of(self.audio, samples.size)  # there may be too few samples
        asked = {**(options["generate_kwargs"] or {}), **options}
        heard: list[Heard]
        times, seconds = times_of(options), fields["samples"] / rate
        if fields["kind"] == "prompted":
            prompt = canary.prompt_of(self.pieces, options, times)
            limit, count = fields["symbols"], samples.size
            heard = drive(
                canary.recognized(self.pieces, prompt, limit, frames, asked, count), answer
            )
        elif fields["kind"] == "ctc":
            ids = drive(ctc.recognized(frames, asked, samples.size), answer)
            heard = tokens_of(self.pieces, ids)
        else:
            steps = transducer.recognized(self.search, frames, asked, samples.size)
            heard = drive(steps, answer)
        marked = len(fields["durations"]) > 0
        found = transcript(self.pieces, heard, times, seconds, marked)
        return {**found, **{name: [value] for name, value in others.items()}}

    def close(self) -> None:
        """Frees the memory of the graphs."""
        for session in self.sessions.values():
            session.free()
        self.sessions.clear()


class _Encoded:
    """What is known of the sound that was encoded last, and of tokens."""

    def __init__(self, outer: HearingRecognizer) -> None:
        self.outer = outer
        self.rows, self.width = memoryview(b""), 0
        self.known: dict[int, dict[str, Any]] = {}  # outputs of the predictor
        self.inputs: dict[str, Any] = {}  # of a decoder, which stay the same
        self.memory: Any = None  # of a decoder

    def hear(self, data: bytes, ids: bool) -> Any:
        """Encodes samples. Returns the tokens of frames, or the number of frames."""
        outer = self.outer
        audio, count = outer.audio, len(data) // 4
        check_longest(audio, count, TASK)
        valid = max(count, audio["length"]["least"])
        total = total_of(audio, valid)
        size = plan_length(audio, total) or total
        unit = audio["length"]["multiple"]
        shape = (1, size) if unit == 1 else (size // unit, unit)
        padded = Array(shape, "float32", bytes(data) + bytes(4 * (size - count)))
        feeds = {"audio": padded, "valid": Array((1,), "int64", struct.pack("<q", valid))}
        pre, encoder = outer.sessions["pre"], outer.sessions["encoder"]
        names = [name for name in encoder.inputs if name in pre.outputs]
        inputs = dict(zip(names, pre.run(names, feeds), strict=True))
        found, frames = encoder.run([hear.IDS if ids else hear.HIDDEN, hear.COUNT], inputs)
        length = int(_numbers(frames)[0])
        if ids:
            return _numbers(found)[:length]
        _, sizes, rows = as_input(found, "encoder")
        self.rows, self.width = memoryview(rows).cast("B"), sizes[1]
        self.known.clear()
        self.inputs = {hear.HIDDEN: found, hear.COUNT: frames}
        return length

    def decode(self, request: canary.Decode) -> int:
        """The likeliest token after others."""
        session = self.outer.sessions["decoder"]
        layers, _, _, width = self.outer.fields["states"][0]
        if not request.past:
            self.memory = Array((layers, 1, 0, width), "float32", b"")
        size = len(request.tokens)
        ids = Array((1, size), "int64", struct.pack(f"<{size}q", *request.tokens))
        feeds = {**self.inputs, hear.CONTEXT: ids, hear.state(0): self.memory}
        tokens, self.memory = session.run([hear.TOKENS, hear.following(0)], feeds)
        return int(_numbers(tokens)[0])

    def join(self, request: transducer.Join) -> transducer.Joined:
        """Scores of tokens at a frame."""
        sessions = self.outer.sessions
        at = 4 * self.width * request.frame
        frame = Array((1, self.width), "float32", bytes(self.rows[at : at + 4 * self.width]))
        if "joiner" not in sessions:
            made = scores = self._predicted(request, {hear.FRAME: frame})
        else:
            made = self.known.get(request.place) or self._predicted(request, {})
            joiner = sessions["joiner"]
            feeds = {hear.FRAME: frame, hear.PREDICTED: made[hear.PREDICTED]}
            names = list(joiner.outputs)
            scores = dict(zip(names, joiner.run(names, feeds), strict=True))
        kept = {*request.keep, request.place}
        self.known = {i: known for i, known in self.known.items() if i in kept}
        self.known[request.place] = made
        durations = scores.get(hear.DURATIONS)
        return transducer.Joined(
            _numbers(scores[hear.TOKENS]),
            _numbers(scores[hear.SCORES]),
            [] if durations is None else _numbers(durations),
        )

    def _predicted(self, request: transducer.Join, feeds: dict[str, Any]) -> dict[str, Any]:
        """The outputs of the predictor after some tokens."""
        outer = self.outer
        size = len(request.context)
        ids = struct.pack(f"<{size}q", *request.context)
        feeds[hear.CONTEXT] = Array((1, size), "int64", ids)
        before = self.known.get(request.parent, {})
        for i, shape in enumerate(outer.fields["states"]):
            count = 1
            for n in shape:
                count *= n
            zeros = Array(tuple(shape), "float32", bytes(4 * count))
            feeds[hear.state(i)] = before.get(hear.following(i), zeros)
        session = outer.sessions["predictor"]
        names = list(session.outputs)
        return dict(zip(names, session.run(names, feeds), strict=True))


def _numbers(value: Any) -> list[Any]:
    """The numbers of an output."""
    dtype, shape, data = as_input(value, "output")
    count = 1
    for n in shape:
        count *= n
    return unpack(dtype, bytes(data), count)
