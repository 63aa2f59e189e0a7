"""Models that hear pieces of words with an encoder of features of any length: CTC, transducers of
two or three graphs (RNN-T, TDT, without a state), and Canary, as NeMo, k2 (sherpa-onnx), GigaAM,
onnx-asr and transformers have them.

The programs of a package are "pre" (samples to features), "encoder", and of a transducer
"predictor" and "joiner", or "predictor" alone where the joiner is in it, of Canary "decoder".
hearing_graphs.py has their inputs and outputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import InputError, ModelError, UnsupportedOp
from ...json_text import parse_json_object
from ...logic.manifest.processor import AudioFields, HearingFields
from ...logic.manifest.schema import InferencePlan
from ...logic.speech.pieces import Pieces
from ...logic.speech.samples import total_of
from ..bind import bind
from ..compile.model_file import MAX_TEXT
from ..compile.programs import Programs
from ..declare.registers import Registers
from ..declare.symbolic import NeedsHost, NotStatic
from ..ir import Graph, Info, NeedsValue
from ..processors.audio import AudioProcessor
from ..processors.audio.fields import Fields
from ..processors.audio.heard import GIGAAM, KALDI, Recipe, Wanted, heard, nemo, samples_of
from ..processors.reader import audio_processor
from ..tokenizers.pieces import read_pieces, vocabulary_file
from . import hearing_graphs as hear
from .hearing_chunks import whole_encoder

if TYPE_CHECKING:
    from ..package import Package
    from . import Request

SPEECH = "automatic-speech-recognition"
EXTRACTORS = ("ParakeetFeatureExtractor",)  # whose features have as many frames as the sound
PROMPTS = (9, 10, 5)  # tokens of Canary's prompts
SECONDS = (1, 2, 4, 8, 15, 30)  # of plans, where there is none for all lengths
MAX_SECONDS = 30  # seconds of sound at once, unless `max_length` says otherwise
TRIED = (1, 4, 16, 64)  # how many times the least number of hops a plan may begin with
# Inputs whose width is that of an output of a program.
SIZES = {hear.FRAME: ("encoder", hear.HIDDEN), hear.PREDICTED: ("predictor", hear.PREDICTED)}
MAX_DURATIONS = hear.MAX_DURATIONS
MAX_SYMBOLS = 1024
NEMO, K2, GIGA = 8, 4, 4  # frames of features of a frame of the output, unless a model says it


@dataclass(frozen=True)
class Hearing:
    """A model that hears.

    Attributes:
        recipe: of features.
        fields: for the manifest.
        graphs: {program: Graph}.
        pieces: the tokens.
    """

    recipe: Recipe
    fields: HearingFields
    graphs: dict[str, Graph]
    pieces: Pieces

    @property
    def audio(self) -> AudioFields:
        """What happens before "pre"."""
        recipe, graph = self.recipe, self.graphs["pre"]
        made = AudioProcessor(recipe.kind, recipe.rate, recipe.length, lambda: graph, frames=(1, 1))
        return made.description()


def hears(graphs: Iterable[str], names: Iterable[str], settings: Mapping[str, Any]) -> bool:
    """Whether a model is a transducer, or CTC with features of any length or a list of tokens.

    Args:
        graphs: names of its graphs.
        names: of its files.
        settings: contents of its preprocessor_config.json; {}: there is none.
    """
    graphs = [*graphs]
    if "encoder" in graphs:
        return True
    inner = settings.get("feature_extractor", settings)
    kind = inner.get("feature_extractor_type") if isinstance(inner, Mapping) else None
    listed = vocabulary_file(names) is not None
    return "model" in graphs and (kind in EXTRACTORS or (not settings and listed))


def hearing_of(
    graphs: Mapping[str, Graph], names: Iterable[str], read: Callable[[str], bytes | None]
) -> Hearing:
    """Reads such a model.

    Args:
        graphs: {"encoder", "predictor", "joiner"?: Graph}, or {"model": Graph} of CTC.
        names: of the model's files.
        read: function(file name) that returns the bytes of a file of the model, or None.

    Raises:
        UnsupportedOp, ModelError: a graph is none of these. TokenizerError: there is no vocabulary.
        InputError: a configuration is damaged.
    """
    return _Reader(graphs, sorted(names), read).hearing()


class _Reader:
    def __init__(
        self, graphs: Mapping[str, Graph], names: Sequence[str], read: Callable[[str], bytes | None]
    ) -> None:
        self.ctc = "model" in graphs
        self.prompted = "decoder" in graphs
        self.graphs, self.names, self.read = graphs, names, read
        own = graphs["model" if self.ctc else "encoder"]
        first = whole_encoder(own)
        self.streams = first is not own  # as models do that normalize no recording
        self.encoder = hear.encoder_of(first, "model.onnx" if self.ctc else "the encoder")
        self.config = self._json("config.json")
        self.about: dict[str, str] = {}
        for graph in graphs.values():
            self.about |= graph.about.custom_metadata_map
        self.recipe = self._recipe()

    def _json(self, name: str) -> dict[str, Any]:
        data = self.read(name)
        return {} if data is None else parse_json_object(data, name)

    # ---- facts
    def _whole(self, default: int, least: int, most: int, *names: str) -> int:
        """A number of config.json, or of the metadata of the graphs."""
        inner = self.config.get("encoder_config")
        for source in (self.config, inner if isinstance(inner, dict) else {}, self.about):
            for name in names:
                value = source.get(name)
                if isinstance(value, str) and value.isdecimal():
                    value = int(value)
                if value is None or (source is self.about and type(value) is not int):
                    continue
                if type(value) is not int or not least <= value <= most:
                    raise InputError(
                        f"`{name}` is {value!r}",
                        "config.json",
                        f"It must be an integer from {least} to {most}.",
                    )
                return value
        return default

    def _recipe(self) -> Recipe:
        """How samples become features."""
        features, kind = self.encoder.features, str(self.config.get("model_type", ""))
        if hear.rank(features) == 2:
            return Recipe("samples", rate=self._rate(), mels=1)
        settings = self._json("preprocessor_config.json") or self._json("processor_config.json")
        if settings:
            return _recipe_of(settings)
        mels = next((n for n in (hear.size(features, 1), hear.size(features, 2)) if n), None)
        number = next((m for n in self.names if (m := re.search(r"nemo(\d+)\.onnx$", n))), None)
        mels = mels or self._whole(
            int(number[1]) if number else 80, 8, 1024, "features_size", "feat_dim"
        )
        if mels == 64 or kind.startswith("gigaam"):
            version = str(self.config.get("version", ""))
            newer = version.startswith("v3") or any(
                n.rsplit("/", 1)[-1].startswith(("v3", "multilingual")) for n in self.names
            )
            return GIGAAM["v3" if newer else "v2"]
        is_nemo = kind.startswith("nemo") or "normalize_type" in self.about
        if is_nemo or (not kind and features.name in ("audio_signal", "input_features")):
            said = self.about.get("normalize_type", "NA" if self.streams else "per_feature")
            return replace(nemo(mels), normalized=said not in ("", "NA", "None", "none"))
        if mels != KALDI.mels:
            raise UnsupportedOp(
                f"its encoder takes {mels} filters",
                "config.json",
                "Put preprocessor_config.json, or config.json with model_type, beside it.",
            )
        return KALDI

    def _rate(self) -> int:
        return self._whole(16000, 1000, 384000, "sampling_rate", "sample_rate")

    def _subsampling(self) -> int:
        default = {"nemo": NEMO, "kaldi": K2, "gigaam": GIGA, "samples": 320}[self.recipe.kind]
        return self._whole(default, 1, 1 << 16, "subsampling_factor")

    def _pieces(self) -> Pieces:
        blank: Any = self.config.get("blank_token_id")
        if blank is None and self.ctc and "tokenizer.json" in self.names:
            blank = self.config.get("pad_token_id")
        if blank is not None and type(blank) is not int:
            raise InputError(
                f"`blank_token_id` is {blank!r}", "config.json", "It must be an integer."
            )
        return read_pieces(self.read, vocabulary_file(self.names), blank, self.ctc)

    # ---- the graphs
    def hearing(self) -> Hearing:
        """The model."""
        pieces = self._pieces()
        encoder, recipe = self.encoder, self.recipe
        wide = hear.rank(encoder.features) == 3
        turned = wide and self._features_turned()
        wanted = Wanted(
            (encoder.features.name, encoder.features.dtype),
            turned,
            None if encoder.length is None else (encoder.length.name, encoder.length.dtype),
            None if encoder.mask is None else (encoder.mask.name, encoder.mask.dtype),
        )
        made = {"pre": heard(recipe, wanted)}
        fields: HearingFields = {
            "kind": "prompted" if self.prompted else "ctc" if self.ctc else "transducer",
            "tokens": list(pieces.tokens),
            "blank": pieces.blank,
            "hidden": list(pieces.hidden),
            "samples": samples_of(recipe, self._subsampling()),
            "durations": [],
            "symbols": 1,
            "context": 0,
            "states": [],
        }
        if self.prompted:
            pieces = replace(pieces, blank=self._end(pieces))
            made |= self._decoder(turned, pieces, fields)
        elif self.ctc:
            made["encoder"] = self._ctc(turned, pieces)
        else:
            made |= self._transducer(turned, pieces, fields)
        return Hearing(recipe, fields, made, pieces)

    def _features_turned(self) -> bool:
        """Whether the encoder takes [1, filters, frames]."""
        features = self.encoder.features
        if hear.size(features, 1) == self.recipe.mels:
            return True
        if hear.size(features, 2) == self.recipe.mels:
            return False
        return features.name not in ("x", "input_features", "speech")

    def _encoded(self, turned: bool) -> list[int]:
        """The shape of the encoder's output for a sound."""
        encoder, mels, frames = self.encoder, self.recipe.mels, 160
        shapes: dict[str, Sequence[int]] = {
            encoder.features.name: [1, mels, frames] if turned else [1, frames, mels]
        }
        if hear.rank(encoder.features) == 2:
            shapes = {encoder.features.name: [1, 160 * frames]}
        if encoder.length is not None:
            shapes[encoder.length.name] = [1]
        if encoder.mask is not None:
            shapes[encoder.mask.name] = [1, shapes[encoder.features.name][1 if not turned else 2]]
        return _shape_of(encoder.graph, shapes, encoder.hidden.name)

    def _ctc(self, turned: bool, pieces: Pieces) -> Graph:
        """The encoder, whose output has the scores of tokens."""
        count = max(len(pieces.tokens), pieces.blank + 1)
        hidden = self.encoder.hidden
        width = hear.size(hidden, 2)
        if width is None:
            width = self._encoded(turned)[2]
        if not count <= width <= count + 64:  # some are padded
            raise ModelError(
                f"it gives scores of {width} tokens, and its vocabulary has {count}",
                "model.onnx",
                "Do the model and its vocabulary belong together?",
            )
        return hear.encoder_graph(self.encoder, False, self._subsampling(), True)

    def _transducer(self, turned: bool, pieces: Pieces, fields: HearingFields) -> dict[str, Graph]:
        graph, join = self.graphs["predictor"], self.graphs.get("joiner")
        predictor = hear.predictor_of(graph, join is None, "the decoder")
        first, second = (predictor.frame, None) if join is None else hear.joined(join)
        assert first is not None
        middle = hear.is_turned(self.encoder.hidden, first)
        width = next((n for n in (hear.size(first, i) for i in (1, 2)) if n and n > 1), None)
        if middle is None or width is None:
            shape = self._encoded(turned)
            if middle is None:
                middle = shape[1] == width if width else turned
            width = shape[1 if middle else 2]
        context = self._context(predictor)
        count = max(len(pieces.tokens), pieces.blank + 1)
        scores = self._scores(predictor, join, context, middle, width, second)
        durations = scores - count
        if not 0 <= durations <= MAX_DURATIONS:
            raise ModelError(
                f"it gives {scores} scores, and its vocabulary has {count} tokens with the blank",
                "the decoder",
                "Do the model and its vocabulary belong together?",
            )
        fields["durations"] = self._durations(durations)
        default = {"kaldi": 1, "gigaam": 3}.get(self.recipe.kind, 10)
        names = ("max_tokens_per_step", "max_symbols_per_step", "max_symbols")
        fields["symbols"] = self._whole(default, 1, MAX_SYMBOLS, *names)
        fields["context"] = 0 if predictor.states else context
        fields["states"] = predictor.shapes
        made = {
            "encoder": hear.encoder_graph(self.encoder, middle, self._subsampling(), False),
            "predictor": hear.predictor_graph(predictor, context, middle, count, durations),
        }
        if join is not None:
            made["joiner"] = hear.joiner_graph(join, middle, count, durations)
        return made

    def _end(self, pieces: Pieces) -> int:
        """The id of the token that ends a text."""
        for name in ("<|endoftext|>", "</s>"):
            if name in pieces.tokens:
                return list(pieces.tokens).index(name)
        raise ModelError(
            "its vocabulary has no <|endoftext|>", "vocab.txt", "Copy it again from the model."
        )

    def _decoder(self, turned: bool, pieces: Pieces, fields: HearingFields) -> dict[str, Graph]:
        """The graphs of a model whose decoder gets a prompt."""
        decoder = hear.decoder_of(self.graphs["decoder"])
        middle = hear.is_turned(self.encoder.hidden, decoder.hidden)
        if middle is None:
            middle = self._encoded(turned)[1] == hear.size(decoder.hidden, 2)
        layers, _, _, width = decoder.memory.shape or [0] * 4
        count = len(pieces.tokens)
        known = hear.size(decoder.out, hear.rank(decoder.out) - 1)
        if known is None:
            size = hear.size(decoder.hidden, 2) or width
            shapes: dict[str, Sequence[int]] = {
                decoder.tokens.name: [1, 2],
                decoder.hidden.name: [1, 8, size],
                decoder.mask.name: [1, 8],
                decoder.memory.name: [layers, 1, 2, width],
            }
            known = _shape_of(decoder.graph, shapes, decoder.out.name)[-1]
        if not count <= known <= count + 64 or type(layers) is not int:  # some are padded
            raise ModelError(
                f"it gives scores of {known} tokens, and its vocabulary has {count}",
                "the decoder",
                "Do the model and its vocabulary belong together?",
            )
        fields["blank"] = pieces.blank
        fields["hidden"] = sorted({*pieces.hidden, pieces.blank} & {*range(count)})
        fields["symbols"] = self._whole(1024, 16, 1 << 16, "max_sequence_length")
        fields["states"] = [[layers, 1, 1, width]]
        return {
            "encoder": hear.encoder_graph(self.encoder, middle, self._subsampling(), False),
            "decoder": hear.decoder_graph(decoder, count),
        }

    def _context(self, predictor: hear.Predictor) -> int:
        """The number of tokens that the predictor takes."""
        if predictor.states:
            return 1
        known = hear.size(predictor.tokens, hear.rank(predictor.tokens) - 1)
        return known or self._whole(2, 1, 64, "context_size")

    def _scores(
        self,
        predictor: hear.Predictor,
        join: Graph | None,
        context: int,
        turned: bool,
        width: int,
        second: Info | None,
    ) -> int:
        """How many scores there are of a frame: of tokens and of durations."""
        out = predictor.out if join is None else join.outputs[0]
        known = hear.size(out, hear.rank(out) - 1)
        if known is not None:
            return known
        shapes: dict[str, Sequence[int]] = {predictor.tokens.name: [1, context]}
        shapes |= {i.name: [1] for i in predictor.lengths}
        shapes |= {i.name: s for i, s in zip(predictor.states, predictor.shapes)}
        if join is None:
            assert predictor.frame is not None
            shapes[predictor.frame.name] = hear.frame_shape(predictor.frame, turned, width)
            return _shape_of(predictor.graph, shapes, out.name)[-1]
        assert second is not None
        found = _shape_of(predictor.graph, shapes, predictor.out.name)
        size = 1
        for n in found:
            size *= n
        first = hear.joined(join)[0]
        given = {
            first.name: hear.frame_shape(first, turned, width),
            second.name: hear.frame_shape(second, turned, size),
        }
        return _shape_of(join, given, out.name)[-1]

    def _durations(self, count: int) -> list[int]:
        """Frames that tokens may sound."""
        given = self.config.get("durations", self.config.get("tdt_durations"))
        if given is None:
            return list(range(count))
        if not (
            isinstance(given, list)
            and len(given) == count
            and all(type(d) is int and 0 <= d <= 1 << 16 for d in given)
        ):
            raise InputError(
                f"`durations` is {given!r:.100}, and the model gives scores of {count}",
                "config.json",
                "Do the model and its config.json belong together?",
            )
        return list(given)


def _shape_of(graph: Graph, shapes: Mapping[str, Sequence[int]], output: str) -> list[int]:
    """The shape of an output. Raises UnsupportedOp: it does not follow from those of inputs."""
    dtypes = {i.name: i.dtype for i in graph.input_names()}
    found = bind(graph, shapes, dtypes, outputs=[output]).outputs[output].shape
    if not all(type(n) is int for n in found):
        raise UnsupportedOp(
            f"the shape of '{output}' is not known", graph.name or "model", "Export it again."
        )
    return [int(n) for n in found if isinstance(n, int)]


def _recipe_of(settings: Mapping[str, Any]) -> Recipe:
    """The recipe of a preprocessor_config.json. Raises InputError: it is of another kind."""
    inner = settings.get("feature_extractor", settings)
    processor = audio_processor(settings)  # checks its fields
    if processor.kind != "Parakeet" or not isinstance(inner, Mapping):
        raise InputError(
            f"its features are those of {processor.kind}",
            "preprocessor_config.json",
            "Features of any length are those of ParakeetFeatureExtractor.",
        )
    f = Fields(inner, "ParakeetFeatureExtractor")
    emphasis = f.optional("preemphasis", 0, 1, 0.97)
    fft = f.integer("n_fft", 512)
    return Recipe(
        "nemo",
        rate=processor.sampling_rate,
        mels=f.integer("feature_size", 80),
        fft=fft,
        frame=f.integer("win_length", 400),
        hop=f.integer("hop_length", 160),
        around=fft // 2,
        emphasis=emphasis or 0.0,
    )


def hearing_package(request: Request) -> Package:
    """The package of a model that hears: "pre" and "encoder" have a plan for any number of hops,
    where shapes follow from it, else plans for some lengths.

    Raises:
        InputError: an option has no sensible value. UnsupportedOp: an operator is missing.
    """
    seconds = MAX_SECONDS if request.max_length is None else request.max_length
    if seconds < 1:
        raise InputError(f"{seconds} is no length", "max_length", "Give seconds.")
    graphs = {name: request.read(name) for name in request.graphs}
    found = hearing_of(graphs, request.files, partial(_read, request))
    texts = {n: data for n, data in request.texts.items() if n == "config.json"}
    request = replace(request, texts=texts)
    audio = found.audio
    programs = _with_range(request, found, audio, seconds)
    if programs is None:
        programs = request.programs()
        known = (*(s for s in SECONDS if s < seconds), seconds)
        lengths = [total_of(audio, s * audio["sampling_rate"]) for s in known]
        unit = audio["length"]["multiple"]
        sizes = [[1, n] if unit == 1 else [n // unit, unit] for n in lengths]
        runs = [({"audio": size, "valid": [1]}, None) for size in sizes]
        programs.add("pre", found.graphs["pre"], runs)
        plans = programs.package.manifest["programs"]["pre"]["plans"]
        programs.add("encoder", found.graphs["encoder"], [(_made(plan), None) for plan in plans])
        audio["lengths"] = lengths
    programs.package.manifest["processor"] = {"audio": audio, "hearing": found.fields}
    if "decoder" in found.graphs:
        _add_decoder(programs, found, audio)
    for name in ("predictor", "joiner"):
        if name in found.graphs:
            shapes = {i.name: list(i.shape or []) for i in found.graphs[name].input_names()}
            of = programs.package.manifest["programs"]
            for inner, (program, output) in SIZES.items():
                if inner in shapes:
                    shapes[inner] = [1, of[program]["plans"][0]["outputs"][output][2][1]]
            programs.add(name, found.graphs[name], [(shapes, None)])
    return programs.package


def _add_decoder(programs: Programs, found: Hearing, audio: AudioFields) -> None:
    """Adds "decoder": a plan for each prompt, and one for a token after others."""
    fields = found.fields
    (layers, _, _, width), most = fields["states"][0], fields["symbols"]
    plans = programs.package.manifest["programs"]["encoder"]["plans"]
    runs: list[Any] = []
    for plan in plans:
        frames, size = plan["outputs"][hear.HIDDEN][2]
        ranges = [(1, most - 1)]
        if isinstance(frames, list):
            ranges = [(1, audio["any_length"][1] // fields["samples"] + 1), (1, most - 1)]
        for count in (*PROMPTS, 1):
            registers = Registers(ranges if count == 1 else ranges[:-1])
            first = registers.length(0) if len(ranges) > 1 else frames
            past: Any = registers.length(len(ranges) - 1) if count == 1 else 0
            shapes = {
                hear.CONTEXT: [1, count],
                hear.HIDDEN: [first, size],
                hear.COUNT: [1],
                hear.state(0): [layers, 1, past, width],
            }
            runs.append((shapes, None))
    programs.add("decoder", found.graphs["decoder"], runs)


def _read(request: Request, name: str) -> bytes | None:
    source = request.files.get(name)
    return None if source is None else source.read_all(MAX_TEXT)


def _with_range(
    request: Request, found: Hearing, audio: AudioFields, seconds: int
) -> Programs | None:
    """A package with "pre" and "encoder" for any number of hops up to some seconds, which `audio`
    then says. None: shapes do not follow from their number.
    """
    unit = audio["length"]["multiple"]
    most = seconds * audio["sampling_rate"] // unit
    for times in TRIED:
        least = max(2, times * -(-audio["length"]["least"] // unit))
        if least >= most:
            break
        programs = request.programs()
        register = (least, most)
        length = Registers([register]).length(0)
        audio_shape = [1, length] if unit == 1 else [length, unit]
        try:
            shapes: dict[str, Any] = {"audio": audio_shape, "valid": [1]}
            programs.add("pre", found.graphs["pre"], [(shapes, None)])
            (plan,) = programs.package.manifest["programs"]["pre"]["plans"]
            programs.add("encoder", found.graphs["encoder"], [(_symbolic(plan, register), None)])
        except (NotStatic, NeedsValue, NeedsHost):
            continue
        audio["any_length"] = (least * unit, most * unit)
        return programs
    return None


def _made(plan: InferencePlan) -> dict[str, list[Any]]:
    """{name: shape} of the outputs of a plan of "pre"."""
    return {name: list(shape) for name, (_, _, shape, _) in plan["outputs"].items()}


def _symbolic(plan: InferencePlan, register: tuple[int, int]) -> dict[str, list[Any]]:
    """As _made, of a plan for a range of hops: in the result the register is the number of frames.

    Raises:
        NotStatic: there are several lengths.
    """
    made = _made(plan)
    found = [d for shape in made.values() for d in shape if isinstance(d, list)]
    first = found[0] if found else [0]
    if any(d != first for d in found) or first[0] != 1 or (len(first) > 2 and first[2]):
        raise NotStatic
    low, high = register
    length = Registers([(low + first[1], high + first[1])]).length(0)
    return {
        name: [length if isinstance(d, list) else d for d in shape] for name, shape in made.items()
    }
