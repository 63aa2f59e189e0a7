"""Test cases of ops/ml/trees.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..forest import MODES
from ..trees import classifier, regressor, tree_ensemble

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


def _grown(
    t: Toolbox,
    trees: int,
    features: int,
    kinds: list[str],
    depth: int = 4,
    targets: int = 1,
    prefix: str = "target",
) -> dict[str, list[Any]]:
    """Attributes of random trees, as they were up to version 3."""
    a: dict[str, list[Any]] = {
        k: []
        for k in (
            "nodes_treeids",
            "nodes_nodeids",
            "nodes_featureids",
            "nodes_modes",
            "nodes_values",
            "nodes_truenodeids",
            "nodes_falsenodeids",
            "nodes_missing_value_tracks_true",
            prefix + "_treeids",
            prefix + "_nodeids",
            prefix + "_ids",
            prefix + "_weights",
        )
    }
    for tree in range(trees):
        front, count = [(0, 0)], 1
        while front:
            i, level = front.pop(0)
            leaf = level == depth or level > 0 and t.random.random() < 0.2
            mode = "LEAF" if leaf else kinds[int(t.random.integers(len(kinds)))]
            row = [
                tree,
                i,
                0 if leaf else int(t.random.integers(features)),
                mode,
                0.0 if leaf else float(round(t.random.normal() * 2) / 2),
                0 if leaf else count,
                0 if leaf else count + 1,
                int(t.random.integers(2)),
            ]
            for k, v in zip(list(a)[:8], row):
                a[k].append(v)
            if leaf:
                for target in range(targets):
                    for k, v in zip(list(a)[8:], [tree, i, target, float(t.random.normal())]):
                        a[k].append(v)
            else:
                front += [(count, level + 1), (count + 1, level + 1)]
                count += 2
    return a


def _rows(t: Toolbox, dtype: str = "float32") -> Any:
    x = (t.f(20, 5) * 4).round() / 2
    x[3, 1] = x[5, 0] = x[5, 3] = float("nan")
    return x.astype(dtype)


@regressor.cases
def regressor_cases(t: Toolbox) -> Cases:
    for kinds in (
        ["BRANCH_LEQ"],
        ["BRANCH_LT"],
        ["BRANCH_GTE"],
        ["BRANCH_GT"],
        ["BRANCH_EQ"],
        ["BRANCH_NEQ"],
        MODES[:6],
    ):
        yield t(
            _rows(t),
            n_targets=1,
            version=3,
            tol=1e-5,
            trust="ort",
            why="ONNX's reference reads one leaf's weights only",
            **_grown(t, 5, 5, kinds),
        )
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        yield t(
            _rows(t),
            n_targets=3,
            aggregate_function=how,
            base_values=[0.5, 1.0, -1.0],
            version=3,
            tol=1e-5,
            trust="ort",
            why="ONNX's reference reads one leaf's weights only",
            **_grown(t, 4, 5, ["BRANCH_LEQ"], 7, 3),
        )
    yield t(
        _rows(t),
        n_targets=2,
        post_transform="SOFTMAX",
        version=1,
        tol=1e-5,
        trust="ort",
        why="ONNX's reference has no transforms here",
        **_grown(t, 4, 5, ["BRANCH_LEQ"], 3, 2),
    )
    yield t(
        _rows(t, "float64"),
        n_targets=1,
        version=3,
        tol=1e-5,
        trust="ort",
        why="ONNX's reference reads one leaf's weights only",
        **_grown(t, 4, 5, ["BRANCH_LEQ"], 3),
    )


@classifier.cases
def classifier_cases(t: Toolbox) -> Cases:
    for post in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        for targets, labels in ((3, [7, 3, 5]), (1, [0, 1]), (2, [4, 9])):
            a = _grown(t, 5, 5, ["BRANCH_LEQ", "BRANCH_LT"], 4, targets, "class")
            only = (
                {
                    "trust": "onnx",
                    "why": "onnxruntime's labels of two classes that both have weights are 0 and 1",
                }
                if targets == 2
                else {
                    "trust": "ort",
                    "why": "what one score says of two classes is onnxruntime's own",
                }
            )
            yield t(
                _rows(t),
                outputs=2,
                classlabels_int64s=labels,
                post_transform=post,
                version=3,
                tol=1e-5,
                **only,
                **a,
            )
            a["class_weights"] = [abs(w) / 4 for w in a["class_weights"]]
            yield t(
                _rows(t),
                outputs=2,
                classlabels_int64s=labels,
                post_transform=post,
                version=1,
                tol=1e-5,
                **only,
                **a,
            )
    yield t(
        t.n("int64", 9, 5),
        outputs=2,
        classlabels_int64s=[1, 2, 3],
        version=3,
        tol=1e-5,
        trust="ort",
        why="the same",
        **_grown(t, 5, 5, ["BRANCH_LEQ"], 4, 3, "class"),
    )


@tree_ensemble.cases
def tree_ensemble_cases(t: Toolbox) -> Cases:
    for dtype in ("float32", "float64"):

        def tensor(values: list[Any], as_type: str = dtype) -> Any:
            return t.attr(t.of(as_type, values))

        for how in (0, 1, 2, 3):
            yield t(
                _rows(t, dtype),
                version=5,
                n_targets=2,
                aggregate_function=how,
                tree_roots=[0, 3],
                nodes_featureids=[0, 1, 4, 2, 3],
                nodes_splits=tensor([0.5, -1, 0, 1, 0]),
                nodes_modes=tensor([0, 1, 5, 3, 2], "uint8"),
                nodes_truenodeids=[1, 0, 1, 4, 4],
                nodes_falsenodeids=[2, 2, 3, 5, 6],
                nodes_trueleafs=[0, 1, 1, 0, 1],
                nodes_falseleafs=[0, 1, 1, 1, 1],
                nodes_missing_value_tracks_true=[0, 1, 1, 0, 1],
                leaf_targetids=[0, 1, 0, 1, 0, 1, 1],
                leaf_weights=tensor([0.5, 1, -2, 3, 0.25, 8, -1]),
                tol=1e-5,
                trust="onnx",
                why="onnxruntime's is being worked on",
            )
        yield t(
            abs(_rows(t, dtype)),
            version=5,
            n_targets=1,
            tree_roots=[0],
            nodes_featureids=[0, 0],
            nodes_splits=tensor([0, 2]),
            nodes_modes=tensor([6, 0], "uint8"),
            nodes_truenodeids=[0, 1],
            nodes_falsenodeids=[1, 2],
            nodes_trueleafs=[1, 1],
            nodes_falseleafs=[0, 1],
            leaf_targetids=[0, 0, 0],
            leaf_weights=tensor([1, 2, 4]),
            membership_values=tensor([1.5, 3, 1, float("nan")]),
            trust="onnx",
            why="onnxruntime's is being worked on",
        )
