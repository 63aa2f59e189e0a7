"""Programs as a page reads them."""

from __future__ import annotations

from edgewise.host.session.described import Programs
from edgewise.onnx import BytesSource, read_model
from onnx import TensorProto, helper


def test_values_within_a_plan_are_not_listed_as_dead() -> None:
    """A unit lists what later units no longer read, not what never left its own plan: a model of a
    million nodes would exceed the length of lists that a page accepts.
    """
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(20)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("t20", TensorProto.FLOAT, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    programs = Programs(read_model(BytesSource(model.SerializeToString())), None)
    [unit] = programs.describe(programs.program({"outputs": ["t20"]}))["units"]
    assert len(unit["nodes"]) == 20 and set(unit["dead"]) <= {"t0", "t20"}, unit
