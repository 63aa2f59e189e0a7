"""Errors for users, from the three reasons for which a graph has no plan.

Binding and lowering raise NeedsValue, NeedsHost or NotStatic where a graph cannot be compiled as it
is. A session then cuts the graph. All other callers give up, and turn the reason into an
UnsupportedOp here: what it says depends on what the plan was for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import EdgewiseError, ModelError, OutOfMemory, UnsupportedOp
from ..declare.symbolic import NeedsHost, NotStatic
from ..ir import BROKEN, Graph, NeedsValue

NO_PLAN = (NeedsValue, NeedsHost, NotStatic)


@dataclass(frozen=True)
class Text:
    """One error.

    `{reason}` stands for what was raised, `{node}` for the node that no plan computes, `{value}`
    for the value that a shape depends on, and `{source}` for where its numbers come from.

    Attributes:
        what: the fault.
        remedy: the way out.
        of_graph: whether the error names the whole graph instead of the value or node.
    """

    what: str
    remedy: str = ""
    of_graph: bool = False


@dataclass(frozen=True)
class Purpose:
    """What a plan is compiled for, as errors.

    Attributes:
        needs_value: a shape or a branch depends on numbers that only a run can tell.
        needs_host: a node is none that plans compute.
        not_static: a shape depends on a register in a way that plans cannot express.
        broken: the purpose that a malformed graph cannot serve.
    """

    needs_value: Text
    needs_host: Text
    not_static: Text
    broken: str = "be compiled"

    def error(self, e: Exception, graph_name: str = "") -> UnsupportedOp:
        """The error for a user.

        Args:
            e: one of NO_PLAN.
            graph_name: place of the error where no node or value is known.
        """
        text, where, value, source = self.not_static, "", "", ""
        if isinstance(e, NeedsValue):
            value = e.value.name
            text, where = self.needs_value, f"value '{value}'"
            given = e.value.role == "input"
            source = " (--value gives them)" if given else ", which are known only in a run"
        elif isinstance(e, NeedsHost):
            text, where = self.needs_host, str(e)
        if text.of_graph or not where:
            where = graph_name or "graph"
        node = str(e) or "a node"
        what = text.what.format(reason=e, node=node, value=value, source=source)
        return UnsupportedOp(what, where, text.remedy)


@contextmanager
def explained(purpose: Purpose, graph_name: str = "") -> Iterator[None]:
    """Turns the reasons for which a graph has no plan into UnsupportedOp.

    Args:
        purpose: of the plan.
        graph_name: place of the error where no node or value is known.
    """
    try:
        yield
    except NO_PLAN as e:
        raise purpose.error(e, graph_name) from None


@contextmanager
def compiler_errors(graph: Graph, doing: str = "be compiled") -> Iterator[None]:
    """Turns exceptions of other classes into ModelError and OutOfMemory.

    The stages check what they know. A graph that makes no sense in another way ends here.

    Args:
        graph: the graph.
        doing: the purpose, for the message.
    """
    name = graph.name or "graph"
    try:
        yield
    except EdgewiseError:
        raise
    except MemoryError as e:
        raise OutOfMemory(
            "out of memory while compiling it", name, "Use smaller shapes, or a smaller model."
        ) from e
    except BROKEN as e:
        raise ModelError(
            f"it cannot {doing} ({type(e).__name__}: {str(e)[:200]})",
            name,
            "If it runs elsewhere, report it.",
        ) from e


NO_SHAPE = Text("a shape could not be computed ({reason})", "Report this model.")

GENERATION = Purpose(
    needs_value=Text(
        "a shape depends on the tokens themselves", "Run the model with InferenceSession."
    ),
    needs_host=Text(
        "no plan does what it does; a session does it between plans",
        "Run the model with InferenceSession.",
    ),
    not_static=Text(
        "its use of the past cannot be turned into an in-place cache ({reason})",
        "Run it with InferenceSession, or export it with another exporter.",
    ),
)
_ONLY_PYTHON = Text(
    "what it computes depends on data ({reason}): no plan does that alone",
    "Give the page the .onnx file: Python runs it there.",
    of_graph=True,
)
AHEAD_OF_TIME = Purpose(_ONLY_PYTHON, _ONLY_PYTHON, _ONLY_PYTHON)
TRAINING = Purpose(
    needs_value=Text(
        "a shape depends on the data that is fed",
        "Take the part that does out of the model; everything between parameters and loss must"
        " have a fixed shape.",
    ),
    needs_host=Text(
        "it cannot be part of a training step: no plan does what it does, a session does it"
        " between plans",
        "Take the part that has it out of the model; loops, sequences and strings can be used by"
        " InferenceSession.",
    ),
    not_static=NO_SHAPE,
    broken="be compiled for training",
)
INSPECTION = Purpose(
    needs_value=Text("a shape or a branch depends on the data of '{value}'{source}"),
    needs_host=Text("shapes after {node}, which runs between plans, are known only in a run"),
    not_static=Text("a shape could not be computed ({reason})"),
)
# A session cuts the graph where a value or a node is the reason.
SESSION = Purpose(NO_SHAPE, NO_SHAPE, NO_SHAPE)
