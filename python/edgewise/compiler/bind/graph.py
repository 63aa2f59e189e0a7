"""BoundGraph: a graph in which every tensor has an element type and a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..declare.symbolic import Sym
from ..ir import BoundNode, Value

if TYPE_CHECKING:
    from .binder import Binder


class BoundGraph:
    """A bound graph.

    Attributes:
        nodes: in an order that can run.
        inputs, outputs: {name: Value}.
        states: {name: Value} of what runs may write and later runs read: parameters, optimizer
            state.
        effects: written states. They stay alive although nothing reads them.
        writes_after: name of an output that is computed before any step writes a state, so that
            nothing is lost when the data of a run turn out to be wrong; None: no such output.
        binder: adds nodes (`binder.op`) after all others.
    """

    def __init__(self, binder: Binder) -> None:
        self.nodes: list[BoundNode] = []
        self.inputs: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}
        self.states: dict[str, Value] = {}
        self.effects: list[Value] = []
        self.writes_after: str | None = None
        self.binder = binder

    def users(self) -> dict[int, list[BoundNode | None]]:
        """{id of a value: nodes that read it}; an output counts as one user, None."""
        users: dict[int, list[BoundNode | None]] = {}
        for n in self.nodes:
            for v in n.inputs:
                if v is not None:
                    users.setdefault(id(v), []).append(n)
        for v in [*self.outputs.values(), *self.effects]:
            users.setdefault(id(v), []).append(None)
        return users

    def prune(self) -> BoundGraph:
        """Drops nodes that no output depends on, and outputs of nodes that nothing reads."""
        live = {*map(id, self.outputs.values()), *map(id, self.effects)}
        live.discard(id(None))
        kept = []
        for n in reversed(self.nodes):
            if not live.isdisjoint(map(id, n.outputs)):
                kept.append(n)
                for i, o in enumerate(n.outputs):
                    if i and id(o) not in live:
                        n.outputs[i] = None
                live.update(map(id, n.inputs))
                live.discard(id(None))
        kept.reverse()
        self.nodes = kept
        return self

    def replace(self, old: Value, new: Value) -> None:
        """Lets all users of `old` read `new`."""
        for n in self.nodes:
            n.inputs = [new if v is old else v for v in n.inputs]
        for k, v in self.outputs.items():
            if v is old:
                self.outputs[k] = new

    def take_passed(self) -> dict[str, str]:
        """Removes outputs that are inputs.

        Returns:
            {name of the output: name of the input}
        """
        names = {id(v): name for name, v in self.inputs.items()}
        passed = {name: names[id(v)] for name, v in self.outputs.items() if id(v) in names}
        for name in passed:
            del self.outputs[name]
        return passed

    def state(self, name: str, dtype: int, shape: Sequence[int | Sym]) -> Value:
        """The state of this name, which is made on first use."""
        if name not in self.states:
            self.states[name] = Value(name, dtype, shape, role="state")
        return self.states[name]
