"""onnxruntime, the runtime that Edgewise is compared with; needs onnxruntime and NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...compiler.compile import CACHE_NAME, cache_axis, find_states, head_dim
from ...compiler.ir import Graph
from ...errors import InputError, UnsupportedOp
from .contender import Comparison, Contender, Decoding, LoadedModel

AGREE = 1e-3  # difference of results, relative to the largest value, above which a note warns
CACHE_DTYPES = {"tensor(float)": "float32", "tensor(float16)": "float16"}


def add_peer(comparison: Comparison, make: Callable[[Any, str, bool], Contender[Any]]) -> None:
    """Adds onnxruntime to a comparison if it is installed and can run the model.

    Compares the results before anything is measured, and notes their difference.

    Args:
        comparison: with Edgewise as its only contender.
        make: from the module onnxruntime, its title, and `exact` of open_session to a contender.
    """
    notes = comparison.notes
    try:
        import onnxruntime  # NumPy with it, before anything is timed
    except ImportError:
        notes.append(
            "onnxruntime is not installed, so there is nothing to compare with: pip install"
            " onnxruntime"
        )
        return
    title = f"onnxruntime {onnxruntime.__version__}"
    try:
        peer = make(onnxruntime, title, False)
    except Exception as e:  # onnxruntime has exceptions of its own
        notes.append(
            f"{title} could not be measured, so there is nothing to compare with:"
            f" {str(e).strip().splitlines()[0][:200]}"
        )
        return
    ours = comparison.contenders[0].result
    comparison.difference = _difference(ours, peer.result)
    note = (
        "Results were compared first: they differ by"
        f" {comparison.difference:.1e} of the largest value."
    )
    if comparison.difference > AGREE:
        exact = _difference(ours, make(onnxruntime, title, True).result)
        if exact <= AGREE:
            note += (
                " On this processor, onnxruntime adds products of bytes in 16 bits, with"
                " saturation, and Edgewise exactly: with onnxruntime's session.x64quantprecision"
                f" they differ by {exact:.1e}."
            )
        else:
            note += (
                " THAT IS NOT THE SAME WORK: compare speeds with care (quantized activations may"
                " be rounded differently)."
            )
    notes.append(note)
    comparison.contenders.append(peer)


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest difference between outputs, relative to the largest value of the output."""
    import numpy as np

    worst = 0.0
    for x, y in zip(ours, theirs):
        a, b = np.asarray(x).astype("f8", copy=False), np.asarray(y).astype("f8", copy=False)
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        finite = np.isfinite(a)
        scale = max(np.abs(b[finite]).max(initial=0.0), 1e-30)
        worst = max(worst, float(np.abs(a[finite] - b[finite]).max(initial=0.0) / scale))
    return worst


def open_session(onnxruntime: Any, file: str, threads: int, exact: bool) -> Any:
    """An onnxruntime.InferenceSession of the CPU.

    exact: of unsigned with signed bytes, add products without saturation on x86 without VNNI.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def load_run(session: Any, feeds: Mapping[str, Any]) -> tuple[LoadedModel, Sequence[Any]]:
    """A model that is measured as one run, and its outputs. session: of open_session."""
    import numpy as np

    arrays = {name: np.asarray(x) for name, x in feeds.items()}
    return LoadedModel(lambda: session.run(None, arrays)), session.run(None, arrays)


def load_decoding(
    onnxruntime: Any, session: Any, graph: Graph, ids: list[int], length: int
) -> tuple[Decoding, Sequence[Any]]:
    """Prepares a language model whose caches are inputs and outputs of the graph.

    Args:
        onnxruntime: the module.
        session: InferenceSession of the model.
        graph: the model.
        ids: tokens of the prompt, then those that are decoded.
        length: tokens of the prompt.

    Returns:
        The state, and the logits after the prompt and after one more token.
    """
    step = _PeerDecoder(onnxruntime, session, graph)
    declared = next(i.shape for i in graph.input_names() if i.name == "input_ids") or []
    at_once = next((d for d in declared[1:] if isinstance(d, int)), None)
    if at_once not in (None, 1):
        raise InputError(f"it takes {at_once} tokens at a time", "the model", "")

    def prefill() -> Any:
        if at_once is None:
            return step(ids[:length], 0)
        for i in range(length):
            logits = step(ids[i : i + 1], i)
        return logits

    def last(logits: Any) -> Any:
        return logits.numpy()[0, -1].astype("f4")

    first = [last(prefill()), last(step([ids[length]], length))]
    decode = lambda x: step([x], step.length)  # noqa: E731
    return Decoding(prefill, decode, ids[length:], length), first


class _PeerDecoder:
    """Runs a language model on new tokens. The caches stay in onnxruntime's memory between runs;
    it allocates a new one for each.
    """

    def __init__(self, onnxruntime: Any, session: Any, graph: Graph) -> None:
        self.session = session
        self.make_value = onnxruntime.OrtValue.ortvalue_from_numpy
        self.inputs = {i.name: i for i in session.get_inputs()}
        self.cache_outputs = match_caches(graph, [n for n in self.inputs if CACHE_NAME.search(n)])
        self.empty: dict[str, list[int]] = {}  # shapes of caches without tokens
        for info in graph.input_names():
            if info.name in self.cache_outputs:
                shape = [d if isinstance(d, int) else 1 for d in (info.shape or [])[:3]]
                shape.append(head_dim(graph, info.name, info))
                shape[cache_axis(info)] = 0
                self.empty[info.name] = shape
        self.caches: dict[str, Any] = {}
        self.length = 0

    def __call__(self, new: list[int], past: int) -> Any:
        """Logits of tokens that follow `past` cached tokens."""
        import numpy as np

        total = past + len(new)
        arrays = {
            "input_ids": np.array([new], np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
            "use_cache_branch": np.array([past > 0]),
        }
        feeds = {
            name: self.make_value(
                x.astype(np.int32) if self.inputs[name].type == "tensor(int32)" else x
            )
            for name, x in arrays.items()
            if name in self.inputs
        }
        if past == 0:
            for name, shape in self.empty.items():
                dtype = CACHE_DTYPES[self.inputs[name].type]
                self.caches[name] = self.make_value(np.zeros(shape, dtype))
        names = ["logits", *self.cache_outputs.values()]
        outputs = dict(
            zip(names, self.session.run_with_ort_values(names, {**feeds, **self.caches}))
        )
        for name, output in self.cache_outputs.items():
            self.caches[name] = outputs[output]
        self.length = total
        return outputs["logits"]


def match_caches(graph: Graph, caches: Sequence[str]) -> dict[str, str]:
    """The output of each cache input, as text generation finds it (`find_states`).

    Raises:
        InputError: caches and outputs cannot be matched.
    """
    try:
        found = find_states(graph, caches)
    except UnsupportedOp:
        found = {}
    if set(found) != set(caches):
        raise InputError(
            f"the outputs of its {len(caches)} caches cannot be determined", "the model", ""
        )
    return {name: state.output for name, state in found.items()}
