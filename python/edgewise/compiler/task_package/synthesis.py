"""Packages of text-to-speech: VITS as transformers has it, Piper and Kokoro.

The graph is divided where the number of frames is known: the program "text" computes how long each
token sounds, "frames" the sound. Both have one plan for all lengths. "style" is a voice's vector
for a number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ...errors import InputError, ModelError, UnsupportedOp
from ...json_text import number_field, object_field, parse_json_object
from ...model_metadata import ModelMetadata
from ..bind import bind
from ..compile.model_file import MAX_TEXT
from ..compile.programs import Programs
from ..compile.selection import dependent_rows, without_selection
from ..declare.dtypes import FLOAT, INT64
from ..declare.op import TooLong
from ..declare.registers import Registers
from ..declare.symbolic import NeedsHost, NotStatic, Sym
from ..ir import Graph, Info, NeedsValue, Node, Tensor
from ..onnx.source import missing_file
from ..processors.styles import WIDTH, Styles
from ..tokenizers.vits import VitsTokenizer
from .length_split import LENGTH, Halves, divide, ranks

if TYPE_CHECKING:
    from ...logic.manifest.processor import SpeechFields, SpeechLengths, SpeechModel
    from ..package import Package
    from . import Request

TASK = "text-to-speech"
MAX_TOKENS = 512
SECONDS = 12  # of a part of a text, unless `max_length` says otherwise
# The shortest lengths that are tried: windows must fit, and tables of relative positions.
MIN = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
OUTPUTS = ("waveform", "output", "audio")
Shapes = dict[str, list[int | Sym]]
NOT_LINEAR = (NotStatic, NeedsValue, NeedsHost)


def synthesis_package(request: Request) -> Package:
    """Makes the package of a model that speaks.

    Raises:
        InputError: files of the model are missing, or an option has no sensible value.
        UnsupportedOp: it is none of the models that are known, or has no plans for all lengths.
    """
    if request.max_length is not None and request.max_length < 1:
        raise InputError(f"{request.max_length} is no length", "max_length", "Give seconds.")
    graph = request.read("model")
    texts = {name: data for name, data in request.texts.items() if name == "config.json"}
    programs = replace(request, texts=texts).programs()
    described = _describe(request, graph, programs)
    graph, rows = without_selection(graph)
    output = next((o.name for o in graph.outputs if o.name in OUTPUTS), graph.outputs[0].name)
    graph = replace(graph, outputs=[o for o in graph.outputs if o.name == output])
    seconds = request.max_length or SECONDS
    lengths = _add_model(programs, graph, described, seconds, rows)
    if described["type"] == "piper":
        _check_phonemes(request, described, lengths["most"])
    speech: SpeechFields = {**described, **lengths, "output": output}
    programs.package.manifest["processor"] = {"speech": speech}
    return programs.package


# ---- what the models read
def _describe(request: Request, graph: Graph, programs: Programs) -> SpeechModel:
    """What a page has to know of the model's inputs."""
    names = {i.name for i in graph.input_names()}
    if {"input", "input_lengths", "scales"} <= names <= {"input", "input_lengths", "scales", "sid"}:
        return _piper(request, names)
    if {"style", "speed"} <= names and len(names) == 3:
        return _kokoro(request, names, programs)
    if "input_ids" in names and names <= {"input_ids", "attention_mask", "speaker_id"}:
        return _vits(request, names)
    raise UnsupportedOp(
        f"its inputs are {', '.join(sorted(names))}",
        graph.name or "model",
        "Models are VITS, Piper and Kokoro.",
    )


def _vits(request: Request, names: set[str]) -> SpeechModel:
    config = _json(request, "config.json")
    tokenizer = VitsTokenizer.from_files(lambda name: _bytes(request, name))
    return {
        "type": "vits",
        "sampling_rate": _whole(config, "sampling_rate", 16000),
        "speakers": _whole(config, "num_speakers", 1) if "speaker_id" in names else 0,
        "tokens": "input_ids",
        **tokenizer.description(),  # type: ignore[typeddict-item]
    }


def piper_settings(files: Iterable[str], graph: str) -> str:
    """The file with the settings of a Piper voice, as voices are published.

    Args:
        files: names of the model's files.
        graph: name of the .onnx file among them.

    Returns:
        the first that exists of GRAPH.json (en_US-joe-medium.onnx.json), that in the folder above,
        the only NAME.onnx.json, GRAPH with .json instead of .onnx, and config.json; else the first
    """
    there, base = set(files), graph.rsplit("/", 1)[-1]
    own = [name for name in sorted(there) if name.endswith(".onnx.json")]
    names = [f"{graph}.json", f"{base}.json", *(own if len(own) == 1 else ())]
    names += [f"{graph.removesuffix('.onnx')}.json", f"{base.removesuffix('.onnx')}.json"]
    return next((name for name in [*names, "config.json"] if name in there), names[0])


def _piper(request: Request, names: set[str]) -> SpeechModel:
    file = piper_settings(request.files, request.graphs["model"])
    config = _json(request, file)
    ids = config.get("phoneme_id_map")
    if not isinstance(ids, dict) or not all(c in ids for c in "^_$"):
        raise ModelError(
            "it has no phoneme_id_map with ^, _ and $", file, "Copy it again from the voice."
        )
    for of in ids.values():
        if not isinstance(of, list) or not all(type(i) is int for i in of):
            raise ModelError("its phoneme_id_map is not {phoneme: [id]}", file, "Copy it again.")
    speakers, inference, audio = (
        object_field(config, name, file) for name in ("speaker_id_map", "inference", "audio")
    )
    if not all(type(i) is int for i in speakers.values()):
        raise ModelError("its speaker_id_map is not {name: number}", file, "Copy it again.")
    noise, length, noise_w = (
        number_field(inference, name, default, file)
        for name, default in (("noise_scale", 0.667), ("length_scale", 1.0), ("noise_w", 0.8))
    )
    return {
        "type": "piper",
        "sampling_rate": _whole(audio, "sample_rate", 22050),
        "speakers": _whole(config, "num_speakers", 1) if "sid" in names else 0,
        "speaker_names": speakers,
        "tokens": "input",
        "vocabulary": ids,
        "is_text": config.get("phoneme_type") == "text",
        "scales": (noise, length, noise_w),
    }


def _check_phonemes(request: Request, described: SpeechModel, most: int) -> None:
    """Raises ModelError: the plans of a Piper voice are too short for one of its phonemes."""
    vocabulary = cast("dict[str, list[int]]", described["vocabulary"])
    ids = {unit: len(of) for unit, of in vocabulary.items()}
    longest = max(ids, key=lambda unit: ids[unit])
    count = ids["^"] + 2 * ids["_"] + ids["$"] + ids[longest]
    if count > most:
        raise ModelError(
            f"{longest[:40]!r} takes {count} tokens with its ends, plans {most}",
            f"{request.graphs['model']}.json",
            "Copy it again from the voice.",
        )


def _kokoro(request: Request, names: set[str], programs: Programs) -> SpeechModel:
    vocabulary: Any = _json(request, "config.json", {}).get("vocab")
    if vocabulary is None:
        fast = _json(request, "tokenizer.json", {})
        vocabulary = object_field(fast, "model", "tokenizer.json").get("vocab")
    if vocabulary is None:
        vocabulary = _json(request, "vocab.json", {})
        vocabulary = vocabulary.get("vocab", vocabulary) or None
    if not isinstance(vocabulary, dict) or not all(type(i) is int for i in vocabulary.values()):
        raise InputError(
            "there is no vocabulary of phonemes",
            request.task,
            "Put config.json with `vocab`, tokenizer.json or vocab.json into the folder.",
        )
    styles = Styles(request.files, lambda name: request.files[name].read_all(1 << 30))
    voices = styles.names
    if not voices:
        raise InputError("there are no voices", request.task, "Put voices/NAME.bin beside it.")
    rows = [styles.count(name) for name in voices]
    table = b"".join(styles.bytes(name) for name in voices)
    programs.add("style", _style_graph(table), [({"row": [1]}, None)])
    return {
        "type": "kokoro",
        "sampling_rate": 24000,
        "speakers": 0,
        "tokens": next(iter(names - {"style", "speed"})),
        "vocabulary": vocabulary,
        "voices": dict(zip(voices, ((sum(rows[:i]), n) for i, n in enumerate(rows)))),
    }


def _style_graph(table: bytes) -> Graph:
    """A row of the table of all voices."""
    rows = len(table) // (4 * WIDTH)
    styles = Tensor("styles", FLOAT, (rows, WIDTH), data=table, nbytes=len(table))
    return Graph(
        "style",
        [Node("Gather", ["styles", "row"], ["style"], {"axis": 0})],
        [Info("row", INT64, [1])],
        [Info("style", FLOAT, [1, WIDTH])],
        constants={"styles": styles},
        opsets={"": 18},
        ir_version=9,
        about=ModelMetadata("edgewise"),
    )


def _bytes(request: Request, name: str) -> bytes | None:
    """The contents of a file of the model."""
    source = request.files.get(name)
    return None if source is None else source.read_all(MAX_TEXT)


def _json(request: Request, name: str, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    """A JSON file of the model. Raises InputError or MissingFile: none, and no `otherwise`."""
    data = _bytes(request, name)
    if data is None:
        if otherwise is not None:
            return otherwise
        remedy = f"Put the model's {name} into its folder."
        if name.endswith(".onnx.json"):  # which a page looks for when it is told the name
            raise missing_file(name, "there is none", name, remedy)
        raise InputError("there is none", name, remedy)
    return dict(parse_json_object(data, name, ModelError))


def _whole(config: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = config.get(name, otherwise)
    if type(value) is not int or not 1 <= value <= 1 << 20:
        raise ModelError(f"its {name} is {value!r}", "config.json", "Copy it again from the model.")
    return value


# ---- the model
def _shapes(graph: Graph, tokens: str, length: Sym) -> Shapes:
    """Shapes of the inputs for a text of `length` tokens."""
    shapes: Shapes = {}
    for info in graph.input_names():
        if info.name in (tokens, "attention_mask"):
            shapes[info.name] = [1, length]
        elif info.name == "scales":
            shapes[info.name] = [3]
        elif info.name == "style":
            shapes[info.name] = [1, WIDTH]
        else:  # a number for each text
            shapes[info.name] = [1] * len(info.shape or ())
    return shapes


def _add_model(
    programs: Programs, graph: Graph, described: SpeechModel, seconds: int, rows: Sequence[str]
) -> SpeechLengths:
    """Adds the programs "text" and "frames", or "model" where no length follows from data."""
    dtypes = {i.name: i.dtype for i in graph.input_names()}
    halves: Halves | None = None
    least, most = 0, MAX_TOKENS
    why: Exception | None = None
    tries = list(MIN)
    while tries:
        least = tries[0]
        length = Registers([(least, most)]).length(0)
        shapes = _shapes(graph, described["tokens"], length)
        try:
            halves = divide(graph, shapes, dtypes)
            if halves is None:
                programs.add("model", graph, [(shapes, None)])
            else:
                programs.add("text", halves.first, [(shapes, None)])
            break
        except TooLong as e:
            most -= max(1, e.excess)
            if most <= least:
                raise
        except NOT_LINEAR as e:
            why = e
            tries.pop(0)
    else:
        raise UnsupportedOp(
            f"its shapes do not follow from the length of a text ({why})",
            graph.name or "model",
            "Use it in Python, or export the model again.",
        )
    if halves is None:
        return {"least": least, "most": most}
    if rows and dependent_rows(rows, ranks(bind(halves.first, shapes, dtypes, run_seed=True))):
        raise UnsupportedOp(
            "it selects rows that depend on each other",
            graph.name or "model",
            "Use it in Python, or export the model again.",
        )
    samples = seconds * described["sampling_rate"]
    frames = _add_frames(programs, halves, (least, most), samples)
    return {"least": least, "most": most, "length": halves.length, "frames": frames}


def _add_frames(
    programs: Programs, halves: Halves, tokens: tuple[int, int], samples: int
) -> tuple[int, int]:
    """Adds the program "frames" for up to so many samples; returns least and most frames."""
    graph, why = halves.second, None
    for least in MIN:
        try:
            shapes, known = _frames_shapes(halves, (least, 4 * least), tokens)
            bound = bind(graph, shapes, halves.dtypes, known, run_seed=True)
            size = next(iter(bound.outputs.values())).shape[-1]
            scale = size.scale if isinstance(size, Sym) and not size.reg else 1
            most = max(4 * least, samples // scale)
            shapes, known = _frames_shapes(halves, (least, most), tokens)
            programs.add("frames", graph, [(shapes, None)], fixed=known)
            return least, most
        except NOT_LINEAR as e:
            why = e
    raise UnsupportedOp(
        f"its shapes do not follow from the number of frames ({why})",
        graph.name or "model",
        "Use it in Python, or export the model again.",
    )


def _frames_shapes(
    halves: Halves, frames: tuple[int, int], tokens: tuple[int, int]
) -> tuple[Shapes, Shapes]:
    """(shapes of the inputs, numbers of those that are known)"""
    registers = Registers([frames, tokens])
    count, length = registers.length(0), registers.length(1)

    def moved(d: int | Sym) -> int | Sym:
        if not isinstance(d, Sym):
            return d
        if d.reg:
            raise NotStatic(f"a tensor of {d} elements between the parts")
        return length * d.scale + d.add

    shapes = {name: [moved(d) for d in shape] for name, shape in halves.shapes.items()}
    known = {name: [moved(x) for x in numbers] for name, numbers in halves.numbers.items()}
    return {**shapes, LENGTH: [count]}, {**known, halves.length: [count]}
