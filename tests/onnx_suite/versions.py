"""Every version of every operator: which ones there are says onnx.defs, and what to run at each of them are the cases that there are anyway (the harness's and the
suite's node tests), written as that version of the operator wants them: what became an input later is an attribute, types and attributes are those it has.

A case that a version cannot express is left out; the answer is onnxruntime's, else that of ONNX's reference, which both know the versions apart.
"""
import functools
import warnings
from collections import defaultdict

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ops.harness import all_cases

from edgewise.inspect import is_supported

from .suite import suite

FIRST = {"": 7, "ai.onnx.ml": 1, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}  # oldest version of each operator set that is promised
RENAMED = {("Pad", "constant_value"): "value"}  # inputs that were attributes of another name


@functools.cache
def history():
    """{(domain, op): [schema], oldest first}"""
    out = defaultdict(list)
    for s in onnx.defs.get_all_schemas_with_history():
        if s.domain in FIRST:
            out[s.domain, s.name].append(s)
    return {k: sorted(v, key=lambda s: s.since_version) for k, v in sorted(out.items())}


def versions():
    """[(schema, opset)] of every version that can be met in a promised opset, of every operator that there is; opset: the first one that has it."""
    out = []
    for (domain, op), schemas in history().items():
        if is_supported(domain, op):
            out += [(s, max(s.since_version, FIRST[domain])) for s, later in zip(schemas, [*schemas[1:], None])
                    if not s.deprecated and (later is None or later.since_version > FIRST[domain])]
    return out


class Case:
    """One node with what it is fed. trust: "ort" or "onnx" where the other is wrong; expected: its outputs, where the case says them."""

    def __init__(self, name, model, feeds, trust=None, expected=None):
        self.name, self.model, self.feeds, self.trust, self.expected = name, model, feeds, trust, expected
        self.node = model.graph.node[0]
        self.opset = next(o.version for o in model.opset_import if o.domain == self.node.domain)

    def __repr__(self):
        return self.name

    def at(self, schema, opset):
        """(model, feeds) of the same at another version of the operator; None where that cannot say it."""
        mine = next(s for s in reversed(history()[schema.domain, schema.name]) if s.since_version <= self.opset)
        if mine.since_version == schema.since_version:
            return self.model, self.feeds
        if any(a.name not in schema.attributes for a in self.node.attribute) or len(self.node.output) > schema.max_output:
            return None
        node, feeds, fixed = onnx.NodeProto(), dict(self.feeds), {t.name: t for t in self.model.graph.initializer}
        node.CopyFrom(self.node)
        inputs, formals = [], [f.name for f in schema.inputs]
        variadic = bool(formals) and schema.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
        for i, name in enumerate(node.input):
            formal = mine.inputs[min(i, len(mine.inputs) - 1)].name
            place = len(inputs) if variadic else formals.index(formal) if formal in formals else None
            attribute = next((a for a in schema.attributes if a.lower() == RENAMED.get((schema.name, formal), formal).lower()), None)
            if place is None and attribute is None and i < len(formals) and formals[i] not in {f.name for f in mine.inputs}:
                place = i  # it has another name in that version
            if place is not None:
                inputs += [""] * (place - len(inputs)) + [name]
            elif name:
                value = feeds.pop(name) if name in feeds else numpy_helper.to_array(fixed.pop(name))
                if attribute is None or not value.size:
                    return None
                kind = schema.attributes[attribute].type
                value = value.astype(np.float32 if kind in (AttributeProto.FLOAT, AttributeProto.FLOATS) else np.int64).reshape(-1).tolist()
                node.attribute.append(helper.make_attribute(attribute, value[0] if kind in (AttributeProto.FLOAT, AttributeProto.INT) else value, attr_type=kind))
        while inputs and not inputs[-1]:
            inputs.pop()
        if not schema.min_input <= len(inputs) <= schema.max_input:
            return None
        del node.input[:]
        node.input.extend(inputs)
        graph = onnx.GraphProto()
        graph.CopyFrom(self.model.graph)
        fed, constants = [v for v in graph.input if v.name in inputs], [t for n, t in fixed.items() if n in inputs]
        types = {v.name: _name(v.type) for v in fed} | {t.name: f"tensor({TensorProto.DataType.Name(t.data_type).lower()})" for t in constants}
        if any(name and types[name] not in schema.inputs[min(i, len(formals) - 1)].types for i, name in enumerate(inputs)):
            return None
        for field, values in (("node", [node]), ("input", fed), ("initializer", constants), ("value_info", [])):
            del getattr(graph, field)[:]
            getattr(graph, field).extend(values)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(d, opset if d == schema.domain else 17) for d in sorted({"", schema.domain})], ir_version=8 if opset < 21 else 11)
        try:
            onnx.checker.check_model(model, full_check=True)
        except Exception:  # shapes, attributes or types that this version does not know
            return None
        return model, feeds

    def reference(self, model, feeds):
        """What the model gives elsewhere, or None."""
        if model is self.model and self.expected is not None:
            return self.expected
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, run in (("ort", _ort), ("onnx", lambda m, f: ReferenceEvaluator(m).run(None, f))):
                if self.trust in (None, name):
                    try:
                        return run(model, feeds)
                    except Exception:  # it does not know the operator, this version of it, or one of the types
                        continue
        return None


def _ort(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"]).run(None, feeds)


@functools.cache
def cases():
    """{(domain, op): [Case]}"""
    out = defaultdict(list)
    for name, c in all_cases():
        if c.domain in FIRST and c.same_as is None:
            model, feeds = c.model()
            out[c.domain, c.name].append(Case(name, model, feeds, c.trust, None if c.expect is None else c.expect))
    for t in suite().values():
        model = t.case.model
        if model is not None and len(model.graph.node) == 1:
            node = model.graph.node[0]
            inputs, outputs = t.case.data_sets[0]
            values = [numpy_helper.to_array(x) if isinstance(x, TensorProto) else x for x in (*inputs, *outputs)]
            feeds = dict(zip([i.name for i in model.graph.input], values))
            out[node.domain, node.op_type].append(Case(t.name, model, feeds, None, values[len(inputs):]))
    return out


def _name(t):
    """A type as schemas write it: tensor(float)."""
    kind = t.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        name = TensorProto.DataType.Name(getattr(t, kind).elem_type).lower()
        return f"{'sparse_' if kind[0] == 's' else ''}tensor({name})"
    if kind == "sequence_type":
        return f"seq({_name(t.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_name(t.optional_type.elem_type)})"
    return f"map({TensorProto.DataType.Name(t.map_type.key_type).lower()}, {_name(t.map_type.value_type)})"


def difference(got, want):
    """What is different between values of a session, in words; "" when nothing is. How exact the numbers are is tested elsewhere (tests/ops): another version would be far off."""
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return f"{got!r:.200} instead of {want!r:.200}"
        return next((d for g, w in zip(got, want) if (d := difference(g, w))), "")
    if want is None or isinstance(want, dict):
        return "" if got == want else f"{got!r:.200} instead of {want!r:.200}"
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype and want.dtype.kind not in "OU":
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.dtype.kind not in "fV":
        return "" if (got == want).all() else f"{(got != want).sum()} of {want.size} differ"
    a, b = got.astype(np.float64), want.astype(np.float64)
    low = want.dtype.itemsize < 4
    return "" if np.allclose(a, b, rtol=2e-2 if low else 1e-3, atol=1e-3 if low else 1e-5, equal_nan=True) else f"off by {np.nanmax(np.abs(a - b))}"
