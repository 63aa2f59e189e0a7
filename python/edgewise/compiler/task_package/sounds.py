"""Packages of pipelines of sound: the processor's graph and the model's, for fixed lengths."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import InputError, UnsupportedOp
from ...json_text import parse_json
from ...logic.manifest.processor import AudioFields, VoiceActivityFields
from ...logic.post.voice_activity import WINDOWS
from ...logic.speech.samples import mask_sizes
from ..compile.programs import Programs
from ..declare.dtypes import INT64
from ..declare.registers import Registers, Rule
from ..declare.symbolic import NeedsHost, NotStatic, Sym
from ..ir import Graph, NeedsValue, Node, Tensor
from ..processors.audio import AudioProcessor, of_frames
from ..processors.reader import audio_processor, voice_settings

# Seconds of the plans of models that take any length, and have no plan for all of them. Sound to
# classify is followed by silence up to the next of them; voices are cut into overlapping parts of
# one of them.
SECONDS = (1, 2, 3, 5, 8, 12, 20, 30)
# Samples from which on a plan may take any number: windows of convolutions need some.
MIN = (2, 400, 720, 1600, 4800)
VOICE_SECONDS = (1, 2, 4, 8)
MAX_SECONDS = 60  # of encoders of samples, which may hear fewer
RATES = {rate: sum(of) for rate, of in WINDOWS.items()}  # samples of a run of Silero VAD, by Hz
SETTINGS = "preprocessor_config.json"


def add_sounds(
    programs: Programs,
    graph: Graph,
    outputs: Sequence[str],
    texts: Mapping[str, bytes],
    seconds: int | None = None,
) -> AudioFields:
    """Adds the programs of a task on sound: "pre", from samples to the model's inputs, and "model".

    Args:
        programs: of the task.
        graph: the model.
        outputs: names of the outputs that the task reads.
        texts: {file name: bytes} of the model's small files.
        seconds: most seconds of a model that takes any length.

    Returns:
        the description of what happens to samples before "pre"

    Raises:
        InputError, UnsupportedOp: the model is none of this task, or has no lengths.
    """
    task = programs.package.manifest["task"]
    inputs = [list(i.shape or []) for i in graph.input_names()]
    own = voice_settings(inputs) if task == "speaker-verification" else {}
    processor = audio_processor(_settings(texts, own))
    if processor.channels != 1:
        raise UnsupportedOp("its sound has two channels", SETTINGS, "Give a model of one channel.")
    known: tuple[int, ...] = VOICE_SECONDS if task == "speaker-verification" else SECONDS
    if seconds is not None and seconds < 1:
        raise InputError(f"{seconds} is not a valid length", "max_length", "Give seconds.")
    if seconds is not None:
        known = (*(s for s in known if s < seconds), seconds)
    description = processor.description()
    wanted = [s * processor.sampling_rate for s in known]
    voices = task == "speaker-verification"
    # Voices are only cut into short parts where no plan takes any length.
    most = wanted[-1] if seconds or not voices else SECONDS[-1] * processor.sampling_rate
    lengths, any_length = _add_processor(programs, processor, wanted, most)
    if lengths and not voices and not any_length:
        raise UnsupportedOp(
            f"its features ({processor.kind}) have as many frames as the sound",
            SETTINGS,
            "A package needs features of one length, as Whisper's or AST's, or samples.",
        )
    if any_length:
        most = processor.total(most)
        least = _add_range(programs, graph, processor, outputs, most)
        if least is not None:
            return {**description, "any_length": (least, most)}
    sizes = lengths or [processor.total(processor.length.least)]
    runs = [_model_shapes(graph, _made(programs, processor, size)) for size in sizes]
    programs.add("model", graph, [(shapes, None) for shapes in runs], outputs)
    if lengths:
        description["lengths"] = lengths
    return description


def add_sound_encoder(
    programs: Programs, graph: Graph, texts: Mapping[str, bytes], positions: int
) -> AudioFields:
    """Adds the programs "pre" and "encoder" of a model that hears samples (Moonshine).

    Args:
        programs: of the task.
        graph: the encoder.
        texts: {file name: bytes} of the model's small files.
        positions: most of the encoder's output.

    Returns:
        the description of what happens to samples before "pre"

    Raises:
        InputError: there is no processor of samples. UnsupportedOp: the encoder has no plan for all
            lengths.
    """
    config = parse_json(texts.get("config.json", b"{}"), "config.json")
    processor = audio_processor(_settings(texts))
    processor = of_frames(processor, config if isinstance(config, dict) else {})
    most = MAX_SECONDS * processor.sampling_rate
    lengths, any_length = _add_processor(programs, processor, [most], most)
    outputs = [graph.outputs[0].name]
    graph = _of_whole(graph, processor.length.multiple)
    least = any_length and _add_range(programs, graph, processor, outputs, most, "encoder")
    if not least:
        raise UnsupportedOp(
            "its shapes do not follow from the number of samples",
            graph.name or "encoder",
            "Use it in Python, or export the model again.",
        )
    (plan,) = programs.package.manifest["programs"]["encoder"]["plans"]
    dim, step = plan["outputs"][outputs[0]][2][1], processor.length.multiple
    assert isinstance(dim, list)  # it follows the number of samples

    def made(count: int) -> int:
        values = [count]
        for rule in plan.get("registers", ()):
            values.append(Rule(*rule).at(values))
        scale, add, *register = dim
        return int(scale * values[register[0] if register else 0] + add)

    fits = bisect_right(range(lengths[-1] + 1), positions, key=made) - 1
    return {**processor.description(), "any_length": (least, fits // step * step)}


def _of_whole(graph: Graph, step: int) -> Graph:
    """A graph of samples, whose number is a multiple of `step`. The registers of a plan do not say
    so: it cuts the samples to a multiple, which the shapes that follow are then quotients of.
    """
    names = {i.name: f"whole/{i.name}" for i in graph.input_names()}
    inner = (n for node in graph.nodes for g in node.subgraphs() for n in g.every_node())
    if step == 1 or any(name in node.inputs for node in inner for name in names):
        return graph
    constants = {
        f"whole/{k}": Tensor.of(f"whole/{k}", INT64, [1], [k]) for k in sorted({0, 1, 2, step})
    }
    cut = []
    for name, whole in names.items():
        zero, one, two, by = (f"whole/{k}" for k in (0, 1, 2, step))
        shape, count, frames, end = (f"{whole}/{k}" for k in ("shape", "count", "frames", "end"))
        cut += [
            Node("Shape", [name], [shape]),
            Node("Slice", [shape, one, two], [count]),
            Node("Div", [count, by], [frames]),
            Node("Mul", [frames, by], [end]),
            Node("Slice", [name, zero, end, one], [whole]),
        ]
    nodes = [replace(n, inputs=[names.get(i, i) for i in n.inputs]) for n in graph.nodes]
    return replace(
        graph, nodes=[*cut, *nodes], constants={**graph.constants, **constants}, values=None
    )


def _settings(
    texts: Mapping[str, bytes], otherwise: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """The contents of preprocessor_config.json, or of processor_config.json; `otherwise`, if there
    is something in it, where there is neither.
    """
    file = next((f for f in (SETTINGS, "processor_config.json") if f in texts), None)
    found = parse_json(texts[file], file) if file else otherwise or None
    if not isinstance(found, dict):
        raise InputError(
            "there is none", SETTINGS, "Put the model's preprocessor_config.json into its folder."
        )
    return found


def _add_processor(
    programs: Programs, processor: AudioProcessor, lengths: Sequence[int], most: int
) -> tuple[list[int], bool]:
    """Adds "pre". lengths: samples of plans of fixed sizes; most: of one for any number.

    Returns:
        (the numbers of samples that the model gets plans for, none if the processor says one;
        whether "pre" takes any number)
    """
    graph, least = processor.graph(), processor.length.least
    if processor.length.exact is not None:
        shapes: dict[str, list[Any]] = {"audio": [1, processor.length.exact]}
        if processor.frames is not None:
            shapes["valid"] = [1]
        programs.add("pre", graph, [(shapes, None)])
        return [], False
    sizes = sorted({processor.total(n) for n in lengths})
    if not processor.length.chunk:
        size = Sym(0, 1, 0, max(least, 2), processor.total(most))
        try:
            runs: list[Any] = [({"audio": [1, size]}, (size.lo, size.hi))]
            if least < 2:  # dimensions of 1 are broadcast by other rules
                runs.append(({"audio": [1, 1]}, None))
            programs.add("pre", graph, runs)
            return sizes, True
        except (NotStatic, NeedsValue, NeedsHost):
            pass  # frames
    programs.add("pre", graph, [({"audio": [1, size]}, None) for size in sizes])
    return sizes, False


def _add_range(
    programs: Programs,
    graph: Graph,
    processor: AudioProcessor,
    outputs: Sequence[str],
    most: int,
    name: str = "model",
) -> int | None:
    """Adds a program for any number of samples up to `most`, which the processor makes. Returns the
    least number; None: its shapes do not follow from the number, and nothing was added.
    """
    step = processor.length.multiple
    most = most // step * step
    given = {n: _made(programs, processor, n) for n in (most, most - step)}
    if any(shape != [1, n] for n, made in given.items() for shape in made.values()):
        return None
    for least in MIN:
        least = -(-least // step) * step
        if not processor.length.least <= least < most:
            continue
        shape = [1, Registers([(least, most)]).length(0)]
        names = [*given[most], "attention_mask"]  # a host makes it where the processor does not
        shapes = _model_shapes(graph, dict.fromkeys(names, shape))
        try:
            programs.add(name, graph, [(shapes, None)], outputs)
            return least
        except (NotStatic, NeedsValue, NeedsHost):
            continue
    return None


def _made(programs: Programs, processor: AudioProcessor, size: int) -> dict[str, list[int]]:
    """{name: shape} of what the model gets for so many samples."""
    plans = programs.package.manifest["programs"]["pre"]["plans"]
    plan = next((p for p in plans if p["inputs"]["audio"][1] == [1, size]), plans[0])
    shapes = {name: shape for name, (_, _, shape, _) in plan["outputs"].items()}
    # what the processor passes on unchanged
    shapes |= {name: plan["inputs"][of][1] for name, of in plan.get("passed", {}).items()}
    made = {
        name: [d[0] * size + d[1] if isinstance(d, list) else d for d in shape]
        for name, shape in shapes.items()
    }
    if processor.mask is not None:
        made[processor.mask.name] = [1, mask_sizes(processor.description()["mask"], size, size)[1]]
    return made


def _model_shapes(graph: Graph, made: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Shapes of the model's inputs."""
    shapes = {}
    for info in graph.input_names():
        if info.name not in made:
            raise UnsupportedOp(
                f"its input '{info.name}' is none that its processor gives",
                graph.name or "model",
                f"Does {SETTINGS}, which gives {', '.join(made)}, belong to the model?",
            )
        shape = made[info.name]
        fixed = [d if isinstance(d, int) and d > 0 else None for d in info.shape or shape]
        if len(fixed) != len(shape) or any(d not in (None, n) for d, n in zip(fixed, shape)):
            raise InputError(
                f"it has the shape {info.shape}, but the processor gives {shape}",
                f"input '{info.name}'",
                f"Do the model and its {SETTINGS} belong together?",
            )
        shapes[info.name] = shape
    return shapes


def add_voice_activity(
    programs: Programs, graph: Graph, outputs: Sequence[str], seconds: int | None
) -> VoiceActivityFields:
    """Adds the program "model" of voice activity, and "model_8000" if the graph takes a sampling
    rate. Raises as add_sounds.
    """
    if seconds is not None:
        raise InputError("this task has no lengths", "max_length", "Leave it out.")
    names = {i.name for i in graph.input_names()}
    if not {"input", "state"} <= names <= {"input", "state", "sr"} or len(outputs) < 2:
        raise UnsupportedOp(
            f"its inputs are {', '.join(sorted(names))}",
            graph.name or "model",
            "Give Silero VAD 5 or 6.",
        )
    rates = [rate for rate in RATES if rate == 16000 or "sr" in names]
    for rate in rates:
        shapes: dict[str, list[Any]] = {"input": [1, RATES[rate]], "state": [2, 1, 128]}
        fixed = {"sr": [rate]} if "sr" in names else None
        if fixed:
            info = next(i for i in graph.input_names() if i.name == "sr")
            shapes["sr"] = [1] * len(info.shape or [])
        name = "model" if rate == 16000 else f"model_{rate}"
        programs.add(name, graph, [(shapes, None)], outputs, fixed=fixed)
    return {"sampling_rates": rates}
