"""Ensembles of decision trees (ai.onnx.ml): all rows walk through all trees at once, one level
after the other, by looking up tables. Compositions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ...declare.op import Op, fail, takes, unsupported
from .ml import ML, NUMBERS, _listed, class_labels, labelled_by_strings, transformed

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Graph, Value

MODES = [
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
]
HOLDS = [
    (1, 1, 0),
    (1, 0, 0),
    (0, 1, 1),
    (0, 0, 1),
    (0, 1, 0),
    (1, 0, 1),
]  # where x is less than, equal to, greater than the split
DEEPEST = 256
MOST_NODES = 1 << 22


class Forest:
    """features, splits: of each inner node; children: of each node four, where x is less, equal,
    greater, NaN; a leaf is ~its number. roots: nodes, or leaves.
    """

    def __init__(self):
        self.features, self.splits, self.children, self.roots = [], [], [], []

    def add(self, feature, mode, split, true, false, nan):
        """Sets a node's children. nan: whether NaN goes where true goes; it does where it is
        compared with !=.
        """
        self.features.append(feature)
        self.splits.append(split)
        self.children.append(
            [true if h else false for h in HOLDS[mode]] + [true if nan or mode == 5 else false]
        )

    def depth(self, n):
        """Of its deepest leaf; fails at a cycle or at what is not there."""
        depth, level = 0, set(self.roots)
        while True:
            level = {i for i in level if i >= 0}
            if not level:
                return depth
            depth += 1
            if depth > DEEPEST or max(level) >= len(self.features):
                fail(
                    n,
                    f"its trees are deeper than {DEEPEST}, run in a circle, or name nodes that do"
                    " not exist",
                )
            level = {c for i in level for c in self.children[i]}


def _leaves(node: BoundNode, graph: Graph, x, forest):
    """[rows, trees]: in which leaf each row ends in each tree."""
    rows, count, inner = x.shape[0], len(forest.roots), len(forest.features)
    if (
        inner > MOST_NODES
        or inner
        and not 0 <= min(forest.features) <= max(forest.features) < x.shape[1]
    ):
        fail(
            node,
            f"its features {min(forest.features)} to {max(forest.features)} are not those of {x}",
        )
    depth = forest.depth(node)

    def place(c):  # leaves stand behind the inner nodes, each its own child
        return c if c >= 0 else inner + ~c

    leaves = 1 + max(
        [~c for c in forest.roots if c < 0]
        + [~c for four in forest.children for c in four if c < 0],
        default=0,
    )
    at = graph.op(
        "Expand",
        graph.constant(INT64, [1, count], [place(r) for r in forest.roots]),
        graph.ints([rows, count]),
    )
    whole = inner + leaves
    if whole > MOST_NODES:
        fail(node, f"its trees have {whole} nodes and leaves; {MOST_NODES} is the most")
    features = graph.constant(INT64, [whole], forest.features + [0] * leaves)
    splits = graph.constant(x.dtype, [whole], forest.splits + [0.0] * leaves)
    children = graph.constant(
        INT64,
        [4 * whole],
        [place(c) for four in forest.children for c in four]
        + [inner + i for i in range(leaves) for _ in range(4)],
    )
    four = graph.constant(INT64, [], [4])
    for _ in range(depth):
        value, split = (
            graph.op("GatherElements", x, graph.op("Gather", features, at), axis=1),
            graph.op("Gather", splits, at),
        )
        way = graph.op(
            "Add",
            graph.op("Cast", graph.op("GreaterOrEqual", value, split), to=INT64),
            graph.op("Cast", graph.op("Greater", value, split), to=INT64),
        )
        way = graph.op("Where", graph.op("IsNaN", value), graph.constant(INT64, [], [3]), way)
        at = graph.op("Gather", children, graph.op("Add", graph.op("Mul", at, four), way))
    return graph.op("Sub", at, graph.constant(INT64, [], [inner])), leaves


def _scores(node: BoundNode, graph: Graph, x, forest, entries, targets, how):
    """[rows, targets] from entries [(leaf, target, weight)], put together as `how` says."""
    if how not in ("SUM", "AVERAGE", "MIN", "MAX"):
        unsupported(node, f"aggregate_function '{how}'")
    at, leaves = _leaves(node, graph, x, forest)
    nothing = (
        {"MIN": 3.4028234663852886e38, "MAX": -3.4028234663852886e38}.get(how, 0.0)
        if x.dtype == FLOAT
        else {"MIN": 1.7976931348623157e308, "MAX": -1.7976931348623157e308}.get(how, 0.0)
    )
    if (
        not 1 <= targets <= 1 << 16
        or leaves * targets > MOST_NODES
        or any(not 0 <= leaf < leaves or not 0 <= target < targets for leaf, target, _ in entries)
    ):
        fail(
            node,
            f"its leaves' weights name targets or leaves that do not exist, or its {leaves} leaves"
            f" and {targets} targets are too many",
        )
    table = [nothing] * (leaves * targets)
    put = {"MIN": min, "MAX": max}.get(how, lambda a, b: a + b)
    for leaf, target, weight in entries:
        table[leaf * targets + target] = put(table[leaf * targets + target], weight)
    y = graph.op(
        "Gather", graph.constant(x.dtype, [leaves, targets], table), at
    )  # [rows, trees, targets]
    y = graph.op(
        {"MIN": "ReduceMin", "MAX": "ReduceMax"}.get(how, "ReduceSum"),
        y,
        graph.ints([1]),
        keepdims=0,
    )
    return (
        graph.op("Mul", y, graph.constant(x.dtype, [], [1.0 / len(forest.roots)]))
        if how == "AVERAGE"
        else y
    )


def _matrix(node: BoundNode, graph: Graph):
    x = node.inputs[0]
    if x.dtype not in NUMBERS or x.rank != 2:
        fail(node, f"it wants a matrix of numbers, not {x}")
    return x if x.dtype == DOUBLE else graph.op("Cast", x, to=FLOAT)


def _numbers(node: BoundNode, name):
    """A list of numbers: attribute `name`, a list or a tensor, or `name`_as_tensor."""
    t = node.attrs.get(name + "_as_tensor", node.attrs.get(name))
    return list(t.numbers()) if hasattr(t, "numbers") else _listed(node, name)


tree_ensemble = Op("TreeEnsemble", ML)


@tree_ensemble.decompose
def tree_ensemble_decompose(n: BoundNode, graph: Binder) -> list[Value] | None:
    takes(n, (FLOAT, DOUBLE), 0)
    x, forest = _matrix(n, graph), Forest()
    splits, modes, weights = (
        _numbers(n, "nodes_splits"),
        _numbers(n, "nodes_modes"),
        _numbers(n, "leaf_weights"),
    )
    columns = [
        _listed(n, k, int)
        for k in (
            "nodes_featureids",
            "nodes_truenodeids",
            "nodes_falsenodeids",
            "nodes_trueleafs",
            "nodes_falseleafs",
        )
    ]
    nan, roots, targets = (
        _listed(n, "nodes_missing_value_tracks_true", int) or [0] * len(splits),
        _listed(n, "tree_roots", int),
        _listed(n, "leaf_targetids", int),
    )
    if (
        any(len(c) != len(splits) for c in [*columns, modes, nan])
        or len(weights) != len(targets)
        or not roots
        or not weights
        or any(not 0 <= m < len(MODES) for m in modes)
    ):
        fail(n, f"its attributes do not describe {len(splits)} nodes and {len(weights)} leaves")
    members = iter(_numbers(n, "membership_values"))
    extra = []  # further members of a set: nodes behind all others, each asking for one
    for i, (feature, true, false, true_leaf, false_leaf) in enumerate(zip(*columns)):
        if min(true, false) < 0:
            fail(n, f"node {i} has the children {true} and {false}")
        true, false = ~true if true_leaf else true, ~false if false_leaf else false
        if modes[i] != 6:
            forest.add(feature, modes[i], splits[i], true, false, nan[i])
            continue
        values = []
        for v in members:
            if v != v:
                break
            values.append(v)
        values = values or [math.inf]
        chain = [i] + [len(splits) + len(extra) + k for k in range(len(values) - 1)]
        forest.add(feature, 4, values[0], true, chain[1] if len(chain) > 1 else false, nan[i])
        for k, v in enumerate(values[1:], 1):
            extra.append(
                (feature, 4, v, true, chain[k + 1] if k + 1 < len(chain) else false, nan[i])
            )
    for node in extra:
        forest.add(*node)
    if any(not 0 <= r < len(splits) for r in roots):
        fail(n, f"its tree_roots {roots[:8]} are no nodes")
    forest.roots = roots
    scores = _scores(
        n,
        graph,
        x,
        forest,
        [(i, t, w) for i, (t, w) in enumerate(zip(targets, weights))],
        n.attr("n_targets", 1),
        ("AVERAGE", "SUM", "MIN", "MAX")[n.attr("aggregate_function", 1) & 3],
    )
    kind = n.attr("post_transform", 0)
    if not 0 <= kind < 5:
        unsupported(n, f"post_transform {kind}")
    n.attrs = {
        **n.attrs,
        "post_transform": ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[kind],
    }
    return [transformed(n, graph, scores)]


def _old_forest(n, leaf_prefix):
    """(forest, entries) of the attributes up to version 3, where leaves are nodes, too."""
    modes = n.attrs.get("nodes_modes") or []
    trees, ids, features, true, false = (
        _listed(n, "nodes_" + k, int)
        for k in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    values, nan = (
        _numbers(n, "nodes_values"),
        _listed(n, "nodes_missing_value_tracks_true", int) or [0] * len(modes),
    )
    if (
        not modes
        or any(len(c) != len(modes) for c in (trees, ids, features, true, false, values, nan))
        or any(m not in MODES[:6] and m != "LEAF" for m in modes)
    ):
        fail(n, f"its attributes do not describe {len(modes)} nodes")
    place, inner, leaves = {}, 0, 0
    for key, mode in zip(zip(trees, ids), modes):
        if key in place:
            fail(n, f"tree {key[0]} has two nodes {key[1]}")
        place[key] = ~leaves if mode == "LEAF" else inner
        inner, leaves = inner + (mode != "LEAF"), leaves + (mode == "LEAF")
    forest, seen = Forest(), set()
    for i, mode in enumerate(modes):
        if trees[i] not in seen:
            seen.add(trees[i])
            forest.roots.append(place[trees[i], ids[i]])
        if mode != "LEAF":
            children = [place.get((trees[i], c[i])) for c in (true, false)]
            if None in children:
                fail(n, f"node {ids[i]} of tree {trees[i]} has a child that does not exist")
            forest.add(features[i], MODES.index(mode), values[i], *children, nan[i])
    tree, node, target = (
        _listed(n, leaf_prefix + k, int) for k in ("_treeids", "_nodeids", "_ids")
    )
    weight = _numbers(n, leaf_prefix + "_weights")
    if not len(tree) == len(node) == len(target) == len(weight) or any(
        place.get(k, 0) >= 0 for k in zip(tree, node)
    ):
        fail(n, "its leaves' weights belong to no leaf")
    return forest, [(~place[a, b], c, w) for a, b, c, w in zip(tree, node, target, weight)]


def _with_base(node: BoundNode, graph: Graph, scores, targets):
    base = _numbers(node, "base_values")
    if len(base) not in (0, 1, targets):
        fail(node, f"{len(base)} base_values do not fit {targets} outputs")
    return (
        graph.op(
            "Add", scores, graph.constant(scores.dtype, [len(base)] if len(base) > 1 else [], base)
        )
        if base
        else scores
    )


regressor = Op("TreeEnsembleRegressor", ML)


@regressor.decompose
def regressor_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    forest, entries = _old_forest(node, "target")
    targets = node.attr("n_targets", 1)
    y = _with_base(
        node,
        graph,
        _scores(
            node,
            graph,
            _matrix(node, graph),
            forest,
            entries,
            targets,
            node.attr("aggregate_function", "SUM"),
        ),
        targets,
    )
    return [transformed(node, graph, graph.op("Cast", y, to=FLOAT))]


classifier = Op("TreeEnsembleClassifier", ML)
labelled_by_strings(classifier, "classlabels_int64s")


@classifier.decompose
def classifier_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Where all weights are the first class's of two, they are the second one's score, and
    onnxruntime's rules say what the first one's is.
    """
    forest, entries = _old_forest(node, "class")
    labels = _listed(node, "classlabels_int64s", int)
    classes = max(len(labels), len(node.attrs.get("classlabels_strings") or []))
    single = classes == 2 and {c for _, c, _ in entries} == {0}
    count = 1 if single else classes
    scores = _scores(node, graph, _matrix(node, graph), forest, entries, count, "SUM")
    base = _numbers(node, "base_values")
    if single and len(base) == 2:
        scores = graph.op("Add", scores, graph.constant(scores.dtype, [], [base[1]]))
    else:
        scores = _with_base(node, graph, scores, count)
    scores = graph.op("Cast", scores, to=FLOAT)
    if not single:
        index = graph.op("ArgMax", scores, axis=1, keepdims=0)
        return [class_labels(node, graph, index, labels), transformed(node, graph, scores)][
            : len(node.outputs)
        ]
    positive, kind = all(w >= 0 for _, _, w in entries), node.attr("post_transform", "NONE")
    over = graph.op("Greater", scores, graph.constant(FLOAT, [], [0.5 if positive else 0.0]))
    label = class_labels(
        node, graph, graph.op("Reshape", graph.op("Cast", over, to=INT64), graph.ints([-1])), labels
    )
    if kind in ("LOGISTIC", "PROBIT"):
        y = transformed(
            node,
            graph,
            (
                graph.op("Concat", graph.op("Neg", scores), scores, axis=1)
                if kind == "LOGISTIC"
                else scores
            ),
        )
    else:
        y = graph.op(
            "Concat",
            (
                graph.op("Sub", graph.constant(FLOAT, [], [1.0]), scores)
                if positive
                else graph.op("Neg", scores)
            ),
            scores,
            axis=1,
        )
    return [label, y][: len(node.outputs)]
