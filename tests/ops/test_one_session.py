"""Cases of one op that differ only in shapes and numbers, one after the other in one session: what
a session keeps of a run must not reach the next one, and a plan for a range of lengths must be
right at each.
"""

import edgewise
import pytest
from edgewise.compiler.ops import OPS
from engines import open_engine

from .harness import Toolbox

MAX = 12  # cases of a group


def groups(domain, name):
    """Lists of (Case, feeds) and the model that they share, with free dimensions."""
    found = {}
    for case in OPS[domain, name].cases_fn(Toolbox(domain, name)):
        model, feeds = case.model()
        shapes = []
        for info in model.graph.input:
            dims = info.type.tensor_type.shape.dim
            shapes.append(tuple(d.dim_value for d in dims))
            for i, d in enumerate(dims):
                d.Clear()
                d.dim_param = f"{info.name}_{i}"
        found.setdefault(model.SerializeToString(), {}).setdefault(tuple(shapes), (case, feeds))
    return [(m, list(of.values())[:MAX]) for m, of in found.items() if len(of) > 1]


NAMES = [k for k, op in OPS.items() if k[0] != "edgewise" and op.cases_fn is not None]
GROUPS = {".".join(k): found for k in NAMES if (found := groups(*k))}


@pytest.mark.parametrize("name", GROUPS)
def test_shapes_in_turn(name):
    for model, cases in GROUPS[name]:
        session = edgewise.InferenceSession(model, engine=open_engine("native"))
        try:
            for case, feeds in [*cases, *reversed(cases)]:
                got = session.run(None, feeds)
                wrong = {k: case.differences(got, v) for k, v in case.references.items()}
                assert not any(wrong.values()), f"{case}: {wrong}"
        finally:
            session.free()
