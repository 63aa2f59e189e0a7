"""What a page's InferenceSession asks of Python: how the model falls into compiled parts and nodes
between them, a plan of a part for the shapes that come, and now and then one node that the page has
no function for. The page runs everything else itself.

Called in the compiler's worker (web/src/compiler/index.ts); web/src/worker/inference/python.ts is
the other end.
"""

from __future__ import annotations

import json

from ..compile import CONSTANTS, describe_plan, describe_values, described_shape, inference_package
from ..declare.dtypes import CODE, NAME, STRING, bytes_for, unpack
from ..declare.symbolic import product
from ..declare.values import NOTHING, Map, Nothing, RunTensor, Sequence, StringTensor
from ..errors import InputError
from ..onnx import read_model
from ..plan import compile_graph
from ..plan.notes import NOTES
from ..profile import Watch
from .budget import Budget
from .compiled import Known
from .described import Programs
from .direct import DirectRuns
from .driver import Driver
from .memory import Pool
from .split_graph import Scope, Split
from .weights import WeightStore

_model = None  # a compiler's worker serves one session


class _Wanted(Exception):
    """A shape depends on numbers that the page has not sent."""


class _Fed(RunTensor):
    """A tensor that the page has, with its numbers where it sent them."""

    @property
    def numbers(self):
        if self.data is None:
            raise _Wanted
        if self._numbers is None:
            self._numbers = unpack(self.dtype, self.data, self.count)
        return self._numbers


class _Compiling:
    """Stands for the Driver where a part is compiled for the page: `made` is the latest plan with
    its bound graph.
    """

    MAX_PLANS = 0

    def __init__(self):
        self.session, self.runs, self.made, self.budget = (
            self,
            0,
            None,
            Budget(),
        )  # the page counts itself

    def compile_part(self, graph, tensors, known, names, registers=()):
        """As compiled.compile_part, without loading the plan."""
        passed = Known()
        shapes = {n: list(v.shape) for n, v in tensors.items()}
        dtypes = {n: v.dtype for n, v in tensors.items()}
        self.made = compile_graph(
            graph,
            shapes,
            dtypes,
            known,
            outputs=names,
            transform=passed.take,
            run_seed=True,
            registers=registers,
            max_bytes=self.budget.max_arena_bytes,
        )
        return passed, None


class _Session:
    """What a Driver needs, for nodes that only Python can run.

    Its engine holds what these nodes compute with, never the model.
    """

    MAX_PLANS = 32

    def __init__(self):
        from ..engine import Ends, default_engine

        self.engine = default_engine()
        self.device = self.engine.device
        self.store, self.watch, self.ends, self.budget = (
            WeightStore(self.device),
            Watch(),
            Ends(),
            Budget(),
        )
        self.pool, self.direct = Pool(self.device, self.budget), DirectRuns(self)


class _Model:
    def __init__(self, files, name):
        self.graph = read_model(files[name])
        self.package = inference_package(self.graph, files)
        self.programs = Programs(self.graph, self.package)
        self.compiling, self.driver = _Compiling(), None
        self.sent = 0  # of the package's weights

    def fresh_weights(self):
        """Weights that the page has not been told of yet."""
        fresh = self.package.manifest["weights"][self.sent :]
        self.sent += len(fresh)
        return fresh

    def program(self, origin):
        """A program that the page is going to run. origin: as in described.Programs.program."""
        return {
            **self.programs.describe(self.programs.program(origin)),
            "weights": self.fresh_weights(),
        }, {}

    def part(self, program, part, values, done, run, file, fixed=False):
        """A plan of a part, as JSON and blobs.

        Args:
            program, part: their names. values: {input: null for what is no tensor of numbers, else
            [type, shape] or [type, shape, hex of
                its bytes]}. done: indices of the program's nodes that this run has computed. run:
                its number. file: what the plan is called. fixed: the page could not load the last
            plan, which was one for a range of lengths: there are to be none such for these inputs.
        Returns:
            {"plan": its description with `passed` and `numbers`, "needs", "askers", "weights"};
            {"needs"}: inputs whose bytes are to be sent along; or {"split": the program, which
            falls into other units than thought, "rest": what is left of this run}.
        """
        p, one = self.programs.programs[program], self.programs.part(program, part)
        fed = {
            n: v and _Fed(CODE[v[0]], v[1], bytes.fromhex(v[2]) if len(v) > 2 else None)
            for n, v in values.items()
        }
        if fixed and one.latest is not None:
            one.fix(one.latest)
        self.compiling.runs = run
        self.compiling.budget.start()
        index = {id(n): i for i, n in enumerate(p.nodes)}
        try:
            other = {n for n, v in fed.items() if v is None}
            if other:
                one.not_plain(other)
            passed = one.compile(self.compiling, [fed[n] for n in one.inputs], None)[0][0]
        except _Wanted:
            return {"needs": one.needs}, {}
        except Split:
            p.units = p.split(p.nodes)
            rest = p.split([n for n in p.nodes if index[id(n)] not in done])
            return {
                "split": self.programs.describe(program),
                "rest": self.programs.units(p, rest),
                "weights": self.fresh_weights(),
            }, {}
        plan, bound = self.compiling.made
        self.compiling.made = None
        described, blobs = self._plan(one, plan, bound, fed, file)
        described["passed"] = passed.passed
        described["numbers"] = {
            n: [NAME[v.dtype], list(v.shape), bytes(v.bytes()).hex()]
            for n, v in passed.numbers.items()
        }
        asked = [index[id(n)] for n in one.askers]
        return {
            "plan": described,
            "needs": one.needs,
            "askers": asked,
            "weights": self.fresh_weights(),
        }, blobs

    def _plan(self, part, plan, bound, fed, file):
        names, latest = list(bound.outputs), part.latest
        shapes, dtypes = (
            {n: list(v.shape) for n, v in fed.items()},
            {n: v.dtype for n, v in fed.items()},
        )
        if latest is not None:
            shapes = dict(zip(part.inputs, latest.symbolic()))
        register = {} if latest is None else {"register": [latest.low, latest.high]}
        if not names:  # nothing is left to run
            return {
                "inputs": {n: [NAME[dtypes[n]], described_shape(s)] for n, s in shapes.items()},
                "outputs": {},
                "slots": [],
                **register,
            }, {}
        known = len(self.package.manifest["weights"])
        described = describe_plan(self.package, plan, bound, names, shapes, dtypes, file) | register
        manifest, blobs = self.package.manifest, {file: self.package.blobs.pop(file)}
        manifest["inference"]["plans"].clear()
        self.package.labels.pop(file, None)
        blobs[NOTES] = self.package.blobs.pop(NOTES)  # of this plan alone
        if any(w["file"] == CONSTANTS for w in manifest["weights"][known:]):
            blobs[CONSTANTS] = self.package.blobs[CONSTANTS]
        return described, blobs

    def node(self, program, node, values, left, files):
        """Runs one node that the page has no function for.

        Args:
            values: {name that it reads: as `_decoded`}. left: {"max_memory_bytes",
            "max_loop_trips", "max_compilations"} that the page's run
                may still take. files: the bytes of the values.
        Returns:
            {"outputs": {name: as `_encoded`}, "trips", "compilations": how many there were}.
        """
        if self.driver is None:
            session = _Session()
            self.driver = Driver(session, session.budget)
        p = self.programs.programs[program]
        one = p.nodes[node]
        driver = self.driver
        driver.runs, driver.depth = driver.runs + 1, 0
        driver.budget.limit(**left)
        driver.budget.start()
        scope = Scope({n: _decoded(v, files) for n, v in values.items()})
        before = set(scope.values)
        driver.host(p, one, scope)
        blobs = {}
        outputs = {n: _encoded(v, blobs) for n, v in scope.values.items() if n not in before}
        driver.pool.trim()
        return {
            "outputs": outputs,
            "trips": driver.budget.trips,
            "compilations": driver.budget.compilations,
        }, blobs


def _decoded(v, files):
    """A value that the page sent: {"tensor": [type, shape, file]}, {"strings": [...], "shape"},
    {"sequence": [...]}, {"map": [[key, value], ...], "key", "value"} or null.
    """
    if v is None:
        return NOTHING
    if "tensor" in v:
        dtype, shape, file = v["tensor"]
        code = CODE[dtype]
        data = bytes(files[file].read(0, files[file].size)) if file is not None else b""
        if len(data) != bytes_for(code, product(shape)):
            raise InputError(
                f"{len(data)} bytes for {dtype}{shape}",
                "a value of the page",
                "This is a mistake in Edgewise; please report it.",
            )
        return RunTensor(code, shape, data)
    if "strings" in v:
        return StringTensor(v["shape"], v["strings"])
    if "sequence" in v:
        return Sequence(_decoded(x, files) for x in v["sequence"])
    key, value = CODE[v["key"]], CODE[v["value"]]
    of = (
        (lambda x: x)
        if value == STRING
        else float
        if v["value"].startswith(("float", "bfloat"))
        else int
    )
    return Map({(k if key == STRING else int(k)): of(x) for k, x in v["map"]}, key, value)


def _encoded(v, blobs):
    """The inverse of `_decoded`."""
    if isinstance(v, Nothing):
        return None
    if isinstance(v, StringTensor):
        return {"strings": list(v.strings), "shape": v.shape}
    if isinstance(v, Sequence):
        return {"sequence": [_encoded(x, blobs) for x in v]}
    if isinstance(v, Map):
        return {
            "map": [[str(k), str(x)] for k, x in v.items()],
            "key": NAME[v.key_type],
            "value": NAME[v.value_type],
        }
    file = None
    if v.nbytes:
        file = str(len(blobs))
        blobs[file] = bytes(v.bytes())
    return {"tensor": [NAME[v.dtype], v.shape, file]}


def call(files, options):
    """files: {name: Source}: of "open" the model's, of "node" the bytes of tensors.

    Returns (JSON, {name: bytes}).

    options["call"]: "open" (model_file, kept: descriptions of programs from an earlier visit),
    "program" (origin), "part" or "node" (arguments as _Model's methods).
    """
    global _model
    what = options["call"]
    if what == "open":
        _model = _Model(files, options["model_file"])
        for kept in options.get("kept", ()):
            _model.programs.restore(kept)
        return (
            json.dumps(
                {
                    "inputs": describe_values(_model.graph.input_names()),
                    "outputs": describe_values(_model.graph.outputs),
                }
            ),
            {},
        )
    if _model is None:
        raise InputError(
            "no model has been opened",
            "InferenceSession",
            "This is a mistake in Edgewise; please report it.",
        )
    if what == "program":
        described, blobs = _model.program(options["origin"])
    elif what == "part":
        described, blobs = _model.part(
            *(options[k] for k in ("program", "part", "values", "done", "run", "file", "fixed"))
        )
    else:
        described, blobs = _model.node(
            options["program"], options["node"], options["values"], options["left"], files
        )
    return json.dumps(described), blobs
