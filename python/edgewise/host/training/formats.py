"""Language models and adapters in the formats of other libraries: Hugging Face's folder, GGUF of
llama.cpp, MLX.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...compiler.arrays import Array
from ...compiler.declare.dtypes import FLOAT, FLOAT16, NAME, BytesLike, pack
from ...compiler.formats.architectures import (
    architecture_of,
    biases_of,
    dims_of,
    gguf_name,
    hub_name,
    rows_exchanged,
    shapes_of,
)
from ...compiler.formats.files import ModelFiles
from ...compiler.formats.finish import Finish, finish_model
from ...compiler.formats.gguf import (
    BLOCK,
    F16,
    F32,
    Q4_0,
    Q8_0,
    Entry,
    Type,
    gguf_parts,
    interleaved,
    type_named,
)
from ...compiler.formats.metadata import adapter_metadata, model_metadata, rope_factors
from ...compiler.formats.weights import (
    Matrix,
    Weight,
    fused_name,
    hub_weights,
    parts_of,
    vector_numbers,
)
from ...compiler.onnx.source import Source
from ...compiler.training.peft import Adapter, LoraConfig
from ...compiler.training.safetensors import safetensors_parts
from ...errors import InputError, ModelError, UnsupportedField
from ...json_text import written_json
from ...logic.training.adapters import scaling
from ..session import InferenceSession
from .adapters import floats, transposed

FORMATS = ("onnx", "safetensors", "gguf", "mlx")
WEIGHTS_FILE = "model.safetensors"
CHUNK = 512  # rows of the identity matrix, or of an embedding, that a quantized layer gets at once
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
)

Parts = Iterable[BytesLike]


def config_of(files: ModelFiles) -> Mapping[str, Any]:
    """The contents of config.json.

    Raises:
        ModelError: there is none.
    """
    config = files.json("config.json")
    if not config:
        raise ModelError(
            "there is no config.json beside the model",
            "formats",
            "Pass the model's folder: config.json has the sizes of its layers.",
        )
    return config


class HubModel:
    """A language model whose weights have transformers' names, with an adapter merged into them.

    Args:
        source: its .onnx file.
        files: of the model's folder.
        adapter: to be merged, or None.

    Raises:
        UnsupportedField: another family than `architectures.ARCHITECTURES`, or a variant of LoRA.
        ModelError: the graph, config.json and the adapter do not belong together.
    """

    def __init__(self, source: Source, files: ModelFiles, adapter: Adapter | None = None) -> None:
        self.files = files
        self.config = config_of(files)
        self.architecture = architecture_of(self.config)
        self.dims = dims_of(self.config)
        biased = biases_of(self.architecture, self.config)
        self.weights = hub_weights(source, self.architecture, self.dims, biased)
        self.adapter = hub_adapter(adapter, self.config) if adapter else None
        self._sessions: dict[Finish, InferenceSession] = {}
        self._last: tuple[str, int, bytes] | None = None
        if self.adapter is not None:
            _check_known(self.adapter.saved, {w.name for w in self.weights})
            shifted = [w.name for w in self.weights if w.shift and w.name in self.adapter.saved]
            if shifted:
                raise UnsupportedField(
                    f"it replaces {', '.join(shifted[:4])}, which the file has plus 1",
                    "adapter",
                    "Write format='onnx', or train an adapter without modules_to_save of norms.",
                )

    # ---- numbers
    def _given(self, matrix: Matrix) -> tuple[int, bytes]:
        """(dtype code, bytes) of a matrix as it is stored, or as its layer computes it."""
        if matrix.tensor is not None:
            return matrix.tensor.dtype, matrix.tensor.bytes()
        if self._last is not None and self._last[0] == matrix.name:  # rows of a fused one
            return self._last[1:]
        assert matrix.model is not None
        session = InferenceSession(matrix.model)
        count = matrix.shape[0] if matrix.embedding else matrix.shape[1]
        made = bytearray()
        for first in range(0, count, CHUNK):
            rows = min(CHUNK, count - first)
            if matrix.embedding:
                ids = array("q", range(first, first + rows))
                x = Array([1, rows], "int64", ids.tobytes())
            else:
                identity = array("f", bytes(4 * rows * count))
                identity[first :: count + 1] = array("f", [1.0] * rows)
                x = Array([1, rows, count], "float32", identity.tobytes())
            (y,) = session.run(None, {"x": x})
            made += memoryview(y).cast("B") if not isinstance(y, Array) else y.data
        self._last = matrix.name, FLOAT, bytes(made)
        return self._last[1:]

    def matrix(self, weight: Weight, type_: Type, exchanged: bool) -> Iterator[BytesLike]:
        """The bytes of a matrix with its adapter.

        Args:
            weight: of `weights`.
            type_: of the numbers.
            exchanged: whether rows are in llama.cpp's order.
        """
        heads = rows_exchanged(self.architecture, weight.module, self.dims) if exchanged else 0
        rows, columns = weight.shape
        replaced = None if self.adapter is None else self.adapter.saved.get(weight.name)
        if replaced is not None:
            f = Finish((rows, columns), FLOAT, False, 0, rows, 0, heads, type_)
            yield self._finished(f, {"w": Array(f.stored, "float32", floats(replaced).tobytes())})
            return
        pair, norms = self._pair(weight), self._magnitudes(weight)
        for piece in weight.pieces:
            m = piece.matrix
            dtype, data = self._given(m)
            stored = (m.shape[1], m.shape[0]) if m.transposed else m.shape
            rank = pair[0].shape[0] if pair is not None else 0
            f = Finish(
                stored,
                dtype,
                m.transposed,
                piece.first,
                piece.rows,
                rank,
                heads,
                type_,
                norms is not None,
            )
            feeds = {"w": Array(stored, NAME[dtype], data)}
            if pair is not None and rank:
                feeds["a"], feeds["b"] = pair[0], _rows(pair[1], piece.at, piece.rows)
            if norms is not None:
                feeds["m"] = _rows(norms, piece.at, piece.rows)
            yield self._finished(f, feeds)

    def _finished(self, f: Finish, feeds: Mapping[str, Array]) -> BytesLike:
        if f not in self._sessions:
            self._sessions[f] = InferenceSession(finish_model(f))
        outputs = [_bytes(y) for y in self._sessions[f].run(None, feeds)]
        return interleaved(outputs[0], outputs[1], f.type) if len(outputs) == 2 else outputs[0]

    def _pair(self, weight: Weight) -> tuple[Array, Array] | None:
        """(A, scaling B) of a module's adapter; of an embedding so that W + B A."""
        if self.adapter is None:
            return None
        if weight.module in self.adapter.embeddings:
            low, high = self.adapter.embeddings[weight.module]  # [r, rows], [width, r]
            scaling = self.adapter.config.scaling_of(weight.module)
            a, b = _turned(high), _turned(low)
        elif weight.module in self.adapter.lora:
            a, b = map(_array, self.adapter.lora[weight.module])
            scaling = self.adapter.config.scaling_of(weight.module)
        else:
            return None
        return a, _times(b, scaling)

    def _magnitudes(self, weight: Weight) -> Array | None:
        """The norms that DoRA gives the rows of a matrix [rows, 1]; None without."""
        found = None if self.adapter is None else self.adapter.magnitudes.get(weight.module)
        if found is None:
            return None
        values = floats(found)
        return Array([len(values), 1], "float32", values.tobytes())

    def vector(self, weight: Weight, exchanged: bool) -> array[float]:
        """The numbers of a vector, with what the adapter has of it."""
        replaced = None if self.adapter is None else self.adapter.saved.get(weight.name)
        values = array("f", vector_numbers(weight)) if replaced is None else floats(replaced)
        norm = weight.name == f"{weight.module}.weight"
        shift = weight.shift + (exchanged and norm and self.architecture.centred)
        if shift:
            values = array("f", [x + shift for x in values])
        heads = rows_exchanged(self.architecture, weight.module, self.dims)
        if not exchanged or not heads or norm:
            return values
        column = Array([len(values), 1], "float32", values.tobytes())
        return array("f", bytes(_exchanged(column, heads).data))

    def _halves(self) -> bool:
        """Whether the file's weights are float16."""
        tensors = (p.matrix.tensor for w in self.weights for p in w.pieces)
        return any(t is not None and t.dtype == FLOAT16 for t in tensors)

    # ---- files
    def parts(self, format_: str, quantization: str | None, name: str) -> Parts | dict[str, Parts]:
        """A file of GGUF, or the files of a folder, as parts.

        Args:
            format_: "gguf", "safetensors" or "mlx".
            quantization: type of the matrices; None: see `type_for`.
            name: of the model, for GGUF's general.name.
        """
        type_ = type_for(quantization, format_, self._halves())
        return self.gguf(type_, name) if format_ == "gguf" else self.folder(type_, format_)

    def gguf(self, type_: Type, name: str) -> Iterator[BytesLike]:
        """A GGUF file as parts. name: general.name."""
        metadata = model_metadata(
            self.config, self.architecture, self.dims, type_, name, self.files
        )
        groups: dict[str, list[Weight]] = {}
        for w in self.weights:
            end = w.name[len(w.module) :]
            groups.setdefault(gguf_name(self.architecture, w.module) + end, []).append(w)
        tensors = {name: self._entry(group, type_) for name, group in groups.items()}
        for tensor, factors in rope_factors(self.config, self.dims).items():
            tensors[tensor] = _vector_entry(factors)
        return gguf_parts(metadata, tensors)

    def _entry(self, group: Sequence[Weight], type_: Type) -> Entry:
        """The tensor of a weight, or of those of a layer's experts."""
        w = group[0]
        if not w.pieces:
            return Entry(F32, w.shape, lambda: [self.vector(w, True).tobytes()])
        # The output layer and the embedding decide most about the words: 8 bits, as llama.cpp's
        # own quantizer gives them more bits than the others. What chooses experts stays float.
        ends = w.module in ("model.embed_tokens", "lm_head")
        chosen = Q8_0 if ends and type_ is Q4_0 else type_
        chosen = F16 if chosen.block == BLOCK and w.shape[1] % BLOCK else chosen
        if gguf_name(self.architecture, w.module).endswith("ffn_gate_inp"):
            chosen = F32
        shape = (len(group), *w.shape) if ".experts." in w.module else w.shape
        return Entry(
            chosen, shape, lambda: (x for one in group for x in self.matrix(one, chosen, True))
        )

    def folder(self, type_: Type, format_: str) -> dict[str, Parts]:
        """The files of a folder of transformers or MLX."""
        code = FLOAT16 if type_ is F16 else FLOAT
        tensors: dict[str, Any] = {}
        for w in self.weights:
            tensors[w.name] = (code, w.shape, partial(self._numbers, w, type_))
        config = {k: v for k, v in self.config.items() if k not in _OF_THE_EXPORT}
        config["dtype" if "dtype" in config else "torch_dtype"] = NAME[code]
        made: dict[str, Parts] = {
            WEIGHTS_FILE: safetensors_parts(
                tensors, {"format": "mlx" if format_ == "mlx" else "pt"}
            ),
            "config.json": [written_json(config, indent=2) + b"\n"],
        }
        for name in TOKENIZER_FILES:
            text = self.files.contents(name)
            if text is not None:
                made[name] = [text]
        return made

    def _numbers(self, w: Weight, type_: Type) -> Iterator[BytesLike]:
        if w.pieces:
            yield from self.matrix(w, type_, False)
        else:
            yield pack(FLOAT16 if type_ is F16 else FLOAT, self.vector(w, False))


def _vector_entry(numbers: Sequence[float]) -> Entry:
    data = array("f", numbers).tobytes()
    return Entry(F32, [len(numbers)], lambda: [data])


_OF_THE_EXPORT = ("transformers.js_config", "quantization_config", "_name_or_path")


def _bytes(y: Any) -> bytes:
    return bytes(y.data) if isinstance(y, Array) else bytes(y.tobytes())


def _rows(x: Array, first: int, count: int) -> Array:
    """Rows of a matrix of float32."""
    size = 4 * x.shape[1]
    data = memoryview(bytes(x.data))[first * size : (first + count) * size]
    return Array([count, x.shape[1]], "float32", bytes(data))


def _array(tensor: Any) -> Array:
    values = floats(tensor)
    return Array(_shape(tensor), "float32", values.tobytes())


def _shape(tensor: Any) -> Sequence[int]:
    return tensor[1] if isinstance(tensor, tuple) else tensor.shape


def _turned(tensor: Any) -> Array:
    """The transpose of a matrix."""
    rows, columns = _shape(tensor)
    data = transposed(floats(tensor).tobytes(), rows, columns)
    return Array([columns, rows], "float32", data)


def _check_known(names: Iterable[str], known: Iterable[str]) -> None:
    rest = sorted(set(names) - set(known))
    if rest:
        raise InputError(
            f"it has {', '.join(rest[:6])}, which the model does not have",
            "adapter",
            "Give an adapter of this model.",
        )


def _check_shapes(adapter: Adapter, shapes: Mapping[str, Sequence[int]]) -> None:
    """Raises InputError if an adapter under transformers' names is not one of a model."""
    _check_known([*adapter.lora, *adapter.embeddings], shapes)
    pairs = [(m, False, pair) for m, pair in adapter.lora.items()]
    pairs += [(m, True, pair) for m, pair in adapter.embeddings.items()]
    for module, embedding, (a, b) in pairs:
        low, high = list(_shape(a)), list(_shape(b))
        rank, (out, fan_in) = low[0], shapes[module]
        if [low, high] != (
            [[rank, out], [fan_in, rank]] if embedding else [[rank, fan_in], [out, rank]]
        ):
            raise InputError(
                f"'{module}' has A {low} and B {high}, the model's matrix is {[out, fan_in]}",
                "adapter",
                "Give an adapter of this model.",
            )


# ---- adapters
def hub_adapter(adapter: Adapter, config: Mapping[str, Any]) -> Adapter:
    """An adapter under transformers' names, of a base with this config.json.

    An adapter of a matrix that an exporter fused becomes one of each part: they share A, and have
    their rows of B. Adapters of matrices that are one in transformers become one: its rank is the
    sum of theirs.

    Raises:
        UnsupportedField: it is a variant of LoRA. InputError: it belongs to another model.
    """
    architecture, dims = architecture_of(config), dims_of(config)
    shapes = shapes_of(architecture, dims)
    parts: dict[str, list[tuple[str, int, int]]] = {}
    for module, shape in shapes.items():
        whole, first = fused_name(module, dims)
        if whole != module:
            parts.setdefault(whole, []).append((module, first, shape[0]))
    lora: dict[str, tuple[Any, Any]] = {}
    magnitudes: dict[str, Any] = {}
    ranks, alphas = {}, {}
    for name, (a, b) in adapter.lora.items():
        module = hub_name(name)
        rank = _shape(a)[0]
        wholes = [(module, 0, _shape(b)[0])]
        fused = parts.get(module, wholes)
        if sum(rows for _, _, rows in fused) != _shape(b)[0]:
            fused = wholes  # refused below
        for part, first, rows in fused:
            cut = floats(b)[first * rank : (first + rows) * rank]
            lora[part] = a, (FLOAT, (rows, rank), cut.tobytes())
            ranks[part], alphas[part] = rank, float(adapter.config.alpha_of(name))
            if name in adapter.magnitudes:
                norms = floats(adapter.magnitudes[name])[first : first + rows]
                magnitudes[part] = FLOAT, (len(norms),), norms.tobytes()
    rooted = adapter.config.use_rslora
    for whole in shapes:
        joined = [(n, first, rows) for n, first, rows in parts_of(whole, dims) if n in lora]
        if joined:
            factors = {n: scaling(alphas[n], ranks[n], rooted) for n, _, _ in joined}
            lora[whole] = _joined(lora, joined, factors, shapes[whole][0])
            ranks[whole] = _shape(lora[whole][0])[0]
            alphas[whole] = 1 / scaling(1.0, ranks[whole], rooted)
            if magnitudes:
                magnitudes[whole] = _joined_norms(magnitudes, joined, shapes[whole][0])
            for n, _, _ in joined:
                del lora[n], ranks[n], alphas[n]
    embeddings = {hub_name(n): pair for n, pair in adapter.embeddings.items()}
    for name, (a, _) in adapter.embeddings.items():
        module = hub_name(name)
        ranks[module], alphas[module] = _shape(a)[0], float(adapter.config.alpha_of(name))
    saved: dict[str, Any] = {}
    for name, x in adapter.saved.items():
        module, dot, end = name.rpartition(".")
        saved[hub_name(module) + dot + end] = x
    named = _config_of(adapter.config, [*lora, *embeddings], ranks, alphas)
    made = Adapter(named, lora, embeddings, saved, magnitudes)
    _check_shapes(made, {m: s for m, s in shapes.items() if len(s) == 2})
    return made


def _joined(
    lora: Mapping[str, tuple[Any, Any]],
    parts: Sequence[tuple[str, int, int]],
    factors: Mapping[str, float],
    rows: int,
) -> tuple[Any, Any]:
    """(A, B) of matrices one below the other, from those of some of them. Its factor is 1.

    Args:
        lora: {part: (A, B)}.
        parts: [(part, its first row, its rows)].
        factors: of the product of each part's B and A.
        rows: of all.
    """
    columns = _shape(lora[parts[0][0]][0])[1]
    ranks = {n: _shape(lora[n][0])[0] for n, _, _ in parts}
    rank, at = sum(ranks.values()), 0
    high = array("f", bytes(4 * rows * rank))
    for name, first, count in parts:
        b, r, x = floats(lora[name][1]), ranks[name], factors[name]
        for i in range(count):
            begin = (first + i) * rank + at
            high[begin : begin + r] = array("f", [x * v for v in b[i * r : (i + 1) * r]])
        at += r
    low = b"".join(floats(lora[n][0]).tobytes() for n, _, _ in parts)
    return (FLOAT, (rank, columns), low), (FLOAT, (rows, rank), high.tobytes())


def _joined_norms(
    magnitudes: dict[str, Any], parts: Sequence[tuple[str, int, int]], rows: int
) -> Any:
    """The norms of DoRA of matrices one below the other.

    Raises:
        UnsupportedField: one of them has no adapter.
    """
    if sum(count for _, _, count in parts) != rows:
        raise UnsupportedField(
            f"{parts[0][0]} has an adapter of DoRA, and what is joined with it has none",
            "adapter",
            "Write the merged model from the .onnx file (format='onnx').",
        )
    data = b"".join(floats(magnitudes.pop(n)).tobytes() for n, _, _ in parts)
    return FLOAT, (rows,), data


def _config_of(
    config: LoraConfig,
    modules: Sequence[str],
    ranks: Mapping[str, int],
    alphas: Mapping[str, float],
) -> LoraConfig:
    """A configuration with the same ranks and scalings for modules of other names."""
    fields = config.to_dict()
    r, alpha = config.r, float(config.lora_alpha)
    if ranks:
        r, alpha = max(ranks.values(), key=list(ranks.values()).count), alphas[next(iter(alphas))]
    fields |= {
        "r": r,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "target_modules": sorted({m.rsplit(".", 1)[-1] for m in modules}),
        "exclude_modules": None,
        "layers_to_transform": None,
        "layers_pattern": None,
        "rank_pattern": {m: n for m, n in ranks.items() if n != r},
        "alpha_pattern": {m: x for m, x in alphas.items() if x != alpha},
    }
    return LoraConfig.from_dict(fields, "adapter")


def _check_plain(adapter: Adapter, library: str) -> None:
    """Raises UnsupportedField for DoRA, which files of adapters for a library do not have."""
    if adapter.magnitudes:
        raise UnsupportedField(
            f"it is DoRA, and adapters for {library} are LoRA", "adapter", "Write the merged model."
        )


def adapter_gguf(
    adapter: Adapter, config: Mapping[str, Any], type_: Type, name: str
) -> Iterator[BytesLike]:
    """An adapter as a GGUF file, which llama.cpp applies beside its base; as
    convert_lora_to_gguf.py writes it.

    Args:
        adapter: of this project's or PEFT's files.
        config: of the base's config.json.
        type_: F16 or F32.
        name: general.name.

    Raises:
        UnsupportedField: it has whole parameters, or modules of different scaling.
    """
    architecture, dims = architecture_of(config), dims_of(config)
    own = hub_adapter(adapter, config)
    _check_plain(own, "llama.cpp")
    if own.saved:
        raise UnsupportedField(
            f"it replaces {', '.join(list(own.saved)[:4])}",
            "adapter",
            "llama.cpp's adapters are LoRA alone; write the merged model.",
        )
    shapes = shapes_of(architecture, dims)
    factors = {m: own.config.scaling_of(m) for m in (*own.lora, *own.embeddings)}
    alpha = max(factors.values(), default=1.0)
    tensors: dict[str, Entry] = {}

    def put(name: str, x: Array) -> None:
        numbers = array("f", bytes(x.data))
        data = pack(FLOAT16 if type_ is F16 else FLOAT, numbers)
        tensors[name] = Entry(type_, x.shape, lambda: [data])

    groups: dict[str, list[str]] = {}
    for module in shapes:
        groups.setdefault(gguf_name(architecture, module), []).append(module)
    for stem, modules in groups.items():
        rank = max((_shape(own.lora[m][0])[0] for m in modules if m in own.lora), default=0)
        if not rank:
            continue
        lows, highs = [], []
        for module in modules:  # one, or all experts of a layer
            low, high = _padded(own.lora.get(module), shapes[module], rank)
            # llama.cpp multiplies by alpha / rank: the rest of a module's factor goes into its B.
            high = _times(high, factors.get(module, 0.0) * rank / alpha)
            heads = rows_exchanged(architecture, module, dims)
            lows.append(low)
            highs.append(_exchanged(high, heads) if heads else high)
        put(f"{stem}.weight.lora_a", _stacked(lows, ".experts." in modules[0]))
        put(f"{stem}.weight.lora_b", _stacked(highs, ".experts." in modules[0]))
    for module, (a, b) in own.embeddings.items():
        stem = gguf_name(architecture, module) + ".weight"
        put(stem + ".lora_a", _turned(a))
        put(stem + ".lora_b", _times(_array(b), factors[module] * _shape(a)[0] / alpha))
    return gguf_parts(adapter_metadata(architecture, alpha, type_, name), tensors)


def _padded(pair: tuple[Any, Any] | None, shape: Sequence[int], rank: int) -> tuple[Array, Array]:
    """(A, B) with a rank that is at least its own, by zeros; of no adapter zeros."""
    rows, columns = shape
    if pair is None:
        low, high, own = b"", array("f", bytes(4 * rows * rank)), rank
    else:
        low, given, own = floats(pair[0]).tobytes(), floats(pair[1]), _shape(pair[0])[0]
        high = array("f", bytes(4 * rows * rank))
        for i in range(rows):
            high[i * rank : i * rank + own] = given[i * own : (i + 1) * own]
    low += bytes(4 * rank * columns - len(low))
    return Array([rank, columns], "float32", low), Array([rows, rank], "float32", high.tobytes())


def _stacked(matrices: Sequence[Array], whole: bool) -> Array:
    """Matrices as one tensor [n, rows, columns]; a single one as it is, unless `whole`."""
    if not whole:
        return matrices[0]
    data = b"".join(bytes(x.data) for x in matrices)
    return Array([len(matrices), *matrices[0].shape], "float32", data)


def _times(x: Array, factor: float) -> Array:
    if abs(factor - 1.0) < 1e-9:
        return x
    values = array("f", [v * factor for v in array("f", bytes(x.data))])
    return Array(x.shape, "float32", values.tobytes())


def _exchanged(x: Array, heads: int) -> Array:
    """Rows whose halves are interleaved in each head."""
    rows, columns = x.shape
    n, size = rows // heads, 4 * columns
    data = memoryview(bytes(x.data))
    order = [h * n + (i % 2) * (n // 2) + i // 2 for h in range(heads) for i in range(n)]
    return Array(x.shape, "float32", b"".join(data[i * size : (i + 1) * size] for i in order))


def adapter_mlx(adapter: Adapter, config: Mapping[str, Any]) -> dict[str, Parts]:
    """An adapter as mlx_lm's files: `adapters.safetensors` with A [in, r] and B [r, out], and
    `adapter_config.json`.

    Raises:
        UnsupportedField: mlx_lm has one rank and scaling for all modules.
    """
    own = hub_adapter(adapter, config)
    _check_plain(own, "mlx_lm")
    experts = [m for m in own.lora if ".experts." in m]
    if experts:
        raise UnsupportedField(
            f"it adapts experts ({experts[0]})",
            "adapter",
            "mlx_lm has one adapter for all experts of a layer; write the merged model.",
        )
    factors = {own.config.scaling_of(m) for m in (*own.lora, *own.embeddings)}
    ranks = {_shape(a)[0] for a, _ in (*own.lora.values(), *own.embeddings.values())}
    outside = own.embeddings or "lm_head" in own.lora
    if own.saved or outside or len(factors) != 1 or len(ranks) != 1:
        raise UnsupportedField(
            "it has whole parameters, adapts the embedding or the output layer, or has several"
            " ranks or scalings",
            "adapter",
            "mlx_lm's adapters are of layers, with one rank and scaling; write the merged model.",
        )
    tensors: dict[str, Any] = {}
    for module, (a, b) in own.lora.items():
        for half, x in (("lora_a", _turned(a)), ("lora_b", _turned(b))):
            tensors[f"{module}.{half}"] = (FLOAT, list(x.shape), x.data)
    keys = sorted({m.split(".", 3)[3] for m in own.lora if m.startswith("model.layers.")})
    fields = {
        "fine_tune_type": "lora",
        "num_layers": dims_of(config).layers,
        "lora_parameters": {
            "rank": ranks.pop(),
            "scale": factors.pop(),
            "dropout": float(own.config.lora_dropout),
            "keys": keys,
        },
    }
    return {
        "adapters.safetensors": safetensors_parts(tensors, {"format": "mlx"}),
        "adapter_config.json": [written_json(fields, indent=2) + b"\n"],
    }


def type_for(quantization: str | None, format_: str, halves: bool) -> Type:
    """The Type of a name; None: of the file's float weights.

    Raises:
        InputError: the format does not have it.
    """
    if quantization is None:
        return F16 if halves or format_ == "gguf" else F32
    found = type_named(quantization)
    if format_ != "gguf" and found not in (F16, F32):
        raise InputError(
            f"{format_} has no {found.name}", "quantization", "Use 'f16' or 'f32', or a GGUF file."
        )
    return found


__all__ = [
    "FORMATS",
    "HubModel",
    "adapter_gguf",
    "adapter_mlx",
    "config_of",
    "hub_adapter",
    "type_for",
]
