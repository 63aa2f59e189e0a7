"""`InferenceSession`, with the interface of onnxruntime.InferenceSession."""

from __future__ import annotations

import os
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..bind import declared_outputs
from ..engine import Ends, Owner, default_engine, open_engine
from ..errors import Aborted, EngineError, InputError
from ..hub import local_path
from ..ir import Graph
from ..onnx import as_source, read_model
from ..profile import Profile, Watch
from ..seeds import check_seed, seed_of_run
from ..session_limits import MAX_COMPILATIONS, MAX_LOOP_TRIPS
from ..targets import target_of
from .budget import Budget
from .direct import DirectRuns
from .driver import Driver
from .feeds import from_caller, to_caller
from .memory import Pool
from .split_graph import SplitGraph
from .weights import WeightStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..engine import Engine
    from ..ir import Info
    from ..onnx import Source
    from .compiled import Compiled
    from .feeds import RunValue

_ORT_TYPES = {
    1: "float",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "double",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
    27: "float6e2m3",
    28: "float6e3m2",
}


@dataclass
class NodeArg:
    """An input or output of a model, as onnxruntime.NodeArg.

    Attributes:
        name: of the input or output.
        type: as ONNX Runtime writes it, such as "tensor(float)".
        shape: sizes, names of free dimensions, and None for unknown ones.
    """

    name: str
    type: str
    shape: list[int | str | None] | None


class SessionOptions:
    """Options of an InferenceSession, as onnxruntime.SessionOptions.

    The attributes after the first are Edgewise's own. Those that begin with `max_` limit one run:
    beyond a limit it ends with an error that names the node.

    Attributes:
        intra_op_num_threads: threads of the engine; 0: one per core, in the engine of the process.
        max_loop_trips: maximum number of iterations of all loops together, by default 2^20; beyond
            it ModelError.
        max_compilations: maximum number of plans that a run compiles, for example if a loop makes
            a tensor longer in each iteration; by default 2^14. A plan with many inputs counts
            several times. Beyond it ModelError.
        max_memory_bytes: maximum memory of the values between plans, including strings and lists,
            and of the activations of a plan. By default a quarter of the machine's memory, 2^30
            bytes, and all of the machine's memory, respectively. Beyond it OutOfMemory.
        max_run_seconds: maximum duration of a run; None: no limit. Beyond it Aborted.
        seed: 0 to 2^63 - 1, determines the random numbers of operators without their own seed, such
            as RandomNormal. Sessions with the same seed draw the same numbers in their first run,
            in their second run, and so on, in Python and in pages. None: unpredictable numbers.
    """

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.max_loop_trips = MAX_LOOP_TRIPS
        self.max_compilations = MAX_COMPILATIONS
        self.max_memory_bytes: int | None = None
        self.max_run_seconds: float | None = None
        self.seed: int | None = None


class RunOptions:
    """Options of one run, as onnxruntime.RunOptions.

    Attributes:
        terminate: if another thread sets it to True, the runs with these options end with Aborted
            within about 0.1 s.
        seed: 0 to 2^63 - 1, determines the random numbers of this run; None: see
            SessionOptions.seed.
    """

    def __init__(self) -> None:
        self.terminate = False
        self.seed: int | None = None


class InferenceSession(Owner):
    """Runs an ONNX model. Mirrors onnxruntime.InferenceSession.

    Several threads may use a session: its runs are executed one after the other. Sessions that
    share an engine, as they do by default, execute their plans one after the other, each with all
    of the engine's threads. Sessions with their own engines (intra_op_num_threads > 0, or `engine`)
    run in parallel. A server with many requests for small models is fastest with one session per
    thread and intra_op_num_threads = 1. After a fork a session can be used in both processes.

    Args:
        path_or_bytes: path of an .onnx file, its bytes (in Pyodide also a JavaScript buffer), a
            Source, or the id of a model of the hub (needs `edgewise[hub]`).
        sess_options: SessionOptions. With intra_op_num_threads > 0 the session has its own engine
            with as many threads.
        providers, provider_options: accepted for compatibility; there is one provider.
        engine: the Engine to use; by default that of the process.

    Raises:
        ModelError: the file is damaged or not valid ONNX.
        InputError: an option has a wrong type.
    """

    # Number of plans (for different shapes) that are kept for each part of the model.
    MAX_PLANS = 32

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes | bytearray | memoryview | Source | Graph,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        engine: Engine | None = None,
    ) -> None:
        _check_options(sess_options, providers)
        if isinstance(path_or_bytes, Graph):
            self.graph = path_or_bytes
        else:
            if isinstance(path_or_bytes, (str, os.PathLike)):
                path_or_bytes = local_path(path_or_bytes)
            self.graph = read_model(as_source(path_or_bytes))
        # getattr, since onnxruntime's own SessionOptions are accepted too.
        threads = getattr(sess_options, "intra_op_num_threads", 0)
        self.engine = engine or (open_engine(threads) if threads else default_engine())
        self.device = self.engine.device
        self.target = target_of(self.device)
        self.start_lock()
        self.busy = False  # whether a run is active; a signal handler must not start another one
        self.ends, self.watch = Ends(), Watch()
        self.max_run_seconds = getattr(sess_options, "max_run_seconds", None)
        self.budget = Budget(
            getattr(sess_options, "max_memory_bytes", None),
            getattr(sess_options, "max_loop_trips", MAX_LOOP_TRIPS),
            getattr(sess_options, "max_compilations", MAX_COMPILATIONS),
        )
        self.store = WeightStore(self.device)
        self.pool = Pool(self.device, self.budget)
        self.driver = Driver(self, self.budget)
        self.programs: dict[tuple[str, ...], SplitGraph]  # by names of the outputs
        self.programs, self.direct = {}, DirectRuns(self)
        self.seed, self.runs = (
            check_seed(getattr(sess_options, "seed", None), "sess_options.seed"),
            0,
        )
        self.inputs = {i.name: i for i in self.graph.input_names()}
        self.outputs = {o.name: o for o in self.graph.outputs}
        self._output_args: list[NodeArg] | None = None

    @property
    def plans(self) -> dict[Any, Compiled]:
        """{key: plan} of the plans that are kept, including those of loop bodies and of single
        operators between parts. No other thread may be running the session.
        """
        return {
            (part, key): compiled
            for p in (*self.programs.values(), *self.driver.ops.values())
            for part in p.every_part()
            for key, (_, compiled) in part.plans.items()
            if compiled is not None
        }

    def get_inputs(self) -> list[NodeArg]:
        """The inputs. Mirrors onnxruntime.InferenceSession.get_inputs."""
        return [_node_arg(i) for i in self.graph.input_names()]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs. Mirrors onnxruntime.InferenceSession.get_outputs.

        Types and shapes that the file does not declare are inferred where they follow from the
        inputs.
        """
        if self._output_args is None:
            self._output_args = [_node_arg(o) for o in declared_outputs(self.graph)]
        return list(self._output_args)

    def get_providers(self) -> list[str]:
        """["EdgewiseExecutionProvider"]. Mirrors onnxruntime.InferenceSession.get_providers."""
        return ["EdgewiseExecutionProvider"]

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """Runs the model. Mirrors onnxruntime.InferenceSession.run.

        Args:
            output_names: names of the outputs to compute; None: all.
            input_feed: {name of an input: value}. A tensor is a NumPy array, an edgewise.Array, a
                buffer or nested lists; a tensor of strings a NumPy array or nested lists of str; a
                sequence a list; a map a dict; an optional its value or None.
            run_options: RunOptions, or None.

        Returns:
            The outputs in the order of output_names. Tensors are NumPy arrays or edgewise.Array,
            tensors of strings NumPy arrays of objects or nested lists, sequences lists, maps dicts,
            and an optional without a value is None.

        Raises:
            InputError: a name, type, rank or dimension does not match the model.
            ModelError: a node cannot run with its inputs, or a limit is exceeded.
            UnsupportedOp: Edgewise does not have an operator.
            OutOfMemory: memory runs out, or a limit is exceeded.
            Aborted: `terminate` or `max_run_seconds` ended the run.

            The session can be used again after an error.
        """
        if (
            run_options is None
            and self.max_run_seconds is None
            and (outputs := self.direct.run(output_names, input_feed)) is not None
        ):
            return outputs
        feeds = self._check_feeds(input_feed)
        names = self._check_names(output_names)
        reason = self._reason(run_options)
        seed = check_seed(getattr(run_options, "seed", None), "run_options.seed")
        given = {name: v.key for name, v in feeds.items()}
        with self.lock:
            if self.busy:
                raise EngineError(
                    "this thread is already running this session",
                    self.graph.name or "InferenceSession",
                    "Do not run models in a signal handler.",
                )
            try:
                self.busy = True
                program = self.programs.get(names)
                if program is None:
                    program = self.programs[names] = SplitGraph(self.graph, names=names)
                if seed is None and self.seed is not None:
                    seed = seed_of_run(self.seed, self.runs)
                self.runs += 1
                with self.ends.watch(reason):
                    values = self.driver.start(program, feeds, seed)
                self.direct.learn(output_names, program, given, values)
                return [to_caller(v) for v in values]
            finally:
                feeds = values = None  # type: ignore[assignment]  # their memory can be freed
                self.busy = False
                self.pool.trim()

    def _check_names(self, output_names: Any) -> tuple[str, ...]:
        """The names of the outputs to compute. Raises InputError."""
        if isinstance(output_names, str) or not isinstance(output_names, (list, tuple, type(None))):
            raise InputError(
                f"a {type(output_names).__name__} is not a list of names",
                "output_names",
                "Pass a list of output names, or None for all.",
            )
        for n in output_names or ():
            if not isinstance(n, str) or n not in self.outputs:
                raise InputError(
                    f"the model has no output '{n}'",
                    "output_names",
                    f"It has: {', '.join(sorted(self.outputs))}.",
                )
        return tuple(output_names or [o.name for o in self.graph.outputs])

    def _reason(self, options: Any) -> Callable[[], Exception | None] | None:
        """A function that returns the error with which a run with these options must end, or None;
        None if nothing can end the run. Raises InputError.
        """
        if options is not None and not hasattr(options, "terminate"):
            raise InputError(
                f"expected RunOptions, got {type(options).__name__}",
                "run_options",
                "Pass RunOptions, or None.",
            )
        seconds, where = self.max_run_seconds, self.graph.name or "graph"
        if options is None and seconds is None:
            return None
        end = None if seconds is None else monotonic() + seconds

        def reason() -> Aborted | None:
            if options is not None and options.terminate:
                return Aborted("RunOptions.terminate is set", where, "Clear it to run again.")
            if end is not None and monotonic() > end:
                return Aborted(
                    f"the run took longer than {seconds} s",
                    where,
                    "Raise SessionOptions.max_run_seconds, or check what makes it long.",
                )
            return None

        return reason

    def _check_feeds(self, input_feed: Any) -> dict[str, RunValue]:
        """Converts the inputs of a run. Raises InputError."""
        feeds: dict[str, RunValue] = {}
        if not hasattr(input_feed, "items"):
            raise InputError(
                f"expected a dict of inputs, got {type(input_feed).__name__}",
                "input_feed",
                "Pass {input name: array}.",
            )
        for name, x in input_feed.items():
            info = self.inputs.get(name) if isinstance(name, str) else None
            if info is None:
                raise InputError(
                    f"the model has no input '{name}'",
                    "input_feed",
                    f"It has: {', '.join(self.inputs)}.",
                )
            feeds[name] = from_caller(x, info)
        missing = [n for n in self.inputs if n not in feeds]
        if missing:
            raise InputError(f"missing: {', '.join(missing)}", "input_feed", "Feed every input.")
        return feeds

    def profile(
        self,
        input_feed: Mapping[str, Any] | None = None,
        runs: int = 5,
        output_names: Sequence[str] | None = None,
    ) -> Profile:
        """Measures the time of each step.

        Args:
            input_feed: see `run`. None: the profile records the runs in a `with` block:
                `with session.profile() as p: session.run(None, feeds)`.
            runs: number of runs, after a first run that is not recorded.
            output_names: see `run`.

        Returns:
            the profile: `print(p)`, `p.save("trace.json")` (for Perfetto)

        Raises:
            As run.
        """
        p = Profile(self.engine, [self.watch])
        if input_feed is None:
            return p
        self.run(output_names, input_feed)
        with p:
            for _ in range(runs):
                self.run(output_names, input_feed)
        return p

    def free(self) -> None:
        """Frees all engine memory of this session, after the run of another thread. A later run
        loads and compiles again.
        """
        with self.lock:
            self._free()

    def _free(self) -> None:
        self.direct.clear()
        for p in self.programs.values():
            p.free()
        self.driver.free()
        self.pool.close()
        self.pool = Pool(self.device, self.budget)
        self.store.free()

    def __del__(self) -> None:
        try:
            # Without the lock: the session is unreachable, and finalizers must not wait.
            self._free()
        except Exception:
            pass


def _check_options(options: Any, providers: Any) -> None:
    """Checks session options, and a list of providers: names, or pairs of a name and options.

    Raises:
        InputError: a value has a wrong type or is out of range.
    """
    if options is not None and not hasattr(options, "intra_op_num_threads"):
        raise InputError(
            f"expected SessionOptions, got {type(options).__name__}",
            "sess_options",
            "Pass SessionOptions, or None.",
        )
    for name, least in (
        ("intra_op_num_threads", 0),
        ("max_loop_trips", 1),
        ("max_compilations", 1),
        ("max_memory_bytes", 1),
    ):
        value = getattr(options, name, least)
        if (type(value) is not int or value < least) and not (
            value is None and name == "max_memory_bytes"
        ):
            raise InputError(
                f"{value!r} is not an integer of at least {least}",
                name,
                "Give a number, or leave it as it is.",
            )
    seconds = getattr(options, "max_run_seconds", None)
    if seconds is not None and (type(seconds) not in (int, float) or not seconds > 0):
        raise InputError(
            f"{seconds!r} is not a positive number", "max_run_seconds", "Give seconds, or None."
        )
    if providers is not None and not (
        isinstance(providers, (list, tuple))
        and all(
            isinstance(p[0] if isinstance(p, tuple) and len(p) == 2 else p, str) for p in providers
        )
    ):
        raise InputError(
            f"{providers!r} is not a list of names",
            "providers",
            "Leave it out: there is one provider.",
        )


def _node_arg(info: Info) -> NodeArg:
    return NodeArg(info.name, _type(info), info.shape if info.kind == "tensor" else [])


def _type(info: Info) -> str:
    """A type as ONNX Runtime writes it."""
    if info.kind in ("tensor", "sparse"):
        kind = "tensor" if info.kind == "tensor" else "sparse_tensor"
        return f"{kind}({_ORT_TYPES.get(info.dtype, info.dtype)})"
    inner = _type(info.elem) if info.elem is not None else "unknown"
    return (
        f"map({_ORT_TYPES.get(info.key_type, info.key_type)},{inner})"
        if info.kind == "map"
        else f"{ {'sequence': 'seq'}.get(info.kind, info.kind) }({inner})"
    )
