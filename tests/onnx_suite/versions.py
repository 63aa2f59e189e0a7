"""Cases for every version of every operator.

onnx.defs lists the versions. The cases are those of the test harness and of ONNX's node tests,
converted to each version: inputs that were attributes become attributes, and types and attributes
that the version lacks are removed.

A case that a version cannot express is left out. The expected result is that of onnxruntime, or of
ONNX's reference; both implement the individual versions.
"""

import functools
import warnings
from collections import defaultdict

import numpy as np
import onnx
import onnxruntime
from edgewise.inspect import is_supported
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.onnx_cpp2py_export.checker import CheckerContext
from onnx.reference import ReferenceEvaluator
from ops.harness import all_cases

from .suite import suite

RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}  # operators for which only types and shapes can be compared
FIRST = {
    "": 7,
    "ai.onnx.ml": 1,
    "ai.onnx.preview": 1,
    "ai.onnx.preview.training": 1,
}  # oldest supported version of each operator set
RENAMED = {("Pad", "constant_value"): "value"}  # inputs that were attributes with another name


@functools.cache
def history():
    """Returns {(domain, op): [schema]}, oldest first."""
    out = defaultdict(list)
    for s in onnx.defs.get_all_schemas_with_history():
        if s.domain in FIRST:
            out[s.domain, s.name].append(s)
    return {k: sorted(v, key=lambda s: s.since_version) for k, v in sorted(out.items())}


def versions():
    """Returns [(schema, opset)] for each version of each operator in a supported opset; opset: the
    first one that includes it.
    """
    out = []
    for (domain, op), schemas in history().items():
        if is_supported(domain, op):
            out += [
                (s, max(s.since_version, FIRST[domain]))
                for s, later in zip(schemas, [*schemas[1:], None])
                if not s.deprecated and (later is None or later.since_version > FIRST[domain])
            ]
    return out


class Case:
    """One node with its inputs.

    Args:
        trust: "ort" or "onnx" if the other implementation is wrong.
        expected: its outputs, if the case specifies them.
        own: whether the case applies to its own version only.
        runs_elsewhere: whether another test runs it at its own version.
    """

    def __init__(
        self, name, model, feeds, trust=None, expected=None, own=False, runs_elsewhere=False
    ):
        self.own, self.runs_elsewhere = own, runs_elsewhere
        self.name, self.model, self.feeds, self.trust, self.expected = (
            name,
            model,
            feeds,
            trust,
            expected,
        )
        self.node = model.graph.node[0]
        self.opset = next(o.version for o in model.opset_import if o.domain == self.node.domain)

    def __repr__(self):
        return self.name

    # long: one branch for each operator whose form changed
    def at(self, schema, opset):
        """Converts the case to another version of the operator.

        Returns (model, feeds), or None if that version cannot express the case.
        """
        mine = next(
            s
            for s in reversed(history()[schema.domain, schema.name])
            if s.since_version <= self.opset
        )
        if mine.since_version == schema.since_version:
            return self.model, self.feeds
        if mine.deprecated or self.own:
            return None
        if (
            any(a.name not in schema.attributes for a in self.node.attribute)
            or len(self.node.output) > schema.max_output
        ):
            return None
        node, feeds, fixed = (
            onnx.NodeProto(),
            dict(self.feeds),
            {t.name: t for t in self.model.graph.initializer},
        )
        node.CopyFrom(self.node)
        inputs, formals = [], [f.name for f in schema.inputs]
        variadic = (
            bool(formals)
            and schema.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
        )
        for i, name in enumerate(node.input):
            formal = mine.inputs[min(i, len(mine.inputs) - 1)].name
            place = (
                len(inputs) if variadic else formals.index(formal) if formal in formals else None
            )
            attribute = next(
                (
                    a
                    for a in schema.attributes
                    if a.lower() == RENAMED.get((schema.name, formal), formal).lower()
                ),
                None,
            )
            if (
                place is None
                and attribute is None
                and i < len(formals)
                and formals[i] not in {f.name for f in mine.inputs}
            ):
                place = i  # it has another name in that version
            if place is not None:
                inputs += [""] * (place - len(inputs)) + [name]
            elif name:
                value = feeds.pop(name) if name in feeds else numpy_helper.to_array(fixed.pop(name))
                if attribute is None or not value.size:
                    return None
                kind = schema.attributes[attribute].type
                value = (
                    value.astype(
                        np.float32
                        if kind in (AttributeProto.FLOAT, AttributeProto.FLOATS)
                        else np.int64
                    )
                    .reshape(-1)
                    .tolist()
                )
                node.attribute.append(
                    helper.make_attribute(
                        attribute,
                        value[0] if kind in (AttributeProto.FLOAT, AttributeProto.INT) else value,
                        attr_type=kind,
                    )
                )
        while inputs and not inputs[-1]:
            inputs.pop()
        if not schema.min_input <= len(inputs) <= schema.max_input:
            return None
        del node.input[:]
        node.input.extend(inputs)
        graph = onnx.GraphProto()
        graph.CopyFrom(self.model.graph)
        fed, constants = (
            [v for v in graph.input if v.name in inputs],
            [t for n, t in fixed.items() if n in inputs],
        )
        types = {v.name: _name(v.type) for v in fed} | {
            t.name: f"tensor({TensorProto.DataType.Name(t.data_type).lower()})" for t in constants
        }
        if any(
            name and types[name] not in schema.inputs[min(i, len(formals) - 1)].types
            for i, name in enumerate(inputs)
        ):
            return None
        for field, values in (
            ("node", [node]),
            ("input", fed),
            ("initializer", constants),
            ("value_info", []),
        ):
            del getattr(graph, field)[:]
            getattr(graph, field).extend(values)
        model = helper.make_model(
            graph,
            opset_imports=[
                helper.make_opsetid(d, opset if d == schema.domain else 17)
                for d in sorted({"", schema.domain})
            ],
            ir_version=8 if opset < 21 else 11,
        )
        try:
            context = CheckerContext()
            context.ir_version, context.opset_imports = (
                model.ir_version,
                {o.domain: o.version for o in model.opset_import},
            )
            onnx.checker.check_node(node, context)
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except Exception:  # shapes, attributes or types that this version does not support
            return None
        return model, {v.name: feeds[v.name] for v in fed}

    def references(self, model, feeds):
        """Yields the results of other implementations: a list of outputs for each, or only the
        case's own outputs if it specifies them. Each runs when it is asked for.
        """
        if model is self.model and self.expected is not None:
            yield self.expected
            return
        for name, run in (("ort", _ort), ("onnx", lambda m, f: ReferenceEvaluator(m).run(None, f))):
            if self.trust not in (None, name):
                continue
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    outputs = run(model, feeds)
                except Exception:  # the operator, this version, or a type is not supported
                    continue
            yield outputs


def _ort(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    ).run(None, feeds)


@functools.cache
def cases():
    """Returns {(domain, op): [Case]}."""
    out = defaultdict(list)
    for name, c in all_cases():
        if c.domain in FIRST and c.same_as is None:
            model, feeds = c.model()
            # onnxruntime and ONNX's reference differ in the alignment of Resize and in rounding
            # float64 and infinities to 8 bits, so an expectation for one version does not apply to
            # others
            own = (
                c.name == "Resize"
                and c.trust is not None
                or c.name == "Cast"
                and 17 <= c.attrs["to"] <= 24
            )
            out[c.domain, c.name].append(Case(name, model, feeds, c.trust, c.expect, own, True))
    for t in suite().values():
        model = t.case.model
        if model is not None and len(model.graph.node) == 1:
            node = model.graph.node[0]
            inputs, outputs = t.case.data_sets[0]
            values = [
                numpy_helper.to_array(x) if isinstance(x, TensorProto) else x
                for x in (*inputs, *outputs)
            ]
            feeds = dict(zip([i.name for i in model.graph.input], values))
            out[node.domain, node.op_type].append(
                Case(t.name, model, feeds, None, values[len(inputs) :], runs_elsewhere=True)
            )
    for c in _made():
        out[c.node.domain, c.node.op_type].append(c)
    return out


# long: one branch for each operator whose form changed
def _made():
    """Cases that cannot be derived from others: maps, and versions whose features later versions do
    not include.
    """

    def case(node, inputs, outputs, feeds, opset):
        graph = helper.make_graph(
            [node],
            "made",
            [helper.make_value_info(n, t) for n, t in inputs],
            [helper.make_value_info(n, t) for n, t in outputs],
        )
        model = helper.make_model(
            graph,
            opset_imports=[
                helper.make_opsetid(d, opset if d == node.domain else 17)
                for d in sorted({"", node.domain})
            ],
            ir_version=8,
        )
        return Case(f"made/{node.op_type}-{opset}", model, feeds)

    node, tensor, table, ml = (
        helper.make_node,
        helper.make_tensor_type_proto,
        helper.make_map_type_proto,
        "ai.onnx.ml",
    )
    f, i, s = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
    yield case(
        node(
            "LabelEncoder",
            ["x"],
            ["y"],
            domain=ml,
            classes_strings=["a", "b", "c"],
            default_int64=7,
        ),
        [("x", tensor(s, [4]))],
        [("y", tensor(i, [4]))],
        {"x": np.array(["b", "a", "z", "c"], object)},
        1,
    )
    yield case(
        node(
            "LabelEncoder",
            ["x"],
            ["y"],
            domain=ml,
            classes_strings=["a", "b", "c"],
            default_string="none",
        ),
        [("x", tensor(i, [3]))],
        [("y", tensor(s, [3]))],
        {"x": np.array([2, 0, 9])},
        1,
    )
    cats = {"domain": ml, "cats_strings": ["a", "b", "c"], "cats_int64s": [5, 7, 6]}
    yield case(
        node("CategoryMapper", ["x"], ["y"], default_int64=9, **cats),
        [("x", tensor(s, [4]))],
        [("y", tensor(i, [4]))],
        {"x": np.array(["b", "a", "z", "c"], object)},
        1,
    )
    yield case(
        node("CategoryMapper", ["x"], ["y"], default_string="none", **cats),
        [("x", tensor(i, [3]))],
        [("y", tensor(s, [3]))],
        {"x": np.array([7, 5, 0])},
        1,
    )
    scores = np.array([[0.1, 0.9], [0.7, 0.3]], np.float32)
    for kind, labels in (
        (i, {"classlabels_int64s": [5, 6]}),
        (s, {"classlabels_strings": ["no", "yes"]}),
    ):
        yield case(
            node("ZipMap", ["x"], ["y"], domain=ml, **labels),
            [("x", tensor(f, [2, 2]))],
            [("y", helper.make_sequence_type_proto(table(kind, tensor(f, []))))],
            {"x": scores},
            1,
        )
    yield case(
        node("DictVectorizer", ["x"], ["y"], domain=ml, string_vocabulary=["a", "c", "b"]),
        [("x", table(s, tensor(f, [])))],
        [("y", tensor(f, None))],
        {"x": {"a": 4.0, "b": 8.0}},
        1,
    )
    yield case(
        node("CastMap", ["x"], ["y"], domain=ml, cast_to="TO_FLOAT", map_form="DENSE"),
        [("x", table(i, tensor(f, [])))],
        [("y", tensor(f, None))],
        {"x": {0: 1.5, 2: -2.0}},
        1,
    )
    yield case(
        node("CastMap", ["x"], ["y"], domain=ml, cast_to="TO_INT64", map_form="SPARSE", max_map=5),
        [("x", table(i, tensor(s, [])))],
        [("y", tensor(i, None))],
        {"x": {0: "4", 3: "5"}},
        1,
    )
    whole = helper.make_graph(
        [node("Optional", ["x"], ["o"]), node("OptionalGetElement", ["o"], ["y"])],
        "made",
        [helper.make_value_info("x", tensor(f, [2, 2]))],
        [helper.make_value_info("y", tensor(f, [2, 2]))],
    )
    yield Case(
        "made/Optional-28",
        helper.make_model(whole, opset_imports=[helper.make_opsetid("", 28)], ir_version=11),
        {"x": scores},
        None,
        [scores],
    )
    body = helper.make_graph(
        [
            node("Add", ["sum", "x"], ["more"]),
            node("Identity", ["go"], ["on"]),
            node("Identity", ["more"], ["each"]),
        ],
        "body",
        [
            helper.make_value_info("k", tensor(i, [])),
            helper.make_value_info("go", tensor(TensorProto.BOOL, [])),
            helper.make_value_info("sum", tensor(f, [2])),
        ],
        [
            helper.make_value_info("on", tensor(TensorProto.BOOL, [])),
            helper.make_value_info("more", tensor(f, [2])),
            helper.make_value_info("each", tensor(f, [2])),
        ],
    )
    yield case(
        node("Loop", ["trips", "go", "start"], ["end", "all"], body=body),
        [
            ("trips", tensor(i, [])),
            ("go", tensor(TensorProto.BOOL, [])),
            ("start", tensor(f, [2])),
            ("x", tensor(f, [2])),
        ],
        [("end", tensor(f, [2])), ("all", tensor(f, [3, 2]))],
        {"trips": np.array(3), "go": np.array(True), "start": scores[0], "x": scores[1]},
        7,
    )


@functools.cache
def in_models():
    """Returns {(domain, op): {opset: [names]}} for all nodes, including those of subgraphs, in the
    suite's models with more than one node, which are compared as complete models.
    """
    out = defaultdict(lambda: defaultdict(list))

    def walk(graph, opsets, name):
        for n in graph.node:
            out[n.domain, n.op_type][opsets.get(n.domain, 0)].append(name)
            for a in n.attribute:
                if a.type == AttributeProto.GRAPH:
                    walk(a.g, opsets, name)

    for t in suite().values():
        walk(t.model.graph, {o.domain: o.version for o in t.model.opset_import}, t.name)
    return out


def _name(t):
    """The name of a type as in schemas: tensor(float)."""
    kind = t.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        name = TensorProto.DataType.Name(getattr(t, kind).elem_type).lower()
        return f"{'sparse_' if kind[0] == 's' else ''}tensor({name})"
    if kind == "sequence_type":
        return f"seq({_name(t.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_name(t.optional_type.elem_type)})"
    return (
        f"map({TensorProto.DataType.Name(t.map_type.key_type).lower()},"
        f" {_name(t.map_type.value_type)})"
    )


def difference(got, want, drawn=False):
    """The difference between a session's outputs and expected ones as text; "" if there is none.

    Precision is tested in tests/ops; a wrong version would give a large difference. drawn: whether
    the outputs are random.
    """
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return f"{got!r:.200} instead of {want!r:.200}"
        return next((d for g, w in zip(got, want) if (d := difference(g, w))), "")
    if want is None or isinstance(want, dict):
        return "" if got == want else f"{got!r:.200} instead of {want!r:.200}"
    got, want = np.asarray(got), np.asarray(want)
    if (
        want.dtype == np.uint8 and got.dtype.kind == "V" and got.dtype.itemsize == 1
    ):  # onnxruntime has no NumPy type for them
        want = want.view(got.dtype)
    if got.shape != want.shape or got.dtype != want.dtype and want.dtype.kind not in "OU":
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if drawn:
        return ""
    if want.dtype.kind not in "fV":
        return "" if (got == want).all() else f"{(got != want).sum()} of {want.size} differ"
    a, b = got.astype(np.float64), want.astype(np.float64)
    low, largest = want.dtype.itemsize < 4, np.abs(b[np.isfinite(b)]).max(initial=1.0)
    return (
        ""
        if np.allclose(
            a, b, rtol=2e-2 if low else 1e-3, atol=1e-3 if low else 1e-5 * largest, equal_nan=True
        )
        else f"off by {np.nanmax(np.abs(a - b))}"
    )
