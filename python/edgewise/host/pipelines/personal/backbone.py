"""The features of a pipeline's inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import as_input, as_output
from ....compiler.declare.dtypes import DOUBLE, FLOAT, FLOAT16, pack, unpack
from ....compiler.heads.examples import are_finite
from ....compiler.heads.features import (
    Features,
    digest_of,
    find_features,
    tensor_names,
    text_states,
    with_features,
)
from ....compiler.ir import Graph, Info
from ....errors import InputError
from ....logic.post.speakers import unit
from ...heads.adapters import adapted_graph
from ...session import InferenceSession
from ..audio import AudioPipeline
from ..base import Pipeline
from ..feature_extraction import FeatureExtractionPipeline
from ..images.base import ImagePipeline
from ..speaker_verification import SpeakerVerificationPipeline
from ..text_classification import TextClassificationPipeline, _text_and_pair

if TYPE_CHECKING:
    from .lora import Adapters

POOLINGS = (None, "mean", "first")
TASKS = {
    "image-classification": "image-classification",
    "image-feature-extraction": "image-classification",
    "audio-classification": "audio-classification",
    "speaker-verification": "speaker-verification",
    "text-classification": "text-classification",
    "feature-extraction": "text-classification",
}
"""{task of a pipeline: task of the personal one}."""


class Backbone:
    """The frozen model of a pipeline.

    Args:
        pipe: the pipeline.
        pooling: see `personalize`.

    Attributes:
        pipe: as given.
        task: of the personal pipeline.
        features: which tensor of the graph is used; None for feature-extraction, whose own
            vectors are used.
        digest: of the model (heads.features.digest_of).

    Raises:
        InputError: pipelines of this task have no features, or pooling is not valid.
    """

    def __init__(self, pipe: Pipeline, pooling: str | None = None) -> None:
        if not isinstance(pipe, Pipeline) or pipe.task not in TASKS:
            raise InputError(
                f"{getattr(pipe, 'task', type(pipe).__name__)!r} cannot be personalized",
                "pipe",
                f"Give a pipeline of {', '.join(TASKS)}.",
            )
        if pipe.files is not None and pipe.files.package is not None:
            raise InputError(
                "packages are personalized in pages",
                "pipe",
                "Give the model's folder or .onnx file.",
            )
        if pooling not in POOLINGS:
            raise InputError(f"it is {pooling!r}", "pooling", 'Give "mean" or "first".')
        self.pipe, self.task = pipe, TASKS[pipe.task]
        self.stem = pipe.STEM if isinstance(pipe, ImagePipeline) else "model"
        self.rank = 2
        self.dtype = FLOAT
        self._adapted: tuple[Adapters, InferenceSession] | None = None
        with pipe.lock:
            self._find(pipe, pooling)

    def _find(self, pipe: Pipeline, pooling: str | None) -> None:
        """Finds the features, and makes them an output of the pipeline's graph."""
        # As it was before outputs were added to it.
        graph: Graph = vars(pipe).setdefault("_own_graph", pipe.session(self.stem).graph)
        if isinstance(pipe, FeatureExtractionPipeline):
            self.features: Features | None = None
            found = text_states(graph)
        else:
            kind = "image" if isinstance(pipe, ImagePipeline) else "text"
            kind = "audio" if isinstance(pipe, AudioPipeline) else kind
            found = find_features(graph, kind, str(pipe.config.get("model_type", "")))
            if pooling is not None:
                found = replace(found, pooling=pooling)
            self.features = found
            self.output = self._add_output(found.tensor)
        self.digest = digest_of(graph, found)
        self._ready = self.features is None

    def of(
        self,
        given: Any,
        adapters: Adapters | None = None,
        seen: Callable[[dict[str, Any]], None] | None = None,
    ) -> bytes:
        """The features of an input, float32 [size].

        Args:
            given: the input.
            adapters: of the model, or None.
            seen: called with the inputs of the graph.

        Raises:
            InputError: the input cannot be used, or the model gives no vector for it, or one that
                is not finite.
        """
        with self.pipe.lock:
            if not self._ready:
                self._prepare(given)
            with self._instead(adapters, seen):
                value = self._run(given)
        code, shape, data = as_input(value, "features")
        if len(shape) > 1 and shape[0] != 1 or not shape[-1]:
            raise InputError(f"they have the shape {list(shape)}", "features", "Give one input.")
        raw = bytes(memoryview(data).cast("B"))
        if code in (FLOAT16, DOUBLE):
            raw = pack(FLOAT, unpack(code, raw, shape[-1]))
        if isinstance(self.pipe, SpeakerVerificationPipeline):
            raw = pack(FLOAT, unit(unpack(FLOAT, raw, len(raw) // 4)))
        if not are_finite(raw):
            raise InputError("they are not finite", "features", "Check the input and the model.")
        return raw

    def prepare(self, adapters: Adapters) -> None:
        """Puts adapters into the model, for the next input. Raises InputError: they do not fit."""
        with self.pipe.lock:
            self._with_adapters(adapters, self.pipe.session(self.stem))

    def close(self) -> None:
        """Frees the memory of a model with adapters."""
        if self._adapted is not None:
            self._adapted[1].free()
            self._adapted = None

    @contextmanager
    def _instead(
        self, adapters: Adapters | None, seen: Callable[[dict[str, Any]], None] | None
    ) -> Iterator[None]:
        """Within it the pipeline runs the model with adapters, and tells of its inputs."""
        pipe = self.pipe
        own = used = pipe.session(self.stem)
        if adapters is not None:
            used = self._with_adapters(adapters, own)
        if seen is not None:
            used = _Watched(used, seen)
        pipe.sessions[self.stem] = used
        try:
            yield
        finally:
            pipe.sessions[self.stem] = own

    def _with_adapters(self, adapters: Adapters, own: InferenceSession) -> InferenceSession:
        """The session of the model with adapters. That of the latest is kept."""
        if self._adapted is None or self._adapted[0] is not adapters:
            graph = adapted_graph(own.graph, adapters.layout, adapters.data, own.engine)
            self.close()
            made = InferenceSession(graph, self.pipe.session_options, engine=own.engine)
            self._adapted = (adapters, made)
        return self._adapted[1]

    def _run(self, given: Any) -> Any:
        """The value of the output for an input."""
        pipe = self.pipe
        if isinstance(pipe, FeatureExtractionPipeline):
            return pipe(given, return_tensors=True, **self.embedding)
        if isinstance(pipe, ImagePipeline):
            return pipe.forward(pipe.picture(given), self.output)[0]
        if isinstance(pipe, AudioPipeline):
            return pipe.session("model").run([self.output], pipe.inputs_of(given))[0]
        assert isinstance(pipe, TextClassificationPipeline)
        text, pair = _text_and_pair(given)
        (numbers,) = pipe.forward(pipe.encodings(text, pair)[0], outputs=[self.output])
        return as_output(numbers.code, list(numbers.shape), numbers.data)

    @property
    def embedding(self) -> dict[str, Any]:
        """Options of feature-extraction: the model's own way, else the mean of its states."""
        pipe = self.pipe
        assert isinstance(pipe, FeatureExtractionPipeline)
        if pipe.defaults["pooling"] or pipe.vectors(pipe.defaults).own:
            return {}
        return {"pooling": "mean", "normalize": True}

    def _prepare(self, given: Any) -> None:
        """Finds the rank of the features with a first input, and pools them in the graph."""
        assert self.features is not None
        code, shape, _ = as_input(self._run(given), "features")
        self.rank, self.dtype = len(shape), code
        if self.rank != 2 or code == FLOAT16:
            # Pooled once for all personal pipelines of a pipeline.
            pooled = vars(self.pipe).setdefault("_pooled_features", {})
            key = (self.features, self.rank, code)
            if key not in pooled:
                session = self.pipe.session(self.stem)
                graph, name = with_features(session.graph, self.features, self.rank, code)
                self._replace(graph)
                pooled[key] = name
            self.close()  # a model with adapters that was made before
            self.output = pooled[key]
        self._ready = True

    def _add_output(self, tensor: str) -> str:
        """Makes a tensor an output of the pipeline's graph."""
        session = self.pipe.session(self.stem)
        graph = session.graph
        if tensor in session.outputs:
            return tensor
        if tensor not in tensor_names(graph):
            raise InputError(f"the model has no tensor {tensor!r}", self.pipe.task)
        self._replace(replace(graph, outputs=[*graph.outputs, Info(tensor, FLOAT)]))
        return tensor

    def _replace(self, graph: Any) -> None:
        """Replaces the pipeline's session by one of a graph with more outputs, so that weights
        are in memory once.
        """
        pipe = self.pipe
        old = pipe.sessions[self.stem]
        made = InferenceSession(graph, pipe.session_options, engine=old.engine)
        pipe.sessions[self.stem] = made
        if pipe.files is not None:
            old.free()


class _Watched:
    """A session, and a function that is told of the inputs of each run."""

    def __init__(self, session: Any, seen: Callable[[dict[str, Any]], None]) -> None:
        self.session, self.seen = session, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run(self, names: Any, feeds: Mapping[str, Any], *rest: Any) -> Any:
        self.seen(dict(feeds))
        return self.session.run(names, feeds, *rest)
