"""Search in many vectors: one matrix product and one selection in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import as_input
from ...compiler.declare.dtypes import FLOAT, INT64, UINT8, pack, unpack
from ...compiler.ir import Graph, Info, Node, Tensor
from ...compiler.onnx import BytesSource
from ...errors import InputError
from ...logic.post.classification import check_top_k
from ..session import InferenceSession

if TYPE_CHECKING:
    from ..engine import Engine

PRECISIONS = ("float32", "int8")
BLOCK = 128
ZERO = 128
"""The byte that stands for 0: MatMulNBits' default."""


class VectorIndex:
    """Vectors that are compared with a query by their dot products, which for vectors of length 1
    is the cosine.

    Args:
        vectors: [count, size]; nested lists or an array.
        precision: "float32"; "int8": bytes, with a scale for every BLOCK numbers.
        engine: the Engine to use; by default that of the process.

    Raises:
        InputError: the vectors are not a matrix.
    """

    def __init__(
        self, vectors: Any = (), precision: str = "float32", engine: Engine | None = None
    ) -> None:
        if precision not in PRECISIONS:
            raise InputError(f"it is {precision!r}", "precision", f"Use {', '.join(PRECISIONS)}.")
        self.precision, self.engine = precision, engine
        self.size = 0
        self.count = 0
        self.data = bytearray()  # rows
        self.scales = bytearray()  # of blocks, for int8
        self.session: InferenceSession | None = None  # for any top_k
        self.add(vectors)

    def __len__(self) -> int:
        return self.count

    def add(self, vectors: Any) -> None:
        """Adds vectors [count, size]. Raises InputError."""
        count, size, rows = _matrix(vectors)
        if not count:
            return
        if self.count and size != self.size:
            raise InputError(f"they have {size} numbers, those in the index {self.size}", "vectors")
        self.size = size
        if self.precision == "float32":
            self.data += rows
        else:
            for i in range(count):
                self._add_integers(unpack(FLOAT, rows[i * size * 4 : (i + 1) * size * 4], size))
        self.count += count
        self.close()  # compiled for the vectors there were

    def _add_integers(self, vector: Sequence[float]) -> None:
        for i in range(0, len(vector), BLOCK):
            block = vector[i : i + BLOCK]
            scale = max(map(abs, block)) / 127 or 1.0
            codes = [round(x / scale) + ZERO for x in block]
            self.data += bytes(codes + [ZERO] * (BLOCK - len(codes)))
            self.scales += pack(FLOAT, [scale])

    def search(self, queries: Any, top_k: int = 10) -> list[list[dict[str, Any]]]:
        """The vectors with the greatest dot products.

        Args:
            queries: [count, size].
            top_k: how many.

        Returns:
            for each query [{"corpus_id": index of a vector, "score"}], the highest first

        Raises:
            InputError: the queries have another size.
        """
        check_top_k(top_k, all_allowed=False)
        count, size, rows = _matrix(queries)
        if not self.count or not count:
            return [[] for _ in range(count)]
        if size != self.size:
            raise InputError(f"they have {size} numbers, those in the index {self.size}", "queries")
        top_k = min(top_k, self.count)
        if self.session is None:
            self.session = InferenceSession(self._graph(), engine=self.engine)
        k = memoryview(pack(INT64, [top_k])).cast("q")
        results = []
        for i in range(count):
            query = memoryview(rows)[i * size * 4 : (i + 1) * size * 4].cast("f", [1, size])
            scores, ids = self.session.run(["scores", "ids"], {"query": query, "k": k})
            results.append(
                [
                    {"corpus_id": int(n), "score": float(s)}
                    for s, n in zip(_flat(scores), _flat(ids))
                ]
            )
        return results

    def close(self) -> None:
        """Frees the engine's copy of the vectors; a later search makes it again."""
        if self.session is not None:
            self.session.free()
        self.session = None

    def _graph(self) -> Graph:
        """The scores of a query [1, size] and the indices of the k best, each [1, k]."""
        constants = {}
        if self.precision == "float32":
            shape: tuple[int, ...] = (self.count, self.size)
            constants["vectors"] = _weight("vectors", FLOAT, shape, self.data)
            nodes = [Node("Gemm", ["query", "vectors"], ["all"], {"transB": 1})]
        else:
            blocks = -(-self.size // BLOCK)
            shape = (self.count, blocks, BLOCK)
            constants["vectors"] = _weight("vectors", UINT8, shape, self.data)
            constants["scales"] = _weight("scales", FLOAT, (self.count * blocks,), self.scales)
            attrs = {"K": self.size, "N": self.count, "bits": 8, "block_size": BLOCK}
            attrs["accuracy_level"] = 4  # a query becomes bytes, too
            inputs = ["query", "vectors", "scales"]
            nodes = [Node("MatMulNBits", inputs, ["all"], attrs, "com.microsoft")]
        nodes.append(Node("TopK", ["all", "k"], ["scores", "ids"], {"axis": 1}))
        return Graph(
            "vectors",
            nodes,
            [Info("query", FLOAT, [1, self.size]), Info("k", INT64, [1])],
            [Info("scores", FLOAT, [1, "k"]), Info("ids", INT64, [1, "k"])],
            constants,
            opsets={"": 17, "com.microsoft": 1},
        )


def _weight(name: str, dtype: int, shape: tuple[int, ...], data: bytearray) -> Tensor:
    """A constant that the plans of all k share, as a weight in a file."""
    return Tensor(name, dtype, shape, BytesSource(bytes(data), name), 0, len(data))


def _matrix(values: Any) -> tuple[int, int, bytes]:
    """(rows, columns, float32 data) of vectors. Raises InputError."""
    if isinstance(values, (list, tuple)) and not values:
        return 0, 0, b""
    code, shape, data = as_input(values, "vectors", FLOAT)
    if len(shape) != 2 or code != FLOAT:
        raise InputError(f"it has the shape {list(shape)}, not [count, size] of float32", "vectors")
    return shape[0], shape[1], bytes(memoryview(data).cast("B"))


def _flat(values: Any) -> list[Any]:
    code, shape, data = as_input(values, "")
    return unpack(code, data, shape[0] * shape[1])


__all__ = ["VectorIndex"]
