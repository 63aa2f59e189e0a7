"""Classifiers with string labels, and encoders of strings (ai.onnx.ml), against onnxruntime."""

import edgewise
import numpy as np
import onnxruntime
import pytest
from edgewise.errors import ModelError
from onnx import TensorProto, helper

from .harness import Toolbox

ML = "ai.onnx.ml"
S, F, I = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64


def both(node, feeds, outputs):
    """(onnxruntime's outputs, Edgewise's) of a model of one node, or of several. outputs: {name:
    element type}.
    """
    nodes = node if isinstance(node, list) else [node]
    fed = [
        helper.make_tensor_value_info(
            n, S if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        for n, x in feeds.items()
    ]
    graph = helper.make_graph(
        nodes, "g", fed, [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=8
    ).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"]).run(
        None, feeds
    ), edgewise.InferenceSession(model).run(None, feeds)


def same(want, got):
    assert len(want) == len(got)
    for w, g in zip(want, got):
        assert w.shape == g.shape
        assert np.allclose(w, g, 1e-4, 1e-5) if w.dtype.kind == "f" else w.tolist() == g.tolist()


# long: a table of models
def classifiers():
    t = Toolbox(ML, "strings")
    for classes in (2, 3):
        names = ["no", "yes", "perhaps"][:classes]
        rows = 1 if classes == 2 else 3
        yield (
            f"linear-{classes}",
            "LinearClassifier",
            {
                "coefficients": t.f(rows * 4).tolist(),
                "intercepts": t.f(rows).tolist(),
                "classlabels_strings": names,
            },
        )
        for probabilities in (False, True):
            pairs, sizes = classes * (classes - 1) // 2, [3, 2, 4][:classes]
            svm = {
                "kernel_type": "RBF",
                "kernel_params": [0.5, 0.0, 3.0],
                "vectors_per_class": sizes,
                "support_vectors": t.f(4 * sum(sizes)).tolist(),
                "coefficients": t.f((classes - 1) * sum(sizes)).tolist(),
                "rho": [0.0] * pairs,
                "classlabels_strings": names,
            }
            yield (
                f"svm-{classes}-{probabilities}",
                "SVMClassifier",
                {
                    **svm,
                    **(
                        {"prob_a": [-1.0] * pairs, "prob_b": [0.25] * pairs}
                        if probabilities
                        else {}
                    ),
                },
            )
    tree = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.1, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
    }
    yield (
        "trees-3",
        "TreeEnsembleClassifier",
        {
            **tree,
            "class_treeids": [0, 0],
            "class_nodeids": [1, 2],
            "class_ids": [2, 1],
            "class_weights": [0.75, 1.0],
            "classlabels_strings": ["no", "yes", "perhaps"],
        },
    )
    yield (
        "trees-2",
        "TreeEnsembleClassifier",
        {
            **tree,
            "class_treeids": [0, 0],
            "class_nodeids": [1, 2],
            "class_ids": [0, 0],
            "class_weights": [0.25, 0.75],
            "classlabels_strings": ["no", "yes"],
        },
    )


CLASSIFIERS = {name: rest for name, *rest in classifiers()}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels(name):
    op, attrs = CLASSIFIERS[name]
    x = Toolbox(ML, name).f(40, 4) * 2
    node = helper.make_node(op, ["x"], ["label", "score"], domain=ML, **attrs)
    want, got = both(node, {"x": x}, {"label": S, "score": F})
    same(want, got)
    assert len(set(got[0])) > 1
    if name != "trees-2":
        only, scores = both(node, {"x": x}, {"score": F})
        same(only, scores)


def test_labels_are_looked_up_and_mapped():
    """What converters append to a classifier: the label of the best class from a list of strings,
    and a map of scores.
    """
    op, attrs = CLASSIFIERS["svm-3-True"]
    nodes = [
        helper.make_node("Constant", [], ["names"], value_strings=["a", "b", "c"]),
        helper.make_node(op, ["x"], ["label", "score"], domain=ML, **attrs),
        helper.make_node("ArgMax", ["score"], ["i"], axis=1, keepdims=0),
        helper.make_node("ArrayFeatureExtractor", ["names", "i"], ["best"], domain=ML),
        helper.make_node("Identity", ["best"], ["y"]),
    ]
    x = Toolbox(ML, "looked up").f(6, 4)
    same(*both(nodes, {"x": x}, {"y": S, "label": S}))


@pytest.mark.parametrize("shape, index", [([3], [[0, 2, 1]]), ([2, 3], [2, 0]), ([2, 2, 3], [1])])
def test_array_feature_extractor(shape, index):
    x = np.array([f"s{i}" for i in range(int(np.prod(shape)))], object).reshape(shape)
    same(
        *both(
            helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain=ML),
            {"x": x, "i": np.array(index)},
            {"y": S},
        )
    )


@pytest.mark.parametrize("shape", [[4], [2, 2], [1, 4, 1]])
def test_one_hot_of_strings(shape):
    x = np.array(["b", "none", "a", "b"], object).reshape(shape)
    same(
        *both(
            helper.make_node(
                "OneHotEncoder", ["x"], ["y"], domain=ML, cats_strings=["a", "b", "c"], zeros=1
            ),
            {"x": x},
            {"y": F},
        )
    )


@pytest.mark.parametrize(
    "good, bad, categories",
    [
        (np.array(["b", "a"], object), np.array(["b", "q"], object), {"cats_strings": ["a", "b"]}),
        (np.array([5, 2]), np.array([5, 3]), {"cats_int64s": [2, 5]}),
        (np.array([5, 2], np.float32), np.array([5, 3], np.float32), {"cats_int64s": [2, 5]}),
    ],
)
def test_one_hot_that_knows_all(good, bad, categories):
    """zeros = 0: a category that is not there is an error."""
    node = helper.make_node("OneHotEncoder", ["x"], ["y"], domain=ML, zeros=0, **categories)
    same(*both(node, {"x": good}, {"y": F}))
    with pytest.raises(Exception, match="Unknown Category"):
        both(node, {"x": bad}, {"y": F})
    model = helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [
                helper.make_tensor_value_info(
                    "x",
                    S if bad.dtype == object else helper.np_dtype_to_tensor_dtype(bad.dtype),
                    [2],
                )
            ],
            [helper.make_tensor_value_info("y", F, None)],
        ),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)],
        ir_version=8,
    )
    with pytest.raises(ModelError, match="unknown category"):
        edgewise.InferenceSession(model.SerializeToString()).run(None, {"x": bad})
