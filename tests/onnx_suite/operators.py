"""Writes OPERATORS.md, the table of all operators, from their declarations and cases: `make
operators`, or PYTHONPATH=python:tests python -m onnx_suite.operators

The versions are those of onnx.defs that test_versions.py runs. The gradient column is the result of
differentiating the cases, the page column depends on the kernels that their plans call.
"""

import warnings
from collections import defaultdict
from pathlib import Path

import edgewise
import numpy as np
from edgewise.bind import bind
from edgewise.bind.autodiff import Gradients, add_gradients
from edgewise.declare.dtypes import FLOAT
from edgewise.declare.kernel import KERNELS
from edgewise.declare.symbolic import NeedsHost, NotStatic
from edgewise.errors import EdgewiseError
from edgewise.inspect import is_supported
from edgewise.ir import NeedsValue
from edgewise.onnx import BytesSource, read_model
from edgewise.ops import OPS
from edgewise.passes import COMBINE, RECOGNISE
from edgewise.plan.builder import lower
from engines import open_engine
from onnx import helper
from ops.harness import MS, all_cases

from .versions import FIRST, cases, history, versions

FILE = Path(__file__).with_name("OPERATORS.md")
MOST = 24  # maximum number of cases per operator
DOMAINS = {"": "ai.onnx", MS: "com.microsoft"}
HEAD = """# Operators

Written by `make operators` from the declarations in \
[python/edgewise/ops](../../python/edgewise/ops) and their cases; \
`make test` fails where it is not what they say.

- **versions**: of the operator set, from opset 7 on, in which the operator changed. Each is run \
and compared with onnxruntime or ONNX's reference (test_versions.py); the newest one serves all \
later opsets.
- **gradient**: *yes*: for all of its cases; *partly*: for some; *zero*: it has one, which is zero \
almost everywhere; *no*; *-*: it makes no floats of floats.
- **page**: which WebAssembly engine has all kernels that it needs: *base*, which every page \
loads, or *full*, which a page loads in its place where a model needs it, be it only to train.
- **WebGPU**: there is none yet.

Quantized operators and types, control flow and strings are in the table as any other. What is \
left of ONNX's own backend tests, and why, stands in [test_suite.py](test_suite.py).
"""


def kernels(model, feeds):
    """Names of the kernels that a run calls."""
    try:
        session = edgewise.InferenceSession(model.SerializeToString(), engine=open_engine("native"))
        session.run(None, feeds)
        return {k for compiled in session.plans.values() for k in compiled.plan.kernels}
    except EdgewiseError:  # one of the exceptions of test_suite.py
        return set()


def gradient(model, feeds):
    """Differentiates a model.

    Returns ("yes", "no" or "zero": the gradients of its float inputs, names of the kernels that
    they call). The first is None if there is no float input or output, or shapes depend on a run.
    """
    arrays = {n: np.asarray(x) for n, x in feeds.items() if not isinstance(x, list)}
    if len(arrays) != len(feeds) or any(x.dtype == object for x in arrays.values()):
        return None, set()
    known = {
        n: x.reshape(-1).tolist()
        for n, x in arrays.items()
        if x.dtype.kind in "iub" and x.size <= 512
    }
    try:
        graph = read_model(BytesSource(model.SerializeToString()))
        bound = bind(
            graph,
            {n: list(x.shape) for n, x in arrays.items()},
            {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in arrays.items()},
            known,
            float_outputs=True,
        )
        for p in RECOGNISE:
            p(bound)
        wrt, seeds = (
            [v for v in bound.inputs.values() if v.dtype == FLOAT],
            [v for v in bound.prune().outputs.values() if v.dtype == FLOAT],
        )
        if not wrt or not seeds:
            return None, set()
        g, missing = Gradients(bound), []
        found = add_gradients(
            bound,
            [(v, g.op("Expand", g.number(1.0), g.ints(v.shape))) for v in seeds],
            wrt,
            missing,
        )
        bound.outputs = {f"gradient/{v.name}": d for v, d in zip(wrt, found) if d is not None}
        for p in COMBINE:
            p(bound)
        called = set(lower(bound.prune()).kernels)
    except (EdgewiseError, NeedsHost, NeedsValue, NotStatic):
        return None, set()
    return "no" if missing else "yes" if bound.outputs else "zero", called


def look(chosen):
    """Returns (gradient column, page column) of an operator, from [(model, feeds)] of its cases."""
    called, to_train, gradients = set(), set(), set()
    for model, feeds in chosen:
        called |= kernels(model, feeds)
        there, also = gradient(model, feeds)
        to_train |= also
        gradients.add(there)
    gradients.discard(None)
    if not chosen:
        return "-", "base"  # its cases have no kernels of their own
    column = (
        "-"
        if not gradients
        else (
            "zero"
            if gradients == {"zero"}
            else "no"
            if "yes" not in gradients
            else "partly"
            if "no" in gradients
            else "yes"
        )
    )
    rare = {k for k, kernel in KERNELS.items() if kernel.c.rare}
    return column, "full" if called & rare else "base; to train full" if to_train & rare else "base"


def some(all_of_them):
    """At most MOST of them, evenly spaced."""
    return all_of_them[:: -(-len(all_of_them) // MOST) or 1]


def page():
    """The text of OPERATORS.md."""
    since, chosen, missing = defaultdict(list), {}, defaultdict(list)
    for schema, _ in versions():
        since[schema.domain, schema.name].append(schema.since_version)
    for key, schemas in history().items():
        if key not in since and not schemas[-1].deprecated:
            missing[key[0]].append(key[1])
    for key in since:
        chosen[key] = [(c.model, c.feeds) for c in cases()[key]]
    for _, c in all_cases():
        if c.domain == MS:
            chosen.setdefault((c.domain, c.name), []).append(c.model())
    # search operators: their cases are complete models (tests/ops/test_search.py)
    for domain, name in OPS:
        if domain == MS:
            chosen.setdefault((domain, name), [])
    lines = [HEAD]
    for domain in (*FIRST, MS):
        names = sorted(name for d, name in chosen if d == domain)
        lines += [
            f"## {DOMAINS.get(domain, domain)}: {len(names)}",
            "",
            "| operator | versions | gradient | page | WebGPU |",
            "|---|---|---|---|---|",
        ]
        for name in names:
            assert is_supported(domain, name)
            grad, engine = look(some(chosen[domain, name]))
            lines.append(
                f"| {name} | {', '.join(map(str, since[domain, name])) or 1} | {grad} | {engine} |"
                " no |"
            )
        lines += (
            ["", f"Not there: {', '.join(sorted(missing[domain]))}.", ""]
            if missing[domain]
            else [""]
        )
    return "\n".join(lines)


def text():
    """Returns the page; suppresses warnings of NumPy and of the references about edge cases."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return page()


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8", newline="\n")
