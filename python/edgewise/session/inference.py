"""`InferenceSession`: ONNX Runtime's way to run a model."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from ..engine import Ends, Owner, default_engine, open_engine
from ..errors import Aborted, EngineError, InputError
from ..ir import Graph
from ..onnx import as_source, read_model
from ..profile import Profile, Watch
from ..seeds import check_seed, seed_of_run
from ..session_limits import MAX_COMPILATIONS, MAX_LOOP_TRIPS
from .budget import Budget
from .direct import DirectRuns
from .driver import Driver
from .feeds import from_caller, to_caller
from .memory import Pool
from .split_graph import SplitGraph
from .weights import WeightStore

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
    """An input or output of a model, as onnxruntime.NodeArg: `name`, `type` like "tensor(float)",
    `shape` with ints and names.
    """

    name: str
    type: str
    shape: list


class SessionOptions:
    """Accepted for compatibility with onnxruntime.SessionOptions.

    `intra_op_num_threads`: threads of the engine, 0 = all cores.

    What one run may take at most (fields of Edgewise's own; a run that would take more ends in an
    EdgewiseError that names the node):

    max_loop_trips: how often all loops may go round, together (default 2^20). ModelError.
    max_compilations: how many plans may be compiled, as for loops that make their tensors longer in
    each round (default 2^14; one of many inputs counts for several). ModelError. max_memory_bytes:
    bytes of the values between plans, strings and lists of the host included, and of the
    activations within a plan (default: a quarter of this machine's memory for the former,
        but 2^30 for strings and lists; all of it for the latter). OutOfMemory.
    max_run_seconds: wall-clock time (default None: any). Aborted.

    `seed`: an integer from 0 to 2^63 - 1 that the random numbers of all runs follow from (operators
    like RandomNormal without a seed of their own): sessions with the same seed draw the same
    numbers in their first run, in their second run, and so on, here and in a page. Default None:
    other numbers each time.
    """

    def __init__(self):
        self.intra_op_num_threads = 0
        self.max_loop_trips = MAX_LOOP_TRIPS
        self.max_compilations = MAX_COMPILATIONS
        self.max_memory_bytes = None
        self.max_run_seconds = None
        self.seed = None


class RunOptions:
    """Accepted for compatibility with onnxruntime.RunOptions.

    `terminate`: set by another thread, it ends the runs that were given these options, within some
    0.1 s (Aborted).

    `seed`: an integer from 0 to 2^63 - 1 that this run's random numbers follow from, whatever the
    session's is. Default None: as SessionOptions.seed says.
    """

    def __init__(self):
        self.terminate = False
        self.seed = None


class InferenceSession(Owner):
    """Runs an ONNX model (mirrors onnxruntime.InferenceSession).

    A session may be used from several threads at once: its runs queue, each from its feeds to its
    outputs. Sessions that share an engine, as all do by default, take turns with it, plan by plan;
    each run uses all of its threads. Sessions with engines of their own (intra_op_num_threads > 0,
    or `engine`) run at the same time. So a server with many requests for small models is quickest
    with a session for each of its threads and intra_op_num_threads = 1. After a fork a session goes
    on in both processes.

    Args:
        path_or_bytes: path of an .onnx file, its bytes (in Pyodide also a JavaScript buffer), or a
        Source. sess_options: SessionOptions; intra_op_num_threads > 0 gives the session an engine
        of its own with that many threads. providers, provider_options: accepted for compatibility;
        there is one provider. engine: an edgewise Engine; default: the process's.
    Raises:
        ModelError: the file is broken. InputError: an option is of a wrong type. UnsupportedOp:
        when a run needs what is not there (the session stays usable).
    """

    MAX_PLANS = (
        32  # shapes for which plans are kept, of each part of the model that is compiled as a whole
    )

    def __init__(
        self,
        path_or_bytes,
        sess_options=None,
        providers=None,
        provider_options=None,
        *,
        engine=None,
    ):
        _check_options(sess_options, providers)
        if isinstance(path_or_bytes, Graph):
            self.graph = path_or_bytes
        else:
            self.graph = read_model(as_source(path_or_bytes))
        threads = getattr(
            sess_options, "intra_op_num_threads", 0
        )  # onnxruntime's own SessionOptions are taken, too
        self.engine = engine or (open_engine(threads) if threads else default_engine())
        self.device = self.engine.device
        self.start_lock()
        self.busy = False  # in a run: what a signal handler must not begin another in
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
        self.programs, self.direct = {}, DirectRuns(self)
        self.seed, self.runs = (
            check_seed(getattr(sess_options, "seed", None), "sess_options.seed"),
            0,
        )
        self.inputs = {i.name: i for i in self.graph.input_names()}
        self.outputs = {o.name: o for o in self.graph.outputs}

    @property
    def plans(self):
        """{key: session.compiled.Compiled} of the plans that are kept, those of loop bodies and of
        single operators between plans included. Not while another thread runs the session.
        """
        return {
            (part, key): compiled
            for p in (*self.programs.values(), *self.driver.ops.values())
            for part in p.every_part()
            for key, (_, compiled) in part.plans.items()
            if compiled is not None
        }

    def get_inputs(self):
        """[NodeArg] of what is to be fed, as onnxruntime's."""
        return [_node_arg(i) for i in self.graph.input_names()]

    def get_outputs(self):
        """[NodeArg], as onnxruntime's."""
        return [_node_arg(o) for o in self.graph.outputs]

    def get_providers(self):
        """["EdgewiseExecutionProvider"]: there is one, as onnxruntime's."""
        return ["EdgewiseExecutionProvider"]

    def run(self, output_names, input_feed, run_options=None):
        """Runs the model.

        Args:
            output_names: list of output names, or None for all.
            input_feed: {input name: array}; NumPy arrays, edgewise.Array, buffers or nested lists.
            Strings are NumPy arrays or nested lists of str, a sequence is a list,
                a map a dict, an optional None or what it holds.
            run_options: RunOptions, or None.
        Returns:
            list of arrays in the order of output_names; lists, dicts and None where outputs are
            sequences, maps and optionals without a value. Strings come as NumPy arrays of objects,
            without NumPy as nested lists.
        Raises:
            InputError: a name, type, rank or dimension does not fit. ModelError: a node cannot be
            run with what it is given, or loops do not end. The session stays usable.
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
                    "this thread is amid a run of this session",
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
                feeds = values = None
                self.busy = False
                self.pool.trim()

    def _check_names(self, output_names):
        """Names of outputs as a tuple. Raises InputError."""
        if isinstance(output_names, str) or not isinstance(output_names, (list, tuple, type(None))):
            raise InputError(
                f"a {type(output_names).__name__} is no list of names",
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
        return tuple(output_names or self.outputs)

    def _reason(self, options):
        """A function that tells why a run with these options is to end (an error) or that it is not
        (None); None where it never is. Raises InputError.
        """
        if options is not None and not hasattr(options, "terminate"):
            raise InputError(
                f"a {type(options).__name__} has no options of a run",
                "run_options",
                "Pass RunOptions, or None.",
            )
        seconds, where = self.max_run_seconds, self.graph.name or "graph"
        if options is None and seconds is None:
            return None
        end = None if seconds is None else monotonic() + seconds

        def reason():
            if options is not None and options.terminate:
                return Aborted(
                    "the caller's run options ask for an end",
                    where,
                    "Unset their `terminate` to run again.",
                )
            if end is not None and monotonic() > end:
                return Aborted(
                    f"the run took longer than {seconds} s",
                    where,
                    "Raise SessionOptions.max_run_seconds, or check what makes it long.",
                )
            return None

        return reason

    def _check_feeds(self, input_feed):
        feeds = {}
        if not hasattr(input_feed, "items"):
            raise InputError(
                f"a {type(input_feed).__name__} is no table of inputs",
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

    def profile(self, input_feed=None, runs=5, output_names=None):
        """Where the time goes, step by step.

        Args:
            input_feed: as run's. None: the profile watches what is run in a `with` block: `with
            session.profile() as p: session.run(None, feeds)`. runs: how often it is run, after a
            first run that is not counted. output_names: as run's.
        Returns:
            profile.Profile: `print(p)`, `p.save("trace.json")` (for Perfetto).
        Raises:
            as run.
        """
        p = Profile(self.engine, [self.watch])
        if input_feed is None:
            return p
        self.run(output_names, input_feed)
        with p:
            for _ in range(runs):
                self.run(output_names, input_feed)
        return p

    def free(self):
        """Gives back all engine memory of this session, once a run of it in another thread has
        ended. A later run loads and compiles again.
        """
        with self.lock:
            self._free()

    def _free(self):
        self.direct.clear()
        for p in self.programs.values():
            p.free()
        self.driver.free()
        self.pool.close()
        self.pool = Pool(self.device, self.budget)
        self.store.free()

    def __del__(self):
        try:
            # without the lock: nobody can run it any more, and finalizers must not wait
            self._free()
        except Exception:
            pass


def _check_options(options, providers):
    """Raises InputError for what are no session options, and no list of names of providers (with
    options of each, if need be).
    """
    if options is not None and not hasattr(options, "intra_op_num_threads"):
        raise InputError(
            f"a {type(options).__name__} has no options of a session",
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
                f"{value!r} is no whole number from {least} on",
                name,
                "Give a number, or leave it as it is.",
            )
    seconds = getattr(options, "max_run_seconds", None)
    if seconds is not None and (type(seconds) not in (int, float) or not seconds > 0):
        raise InputError(
            f"{seconds!r} is no number above 0", "max_run_seconds", "Give seconds, or None."
        )
    if providers is not None and not (
        isinstance(providers, (list, tuple))
        and all(
            isinstance(p[0] if isinstance(p, tuple) and len(p) == 2 else p, str) for p in providers
        )
    ):
        raise InputError(
            f"{providers!r} is no list of names",
            "providers",
            "Leave it out: there is one provider.",
        )


def _node_arg(info):
    return NodeArg(info.name, _type(info), info.shape if info.kind == "tensor" else [])


def _type(info):
    """As onnxruntime writes a type."""
    if info.kind == "tensor":
        return f"tensor({_ORT_TYPES.get(info.dtype, info.dtype)})"
    inner = _type(info.elem) if info.elem is not None else "unknown"
    return (
        f"map({_ORT_TYPES.get(info.key_type, info.key_type)},{inner})"
        if info.kind == "map"
        else f"{ {'sequence': 'seq'}.get(info.kind, info.kind) }({inner})"
    )
