"""Search in many vectors, all of them compared, in the engine (core/search/nearest.h)."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import as_input
from ...compiler.declare.dtypes import CODE, FLOAT, NAME
from ...compiler.heads.examples import are_finite
from ...compiler.training.safetensors import load_safetensors, save_safetensors
from ...errors import EngineError, InputError, OutOfMemory
from ...json_text import parse_json
from ...logic.personal.files import Stored
from ...logic.post.classification import check_top_k
from ...logic.search.vectors import (
    MAX_PART,
    PRECISIONS,
    IndexFile,
    blocks_of,
    broken,
    check_precision,
    check_size,
    check_texts,
    index_file,
    metadata_of,
    not_finite,
    room_of,
    row_bytes,
    saved_texts,
    tensors_of,
)
from ..engine import default_engine
from ..engine.locks import Owner, locked

if TYPE_CHECKING:
    from ...compiler.declare.dtypes import BytesLike as Bytes
    from ...compiler.ir import Tensor
    from ...compiler.onnx.source import Source
    from ..engine import Engine

_ARGUMENT, _MEMORY = -12, -1  # -EW_E_ARGUMENT, -EW_E_MEMORY


@dataclass
class _Part:
    """Vectors in the engine's memory. scales: 0 for float32; room: of vectors."""

    vectors: int
    scales: int
    room: int
    count: int = 0


class VectorIndex(Owner):
    """Vectors that are compared with a query by their dot products, which for vectors of length 1
    is the cosine.

    Args:
        vectors: [count, size]; nested lists or an array.
        precision: "float32"; "int8": bytes, with a scale for every 128 numbers.
        engine: the Engine to use; by default that of the process.

    Raises:
        InputError: the vectors are not a matrix, or a number is not finite.
    """

    rank = -2  # locked before a pipeline

    def __init__(
        self, vectors: Any = (), precision: str = "float32", engine: Engine | None = None
    ) -> None:
        self._parts: list[_Part] = []
        self.start_lock()
        self.precision = check_precision(precision)
        self.engine = engine or default_engine()
        self.size = 0
        self.count = 0
        self.add(vectors)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<VectorIndex of {self.count} vectors of {self.size} numbers, {self.precision}>"

    def __del__(self) -> None:
        if getattr(self, "_parts", None):
            self._free()

    @locked
    def add(self, vectors: Any) -> None:
        """Adds vectors [count, size].

        Raises:
            InputError: they have another size, or a number is not finite. Nothing is added.
            OutOfMemory: there is no room.
        """
        count, size, rows = _matrix(vectors)
        if count:
            check_size(size, self.size, "vectors")
            self._append(count, size, rows)

    def _append(self, count: int, size: int, rows: Bytes) -> None:
        """Adds float32 [count, size]. Raises InputError: a number is not finite, none is added."""
        part, is_new = self._part_for(count, size)
        try:
            at = part.vectors + part.count * row_bytes(size, self.precision)
            scales = part.scales and part.scales + part.count * 4 * blocks_of(size)
            with ExitStack() as memory:
                given, spec = self._allocated(memory, len(rows)), self._allocated(memory, 16)
                self.engine.write(given, rows)
                self._describe(spec, count, size, 0)
                self._call("ew_nearest_pack", spec, given, at, scales)
        except BaseException:
            if is_new:
                self._release(part)
            raise
        self._took(part, is_new, count, size)

    def _took(self, part: _Part, is_new: bool, count: int, size: int) -> None:
        """Counts vectors that a part has now."""
        if is_new:
            self._parts.append(part)
        part.count += count
        self.count += count
        self.size = size

    def search(self, queries: Any, top_k: int = 10) -> list[list[dict[str, Any]]]:
        """The vectors with the greatest dot products.

        Args:
            queries: [count, size].
            top_k: how many.

        Returns:
            for each query [{"corpus_id": index of a vector, "score"}], the highest first, of equal
            ones the first vector

        Raises:
            InputError: the queries have another size, or a number is not finite.
        """
        check_top_k(top_k, all_allowed=False)
        return self._search(queries, top_k, self.count)

    @locked
    def _search(self, queries: Any, top_k: int, within: int) -> list[list[dict[str, Any]]]:
        """As `search`. within: how many vectors, from the first one on, are compared."""
        count, size, rows = _matrix(queries)
        if not self.count or not count:
            return [[] for _ in range(count)]
        check_size(size, self.size, "queries")
        within = min(within, self.count)
        top_k = min(top_k, within)
        row = 4 * size
        with ExitStack() as memory:
            query, best = self._allocated(memory, row), self._allocated(memory, 8 * top_k)
            spec = self._allocated(memory, 16)
            self._describe(spec, max(p.count for p in self._parts), size, 0)
            work = self._allocated(memory, self._call("ew_nearest_work_bytes", spec))
            results = []
            for i in range(count):
                self.engine.write(query, rows[i * row : (i + 1) * row])
                found = self._find(spec, query, work, best, top_k, within)
                matches = struct.iter_unpack("<fI", self.engine.read(best, 8 * found))
                results.append([{"corpus_id": n, "score": score} for score, n in matches])
            return results

    def _find(self, spec: int, query: int, work: int, best: int, top_k: int, within: int) -> int:
        """Writes the best matches of a query to `best` and returns how many there are."""
        found = first = 0
        for part in self._parts:
            if first == within:
                break
            count = min(part.count, within - first)
            self._describe(spec, count, self.size, first)
            first += count
            last = int(first == within)
            vectors = (self.engine.handle, spec, part.vectors, part.scales)
            place = (query, work, best, found, top_k, last)
            with self.engine.lock:  # its threads
                found = self._call("ew_nearest_find", *vectors, *place, where="queries")
        return found

    def _allocated(self, memory: ExitStack, nbytes: int) -> int:
        """Engine memory that is freed with `memory`."""
        address = self.engine.alloc(max(nbytes, 1))
        memory.callback(self.engine.free, address)
        return address

    @locked
    def save(self, target: Any = None, texts: Sequence[str] | None = None) -> bytes | None:
        """Writes a safetensors file, which `load` reads, here and in pages.

        Args:
            target: a path (the file is complete or not written at all), an object with `write`, or
                None: returns the bytes.
            texts: of the vectors.

        Raises:
            InputError: there are more or fewer texts than vectors.
        """
        texts = saved_texts(texts, self.count)
        file = IndexFile(self.precision, self.count, self.size, texts is not None)
        text = json.dumps(texts or []).encode()
        row, scales = row_bytes(self.size, self.precision), 4 * blocks_of(self.size)
        contents = {
            "vectors": b"".join(self.engine.read(p.vectors, p.count * row) for p in self._parts),
            "scales": b"".join(
                self.engine.read(p.scales, p.count * scales) for p in self._parts if p.scales
            ),
            "texts": text,
        }
        tensors = {
            name: (CODE[stored.dtype], tuple(stored.shape), contents[name])
            for name, stored in tensors_of(file, len(text))
        }
        return save_safetensors(tensors, target, metadata_of(file))

    @classmethod
    def load(
        cls, source: str | os.PathLike[str] | bytes | Source, engine: Engine | None = None
    ) -> VectorIndex:
        """Reads what `save` wrote. source: a path, or bytes. Raises ModelError: it is damaged."""
        return load_index(source, engine)[0]

    def _fill(self, file: IndexFile, vectors: Tensor, scales: Tensor | None, where: str) -> None:
        """Takes the vectors of a file, in parts of at most MAX_PART bytes."""
        size, row, each = file.size, row_bytes(file.size, self.precision), 4 * blocks_of(file.size)
        most = max(1, MAX_PART // row)
        rows, steps = memoryview(vectors.bytes()), memoryview(scales.bytes() if scales else b"")
        if not are_finite(bytes(steps)):
            raise broken("its numbers are not finite", where)
        for first in range(0, file.count, most):
            count = min(most, file.count - first)
            data = rows[first * row : (first + count) * row]
            if scales is None:
                self._append(count, size, data)
                continue
            part, is_new = self._part_for(count, size)
            self.engine.write(part.vectors + part.count * row, data)
            step = steps[first * each : (first + count) * each]
            self.engine.write(part.scales + part.count * each, step)
            self._took(part, is_new, count, size)

    @locked
    def close(self) -> None:
        """Frees the engine's memory. The index is empty then."""
        self._free()

    def _free(self) -> None:
        parts, self._parts = self._parts, []
        self.count = self.size = 0
        for part in parts:
            self._release(part)

    def _release(self, part: _Part) -> None:
        self.engine.free(part.vectors)
        if part.scales:
            self.engine.free(part.scales)

    def _part_for(self, count: int, size: int) -> tuple[_Part, bool]:
        """A part with room for more vectors, and whether it is new: not yet one of `_parts`."""
        if self._parts and self._parts[-1].room - self._parts[-1].count >= count:
            return self._parts[-1], False
        room = room_of(self.count, count, size, self.precision)
        vectors = self.engine.alloc(room * row_bytes(size, self.precision))
        scales = 0
        if self.precision == "int8":
            try:
                scales = self.engine.alloc(room * 4 * blocks_of(size))
            except OutOfMemory:
                self.engine.free(vectors)
                raise
        return _Part(vectors, scales, room), True

    def _describe(self, address: int, count: int, size: int, first: int) -> None:
        """Writes an ew_nearest."""
        self.engine.write(address, struct.pack("<4I", count, size, self.precision == "int8", first))

    def _call(self, name: str, *args: int, where: str = "vectors") -> int:
        """Calls a function of core/search. Returns its int32; raises for negative ones."""
        code = self.engine.call(name, *args) & 0xFFFFFFFF
        if code < 2**31:
            return code
        if code - 2**32 == _MEMORY:
            raise OutOfMemory("2 GB of vectors at once", where, "Add them in smaller parts.")
        if code - 2**32 == _ARGUMENT:
            raise not_finite(where)
        raise EngineError(f"error {code - 2**32}", name, "This is a bug in Edgewise.")


def load_index(
    source: str | os.PathLike[str] | bytes | Source, engine: Engine | None = None
) -> tuple[VectorIndex, list[str] | None]:
    """An index, and its texts if the file has them. Raises ModelError: it is damaged."""
    where = os.fsdecode(source) if isinstance(source, (str, os.PathLike)) else "index"
    tensors, metadata = load_safetensors(source)
    stored = {name: Stored(NAME[t.dtype], list(t.shape)) for name, t in tensors.items()}
    file = index_file(metadata, stored, where)
    texts = None
    if file.texts:
        texts = check_texts(parse_json(tensors["texts"].bytes(), where), file.count, where)
    index = VectorIndex(precision=file.precision, engine=engine)
    if not file.count:
        return index, texts
    try:
        index._fill(file, tensors["vectors"], tensors.get("scales"), where)
    except InputError:
        raise broken("its numbers are not finite", where) from None
    return index, texts


def _matrix(values: Any) -> tuple[int, int, bytes]:
    """(rows, columns, float32 data) of vectors. Raises InputError."""
    if isinstance(values, (list, tuple)) and not values:
        return 0, 0, b""
    code, shape, data = as_input(values, "vectors", FLOAT)
    if len(shape) != 2 or code != FLOAT:
        raise InputError(f"it has the shape {list(shape)}, not [count, size] of float32", "vectors")
    return shape[0], shape[1], bytes(memoryview(data).cast("B"))


__all__ = ["PRECISIONS", "VectorIndex", "load_index"]
