"""`InferenceSession`: ONNX Runtime's way to run a model."""
from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass

from ..arrays import as_input, as_output
from ..bind import RUN_SEED
from ..engine import default_engine, open_engine
from ..errors import InputError, PlanError, UnsupportedOp
from ..ir import Graph, NeedsValue
from ..onnx import as_source, read_model
from ..ops.dtypes import NAME, bytes_for, unpack
from ..ops.symbolic import NotStatic, product
from ..plan import compile_graph
from .weights import WeightStore

_ORT_TYPES = {1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool", 10: "float16", 11: "double", 12: "uint32", 13: "uint64", 16: "bfloat16",
              17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2", 27: "float6e2m3", 28: "float6e3m2"}


MOST_NUMBERS = 1 << 16  # of a tensor that a shape depends on: they become part of a plan's key


@dataclass
class NodeArg:
    """An input or output of a model, as onnxruntime.NodeArg: `name`, `type` like "tensor(float)", `shape` with ints and names."""
    name: str
    type: str
    shape: list


class SessionOptions:
    """Accepted for compatibility with onnxruntime.SessionOptions. `intra_op_num_threads`: threads of the engine, 0 = all cores."""

    def __init__(self):
        self.intra_op_num_threads = 0


class _Compiled:
    """A plan for one set of shapes, in the engine, with its inputs and outputs."""

    def __init__(self, session, plan, bound):
        self.engine, self.plan, self.session = session.engine, plan, session
        try:
            self.loaded = self.engine.load(plan)
        except PlanError as e:  # made a moment ago, not damaged: some step is not what its kernel takes
            raise UnsupportedOp(f"the engine does not take what it becomes ({e.what})", e.where or "graph", "Check the shapes and types that were fed; if they are right, report this model.") from e
        self.buffers, fresh = [], []
        try:
            fresh = session.store.connect(self.loaded)
            self.inputs, self.outputs = {}, {}
            for i, slot in enumerate(plan.slots):
                if slot.kind in ("input", "output"):
                    address = self.engine.alloc(slot.nbytes)
                    self.buffers.append(address)
                    self.loaded.bind(i, address)
                    (self.inputs if slot.kind == "input" else self.outputs)[slot.name] = (address, slot)
            session.store.init(self.loaded, fresh)
        except BaseException:
            session.store.forget(fresh)
            self.free()
            raise
        self.results = {}
        for name, value in bound.outputs.items():
            key = name if name in self.outputs else name + "~output"
            self.results[name] = (self.outputs[key][0], value.dtype, list(value.shape))

    def run(self, feeds, names):
        for name, (address, slot) in self.inputs.items():
            data = feeds[name][2] if name in feeds or name != RUN_SEED else os.urandom(8)
            if len(data) != slot.nbytes:
                raise InputError(f"{len(data)} bytes, its shape takes {slot.nbytes}", f"input '{name}'", "Pass an array whose bytes are those of its shape and type.")
            if slot.nbytes:
                self.engine.write(address, data)
        self.loaded.run()
        return [(dtype, shape, self.engine.read(address, bytes_for(dtype, product(shape)))) for address, dtype, shape in (self.results[n] for n in names)]

    def free(self):
        self.loaded.free()
        for address in self.buffers:
            self.engine.free(address)
        self.buffers = []


class InferenceSession:
    """Runs an ONNX model (mirrors onnxruntime.InferenceSession).

    Args:
        path_or_bytes: path of an .onnx file, its bytes (in Pyodide also a JavaScript buffer), or a Source.
        sess_options: SessionOptions; intra_op_num_threads > 0 gives the session an engine of its own with that many threads.
        providers, provider_options: accepted for compatibility; there is one provider.
        engine: an edgewise Engine; default: the process's.
    Raises:
        ModelError: the file is broken. UnsupportedOp: when a run needs what is not there (the session stays usable).
    """
    MAX_PLANS = 32  # shapes for which plans are kept

    def __init__(self, path_or_bytes, sess_options=None, providers=None, provider_options=None, *, engine=None):
        if isinstance(path_or_bytes, Graph):
            self.graph = path_or_bytes
        else:
            self.graph = read_model(as_source(path_or_bytes))
        threads = getattr(sess_options, "intra_op_num_threads", 0)
        self.engine = engine or (open_engine(threads) if threads else default_engine())
        self.store = WeightStore(self.engine)
        self.plans = OrderedDict()
        self.needs = {}
        self.inputs = {i.name: i for i in self.graph.input_names()}
        self.subgraphs = {}

    def get_inputs(self):
        return [_node_arg(i) for i in self.graph.input_names()]

    def get_outputs(self):
        return [_node_arg(o) for o in self.graph.outputs]

    def get_providers(self):
        return ["EdgewiseExecutionProvider"]

    def run(self, output_names, input_feed, run_options=None):
        """Runs the model.

        Args:
            output_names: list of output names, or None for all.
            input_feed: {input name: array}; NumPy arrays, edgewise.Array, buffers or nested lists.
        Returns:
            list of arrays in the order of output_names.
        Raises:
            InputError: a name, type, rank or dimension does not fit; the session stays usable.
        """
        feeds = self._check_feeds(input_feed)
        if isinstance(output_names, str) or not isinstance(output_names, (list, tuple, type(None))):
            raise InputError(f"a {type(output_names).__name__} is no list of names", "output_names", "Pass a list of output names, or None for all.")
        names = list(output_names) if output_names else [o.name for o in self.graph.outputs]
        known_outputs = {o.name for o in self.graph.outputs}
        for n in names:
            if not isinstance(n, str) or n not in known_outputs:
                raise InputError(f"the model has no output '{n}'", "output_names", f"It has: {', '.join(sorted(known_outputs))}.")
        results = self._run(self.graph, "", feeds, names)
        return [as_output(*r) for r in results]

    def _check_feeds(self, input_feed):
        feeds = {}
        if not hasattr(input_feed, "items"):
            raise InputError(f"a {type(input_feed).__name__} is no table of inputs", "input_feed", "Pass {input name: array}.")
        for name, x in input_feed.items():
            info = self.inputs.get(name) if isinstance(name, str) else None
            if info is None:
                raise InputError(f"the model has no input '{name}'", "input_feed", f"It has: {', '.join(self.inputs)}.")
            dtype, shape, data = as_input(x, name, info.dtype or None)
            if info.dtype and dtype != info.dtype:
                raise InputError(f"element type {NAME[dtype]}, the model wants {NAME.get(info.dtype, info.dtype)}", f"input '{name}'", "Convert it.")
            if info.shape is not None:
                if len(shape) != len(info.shape):
                    raise InputError(f"{len(shape)} dimensions {shape}, the model wants {len(info.shape)}: {info.shape}", f"input '{name}'", "Reshape it.")
                for i, (d, want) in enumerate(zip(shape, info.shape)):
                    if isinstance(want, int) and want >= 0 and d != want:
                        raise InputError(f"dimension {i} is {d}, the model wants {want} ({info.shape})", f"input '{name}'", "Reshape or pad it.")
            feeds[name] = (dtype, shape, data)
        missing = [n for n in self.inputs if n not in feeds]
        if missing:
            raise InputError(f"missing: {', '.join(missing)}", "input_feed", "Feed every input.")
        return feeds

    def _run(self, graph, tag, feeds, names):
        key = (tag, tuple(names), tuple((n, feeds[n][0], tuple(feeds[n][1])) for n in sorted(self.inputs)))
        known = {}
        while True:
            for name in self.needs.get(key, ()):
                if name not in known:
                    known[name] = self._numbers(name, feeds)
            full = (key, tuple((n, tuple(v)) for n, v in sorted(known.items())))
            compiled = self.plans.get(full)
            if compiled is not None:
                self.plans.move_to_end(full)
                break
            try:
                plan, bound = compile_graph(graph, {n: list(f[1]) for n, f in feeds.items()}, {n: f[0] for n, f in feeds.items()}, known, outputs=names, run_seed=True)
            except NeedsValue as e:
                if e.value.name in known or "~" in e.value.name:
                    raise UnsupportedOp("a shape inside a composite op or branch depends on data", f"value '{e.value.name}'", "Report this model.") from None
                self.needs.setdefault(key, []).append(e.value.name)
                continue
            except NotStatic as e:
                raise UnsupportedOp(f"a shape could not be computed ({e})", graph.name or "graph", "Report this model.") from None
            compiled = self.plans[full] = _Compiled(self, plan, bound)
            while len(self.plans) > self.MAX_PLANS:
                self.plans.popitem(last=False)[1].free()
            break
        return compiled.run(feeds, names)

    def _numbers(self, name, feeds):
        """Flat numbers of an input or, by running the graph up to it, of an inner value."""
        if name in feeds:
            dtype, shape, data = feeds[name]
            if product(shape) > MOST_NUMBERS:
                raise UnsupportedOp(f"a shape depends on its {product(shape)} numbers", f"input '{name}'", "Check what is fed.")
            return unpack(dtype, bytes(data), product(shape))
        if name not in self.subgraphs:
            self.subgraphs[name] = _ancestors(self.graph, name)
        dtype, shape, data = self._run(self.subgraphs[name], name, feeds, [name])[0]
        if product(shape) > MOST_NUMBERS:
            raise UnsupportedOp(f"a shape depends on its {product(shape)} numbers", f"value '{name}'", "Report this model.")
        return unpack(dtype, data, product(shape))

    def free(self):
        """Gives back all engine memory of this session."""
        for c in self.plans.values():
            c.free()
        self.plans.clear()
        self.store.free()

    def __del__(self):
        try:
            self.free()
        except Exception:
            pass


def _node_arg(info):
    kind = f"tensor({_ORT_TYPES.get(info.dtype, info.dtype)})" if info.kind == "tensor" else f"{info.kind}(tensor({_ORT_TYPES.get(info.dtype, info.dtype)}))"
    return NodeArg(info.name, kind, info.shape)


def _ancestors(graph, name):
    """The part of a graph that `name` depends on."""
    nodes, _ = graph.needed([name])
    part = Graph(graph.name, nodes, graph.inputs, [], graph.constants, graph.value_info, graph.opsets, graph.functions, graph.metadata, graph.ir_version, graph.producer, graph.source)
    part.values = graph.values  # what Constant nodes held, where binding has put them already
    return part
