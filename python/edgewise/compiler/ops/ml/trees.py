"""Ensembles of decision trees of ai.onnx.ml: TreeEnsemble, TreeEnsembleRegressor and
TreeEnsembleClassifier.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ...declare.op import Op, fail, takes, unsupported
from .attributes import ML, NUMBERS, numbers_attribute
from .forest import EQUAL, MAX_NODES, MEMBER, MODES, Forest, leaves_of_rows
from .scores import class_labels, classified, labelled_by_strings, transformed

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

    Entries = list[tuple[int, int, float]]  # (leaf, target, weight)

# What a minimum or maximum begins with.
_LARGEST = {FLOAT: 3.4028234663852886e38, DOUBLE: 1.7976931348623157e308}


def _scores(
    node: BoundNode,
    graph: Binder,
    x: Value,
    forest: Forest,
    entries: Entries,
    targets: int,
    how: str,
) -> Value:
    """[rows, targets] from the weights of leaves. how: SUM, AVERAGE, MIN or MAX."""
    if how not in ("SUM", "AVERAGE", "MIN", "MAX"):
        unsupported(node, f"aggregate_function '{how}'")
    at, leaves = leaves_of_rows(node, graph, x, forest), forest.leaves
    largest = _LARGEST[x.dtype]
    neutral = {"MIN": largest, "MAX": -largest}.get(how, 0.0)
    if (
        not 1 <= targets <= 1 << 16
        or leaves * targets > MAX_NODES
        or any(not 0 <= leaf < leaves or not 0 <= target < targets for leaf, target, _ in entries)
    ):
        fail(
            node,
            f"its leaves' weights name targets or leaves that do not exist, or its {leaves} leaves"
            f" and {targets} targets are too many",
        )
    table = [neutral] * (leaves * targets)
    for leaf, target, weight in entries:
        i = leaf * targets + target
        if how == "MIN":
            table[i] = min(table[i], weight)
        elif how == "MAX":
            table[i] = max(table[i], weight)
        else:
            table[i] += weight
    y = graph.op("Gather", graph.constant(x.dtype, [leaves, targets], table), at)
    reduction = {"MIN": "ReduceMin", "MAX": "ReduceMax"}.get(how, "ReduceSum")
    y = graph.op(reduction, y, graph.ints([1]), keepdims=0)  # over the trees
    if how == "AVERAGE":
        y = graph.op("Mul", y, graph.constant(x.dtype, [], [1.0 / len(forest.roots)]))
    return y


def _rows(node: BoundNode, graph: Binder) -> Value:
    """Input 0, a matrix, in float64 or float32."""
    x = node.inputs[0]
    if x.dtype not in NUMBERS or x.rank != 2:
        fail(node, f"it takes a matrix of numbers, not {x}")
    return x if x.dtype == DOUBLE else graph.op("Cast", x, to=FLOAT)


def _numbers(node: BoundNode, name: str) -> list[Any]:
    """A list of numbers: the attribute `name`, a list or a tensor, or `name`_as_tensor."""
    t: Any = node.attrs.get(name + "_as_tensor", node.attrs.get(name))
    return list(t.numbers()) if hasattr(t, "numbers") else numbers_attribute(node, name)


# ---- version 5 ----
def _forest(node: BoundNode) -> Forest:
    """The trees of a TreeEnsemble."""
    splits, modes = _numbers(node, "nodes_splits"), _numbers(node, "nodes_modes")
    columns = [
        numbers_attribute(node, k, int)
        for k in (
            "nodes_featureids",
            "nodes_truenodeids",
            "nodes_falsenodeids",
            "nodes_trueleafs",
            "nodes_falseleafs",
        )
    ]
    nan = numbers_attribute(node, "nodes_missing_value_tracks_true", int) or [0] * len(splits)
    roots = numbers_attribute(node, "tree_roots", int)
    if (
        any(len(c) != len(splits) for c in [*columns, modes, nan])
        or not roots
        or any(not 0 <= m < len(MODES) for m in modes)
    ):
        fail(node, f"its attributes do not describe {len(splits)} nodes")
    if any(not 0 <= r < len(splits) for r in roots):
        fail(node, f"its tree_roots {roots[:8]} are not nodes")
    forest = Forest()
    forest.roots = roots
    members = iter(_numbers(node, "membership_values"))
    # A node that tests for a set of values becomes a chain of nodes, each of which tests for one.
    # The first of them replaces it; the others follow the nodes of the file.
    others: list[tuple[int, int, float, int, int, int]] = []
    for i, (feature, true, false, true_leaf, false_leaf) in enumerate(zip(*columns)):
        if min(true, false) < 0:
            fail(node, f"node {i} has the children {true} and {false}")
        true, false = ~true if true_leaf else true, ~false if false_leaf else false
        if modes[i] != MEMBER:
            forest.add(feature, modes[i], splits[i], true, false, nan[i])
            continue
        values = _members(members)
        after = len(splits) + len(others)
        nexts = [*range(after, after + len(values) - 1), false]
        chain = [(feature, EQUAL, v, true, n, nan[i]) for v, n in zip(values, nexts)]
        forest.add(*chain[0])
        others += chain[1:]
    for other in others:
        forest.add(*other)
    return forest


def _members(numbers: Iterator[float]) -> list[float]:
    """The next set of membership_values: up to a NaN. An empty one has a member that nothing
    equals.
    """
    values = []
    for v in numbers:
        if v != v:
            break
        values.append(v)
    return values or [math.inf]


tree_ensemble = Op("TreeEnsemble", ML)


@tree_ensemble.decompose
def tree_ensemble_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    takes(node, (FLOAT, DOUBLE), 0)
    x, forest = _rows(node, graph), _forest(node)
    weights = _numbers(node, "leaf_weights")
    targets = numbers_attribute(node, "leaf_targetids", int)
    if not weights or len(weights) != len(targets):
        fail(node, f"its attributes do not describe {len(weights)} leaves")
    scores = _scores(
        node,
        graph,
        x,
        forest,
        [(i, t, w) for i, (t, w) in enumerate(zip(targets, weights))],
        node.attr("n_targets", 1),
        ("AVERAGE", "SUM", "MIN", "MAX")[node.attr("aggregate_function", 1) & 3],
    )
    kind = node.attr("post_transform", 0)
    if not 0 <= kind < 5:
        unsupported(node, f"post_transform {kind}")
    transform = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[kind]
    return [transformed(node, graph, scores, transform)]


# ---- up to version 3 ----
def _old_forest(node: BoundNode, leaf_prefix: str) -> tuple[Forest, Entries]:
    """The trees of attributes in which leaves are nodes, too, and the weights of the leaves.
    leaf_prefix: of the attributes that hold these: "class" or "target".
    """
    modes = node.attrs.get("nodes_modes") or []
    trees, ids, features, true, false = (
        numbers_attribute(node, "nodes_" + k, int)
        for k in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    values, nan = (
        _numbers(node, "nodes_values"),
        numbers_attribute(node, "nodes_missing_value_tracks_true", int) or [0] * len(modes),
    )
    if (
        not modes
        or any(len(c) != len(modes) for c in (trees, ids, features, true, false, values, nan))
        or any(m not in MODES[:MEMBER] and m != "LEAF" for m in modes)
    ):
        fail(node, f"its attributes do not describe {len(modes)} nodes")
    place: dict[tuple[int, int], int] = {}  # (tree, id): node, or ~leaf
    inner, leaves = 0, 0
    for key, mode in zip(zip(trees, ids), modes):
        if key in place:
            fail(node, f"tree {key[0]} has two nodes {key[1]}")
        place[key] = ~leaves if mode == "LEAF" else inner
        inner, leaves = inner + (mode != "LEAF"), leaves + (mode == "LEAF")
    forest, seen = Forest(), set()
    for i, mode in enumerate(modes):
        if trees[i] not in seen:
            seen.add(trees[i])
            forest.roots.append(place[trees[i], ids[i]])
        if mode != "LEAF":
            yes, no = (place.get((trees[i], c[i])) for c in (true, false))
            if yes is None or no is None:
                fail(node, f"node {ids[i]} of tree {trees[i]} has a child that does not exist")
            forest.add(features[i], MODES.index(mode), values[i], yes, no, nan[i])
    return forest, _old_entries(node, leaf_prefix, place)


def _old_entries(node: BoundNode, leaf_prefix: str, place: dict[tuple[int, int], int]) -> Entries:
    """The weights of the leaves. place: as in _old_forest."""
    tree, ids, target = (
        numbers_attribute(node, leaf_prefix + k, int) for k in ("_treeids", "_nodeids", "_ids")
    )
    weight = _numbers(node, leaf_prefix + "_weights")
    if not len(tree) == len(ids) == len(target) == len(weight) or any(
        place.get(k, 0) >= 0 for k in zip(tree, ids)
    ):
        fail(node, "its leaves' weights belong to no leaf")
    return [(~place[a, b], c, w) for a, b, c, w in zip(tree, ids, target, weight)]


def _with_base(node: BoundNode, graph: Binder, scores: Value, targets: int) -> Value:
    """Scores plus base_values."""
    base = _numbers(node, "base_values")
    if len(base) not in (0, 1, targets):
        fail(node, f"{len(base)} base_values do not fit {targets} outputs")
    if not base:
        return scores
    shape = [len(base)] if len(base) > 1 else []
    return graph.op("Add", scores, graph.constant(scores.dtype, shape, base))


regressor = Op("TreeEnsembleRegressor", ML)


@regressor.decompose
def regressor_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    forest, entries = _old_forest(node, "target")
    targets, how = node.attr("n_targets", 1), node.attr("aggregate_function", "SUM")
    y = _scores(node, graph, _rows(node, graph), forest, entries, targets, how)
    y = _with_base(node, graph, y, targets)
    return [transformed(node, graph, graph.op("Cast", y, to=FLOAT))]


classifier = Op("TreeEnsembleClassifier", ML)
labelled_by_strings(classifier, "classlabels_int64s")


@classifier.decompose
def classifier_decompose(node: BoundNode, graph: Binder) -> list[Value | None]:
    forest, entries = _old_forest(node, "class")
    labels = numbers_attribute(node, "classlabels_int64s", int)
    classes = max(len(labels), len(node.attrs.get("classlabels_strings") or []))
    single = classes == 2 and {c for _, c, _ in entries} == {0}
    count = 1 if single else classes
    scores = _scores(node, graph, _rows(node, graph), forest, entries, count, "SUM")
    base = _numbers(node, "base_values")
    if single and len(base) == 2:
        scores = graph.op("Add", scores, graph.constant(scores.dtype, [], [base[1]]))
    else:
        scores = _with_base(node, graph, scores, count)
    scores = graph.op("Cast", scores, to=FLOAT)
    if not single:
        return classified(node, graph, scores, labels)
    return _one_score(node, graph, scores, labels, all(w >= 0 for _, _, w in entries))


def _one_score(
    node: BoundNode, graph: Binder, scores: Value, labels: list[int], positive: bool
) -> list[Value | None]:
    """[labels, scores] of two classes whose weights all name the first one.

    They are the second class's scores; the first one's follow by onnxruntime's rules. positive:
    whether no weight is negative.
    """
    kind = node.attr("post_transform", "NONE")
    over = graph.op("Greater", scores, graph.constant(FLOAT, [], [0.5 if positive else 0.0]))
    index = graph.op("Reshape", graph.op("Cast", over, to=INT64), graph.ints([-1]))
    label = class_labels(node, graph, index, labels)
    if kind == "PROBIT":
        y = transformed(node, graph, scores)
    elif kind == "LOGISTIC":
        both = graph.op("Concat", graph.op("Neg", scores), scores, axis=1)
        y = transformed(node, graph, both)
    else:
        other = (
            graph.op("Sub", graph.constant(FLOAT, [], [1.0]), scores)
            if positive
            else graph.op("Neg", scores)
        )
        y = graph.op("Concat", other, scores, axis=1)
    return [label, y][: len(node.outputs)]
