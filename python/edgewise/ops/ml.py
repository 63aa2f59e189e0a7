"""Operators of ai.onnx.ml on numbers: scaling and encoding of features, linear models, support vectors. Compositions."""
from __future__ import annotations

import math

from .dtypes import DOUBLE, FLOAT, FLOATS, INT32, INT64
from .op import Op, fail, product, unsupported
from .symbolic import NeedsHost
from .values import RunTensor, StringTensor

ML = "ai.onnx.ml"
NUMBERS = (FLOAT, DOUBLE, INT32, INT64)


def _floats(g, values, shape=None, dtype=FLOAT):
    return g.constant(dtype, [len(values)] if shape is None else shape, [float(v) for v in values])


def _listed(n, name, *kinds):
    """An attribute that is a list of numbers, [] where there is none."""
    values = n.attrs.get(name) or []
    if type(values) is not list or any(type(v) not in (kinds or (int, float)) for v in values):
        fail(n, f"its attribute '{name}' is no list of numbers")
    return values


def _matrix(n, g, i=0, dtype=FLOAT):
    """Input i as [rows, features] of a float type; one row where it has one dimension."""
    x = n.inputs[i]
    if x.dtype not in NUMBERS or x.rank not in (1, 2):
        fail(n, f"it wants a matrix of numbers, not {x}")
    x = g.op("Cast", x, to=dtype)
    return x if x.rank == 2 else g.op("Unsqueeze", x, g.ints([0]))


def transformed(n, g, scores):
    """Scores [rows, classes] as post_transform says."""
    kind = n.attr("post_transform", "NONE")
    if kind in ("", "NONE"):
        return scores
    if kind == "LOGISTIC":
        return g.op("Sigmoid", scores)
    if kind == "SOFTMAX":
        return g.op("Softmax", scores, axis=1)
    if kind == "PROBIT":
        return _probit(g, scores)
    if kind != "SOFTMAX_ZERO":
        unsupported(n, f"post_transform '{kind}'")
    axis = g.ints([1])
    most = g.op("ReduceMax", scores, axis)
    near_zero = g.op("LessOrEqual", g.op("Abs", scores), _floats(g, [1e-7], []))
    shares = g.op("Where", near_zero, g.op("Mul", scores, g.op("Exp", g.op("Neg", most))), g.op("Exp", g.op("Sub", scores, most)))
    total = g.op("ReduceSum", shares, axis)
    nothing = g.op("Equal", total, _floats(g, [0], []))
    return g.op("Where", nothing, _floats(g, [0.5], []), g.op("Div", shares, g.op("Where", nothing, _floats(g, [1], []), total)))


def _probit(g, p):
    """sqrt(2) erfinv(2 p - 1), by the formula of Winitzki 2008 that onnxruntime has."""
    x = g.op("Sub", g.op("Mul", p, _floats(g, [2], [])), _floats(g, [1], []))
    log = g.op("Log", g.op("Sub", _floats(g, [1], []), g.op("Mul", x, x)))
    a = g.op("Add", _floats(g, [2 / (math.pi * 0.147)], []), g.op("Mul", log, _floats(g, [0.5], [])))
    root = g.op("Sqrt", g.op("Sub", g.op("Mul", a, a), g.op("Mul", log, _floats(g, [1 / 0.147], []))))
    return g.op("Mul", g.op("Mul", g.op("Sign", x), g.op("Sqrt", g.op("Sub", root, a))), _floats(g, [1.41421356], []))


def class_labels(n, g, index, labels):
    """Labels, int64, of classes [rows]; the index itself where the node names none. Raises NeedsHost where they are strings (labelled_by_strings)."""
    if n.attrs.get("classlabels_strings"):
        if not n.wants(0):
            return None
        raise NeedsHost
    return g.op("Gather", g.constant(INT64, [len(labels)], labels), index) if labels else index


def labelled_by_strings(op, integers):
    """Lets a classifier have classlabels_strings: the host puts them in the place of integer labels, which the attribute `integers` gives."""
    @op.host
    def _(n, run, inputs):
        names = n.attrs.get("classlabels_strings")
        if not names or not n.wants(0):
            return None
        if type(names) is not list or not all(isinstance(s, str) for s in names):
            fail(n, "its classlabels_strings are no list of strings", "Export the model again.")
        attrs = {k: v for k, v in n.attrs.items() if k != "classlabels_strings"}
        index, *scores = run.plain(n.op, n.domain, inputs, [o is not None for o in n.outputs], {**attrs, integers: list(range(len(names)))}, n.opset)
        return [StringTensor(index.shape, [names[i] if len(names) > 1 else str(i) for i in index.numbers]), *scores]


array_feature_extractor = Op("ArrayFeatureExtractor", ML)


@array_feature_extractor.decompose
def _(n, g):
    x, index = n.inputs[:2]
    if not x.rank:
        fail(n, "it wants at least one dimension")
    y = g.op("Gather", x, g.op("Reshape", index, g.ints([product(index.shape)])), axis=-1)
    return [y if x.rank > 1 else g.op("Unsqueeze", y, g.ints([0]))]


@array_feature_extractor.cases
def _(t):
    yield t(t.f(3, 4), t.of("int64", [[0, 2, 3]]))
    yield t(t.f(2, 3, 4), t.of("int64", [1]))
    yield t(t.n("int64", 3, 4), t.of("int64", [3, 0]))
    yield t(t.f(3, 4, dtype="float64"), t.of("int64", [3, 0]))


binarizer = Op("Binarizer", ML)


@binarizer.decompose
def _(n, g):
    x = n.inputs[0]
    threshold = n.attr("threshold", 0.0)
    if x.dtype not in NUMBERS:
        fail(n, f"it wants numbers, not {x}")
    return [g.op("Cast", g.op("Greater", x, _floats(g, [threshold], [], x.dtype)) if x.dtype in FLOATS else g.op("Greater", g.op("Cast", x, to=DOUBLE), _floats(g, [threshold], [], DOUBLE)), to=x.dtype)]


@binarizer.cases
def _(t):
    yield t(t.f(3, 4))
    yield t(t.f(3, 4, 5), threshold=0.5)
    yield t(t.of("float32", [float("nan"), 1, -1]), threshold=-0.5)


scaler = Op("Scaler", ML)


@scaler.decompose
def _(n, g):
    x = g.op("Cast", n.inputs[0], to=FLOAT)
    for name, op in (("offset", "Sub"), ("scale", "Mul")):
        values = _listed(n, name)
        if len(values) not in (0, 1, x.shape[-1] if x.rank else 1):
            fail(n, f"{len(values)} values of '{name}' do not fit {x}")
        if values:
            x = g.op(op, x, _floats(g, values, [] if len(values) == 1 else None))
    return [x]


@scaler.cases
def _(t):
    for x in (t.f(3, 4), t.n("int64", 3, 4), t.n("int32", 3, 4), t.f(3, 4, dtype="float64")):
        yield t(x, offset=[1.0, 2.0, -1.0, 0.5], scale=[0.5, 2.0, 3.0, 4.0], tol=1e-5, trust="ort", why="ONNX's reference keeps the input's type")
    yield t(t.f(3, 4), offset=[1.0], scale=[0.5], trust="ort", why="the same")


normalizer = Op("Normalizer", ML)


@normalizer.decompose
def _(n, g):
    """Each row divided by its largest, its sum of or its root of squared absolute values; rows of zeros stay."""
    kind, x, axis = n.attr("norm", "MAX"), _matrix(n, g), g.ints([1])
    if kind not in ("MAX", "L1", "L2"):
        unsupported(n, f"norm '{kind}'")
    size = g.op({"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[kind], g.op("Abs", x) if kind == "MAX" else x, axis)
    return [g.op("Div", x, g.op("Where", g.op("Equal", size, _floats(g, [0], [])), _floats(g, [1], []), size))]


@normalizer.cases
def _(t):
    x = t.f(4, 5)
    x[2] = 0
    for norm in ("MAX", "L1", "L2"):
        yield t(x if norm != "MAX" else abs(x), norm=norm, tol=1e-5, trust="ort", why="ONNX's reference keeps the input's type")
    yield t(t.n("int64", 3, 4, low=1), norm="L2", trust="ort", why="ONNX's reference keeps the input's type")


imputer = Op("Imputer", ML)


@imputer.decompose
def _(n, g):
    x = n.inputs[0]
    real = x.dtype in FLOATS
    values, gone = _listed(n, "imputed_value_floats" if real else "imputed_value_int64s"), n.attr("replaced_value_float", 0.0) if real else n.attr("replaced_value_int64", 0)
    if x.dtype not in NUMBERS or x.rank not in (1, 2) or len(values) not in (1, x.shape[-1]):  # [N, C] or [C]
        fail(n, f"{len(values)} imputed values do not fit {x}")
    values = g.constant(x.dtype, [len(values)] if len(values) != 1 else [], [float(v) if real else v for v in values])
    missing = g.op("IsNaN", x) if gone != gone else g.op("Equal", x, g.constant(x.dtype, [], [gone]))
    return [g.op("Where", missing, values, x)]


@imputer.cases
def _(t):
    nan = float("nan")
    x = t.of("float32", [[1, nan, 3], [nan, 0, 2]])
    yield t(x, imputed_value_floats=[9.0, 8.0, 7.0], replaced_value_float=nan)
    yield t(x, imputed_value_floats=[9.0], replaced_value_float=nan)
    yield t(x, imputed_value_floats=[9.0, 8.0, 7.0], replaced_value_float=2.0)
    yield t(t.of("int64", [[1, -1, 3], [-1, 0, 2]]), imputed_value_int64s=[9, 8, 7], replaced_value_int64=-1)


feature_vectorizer = Op("FeatureVectorizer", ML)


@feature_vectorizer.decompose
def _(n, g):
    sizes = _listed(n, "inputdimensions", int)
    if len(sizes) != len(n.inputs) or any(s < 0 for s in sizes):
        fail(n, f"inputdimensions {sizes} do not fit {len(n.inputs)} inputs")
    parts = []
    for i, size in enumerate(sizes):
        x = n.inputs[i]
        if x.rank not in (1, 2) or x.dtype not in NUMBERS:
            fail(n, f"it wants matrices of numbers, not {x}")
        x = g.op("Cast", x, to=FLOAT)
        x = x if x.rank == 2 else g.op("Unsqueeze", x, g.ints([1]))
        parts.append(g.op("Pad", x, g.ints([0, 0, 0, size - x.shape[1]])) if size != x.shape[1] else x)
    return [g.op("Concat", *parts, axis=1)]


@feature_vectorizer.cases
def _(t):
    only = {"trust": "ort", "why": "ONNX's reference keeps the input's type"}
    yield t(t.f(3, 2), t.f(3, 4), inputdimensions=[2, 4], **only)
    yield t(t.f(3, 2), t.f(3, 1), t.f(3, 3), inputdimensions=[2, 1, 3], **only)
    yield t(t.f(3, 2), t.f(3, 4), inputdimensions=[3, 2], trust="ort", why="ONNX's reference keeps the input's type")
    yield t(t.n("int64", 3, 2), inputdimensions=[2], trust="ort", why="ONNX's reference keeps the input's type")


one_hot_encoder = Op("OneHotEncoder", ML)


@one_hot_encoder.decompose
def _(n, g):
    """Categories as float32 ones and zeros in a new last dimension; what is none of them is all zeros."""
    x, categories = n.inputs[0], _listed(n, "cats_int64s", int)
    if x.dtype not in NUMBERS or not categories:
        fail(n, f"it wants numbers and categories, and has {x} and {categories}")
    if not n.attr("zeros", 1):
        raise NeedsHost  # who looks whether all are known
    x = g.op("Unsqueeze", g.op("Cast", x, to=INT64), g.ints([-1]))
    return [g.op("Cast", g.op("Equal", x, g.constant(INT64, [len(categories)], categories)), to=FLOAT)]


@one_hot_encoder.host
def _(n, run, inputs):
    """Categories that are strings, and with zeros = 0 the check that there are no others."""
    x, strict = inputs[0], not n.attr("zeros", 1)
    if isinstance(x, StringTensor):
        names = n.attrs.get("cats_strings")
        if type(names) is not list or not names:
            fail(n, f"it has {x} and no categories that are strings", "Check what is fed; if it is right, export the model again.")
        place = {name: i for i, name in reversed(list(enumerate(names)))}
        found, count = [place.get(s, -1) for s in x.strings], len(names)
    elif strict and isinstance(x, RunTensor):
        categories = _listed(n, "cats_int64s", int)
        place = {c: i for i, c in reversed(list(enumerate(categories)))}
        found, count = [place.get(int(v), -1) for v in x.numbers], len(categories)
    else:
        return None
    if strict and -1 in found:
        fail(n, "a category that it does not know is fed, and it is to fail there (zeros = 0)", "Feed known categories, or export the model with zeros = 1.")
    return [RunTensor.of(FLOAT, [*x.shape, count], [float(i == k) for i in found for k in range(count)])]


@one_hot_encoder.cases
def _(t):
    yield t(t.n("int64", 7, low=0, high=4), cats_int64s=[0, 2, 3])
    yield t(t.n("int64", 3, 4, low=0, high=4), cats_int64s=[4, 1])
    yield t(t.n("int32", 5, low=0, high=4), cats_int64s=[4, 1, 0])
    yield t(t.f(5, low=0, high=4), cats_int64s=[1, 2], trust="ort", why="ONNX's reference compares without a cast")


def _linear(n, g, x, classes):
    """x times coefficients [classes, features] plus intercepts."""
    w, b = _listed(n, "coefficients"), _listed(n, "intercepts")
    if len(w) != classes * x.shape[1] or len(b) not in (0, 1, classes):
        fail(n, f"{len(w)} coefficients and {len(b)} intercepts do not fit {x} and {classes} outputs")
    y = g.op("MatMul", x, g.op("Transpose", _floats(g, w, [classes, x.shape[1]]), perm=[1, 0]))
    return g.op("Add", y, _floats(g, b, [] if len(b) == 1 else None)) if b else y


linear_regressor = Op("LinearRegressor", ML)


@linear_regressor.decompose
def _(n, g):
    return [transformed(n, g, _linear(n, g, _matrix(n, g), n.attr("targets", 1)))]


@linear_regressor.cases
def _(t):
    only = {"trust": "ort", "why": "ONNX's reference keeps the input's type, and has no transforms"}
    yield t(t.f(5, 4), coefficients=[1.0, -2.0, 3.0, 0.5], intercepts=[0.25], tol=1e-4, **only)
    yield t(t.f(5, 2), coefficients=[1.0, -2.0, 3.0, 0.5], intercepts=[0.25, 2.0], targets=2, tol=1e-4, **only)
    for post in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        yield t(t.f(5, 2), coefficients=[1.0, -2.0, 3.0, 0.5], intercepts=[0.25, 2.0], targets=2, post_transform=post, tol=1e-4, **only)
    yield t(t.f(5, 2, low=0, high=0.3), coefficients=[1.0, 1.0], intercepts=[0.05], post_transform="PROBIT", tol=1e-4, **only)


def above_zero(g, scores):
    """0 or 1, int64 [rows]: whether scores [rows, 1] are above 0."""
    return g.op("Reshape", g.op("Cast", g.op("Greater", scores, _floats(g, [0], [])), to=INT64), g.ints([-1]))


def second_of_two(n, g, scores, label, negated=("LOGISTIC",)):
    """[label, scores of both classes] from those of the second one, [rows, 1], as onnxruntime has them: only what `negated` names makes a distribution of them, else the first
    one's is what is left to 1."""
    kind = n.attr("post_transform", "NONE")
    if kind == "PROBIT":
        unsupported(n, "post_transform 'PROBIT' of one score for two classes")
    other = g.op("Neg", scores) if kind in negated else g.op("Sub", _floats(g, [1], []), scores)
    both = g.op("Concat", other, scores, axis=1)
    return [label, g.op("Sigmoid", both) if kind == "LOGISTIC" else both][:len(n.outputs)]


def classified(n, g, scores, labels):
    """[labels, scores] of a classifier whose scores [rows, classes] are all there."""
    index = g.op("ArgMax", scores, axis=1, keepdims=0)
    return [class_labels(n, g, index, labels), transformed(n, g, scores)][:len(n.outputs)]


linear_classifier = Op("LinearClassifier", ML)
labelled_by_strings(linear_classifier, "classlabels_ints")


@linear_classifier.decompose
def _(n, g):
    labels = _listed(n, "classlabels_ints", int)
    classes = max(len(labels), len(n.attrs.get("classlabels_strings") or []))
    x = _matrix(n, g)
    rows = len(_listed(n, "coefficients")) // max(x.shape[1], 1)
    scores = _linear(n, g, x, rows)
    if rows == 1 and classes == 2:
        return second_of_two(n, g, scores, class_labels(n, g, above_zero(g, scores), labels))
    if rows == 1:
        y = transformed(n, g, scores)
        over = g.op("GreaterOrEqual", y, _floats(g, [0.0 if n.attr("post_transform", "NONE") == "NONE" else 0.5], []))
        label = g.op("Reshape", g.op("Where", over, g.constant(INT64, [], [labels[0] if labels else 1]), g.constant(INT64, [], [0])), g.ints([-1]))
        return [label, y][:len(n.outputs)]
    if classes not in (0, rows):
        fail(n, f"{classes} labels do not fit coefficients of {rows} classes")
    return classified(n, g, scores, labels)


@linear_classifier.cases
def _(t):
    for post in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        yield t(t.f(7, 2), coefficients=[1.0, -2.0, 3.0, 0.5, -1.0, 0.3], intercepts=[0.25, 2.0, -0.5], classlabels_ints=[5, 2, 9], post_transform=post, outputs=2, tol=1e-4, multi_class=0)
        yield t(t.f(7, 3), coefficients=[1.0, -2.0, 3.0], intercepts=[0.25], classlabels_ints=[-1, 1], post_transform=post, outputs=2, tol=1e-4,
                **({"trust": "ort", "why": "onnxruntime writes 1 - score and score"} if post != "LOGISTIC" else {}))
    yield t(t.n("int64", 7, 2, low=-5, high=5), coefficients=[1.0, -2.0, 3.0, 0.5, -1.0, 0.3], intercepts=[0.25, 2.0, -0.5], classlabels_ints=[0, 1, 2], outputs=2, tol=1e-4)
