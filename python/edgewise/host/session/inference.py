"""`InferenceSession`, with the interface of onnxruntime.InferenceSession."""

from __future__ import annotations

import os
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...compiler.bind import check_operators, declared_outputs, overridden
from ...compiler.ir import Graph
from ...compiler.onnx import as_source, read_model
from ...compiler.session_limits import MAX_COMPILATIONS, MAX_LOOP_TRIPS
from ...compiler.targets import target_of
from ...errors import Aborted, EdgewiseError, EngineError, InputError, memory_in_words, wrong_type
from ...seeds import check_seed, seed_of_run
from ..arguments import Described, check_engine
from ..engine import Ends, Owner, default_engine
from ..hub import local_path
from ..profile import Profile, Watch
from .budget import Budget
from .direct import DirectRuns
from .driver import Driver
from .face.adapted import adapt, external_tensors
from .face.environment import (
    PROVIDERS,
    checked_providers,
    default_seed,
    engine_of,
    get_all_providers,
)
from .face.node_arg import NodeArg, node_arg
from .face.options import SessionOptions, check_options
from .face.ort_value import IOBinding, OrtValue, arrays_of, plain
from .face.recorder import Recorder
from .feeds import from_caller, to_caller
from .memory import Pool
from .split_graph import SplitGraph
from .weights import WeightStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    from ...compiler.ir import Info
    from ...compiler.onnx import Source
    from ...model_metadata import ModelMetadata
    from ..engine import Engine
    from .compiled import Compiled
    from .feeds import RunValue


class InferenceSession(Described, Owner):
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
        providers, provider_options: names of providers, or pairs of a name and options, which have
            no effect. The first that is available decides: "CPUExecutionProvider", or
            "WebGpuExecutionProvider" (needs `edgewise[gpu]`). There is a warning for the others.
        engine: the Engine to use, instead of the providers'; by default that of the process.

    Raises:
        ModelError: the file is damaged or not valid ONNX; NoSuchFile if there is none.
        UnsupportedOp: the model needs operators that Edgewise does not have; all are named.
        InputError: an option has a wrong type.
        UnsupportedField: an option promises what Edgewise does not do.
    """

    # Number of plans (for different shapes) that are kept for each part of the model.
    MAX_PLANS = 32

    @memory_in_words
    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes | bytearray | memoryview | Source | Graph,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        engine: Engine | None = None,
    ) -> None:
        check_options(sess_options)
        names, _ = checked_providers(providers, provider_options)
        if isinstance(path_or_bytes, Graph):
            self.graph = path_or_bytes
        else:
            if isinstance(path_or_bytes, (str, os.PathLike)):
                path_or_bytes = local_path(path_or_bytes)
            self.graph = read_model(as_source(path_or_bytes), external_tensors(sess_options))
            check_operators(self.graph)
        adapt(self.graph, sess_options)
        self.options = SessionOptions() if sess_options is None else sess_options
        self.inputs = {i.name: i for i in self.graph.input_names()}
        self.overridable = {i.name: i for i in self.graph.overridable()}
        self.outputs = {o.name: o for o in self.graph.outputs}
        self._output_args: list[NodeArg] | None = None
        self.start_lock()
        self.busy = False  # whether a run is active; a signal handler must not start another one
        self.ends, self.watch = Ends(), Watch()
        # getattr, since onnxruntime's own SessionOptions are accepted too.
        self.max_run_seconds = getattr(sess_options, "max_run_seconds", None)
        self.budget = Budget(
            getattr(sess_options, "max_memory_bytes", None),
            getattr(sess_options, "max_loop_trips", MAX_LOOP_TRIPS),
            getattr(sess_options, "max_compilations", MAX_COMPILATIONS),
        )
        seed = getattr(sess_options, "seed", None)
        self.seed = check_seed(default_seed() if seed is None else seed, "sess_options.seed")
        self.runs = 0
        self._start(engine or engine_of(names, self.options.intra_op_num_threads))
        self._recorder = Recorder(self) if self.options.enable_profiling else None

    def _described(self) -> Sequence[tuple[str, object]]:
        return [("inputs", list(self.inputs)), ("outputs", list(self.outputs))]

    def _start(self, engine: Engine | None) -> None:
        """Prepares for runs on an engine; None: that of the process."""
        check_engine(engine)
        self.engine = engine or default_engine()
        self.device = self.engine.device
        self.target = target_of(self.device)
        self.store = WeightStore(self.device)
        self.pool = Pool(self.device, self.budget)
        self.driver = Driver(self, self.budget)
        # by names of the outputs, and of the initializers that are fed
        self.programs: dict[tuple[tuple[str, ...], frozenset[str]], SplitGraph] = {}
        self.direct = DirectRuns(self)

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
        return [node_arg(i) for i in self.graph.input_names()]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs. Mirrors onnxruntime.InferenceSession.get_outputs.

        Types and shapes that the file does not declare are inferred where they follow from the
        inputs.
        """
        if self._output_args is None:
            self._output_args = [node_arg(o) for o in declared_outputs(self.graph)]
        return list(self._output_args)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The initializers that may be fed as well. Mirrors onnxruntime's method."""
        return [node_arg(i) for i in self.overridable.values()]

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says about its model: `custom_metadata_map`, `producer_name` and so on.
        Mirrors onnxruntime.InferenceSession.get_modelmeta.
        """
        return self.graph.about

    def get_session_options(self) -> Any:
        """The SessionOptions. Mirrors onnxruntime.InferenceSession.get_session_options."""
        return self.options

    def get_providers(self) -> list[str]:
        """["CPUExecutionProvider"], after "WebGpuExecutionProvider" on a GPU. Mirrors
        onnxruntime.InferenceSession.get_providers.
        """
        return list(PROVIDERS[self.device.target])

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """{name: {}} of the providers. Mirrors onnxruntime.InferenceSession's method."""
        return {name: {} for name in self.get_providers()}

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Any] | None = None
    ) -> None:
        """Moves the session to the device of the first provider that is available. Mirrors
        onnxruntime.InferenceSession.set_providers.

        Raises:
            EngineError: there is no such provider.
        """
        names, _ = checked_providers(providers, provider_options)
        unknown = set(names) - set(get_all_providers())
        if unknown:
            raise EngineError(
                f"Unknown Provider Type: {', '.join(sorted(unknown))}",
                "set_providers",
                f"Providers are {', '.join(get_all_providers())}.",
            )
        with self.lock:
            self._free()
            self._start(engine_of(names, self.options.intra_op_num_threads))

    def disable_fallback(self) -> None:
        """Does nothing: a run that fails is not repeated on another device."""

    def enable_fallback(self) -> None:
        """Does nothing: see `disable_fallback`."""

    @memory_in_words
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
        names = self.check_outputs(output_names)
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
                program = self._program(names, given.keys() & self.overridable.keys())
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

    def _program(self, names: tuple[str, ...], fed: Set[str]) -> SplitGraph:
        """The program that computes outputs. fed: names of the initializers that are fed."""
        key = names, frozenset(fed)
        if key not in self.programs:
            self.programs[key] = SplitGraph(overridden(self.graph, fed), names=names)
        return self.programs[key]

    def check_input(self, name: Any) -> Info:
        """The input, or initializer that is an input too, of a name. Raises InputError."""
        info = None
        if isinstance(name, str):
            info = self.inputs.get(name) or self.overridable.get(name)
        if info is None:
            raise InputError(
                f"the model has no input '{name}'",
                "input_feed",
                f"It has: {', '.join((*self.inputs, *self.overridable))}.",
            )
        return info

    def check_outputs(self, output_names: Any) -> tuple[str, ...]:
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
            feeds[name] = from_caller(plain(x), self.check_input(name))
        missing = [n for n in self.inputs if n not in feeds]
        if missing:
            raise InputError(
                f"Required inputs ({missing}) are missing from input feed ({list(feeds)})",
                "input_feed",
                "Feed every input.",
            )
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

    def io_binding(self) -> IOBinding:
        """A new IOBinding. Mirrors onnxruntime.InferenceSession.io_binding."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Runs the model with the inputs and outputs of a binding. Mirrors onnxruntime's method."""
        if not isinstance(iobinding, IOBinding):
            raise wrong_type(iobinding, "iobinding", "what session.io_binding() returns")
        iobinding.run(run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[OrtValue]:
        """As `run`, with OrtValues. Mirrors onnxruntime.InferenceSession.run_with_ort_values."""
        feeds = arrays_of(input_dict_ort_values)
        return [OrtValue(v) for v in self.run(output_names, feeds, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], object],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """As `run`, in a thread. Mirrors onnxruntime.InferenceSession.run_async.

        Args:
            output_names, input_feed, run_options: see `run`.
            callback: called in the thread with the outputs, `user_data` and "", or after an error
                with [], `user_data` and its text.
            user_data: what `callback` gets.
        """

        def work() -> None:
            try:
                found, error = self.run(output_names, input_feed, run_options), ""
            except EdgewiseError as e:
                found, error = [], str(e)
            callback(found, user_data, error)

        Thread(target=work).start()

    def end_profiling(self) -> str:
        """Ends what SessionOptions.enable_profiling began. Mirrors onnxruntime's method.

        Returns:
            path of the file with the times, as Chrome trace events; "" if nothing was recorded

        Raises:
            StorageError: it cannot be written.
        """
        recorder, self._recorder = self._recorder, None
        return "" if recorder is None else recorder.end()

    def get_profiling_start_time_ns(self) -> int:
        """When recording began, in nanoseconds since 1970; 0 if it did not. Mirrors
        onnxruntime.InferenceSession.get_profiling_start_time_ns.
        """
        return 0 if self._recorder is None else self._recorder.start

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
