"""The base of all task pipelines. Mirrors transformers/pipelines/base.py."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import InputError, memory_in_words
from ...logic.options import check_known
from ..arguments import Described, check_device, options_of
from ..engine import Owner
from ..session import InferenceSession
from ..session.packaged import ProgramSession
from .files import Dtype, ModelFiles, Stem

if TYPE_CHECKING:
    from ..engine import Engine
    from ..text import Tokenizer

__all__ = ["Pipeline"]


class Pipeline(Described, Owner):
    """A model with its processor and post-processing for one task.

    A subclass declares the class attributes below and implements `one`, or `batch`. Its
    `__call__(inputs, ...)` gives one result for one input, a list for a list or tuple, and a
    generator for an iterator, as in transformers.

    Args:
        model: path of a model folder, of an .onnx file, or of a package of `edgewise build --task`;
            the id of a model of the hub (needs `edgewise[hub]`); an InferenceSession, or {stem:
            InferenceSession}.
        tokenizer: a Tokenizer, a path or an id. Default: the model's.
        processor, feature_extractor, image_processor: a processor, or the contents of its
            preprocessor_config.json as a dict. Default: the model's.
        config: the contents of config.json as a dict. Default: the model's.
        dtype, revision, subfolder, model_file_name: which files; see ModelFiles.
        device: None, "auto", "cpu", "wasm" or -1: the engine has one kind of device.
        session_options: SessionOptions of the graphs.
        engine: the Engine to use; by default that of the process.
        batch_size: how many inputs of a list or iterator are processed together. Default: 1.
        options: defaults of the options of calls.

    Attributes:
        task: name of the task.
        files: the model's ModelFiles; None if sessions were given.
        config, tokenizer, processor: as loaded.

    Raises:
        InputError: an option is unknown or not valid, or a file is missing.
        ModelError, PackageError, TokenizerError: a file is damaged.
    """

    rank = -1  # locked before its sessions

    task: ClassVar[str] = ""
    STEMS: ClassVar[Sequence[Stem]] = ("model",)
    """The graphs of the task."""
    OPTIONAL: ClassVar[Sequence[str]] = ()
    """Graphs that are used where they exist."""
    FURTHER: ClassVar[Sequence[str]] = ()
    """Graphs that `find_graphs` finds, for `dtype`."""
    CALL: ClassVar[Mapping[str, Any]] = {}
    """{option of a call: its default}."""
    PACKAGED: ClassVar[bool] = False
    """Whether packages of the task can be opened."""
    PACKAGES: ClassVar[Sequence[str]] = ()
    """Further tasks whose packages can be opened."""
    TOKENIZER: ClassVar[bool] = False
    """Whether the task needs a tokenizer."""

    @memory_in_words
    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        processor: Any = None,
        feature_extractor: Any = None,
        image_processor: Any = None,
        config: Mapping[str, Any] | None = None,
        dtype: Dtype = None,
        revision: str | None = None,
        subfolder: str = "onnx",
        model_file_name: str | None = None,
        device: Any = None,
        session_options: Any = None,
        engine: Engine | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> None:
        self.start_lock()
        self.closed = False
        self.engine, self.session_options = engine, session_options
        self.sessions: dict[str, Any] = {}  # of InferenceSession, or ProgramSession of packages
        self.files: ModelFiles | None = None
        check_device(device)
        self.defaults = {**self.CALL}
        self.defaults = self.options(options, f'pipeline("{self.task}")')
        self.batch_size = check_batch_size(batch_size)
        if isinstance(model, (str, os.PathLike)):
            self.files = ModelFiles(
                model,
                *self.stems(model),
                dtype,
                revision,
                subfolder,
                model_file_name,
                self.find_graphs,
                self.FURTHER,
            )
            if self.files.package is not None:
                self._check_package(self.files.package.manifest, self.files.where)
        else:
            self._take(model)
        self.config = self._json("config.json") if config is None else dict(config)
        given = [p for p in (processor, feature_extractor, image_processor) if p is not None]
        if len(given) > 1:
            raise InputError("several processors are given", "processor", "Give one.")
        self.processor: Any = given[0] if given else None
        self.tokenizer: Any = None
        if self.TOKENIZER or tokenizer is not None:
            self.tokenizer = self._tokenizer(tokenizer)
        self.check(self.defaults)

    def _described(self) -> Sequence[tuple[str, object]]:
        where = self.files.where if self.files is not None else None
        return [("task", self.task), ("model", where)]

    # What subclasses use and override

    @classmethod
    def of(cls, model: Any, options: Mapping[str, Any]) -> Any:
        """The class of a model's pipeline, where a task has several."""
        return cls

    def stems(self, model: str | os.PathLike[str]) -> tuple[Sequence[Stem], Sequence[str]]:
        """STEMS and OPTIONAL of a model."""
        return self.STEMS, self.OPTIONAL

    @staticmethod
    def find_graphs(
        names: Sequence[str], suffixes: Sequence[str], own: Mapping[str, Sequence[str]]
    ) -> dict[str, str] | None:
        """Finds the graphs of further forms of models; see ModelFiles."""
        return None

    def check(self, options: Mapping[str, Any]) -> None:
        """Checks the values of the options of a call. Raises InputError."""

    def is_list(self, inputs: Any) -> bool:
        """Whether `inputs` is a list of inputs rather than one."""
        return isinstance(inputs, (list, tuple))

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        """The result of one input."""
        raise NotImplementedError

    def batch(self, inputs: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        """The results of several inputs, which may be run together."""
        return [self.one(given, options) for given in inputs]

    @memory_in_words
    def __call__(self, inputs: Any, *, batch_size: int | None = None, **options: Any) -> Any:
        """Runs the task.

        Args:
            inputs: one input; or a list, tuple or iterator of inputs.
            batch_size: how many inputs are processed together. Default: the pipeline's.
            options: of the task.

        Returns:
            one result; a list for a list or tuple; a generator for an iterator

        Raises:
            InputError: an input or an option is not valid.
        """
        return self.run(inputs, self.options(options), batch_size)

    @memory_in_words
    def run(self, inputs: Any, options: dict[str, Any], batch_size: int | None = None) -> Any:
        """As __call__, with all options."""
        self.check(options)
        size = self.batch_size if batch_size is None else check_batch_size(batch_size)
        if hasattr(inputs, "read"):  # it is also an iterator, of lines
            raise InputError("an open file is no input", self.task, "Give its path or its bytes.")
        if isinstance(inputs, Iterator):
            return self._each(inputs, options, size)
        if not self.is_list(inputs):
            return self._batch([inputs], options)[0]
        inputs = list(inputs)
        results = []
        for i in range(0, len(inputs), size):
            try:
                results += self._batch(inputs[i : i + size], options)
            except InputError as e:
                if size > 1 or len(inputs) == 1:
                    raise
                where = f"input {i}, {e.where}" if e.where else f"input {i}"
                raise InputError(e.what, where, e.remedy) from e
        return results

    @staticmethod
    def generation_fields(given: Mapping[str, Any]) -> dict[str, Any]:
        """Options with those in `generate_kwargs` beside them. Raises InputError."""
        fields = given.get("generate_kwargs") or {}
        if not isinstance(fields, Mapping):
            raise InputError(f"it is {fields!r}", "generate_kwargs", "Give {name: value}.")
        return {**fields, **{n: v for n, v in given.items() if n != "generate_kwargs"}}

    def options(self, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """The options of a call: the given ones over the pipeline's over the task's.

        Args:
            given: {name: value}.
            where: for errors.

        Raises:
            InputError: an option is unknown.
        """
        known = [*self.CALL, "batch_size"]
        if where:  # of the pipeline itself
            known += [n for n in options_of(Pipeline.__init__) if n not in known]
        check_known(list(given), known, where or self.task)
        return {**self.defaults, **given}

    def session(self, stem: str) -> Any:
        """The session of a graph, which is loaded on first use.

        Raises:
            InputError: the model has no such graph. ModelError: the graph is damaged.
        """
        if self.closed:
            raise InputError(
                "the pipeline is closed", self.task, "Create it again with `pipeline`."
            )
        if stem not in self.sessions and self.files is not None and self.files.package is not None:
            self.sessions[stem] = ProgramSession(self.files.package, stem, self.engine)
        if stem not in self.sessions:
            path = self.files.graphs.get(stem) if self.files is not None else None
            if path is None:
                raise InputError(f"the model has no graph {stem!r}", self.task)
            self.sessions[stem] = InferenceSession(path, self.session_options, engine=self.engine)
        return self.sessions[stem]

    @property
    def all_graphs(self) -> list[str]:
        """Names of the graphs, those of a package included."""
        if self.files is None:
            return list(self.sessions)
        package = self.files.package
        own = self.files.graphs if package is None else package.manifest["programs"]
        return list(dict.fromkeys([*own, *self.sessions]))

    def need_output(self, stem: str, *names: str) -> str:
        """The first of `names` that is an output of a graph.

        Raises:
            InputError: there is none: the model is of another task.
        """
        outputs = self.session(stem).outputs
        for name in names:
            if name in outputs:
                return name
        raise InputError(
            f"the model has no output {' or '.join(names)}; it has {', '.join(outputs)}",
            self.task,
            "It was exported for another task: give a model of this one.",
        )

    def close(self) -> None:
        """Frees the memory of the graphs. The pipeline cannot be used afterwards."""
        with self.lock:
            self.closed = True
            for session in self.sessions.values():
                session.free()
            self.sessions.clear()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Helpers

    def _batch(self, inputs: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        if self.closed:
            raise InputError(
                "the pipeline is closed", self.task, "Create it again with `pipeline`."
            )
        with self.lock:
            return self.batch(inputs, options)

    def _each(self, inputs: Iterator[Any], options: dict[str, Any], size: int) -> Iterator[Any]:
        """The results of an iterator's inputs, batch by batch."""
        ready: list[Any] = []
        for given in inputs:
            ready.append(given)
            if len(ready) == size:
                yield from self._batch(ready, options)
                ready = []
        if ready:
            yield from self._batch(ready, options)

    def _check_package(self, manifest: Mapping[str, Any], where: str) -> None:
        """Raises InputError unless the pipeline can open a package."""
        if not self.PACKAGED or "programs" not in manifest:
            raise InputError(
                f"Python has no pipeline '{self.task}' of packages like this",
                where,
                "Give the model's folder or .onnx file.",
            )
        if manifest.get("task") not in (self.task, *self.PACKAGES):
            raise InputError(
                f"it is a package for '{manifest.get('task')}'",
                where,
                f"Build one with `edgewise build --task {self.task}`.",
            )

    def _take(self, model: Any) -> None:
        """Takes sessions instead of a model's files. Raises InputError."""
        stems = [s if isinstance(s, str) else s[0] for s in self.STEMS]
        sessions = {stems[0]: model} if isinstance(model, InferenceSession) else model
        if not isinstance(sessions, Mapping) or not all(
            isinstance(s, InferenceSession) for s in sessions.values()
        ):
            raise InputError(
                f"a {type(model).__name__} is not a model",
                "model",
                "Give a model folder, an .onnx file, the id of a model or an InferenceSession.",
            )
        self.sessions = dict(sessions)

    def _json(self, name: str) -> dict[str, Any]:
        """A configuration file of the model; {} if there is none."""
        return (self.files.json(name) if self.files is not None else None) or {}

    def _tokenizer(self, given: Any) -> Tokenizer | Any:
        from ..hub import tokenizer_path
        from ..text import Tokenizer

        if isinstance(given, (str, os.PathLike)):
            return Tokenizer.from_pretrained(tokenizer_path(given))
        if given is not None:
            return given
        if self.files is None:
            raise InputError(
                "there is no tokenizer", self.task, "Pass tokenizer= with a path or a Tokenizer."
            )
        return Tokenizer.from_files(self.files.read, self.files.where)


def check_batch_size(batch_size: Any) -> int:
    """`batch_size`, by default 1. Raises InputError if it is not a positive integer."""
    if batch_size is None:
        return 1
    if type(batch_size) is not int or batch_size < 1:
        raise InputError(f"{batch_size!r} is not a positive integer", "batch_size")
    return batch_size
