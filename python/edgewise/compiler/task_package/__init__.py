"""Packages of pipelines: the graphs of a task and the files that its processor reads.

A page runs such a package without Python. `edgewise build --task` makes one ahead of time; a page
that has only the model's files asks `page_task` for the same package and keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UnsupportedOp
from ...json_text import parse_json
from ...logic.manifest.limits import GRAPHS, PICTURE_TEXT_TASKS, PROGRAM_TASKS, SEQ2SEQ_TASKS
from ...logic.manifest.processor import Processor
from ...logic.post.speakers import OUTPUTS as VOICE_OUTPUTS
from ...logic.speech.hearing_files import hearing_files
from ...logic.tasks.names import ALIASES, task_of
from ...logic.tasks.ranking import is_language_model
from ..compile.model_file import MAX_TEXT, read_texts
from ..compile.programs import Programs
from ..ir import Graph
from ..onnx import read_model
from ..onnx.source import Source
from ..package import Package
from ..plan.explain import AHEAD_OF_TIME, explained
from ..targets import CPU, Target, target_named
from .ctc import ctc_description
from .decoders import last_token_only, without_states
from .graph_models import graphs_package
from .graphs import Dtype, choose_graphs
from .hearing import SPEECH, hearing_package, hears
from .images import IMAGE_OUTPUTS, image_package, question_package
from .multimodal import HEARING, multimodal_package
from .ocr import ocr_package
from .personal import Personal
from .picture_texts import picture_text_package
from .prompts import prompts_package
from .seq2seq import seq2seq_package
from .sounds import add_sounds, add_voice_activity
from .synthesis import synthesis_package
from .text_to_image import text_to_image_package
from .texts import TEXT_INPUTS, add_text_model, config_of, text_limit
from .towers import COMPARED
from .zero_shot import zero_shot_package

if TYPE_CHECKING:
    from ..passes.lora import AdapterConfig

# Further files that pipelines read, by their paths in the model's folder.
TASK_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "modules.json",
    "1_Pooling/config.json",
    "1_LogitScore/config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "video_preprocessor_config.json",
)


MODULE_FOLDERS = ("1_Pooling/", "1_LogitScore/")
"""Folders of modules of sentence-transformers."""


@dataclass(frozen=True)
class Task:
    """The contents of a package for a task.

    Attributes:
        kind: key of BUILDERS: the input type ("text", "image" or "sound"), or another form of
            models.
        outputs: names of the outputs that the pipeline reads, in order of preference in each tuple
            (text and sound tasks).
        further: names of optional outputs.
        any_name: whether a graph's only output may have any name.
    """

    kind: str
    outputs: tuple[tuple[str, ...], ...]
    further: tuple[str, ...] = ()
    any_name: bool = False


_LOGITS = (("logits",),)
TASKS = {
    "feature-extraction": Task(
        "text", (("last_hidden_state", "token_embeddings", "logits"),), ("sentence_embedding",)
    ),
    "text-classification": Task("text", _LOGITS),
    "zero-shot-classification": Task("text", _LOGITS),
    "token-classification": Task("text", _LOGITS),
    "text-ranking": Task("text", _LOGITS),
    "fill-mask": Task("text", _LOGITS),
    "question-answering": Task("text", (("start_logits",), ("end_logits",))),
    "audio-classification": Task("sound", _LOGITS),
    "voice-activity-detection": Task("sound", (("output",), ("stateN",))),
    "speaker-verification": Task("sound", (VOICE_OUTPUTS,), any_name=True),
    **dict.fromkeys(COMPARED, Task("zero-shot", ())),
    "mask-generation": Task("prompts", ()),
    "text-to-image": Task("diffusion", ()),
    "image-text-to-text": Task("multimodal", ()),
    "audio-text-to-text": Task("multimodal", ()),
    "text-to-speech": Task("speech", ()),
    "codec": Task("graphs", ()),
    "speaker-diarization": Task("graphs", ()),
    "audio-to-audio": Task("graphs", ()),
    **dict.fromkeys(IMAGE_OUTPUTS, Task("image", ())),
    "visual-question-answering": Task("question", _LOGITS),
    "optical-character-recognition": Task("ocr", ()),
    **dict.fromkeys(SEQ2SEQ_TASKS, Task("seq2seq", _LOGITS)),
    **dict.fromkeys(PICTURE_TEXT_TASKS, Task("picture-text", _LOGITS)),
}


def task_name(task: str) -> str:
    """The name of a task, or that of the task that an alias stands for.

    Raises:
        InputError: there are no packages for this task.
    """
    name = task_of(task) if isinstance(task, str) else ""
    if name not in TASKS:
        raise InputError(
            f"there are no packages for {task!r}",
            "task",
            f"There are: {', '.join(sorted({*TASKS, *ALIASES}))}.",
        )
    assert name in PROGRAM_TASKS
    return name


def compile_task(
    files: Mapping[str, Source],
    task: str,
    dtype: Dtype = None,
    max_length: int | None = None,
    model_file: str | None = None,
    target: Target = CPU,
    compare: bool = True,
    cache_dtype: str | None = None,
    graphs: Mapping[str, str] | None = None,
    dims: Mapping[str, int] | None = None,
    personalize: bool | Mapping[str, Any] = False,
    any_size: bool = False,
    any_length: bool = False,
    training: Sequence[Mapping[str, Any]] = (),
    lora: AdapterConfig | None = None,
) -> Package:
    """Compiles the model of a pipeline.

    Args:
        files: {file name: Source} of a model folder (Hugging Face layout).
        task: name of the task, as in transformers and transformers.js, or an alias.
        dtype: which .onnx files, by suffix: for all, or {name of a file: dtype} (choose_graphs).
        max_length: most tokens of a text; default: the model's own limit, at most DEFAULT_LENGTH.
            Of encoder-decoder models: most tokens that are generated; default: the model's limit.
            Of models that see pictures: most tokens of a sequence; default: the model's limit, at
            most 4096.
            Of models that take sound of any length: most seconds; default: 30 (voices of frames 8).
            Of models that speak: most seconds of a part of a text; default: 12.
            Of codecs and models from sound to sound: most seconds of a part; default: 30.
        model_file: which .onnx file, by name, of a task that has one.
        target: device that the plans are for.
        compare: whether weights of different files are compared, so that equal ones are stored
            once.
        cache_dtype: type of the keys and values of encoder-decoder models; see compile_seq2seq.
        graphs: {name of limits.GRAPHS: file}; default: by `dtype`.
        dims: "height" and "width" of the pictures of text-to-image; default: the model's.
        personalize: whether a page can teach the model labels of its user; {"lora": true, or
            {"rank", "alpha"}}: and train adapters of it (heads.lora).
        any_size: whether an encoder of pictures of any size is left out, since the caller compiles
            it for each size.
        any_length: whether an encoder of sounds of any length is left out in the same way.
        training: programs by which a page trains adapters of the decoder, as of
            training.package.add_training: of encoder-decoder models of speech and texts, and of
            models that see pictures.
        lora: training.peft.LoraConfig: layers of the decoder of a model that sees or hears which
            can get adapters at run time; without `training`.

    Returns:
        the package; its weights stay in their files until it is written

    Raises:
        InputError: there is no such task or file, or an option has no sensible value.
        ModelError, UnsupportedOp: the model is damaged, or is none of this task.
    """
    name = task_name(task)
    if model_file is not None:
        if name in GRAPHS and ("model",) != GRAPHS[name][0]:
            raise InputError("the task has several files", model_file, "Give the model's folder.")
        graphs = {"model": model_file}
    chosen = graphs or choose_graphs(files, name, dtype)
    if name == SPEECH:
        chosen = hearing_files([*chosen.values()]) or chosen
    if len(chosen) == 1:  # a page calls it by its own name
        chosen = {"model": next(iter(chosen.values()))}
    texts = task_texts(files)
    kind = _kind(name, chosen, files, texts)
    _check_options(kind, cache_dtype, dims, personalize, training)
    request = Request(
        name,
        files,
        chosen,
        texts,
        max_length,
        cache_dtype,
        target,
        compare,
        dims,
        personalize,
        any_size,
        any_length,
        training,
        lora,
    )
    with explained(AHEAD_OF_TIME, next(iter(chosen.values()))):
        return BUILDERS[kind](request)


def _check_options(
    kind: str, cache_dtype: object, dims: object, personalize: object, training: object
) -> None:
    """Raises InputError where an option has no effect on packages of a kind."""
    if cache_dtype is not None and kind not in ("seq2seq", "picture-text", "multimodal"):
        raise InputError("the task has no keys and values to keep", "cache_dtype", "Leave it out.")
    if dims is not None and kind != "diffusion":
        raise InputError("the task has no sizes", "dims", "Leave it out.")
    unlabelled = (
        "seq2seq",
        "picture-text",
        "multimodal",
        "diffusion",
        "hearing",
        "ocr",
        "question",
        "graphs",
    )
    if personalize and kind in unlabelled:
        raise InputError("the task has no labels", "personalize", "Leave it out.")
    if training and kind not in ("seq2seq", "multimodal"):
        raise InputError(
            "models with an encoder and a decoder of text are trained", "training", "Leave it out."
        )


def _kind(
    name: str, chosen: Mapping[str, str], files: Mapping[str, Source], texts: Mapping[str, bytes]
) -> str:
    """The key of BUILDERS for the files of a model.

    Args:
        name: of the task.
        chosen: {name of a graph: file}.
        files, texts: of the model.
    """
    kind = TASKS[name].kind
    if name == SPEECH and hears(chosen, files, _settings(texts)):
        return "hearing"
    if kind == "seq2seq" and "model" in chosen:  # a CTC model of samples
        return "sound"
    if kind == "speech" and "model" not in chosen:
        return "graphs"
    writes = kind == "picture-text" and "encoder_model" not in chosen
    if writes or (kind == "question" and len(chosen) > 1) or (name == SPEECH and HEARING in chosen):
        return "multimodal"  # as those of image-text-to-text
    return kind


@dataclass(frozen=True)
class Request:
    """What a package is made of.

    Attributes:
        task: its name.
        files: {file name: Source} of the model's folder.
        graphs: {name of limits.GRAPHS or "model": file}.
        texts: {path: bytes} of small files, which the package gets.
        max_length, cache_dtype, target, compare, dims, personalize, any_size, any_length, training,
            lora: as of compile_task.
    """

    task: str
    files: Mapping[str, Source]
    graphs: Mapping[str, str]
    texts: dict[str, bytes]
    max_length: int | None
    cache_dtype: str | None
    target: Target
    compare: bool
    dims: Mapping[str, int] | None
    personalize: bool | Mapping[str, Any]
    any_size: bool = False
    any_length: bool = False
    training: Sequence[Mapping[str, Any]] = ()
    lora: AdapterConfig | None = None

    def read(self, name: str) -> Graph:
        """A graph by its name in `graphs`. Raises ModelError."""
        return read_model(self.files[self.graphs[name]])

    def programs(self) -> Programs:
        """A new package, to which graphs are added."""
        return Programs(self.task, self.files, self.texts, self.target, self.compare)


def _settings(texts: Mapping[str, bytes]) -> Mapping[str, Any]:
    """The contents of preprocessor_config.json, or of processor_config.json; {}: there is none."""
    for name in TASK_FILES[:2]:
        if name in texts:
            found = parse_json(texts[name], name)
            return found if isinstance(found, dict) else {}
    return {}


def _text_package(request: Request) -> Package:
    programs, personal = request.programs(), Personal(request, "text")
    without_states(personal.graph, TEXT_INPUTS)
    if request.task == "text-ranking" and is_language_model(config_of(request.texts)):
        last_token_only(personal.graph)
    outputs = personal.also(_outputs(personal.graph, TASKS[request.task]))
    limit = text_limit(request.texts, request.max_length)
    length = add_text_model(programs, personal.graph, outputs, limit)
    return personal.package(programs, {"text": {"max_length": length}})


def _sound_package(request: Request) -> Package:
    programs, personal = request.programs(), Personal(request, "audio")
    outputs = personal.also(_outputs(personal.graph, TASKS[request.task]))
    graph, seconds = personal.graph, request.max_length
    parts: Processor = {}
    if request.task == "voice-activity-detection":
        parts["voice_activity"] = add_voice_activity(programs, graph, outputs, seconds)
    else:
        parts["audio"] = add_sounds(programs, graph, outputs, request.texts, seconds)
    if request.task == "automatic-speech-recognition":
        parts["ctc"] = ctc_description(request)
    return personal.package(programs, parts)


BUILDERS: Mapping[str, Callable[[Request], Package]] = {
    "text": _text_package,
    "image": image_package,
    "prompts": prompts_package,
    "zero-shot": zero_shot_package,
    "speech": synthesis_package,
    "sound": _sound_package,
    "seq2seq": seq2seq_package,
    "hearing": hearing_package,
    "picture-text": picture_text_package,
    "question": question_package,
    "multimodal": multimodal_package,
    "diffusion": text_to_image_package,
    "ocr": ocr_package,
    "graphs": graphs_package,
}
"""{kind of a task: builder of its package}"""


def page_task(files: Mapping[str, Source], options: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Answers a page's question for a package (page.py).

    Args:
        files: {name: Source}.
        options: "task", "graphs": {name: file} and, where they are given, "max_length" and
            "capacity" (of encoder-decoder models), "cache_dtype", "personalize", "programs" (as
            `training` of compile_task) and "target" (name of one; default: "cpu").

    Returns:
        (manifest JSON, {file name: bytes}). Weights stay in the page's files.
    """
    package = compile_task(
        files,
        options["task"],
        max_length=options.get("max_length", options.get("capacity")),
        target=target_named(options.get("target", "cpu")),
        compare=False,  # the page would have to read all weights again on each visit
        cache_dtype=options.get("cache_dtype"),
        graphs=options["graphs"],
        personalize=options.get("personalize", False),
        any_size=True,
        training=options.get("programs") or (),
    )
    return json.dumps(package.manifest), package.blobs


def task_texts(files: Mapping[str, Source]) -> dict[str, bytes]:
    """{path: bytes} of the small files of a model folder that pipelines read."""
    texts = read_texts({n: files[n] for n in files if not n.startswith(MODULE_FOLDERS)})
    for name in TASK_FILES:
        if name in files and files[name].size <= MAX_TEXT:
            texts[name] = files[name].read_all(MAX_TEXT)
    return texts


def _outputs(graph: Graph, task: Task) -> list[str]:
    names = [o.name for o in graph.outputs]
    if task.any_name and len(names) == 1:
        return names
    found = [_first(names, wanted) for wanted in task.outputs]
    further = [name for name in task.further if name in names]
    # States read as the logits of labels would be labels without a meaning.
    if None in found and not further:
        raise UnsupportedOp(
            f"its outputs are {', '.join(names)[:200]}",
            graph.name or "model",
            f"This task needs {' and '.join(' or '.join(wanted) for wanted in task.outputs)}: "
            "give a model that was exported for it.",
        )
    return [name for name in found if name is not None] + further


def _first(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """The first wanted name that exists."""
    there = set(names)
    return next((name for name in wanted if name in there), None)
