"""What a model is, before anything of it runs: its operators, inputs, outputs and parameters, the
memory it takes, and what has no gradient.

    report = edgewise.inspect.inspect("model.onnx", dims={"batch": 1, "sequence": 128})
    print(report)  # what `edgewise inspect model.onnx --dims batch=1,sequence=128` prints
    report.memory.total, report.as_dict()

Memory is what a session would allocate: the graph is bound, optimized and planned for the given
shapes, and nothing is loaded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

from .bind import bind
from .bind.autodiff import Gradients, add_gradients
from .compile import CACHE_NAME, cache_axis, cached_as_halves, head_dim
from .declare.dtypes import FLOAT, INT64, NAME
from .declare.symbolic import NotStatic, most, product
from .errors import EdgewiseError, InputError, MissingGradient, ModelError, UnsupportedOp
from .ir import BROKEN, Graph, NeedsHost, NeedsValue, Tensor, Value
from .onnx import as_source, read_model
from .onnx.dimensions import MOST_DIM, check_names, input_shapes
from .ops import OPS
from .passes import RECOGNISE
from .plan import compile_graph
from .training.language_model import causal_lm_inputs
from .training.parameters import parameters, quantized_count

GUESSES = (
    16,
    64,
    224,
    # for dimensions nobody named, where only the graph's structure is asked for; the first one of a
    # batch is 1
)


@dataclass
class TensorInfo:
    """An input or output as the file declares it. shape: ints, names, None where unknown; or None
    as a whole. kind: "tensor", "sequence", "optional", "map".
    """

    name: str
    dtype: str
    shape: list | None
    kind: str = "tensor"


@dataclass
class Operator:
    """opset: version of its domain that the model imports. nodes: names of the nodes, where it is
    not supported. function: whether the model itself defines it.
    """

    domain: str
    name: str
    opset: int
    count: int
    supported: bool
    function: bool = False
    nodes: list = field(default_factory=list)

    @property
    def full_name(self):
        """With its domain: "com.microsoft.FusedMatMul"; ONNX's own have none."""
        return f"{self.domain}.{self.name}" if self.domain else self.name


@dataclass
class Weights:
    """tensors, elements and bytes of the initializers of one type, or of all."""

    tensors: int = 0
    elements: int = 0
    bytes: int = 0


@dataclass
class Parameters:
    """All initializers, by type, and [(name, dtype, shape)] of those that look trainable;
    quantized: how many weights are stored in integers.
    """

    all: Weights
    by_dtype: dict
    trainable: list
    quantized: int


@dataclass
class Memory:
    """Bytes that a session takes for these input shapes. computed: what is made of weights once;
    arena: activations; arena_least: the most of them that is alive at any one step, which no layout
    could be below; plan: the compiled steps.

    shapes: of the inputs; assumed: what else, in words. outputs: {name: shape}. nodes: after
    optimization; kernels: {name: steps of a run}; once: steps when it is loaded.
    """

    shapes: dict
    assumed: list
    weights: int
    computed: int
    arena: int
    arena_least: int
    inputs_and_outputs: int
    plan: int
    outputs: dict
    nodes: int
    steps: int
    once: int
    kernels: dict

    @property
    def total(self):
        """Bytes of all of it together."""
        return self.weights + self.computed + self.arena + self.inputs_and_outputs + self.plan


@dataclass
class Cache:
    """Keys and values of a language model for one sequence, as text generation keeps them unless
    told otherwise (`cache_dtype`). bytes: for `length` tokens.
    """

    dtype: str
    tensors: int
    bytes_per_token: int
    length: int
    bytes: int


@dataclass
class Trainability:
    """shapes: of the inputs that the gradients were made for; outputs: those of float32, where they
    begin. reached: how many parameters a gradient reaches; missing: {operator: [nodes]} that let
    none through on its way; refused: {operator: why} of those that have a rule, but not for this.
    """

    shapes: dict
    outputs: list
    reached: int
    missing: dict
    refused: dict


@dataclass
class Report:
    """What `inspect` found. problem: why there is no `memory`, in words; needs: names of
    dimensions, and of inputs whose shape is unknown, that would have to be given.
    """

    name: str
    producer: str
    ir_version: int
    opsets: dict
    nodes: int
    inputs: list
    outputs: list
    operators: list
    parameters: Parameters
    needs: list
    memory: Memory | None = None
    cache: Cache | None = None
    gradients: Trainability | None = None
    problem: str = ""
    why_no_gradients: str = ""

    @property
    def unsupported(self):
        """The Operators that Edgewise does not have."""
        return [o for o in self.operators if not o.supported]

    def as_dict(self):
        """Plain dicts, lists, numbers and strings, as JSON takes them."""
        d = asdict(self)
        if self.memory is not None:
            d["memory"]["total"] = self.memory.total
        return d

    def __str__(self):
        return "\n".join(_lines(self))


def is_supported(domain, op):
    """Whether there is an operator of this name; versions, types and attributes it may still
    refuse.
    """
    return (domain, op) in OPS and domain != "edgewise"


def every_node(graph):
    """The nodes of a graph, of its subgraphs, and of the model-local functions that they call, each
    function once.
    """
    seen, waiting = set(), [graph]
    while waiting:
        g = waiting.pop()
        nodes = (
            g.every_node()
            if isinstance(g, Graph)
            else (
                m for n in g.nodes for m in (n, *(i for s in n.subgraphs() for i in s.every_node()))
            )
        )
        for n in nodes:
            yield n
            key = (n.domain, n.op)
            if key in graph.functions and key not in OPS and key not in seen:
                seen.add(key)
                waiting.append(graph.functions[key])


def unsupported(graph):
    """{(domain, op): [nodes]} of the operators that are neither there nor functions of the
    model.
    """
    out = {}
    for n in every_node(graph):
        if not is_supported(n.domain, n.op) and (n.domain, n.op) not in graph.functions:
            out.setdefault((n.domain, n.op), []).append(n)
    return out


def inspect(model, dims=None, shapes=None, values=None, length=None, gradients=True):
    """Reads a model and says what it is.

    Args:
        model: path of an .onnx file, its bytes, a Source, or a Graph.
        dims: {name: int} of the symbolic dimensions of the inputs; expressions of them in the file
        ("past + sequence") are computed. shapes: {input name: [ints]} instead of what the file
        declares. values: {input name: flat numbers} of inputs that shapes or branches depend on.
        length: tokens that a language model's cache is to hold; default 1024. gradients: whether to
        look for operators without a gradient (a second time through binding).
    Returns:
        Report. What keeps the memory from being known is its `problem`, no exception.
    Raises:
        ModelError: the file is broken. InputError: dims, shapes, values or length make no sense.
    """
    graph = model if isinstance(model, Graph) else read_model(as_source(model))
    given = _values(graph, values or {})
    shapes, needs = input_shapes(graph, dims or {}, shapes or {})
    counts, missing = Counter((n.domain, n.op) for n in every_node(graph)), unsupported(graph)
    operators = [
        Operator(
            d,
            o,
            graph.opsets.get(d, 0),
            c,
            (d, o) not in missing,
            (d, o) in graph.functions and (d, o) not in OPS,
            [n.name or next((x for x in n.outputs if x), "") for n in missing.get((d, o), ())],
        )
        for (d, o), c in sorted(counts.items())
    ]
    report = Report(
        graph.source.name if graph.source is not None else graph.name,
        graph.producer,
        graph.ir_version,
        dict(graph.opsets),
        sum(1 for _ in graph.every_node()),
        [_tensor(i) for i in graph.input_names()],
        [_tensor(o) for o in graph.outputs],
        operators,
        _parameters(graph),
        needs,
        cache=_cache(graph, length),
    )
    if missing:
        report.problem = "it has operators that are not supported"
    elif needs:
        report.problem = f"it depends on {', '.join(map(_name, needs))}"
    else:
        report.memory, report.problem = _try(lambda: _memory(graph, shapes, given))
    if gradients and not missing and report.parameters.trainable:
        report.gradients, why = _trainability(graph, shapes, given, needs)
        report.problem = report.problem or why
        report.why_no_gradients = why if report.gradients is None else ""
    return report


def _values(graph, values):
    check_names(graph, "values", values)
    return {n: list(v) for n, v in values.items()}


def _tensor(info):
    return TensorInfo(
        info.name,
        NAME.get(info.dtype, str(info.dtype)),
        None if info.shape is None else list(info.shape),
        info.kind,
    )


def _parameters(graph):
    total, by_dtype = Weights(), {}
    for t in graph.constants.values():
        for w in (total, by_dtype.setdefault(NAME.get(t.dtype, str(t.dtype)), Weights())):
            w.tensors, w.elements, w.bytes = w.tensors + 1, w.elements + t.count, w.bytes + t.nbytes
    trainable = [
        (n, NAME[graph.constants[n].dtype], list(graph.constants[n].shape))
        for n in parameters(graph)
    ]
    return Parameters(total, by_dtype, trainable, quantized_count(graph))


def _cache(graph, length):
    """Cache, or None where the inputs are not those of a language model with one."""
    if length is not None and (type(length) is not int or not 0 < length < MOST_DIM):
        raise InputError(f"{length!r} is no number of tokens", "length", "Give one from 1 on.")
    length, per_token, count, halves = length or 1024, 0, 0, cached_as_halves(graph)
    for i in graph.input_names():
        if CACHE_NAME.search(i.name) and "encoder" not in i.name:
            try:
                shape = [d if isinstance(d, int) else 1 for d in i.shape or ()]
                axis = cache_axis(i)
                shape[3] = head_dim(graph, i.name, i)
            except (UnsupportedOp, *BROKEN):
                return None
            shape[axis] = 1
            per_token, count = per_token + (2 if halves else 4) * product(shape), count + 1
    return (
        Cache("float16" if halves else "float32", count, per_token, length, per_token * length)
        if count
        else None
    )


def _try(f):
    """(what f returns, "") or (None, why not)."""
    try:
        return f(), ""
    except NeedsValue as e:
        return None, f"a shape or a branch depends on the numbers of '{e.value.name}'" + (
            " (--value gives them)" if e.value.role == "input" else ", which only a run knows"
        )
    except NeedsHost as e:
        return None, f"{e or 'a node'} is run between plans: what follows it only a run knows"
    except NotStatic as e:
        return None, f"a shape could not be computed ({e})"
    except EdgewiseError as e:
        return None, str(e)
    except BROKEN as e:
        return None, str(
            ModelError(
                f"it cannot be compiled ({type(e).__name__}: {str(e)[:200]})",
                "graph",
                "If it runs elsewhere, report it.",
            )
        )


def _dtypes(graph):
    return {i.name: i.dtype or FLOAT for i in graph.input_names()}


def _memory(graph, shapes, values):
    computed, assumed = {}, []
    try:
        plan, bound = compile_graph(graph, shapes, _dtypes(graph), values)
    except NeedsValue:  # exports that count the tokens in their mask
        if "attention_mask" not in shapes or "attention_mask" in values:
            raise
        one = Tensor.of("one", _dtypes(graph)["attention_mask"], [1], [1])
        computed["attention_mask"] = lambda b: b.op(
            "ConstantOfShape",
            Value(
                "mask_shape",
                INT64,
                [len(shapes["attention_mask"])],
                numbers=list(shapes["attention_mask"]),
            ),
            value=one,
        )
        plan, bound = compile_graph(graph, shapes, _dtypes(graph), values, computed=computed)
        assumed.append("attention_mask is all ones")
    size = Counter()
    for s in plan.slots:
        size[s.kind] += s.nbytes
    steps = plan.kernels[plan.init_count :]
    return Memory(
        {n: list(s) for n, s in shapes.items()},
        assumed,
        size["weight"],
        size["computed"],
        plan.arena_bytes,
        plan.arena_least,
        size["input"] + size["output"],
        len(plan.data),
        {n: [most(d) for d in v.shape] for n, v in bound.outputs.items()},
        len(bound.nodes),
        len(steps),
        plan.init_count,
        dict(sorted(Counter(steps).items())),
    )


def _trainability(graph, shapes, values, needs):
    """(Trainability or None, why not): for the given shapes, for those that training a language
    model has, or for made-up ones; the first that can be bound.
    """
    tries = [] if needs else [{"shapes": shapes, "known": values}]
    try:
        tries.append(causal_lm_inputs(graph, 1, 16))
    except (EdgewiseError, *BROKEN):
        pass
    if needs:
        tries += [
            {
                "shapes": {
                    i.name: [
                        _guess(d, k, guess) for k, d in enumerate(shapes.get(i.name) or i.shape)
                    ]
                    for i in graph.input_names()
                    if i.shape is not None
                },
                "known": values,
            }
            for guess in GUESSES
        ]
    why = []
    for arguments in tries:
        found, problem = _try(lambda: _gradients(graph, **arguments))
        if found is not None:
            return found, ""
        why.append(problem)
    return None, why[0] if why else ""


def _guess(d, place, guess):
    return (
        d
        if isinstance(d, int) and d >= 0
        else 0
        if "past" in str(d) and "+" not in str(d)
        else 1
        if place == 0
        else guess
    )


def _gradients(graph, shapes, known, computed=None):
    """Trainability of all that looks like a parameter, for the sum of all float outputs."""
    names = parameters(graph)
    bound = bind(
        graph,
        shapes,
        _dtypes(graph),
        known,
        None,
        None,
        computed,
        float_outputs=True,
        trainable=names,
    )
    for p in RECOGNISE:
        p(bound)
    bound.prune()
    wrt, g, missing = [bound.states[n] for n in names], Gradients(bound), []
    outputs = {n: v for n, v in bound.outputs.items() if v.dtype == FLOAT}
    found = add_gradients(
        bound,
        [(v, g.op("Expand", g.number(1.0), g.ints(v.shape))) for v in outputs.values()],
        wrt,
        missing,
    )
    by_op, why = {}, {}
    for n, e in reversed(missing):
        op = f"{n.domain}.{n.op}" if n.domain else n.op
        by_op.setdefault(op, []).append(
            n.name or next((o.name for o in n.outputs if o is not None), "")
        )
        if not isinstance(e, MissingGradient) or n.decl.grad_fn is not None:
            why[op] = e.what
    return Trainability(
        {n: list(map(most, s)) for n, s in shapes.items()},
        list(outputs),
        sum(d is not None for d in found),
        by_op,
        why,
    )


# ---- words ----
def _name(text):
    """A name from a file, on one line and of bounded length."""
    text = "".join(c if c.isprintable() else "?" for c in str(text))
    return text if len(text) <= 100 else text[:60] + "..." + text[-30:]


def _bytes(n):
    return (
        f"{n:,} B"
        if n < 10_000
        else (
            f"{n / 1e3:.1f} kB"
            if n < 1e6
            else f"{n / 1e6:.1f} MB"
            if n < 1e10
            else f"{n / 1e9:.1f} GB"
        )
    )


def _few(names, most_names=5):
    return ", ".join(f"'{_name(n)}'" for n in names[:most_names]) + (
        f" and {len(names) - most_names} more" if len(names) > most_names else ""
    )


def _shape(shape):
    return (
        "of any shape"
        if shape is None
        else "[" + ", ".join("?" if d is None else _name(d) for d in shape) + "]"
    )


def _lines(r):
    opsets = ", ".join(f"{_name(d) or 'ai.onnx'} {v}" for d, v in sorted(r.opsets.items()))
    yield (
        f"{_name(r.name)}: {_name(r.producer) or 'unknown producer'}, {opsets or 'no opset'},"
        f" {r.nodes:,} nodes"
    )
    for kind, tensors in (("input", r.inputs), ("output", r.outputs)):
        for t in tensors:
            at = r.memory.outputs.get(t.name) if r.memory is not None and kind == "output" else None
            fixed = f", here {_shape(at)}" if at is not None and at != t.shape else ""
            yield (
                f"  {kind} {_name(t.name)}:"
                f" {'' if t.kind == 'tensor' else t.kind + ' of '}{t.dtype}"
                f" {_shape(t.shape)}{fixed}"
            )
    yield f"  {len(r.operators)} operators: " + ", ".join(
        f"{_name(o.full_name)} {o.count}" + (" (a function of the model)" if o.function else "")
        for o in r.operators
    )
    yield "  not supported: " + (
        ", ".join(f"{_name(o.full_name)} ({o.count} nodes: {_few(o.nodes)})" for o in r.unsupported)
        or "none"
    )
    p = r.parameters
    by_bytes = sorted(p.by_dtype.items(), key=lambda x: -x[1].bytes)
    yield (
        f"  constants: {p.all.elements:,} in {p.all.tensors} tensors, {_bytes(p.all.bytes)}"
        + (
            f" ({', '.join(f'{d} {_bytes(w.bytes)}' for d, w in by_bytes)})"
            if p.all.tensors
            else ""
        )
        + f"; {len(p.trainable)} look like parameters,"
        f" {sum(product(s) for _, _, s in p.trainable):,} elements"
        + (f", and {p.quantized:,} weights are quantized" if p.quantized else "")
    )
    m = r.memory
    if m is not None:
        yield (
            f"  memory: {_bytes(m.total)}: weights {_bytes(m.weights)}, made of them"
            f" {_bytes(m.computed)}, activations {_bytes(m.arena)} (at least"
            f" {_bytes(m.arena_least)} live at once), inputs and outputs"
            f" {_bytes(m.inputs_and_outputs)}, plan {_bytes(m.plan)}"
            + (f" (where {', '.join(m.assumed)})" if m.assumed else "")
        )
        yield f"  a run: {m.nodes:,} nodes in {m.steps:,} steps: " + ", ".join(
            f"{k} {c}" for k, c in sorted(m.kernels.items(), key=lambda x: -x[1])
        )
    else:
        yield f"  memory: not known, since {_words(r.problem)}" + (
            " (--dims name=size,... or --shape input=2x3)" if r.needs and not r.unsupported else ""
        )
    if r.cache is not None:
        yield (
            f"  keys and values: {_bytes(r.cache.bytes_per_token)} per token and sequence,"
            f" {_bytes(r.cache.bytes)} for {r.cache.length:,} tokens, in {r.cache.dtype}"
        )
    g = r.gradients
    if r.why_no_gradients:
        yield f"  gradients: not known, since {_words(r.why_no_gradients)}"
    if g is not None:
        through = "; ".join(
            f"{_name(o)} ({len(nodes)} nodes:"
            f" {_few(nodes)}{'; ' + _words(g.refused[o]) if o in g.refused else ''})"
            for o, nodes in g.missing.items()
        )
        yield (
            f"  gradients: they reach {g.reached} of {len(p.trainable)} parameters"
            + (f"; none through {through}" if through else "")
            + ("" if g.outputs else "; no output is float32")
        )


def _words(text):
    return "".join(c if c.isprintable() else "?" for c in text)[:900]
