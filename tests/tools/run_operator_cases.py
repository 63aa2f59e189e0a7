"""Runs the operator cases of ONNX Runtime Web (js/web/test/data/ops/*.jsonc) and counts
(docs/contribute/peers.md).

python tests/tools/run_operator_cases.py FILE... [--constants]

--constants: all inputs but the first are constants of the graph.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import edgewise
import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

DTYPES = {"float": "float32", "double": "float64"}
COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.S)


def read(path):
    """The tests of a file: JSON with comments and trailing commas."""
    text = COMMENT.sub(lambda found: found[1] or "", path.read_text())
    return json.loads(re.sub(r",(\s*[\]}])", r"\1", text))


def array(value):
    kind = DTYPES.get(value["type"], value["type"])
    if kind == "string":
        return np.array(value["data"], object).reshape(value["dims"])
    if kind in ("int4", "uint4"):
        return np.array(value["data"]).astype(getattr(ml_dtypes, kind)).reshape(value["dims"])
    return np.array(value["data"]).astype(kind).reshape(value["dims"])


def model_of(test, case, constants):
    """The model of a case, and its feeds."""
    inputs = [None if value["data"] is None else array(value) for value in case["inputs"]]
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    outputs = ["" if v["data"] is None else f"y{i}" for i, v in enumerate(case["outputs"])]
    attributes = {a["name"]: a["data"] for a in test.get("attributes", [])}
    opset = test.get("opset") or {"domain": "", "version": 21}
    node = helper.make_node(test["operator"], names, outputs, domain=opset["domain"], **attributes)
    fed = [i for i, value in enumerate(inputs) if value is not None and not (constants and i)]
    kept = [i for i, value in enumerate(inputs) if value is not None and i not in fed]
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(
                names[i], helper.np_dtype_to_tensor_dtype(inputs[i].dtype), inputs[i].shape
            )
            for i in fed
        ],
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array(value).dtype), None
            )
            for name, value in zip(outputs, case["outputs"], strict=True)
            if name
        ],
        [numpy_helper.from_array(inputs[i], names[i]) for i in kept],
    )
    domains = {"": 21} | {opset["domain"]: opset["version"]}
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model.SerializeToString(), {names[i]: inputs[i] for i in fed}


def fault(test, case, constants):
    """What is wrong with a case's result; empty: nothing."""
    try:
        model, feeds = model_of(test, case, constants)
        results = edgewise.InferenceSession(model).run(None, feeds)
    except Exception as e:  # noqa: BLE001
        return f"{type(e).__name__}: {e}"
    wanted = [array(value) for value in case["outputs"] if value["data"] is not None]
    for got, want in zip(results, wanted, strict=True):
        if np.shape(got) != want.shape:
            return f"the shape is {np.shape(got)}, not {want.shape}"
        same = got == want if want.dtype == object else np.isclose(got, want, 1e-3, 1e-3, True)
        if not np.all(same):
            return f"{np.sum(~same)} of {want.size} elements differ"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--constants", action="store_true")
    given = parser.parse_args()
    right = 0
    wrong = []
    for path in given.files:
        for test in read(path):
            for case in test["cases"]:
                found = fault(test, case, given.constants)
                right += not found
                if found:
                    wrong.append(f"{path.name}: {test['name']}, {case['name']}: {found}")
    print(*wrong, f"{right} right, {len(wrong)} not", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
