"""Decision trees of ai.onnx.ml as tables that all rows look up at once, one level of the trees
after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import fail

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

MODES = [
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
]
EQUAL, NOT_EQUAL, MEMBER = 4, 5, 6
# Of the modes before MEMBER: whether the condition holds where x is less than, equal to and greater
# than the split.
HOLDS = [(1, 1, 0), (1, 0, 0), (0, 1, 1), (0, 0, 1), (0, 1, 0), (1, 0, 1)]
DEEPEST = 256
MAX_NODES = 1 << 22


class Forest:
    """Trees.

    Attributes:
        features, splits: of each inner node: the column that is compared, and with what.
        children: of each inner node four: where x is less, equal, greater, and NaN. A leaf is ~its
            number.
        roots: nodes, or leaves.
    """

    def __init__(self) -> None:
        self.features: list[int] = []
        self.splits: list[float] = []
        self.children: list[list[int]] = []
        self.roots: list[int] = []

    def add(
        self, feature: int, mode: int, split: float, true: int, false: int, nan: int | bool
    ) -> None:
        """Adds an inner node. nan: whether NaN goes to `true`; where it is compared by !=, it
        always does.
        """
        self.features.append(feature)
        self.splits.append(split)
        self.children.append(
            [true if h else false for h in HOLDS[mode]]
            + [true if nan or mode == NOT_EQUAL else false]
        )

    def depth(self, node: BoundNode) -> int:
        """The depth of the deepest leaf. Raises ModelError at a cycle or a missing node."""
        depth, level = 0, set(self.roots)
        while True:
            level = {i for i in level if i >= 0}
            if not level:
                return depth
            depth += 1
            if depth > DEEPEST or max(level) >= len(self.features):
                fail(
                    node,
                    f"its trees are deeper than {DEEPEST}, contain a cycle, or name nodes that do"
                    " not exist",
                )
            level = {c for i in level for c in self.children[i]}

    @property
    def leaves(self) -> int:
        """How many leaves there are."""
        ends = [~c for c in self.roots if c < 0]
        ends += [~c for four in self.children for c in four if c < 0]
        return 1 + max(ends, default=0)


def leaves_of_rows(node: BoundNode, graph: Binder, x: Value, forest: Forest) -> Value:
    """The leaf that each row of x [rows, features] reaches in each tree: int64 [rows, trees]."""
    rows, count, inner = x.shape[0], len(forest.roots), len(forest.features)
    if (
        inner > MAX_NODES
        or inner
        and not 0 <= min(forest.features) <= max(forest.features) < x.shape[1]
    ):
        fail(
            node, f"its features {min(forest.features)} to {max(forest.features)} do not match {x}"
        )
    depth, leaves = forest.depth(node), forest.leaves
    whole = inner + leaves
    if whole > MAX_NODES:
        fail(node, f"its trees have {whole} nodes and leaves; {MAX_NODES} is the most")

    def place(c: int) -> int:
        """In the tables leaves follow the inner nodes; a leaf's children are the leaf itself."""
        return c if c >= 0 else inner + ~c

    at = graph.op(
        "Expand",
        graph.constant(INT64, [1, count], [place(r) for r in forest.roots]),
        graph.ints([rows, count]),
    )
    features = graph.constant(INT64, [whole], forest.features + [0] * leaves)
    splits = graph.constant(x.dtype, [whole], forest.splits + [0.0] * leaves)
    table = [place(c) for four in forest.children for c in four]
    table += [inner + i for i in range(leaves) for _ in range(4)]
    children = graph.constant(INT64, [4 * whole], table)
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
    return graph.op("Sub", at, graph.constant(INT64, [], [inner]))
