"""Options of sessions and runs, with the fields of onnxruntime's classes and Edgewise's own."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ....compiler.session_limits import MAX_COMPILATIONS, MAX_LOOP_TRIPS
from ....errors import InputError, UnsupportedField, list_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class GraphOptimizationLevel(IntEnum):
    """As onnxruntime.GraphOptimizationLevel. Edgewise always optimizes: the level has no effect."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """As onnxruntime.ExecutionMode. A session runs one node after the other, each with all threads:
    the mode has no effect.
    """

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """As onnxruntime.ExecutionOrder. The compiler orders the nodes: this has no effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _UnknownOption(InputError, AttributeError):
    """An option that does not exist: an AttributeError too, for `hasattr`."""


class _Options:
    """Attributes whose names and defaults the class declares; others are refused by name."""

    _of = ""

    def __init__(self) -> None:
        self._config: dict[str, str] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and (
            not hasattr(type(self), name) or callable(getattr(type(self), name))
        ):
            self.__getattr__(name)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        from difflib import get_close_matches

        names = [n for n in dir(type(self)) if not n.startswith("_")]
        near = get_close_matches(name, names, 1)
        raise _UnknownOption(
            f"there is no option '{name}'",
            self._of,
            f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(names)}.",
        )

    def _add_config(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str) or not key:
            raise InputError(f"{key!r}: {value!r} are not two texts", self._of, "Pass texts.")
        self._config[key] = value

    def _get_config(self, key: str) -> str:
        if not isinstance(key, str) or key not in self._config:
            raise _MissingConfig(
                f"{self._of} does not have configuration with key: {key}", "", "Add it first."
            )
        return self._config[key]


class _MissingConfig(InputError, RuntimeError):
    """A configuration key that was not added: a RuntimeError in ONNX Runtime."""


class SessionOptions(_Options):
    """Options of an InferenceSession, as onnxruntime.SessionOptions.

    Attributes that begin with `max_`, and `seed`, are Edgewise's own. Those that begin with `max_`
    limit one run: beyond a limit it ends with an error that names the node. An attribute that does
    not exist is refused, both when it is read and when it is set.

    Attributes:
        intra_op_num_threads: threads of the engine; 0: one per core, in the engine of the process.
        enable_profiling: record the times of all runs; `end_profiling` writes them to a file.
        profile_file_prefix: beginning of that file's path; date and time follow.
        optimized_model_filepath: refused when a session is made: Edgewise compiles a model to
            plans, which an .onnx file cannot hold.
        execution_mode, execution_order, graph_optimization_level, inter_op_num_threads,
            enable_cpu_mem_arena, enable_mem_pattern, enable_mem_reuse, log_severity_level,
            log_verbosity_level, logid, use_deterministic_compute, use_per_session_threads: of
            ONNX Runtime, without effect.
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
            in their second run, and so on, in Python and in pages. None: that of
            `edgewise.set_seed`, or unpredictable numbers.
    """

    _of = "SessionOptions"

    intra_op_num_threads: int = 0
    max_loop_trips: int = MAX_LOOP_TRIPS
    max_compilations: int = MAX_COMPILATIONS
    max_memory_bytes: int | None = None
    max_run_seconds: float | None = None
    seed: int | None = None
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    optimized_model_filepath: str = ""
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True

    def __init__(self) -> None:
        super().__init__()
        self._dimensions: dict[str, int] = {}  # by name
        self._denotations: dict[str, int] = {}
        self._initializers: dict[str, Any] = {}
        self._external: dict[str, Any] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps a text. None of ONNX Runtime's keys has an effect."""
        self._add_config(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """A text that was added. Raises RuntimeError if there is none."""
        return self._get_config(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Gives a free dimension of the model's inputs a fixed size.

        Args:
            name: of the dimension.
            size: other sizes are refused in runs.
        """
        self._dimensions[_name(name, "free dimension")] = _size(size, name)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """As `add_free_dimension_override_by_name`, for the dimensions that the file denotes so,
        such as DATA_BATCH.
        """
        self._denotations[_name(denotation, "denotation")] = _size(size, denotation)

    def add_initializer(self, name: str, value: Any) -> None:
        """Replaces an initializer of the model.

        Args:
            name: of the initializer.
            value: OrtValue or array of the same type and shape. It is read when a session is made.
        """
        self._initializers[_name(name, "initializer")] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Replaces initializers whose data are in other files, which are then not opened.

        Args:
            names: of the initializers.
            values: an OrtValue or array for each.
        """
        names = list_of(names, "names", "a list of names")
        values = list_of(values, "values", "a list of arrays or OrtValues")
        if len(names) != len(values):
            raise InputError(
                f"{len(names)} names and {len(values)} values",
                "add_external_initializers",
                "Pass one value for each name.",
            )
        for name, value in zip(names, values):
            self._external[_name(name, "initializer")] = value

    def register_custom_ops_library(self, path: str) -> None:
        """Raises UnsupportedField: libraries of operators are made for ONNX Runtime."""
        raise UnsupportedField(
            "Edgewise does not load libraries of operators",
            path,
            "Define the operator as a function in the model (FunctionProto).",
        )


class RunOptions(_Options):
    """Options of one run, as onnxruntime.RunOptions. Other attributes are refused.

    Attributes:
        terminate: if another thread sets it to True, the runs with these options end with Aborted
            within about 0.1 s.
        seed: 0 to 2^63 - 1, determines the random numbers of this run; None: see
            SessionOptions.seed.
        only_execute_path_to_fetches, log_severity_level, log_verbosity_level, logid: of ONNX
            Runtime, without effect: only what the outputs depend on is computed in any case.
    """

    _of = "RunOptions"

    terminate: bool = False
    seed: int | None = None
    only_execute_path_to_fetches: bool = False
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps a text. None of ONNX Runtime's keys has an effect."""
        self._add_config(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """A text that was added. Raises RuntimeError if there is none."""
        return self._get_config(key)


def _name(name: object, kind: str) -> str:
    if not isinstance(name, str) or not name:
        raise InputError(f"{name!r} is not the name of a {kind}", "SessionOptions", "Pass a name.")
    return name


def _size(size: object, name: str) -> int:
    if type(size) is not int or size < 0:
        raise InputError(f"{size!r} is not a size", f"free dimension '{name}'", "Pass an integer.")
    return size


def check_options(options: Any) -> None:
    """Checks session options; onnxruntime's own are accepted too.

    Raises:
        InputError: a value has a wrong type or is out of range.
        UnsupportedField: an option promises what Edgewise does not do.
    """
    if options is None:
        return
    if not hasattr(options, "intra_op_num_threads"):
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
    if seconds is not None and (
        type(seconds) not in (int, float) or not seconds > 0 or math.isnan(seconds)
    ):
        raise InputError(
            f"{seconds!r} is not a positive number", "max_run_seconds", "Give seconds, or None."
        )
    if getattr(options, "optimized_model_filepath", ""):
        raise UnsupportedField(
            "Edgewise compiles a model to plans, which an .onnx file cannot hold",
            "SessionOptions.optimized_model_filepath",
            "Leave it out; `edgewise build` makes a package for pages.",
        )
