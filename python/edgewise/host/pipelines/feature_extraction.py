"""feature-extraction: states of tokens, and embeddings of texts. Mirrors the pipelines of this name
of transformers.js and transformers, and encode of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...compiler.arrays import as_output
from ...compiler.declare.dtypes import FLOAT, INT8, UINT8, pack
from ...errors import InputError, ModelError
from ...json_text import parse_json
from ...logic.options import read_flag
from ...logic.post.embeddings import normalized
from ...logic.search.vectors import check_same, need_texts
from ...logic.tasks.embedding import (
    Vectors,
    embedded,
    embedding,
    prompt_tokens,
    text_of,
    vectors_of,
)
from ...logic.tasks.inputs import Values
from ...logic.tasks.texts import encode_options
from ...logic.text.encoding import EncodeOptions
from ...logic.text.recipe import Recipe, recipe_of
from .base import check_batch_size
from .files import ModelFiles
from .text import TextPipeline, need_text
from .vectors import VectorIndex, load_index


class FeatureExtractionPipeline(TextPipeline):
    """Embeds texts: pipe("text"), pipe(["text", "text"], pooling="mean", normalize=True).

    Options:
        pooling: "none", "mean", "cls" (or "first_token"), "max", "mean_sqrt_len", "weightedmean",
            "last_token" (or "eos"). Default: the model's own, as its modules.json and
            1_Pooling/config.json say; "none" for a model without them.
        normalize: whether vectors have length 1. Default: the model's own; False if `pooling` is
            given.
        dimensions: how many of a vector's first numbers are kept, before it is normalized.
        quantize: whether vectors become bits. precision: "binary" (int8) or "ubinary" (uint8),
            eight signs to a number; implies quantize. "float32": no bits.
        prompt: put before each text. prompt_name: a name in config_sentence_transformers.json.
        return_tensors: return arrays instead of lists.
        truncation, max_length, padding, add_special_tokens: of the tokenizer; also as a dict in
            tokenize_kwargs. Default: a text is cut to the length that the model takes.

    With a batch_size, the texts of a list run together, ordered by length and padded, if the graph
    has an attention mask and no dynamic quantization: this saves about a third of the time, and
    changes results by rounding errors.

    Returns:
        for each text a vector [size], or with pooling "none" [1, tokens, size]; nested lists of
        numbers, or arrays. With return_tensors, a list of texts gives one array [texts, size].
    """

    task = "feature-extraction"
    CALL = {
        "pooling": None,
        "normalize": None,
        "quantize": False,
        "precision": None,
        "dimensions": None,
        "prompt": None,
        "prompt_name": None,
        "return_tensors": False,
        "tokenize_kwargs": None,
        **TextPipeline.ENCODING,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        embedding(options, self.recipe)
        read_flag(options, "return_tensors")
        self._encode_options(options)

    @property
    def recipe(self) -> Recipe:
        """How the model's files say that embeddings are made."""
        if not hasattr(self, "_recipe"):
            self._recipe = read_recipe(self.files) if self.files is not None else Recipe()
        return self._recipe

    def __call__(self, inputs: Any, *, batch_size: int | None = None, **options: Any) -> Any:
        """See the class and Pipeline.__call__."""
        every = self.options(options)
        results = self.run(inputs, every, batch_size)
        if not every["return_tensors"]:
            if isinstance(inputs, Iterator):
                return (_listed(r) for r in results)
            return [_listed(r) for r in results] if self.is_list(inputs) else _listed(results)
        if self.is_list(inputs) and results and len(results[0].shape) == 1:
            return _stacked(results)
        return results

    def run(self, inputs: Any, options: dict[str, Any], batch_size: int | None = None) -> Any:
        """As Pipeline.run; with a batch_size, texts of similar lengths run together."""
        size = self.batch_size if batch_size is None else check_batch_size(batch_size)
        if size == 1 or not self.is_list(inputs) or not self.can_pad:
            return super().run(inputs, options, size)
        order = sorted(range(len(inputs)), key=lambda i: len(need_text(inputs[i], self.task)))
        whole = len(inputs) // size * size  # a smaller batch would need other plans
        results = super().run([inputs[i] for i in order[:whole]], options, size)
        results += super().run([inputs[i] for i in order[whole:]], options, 1)
        return [result for _, result in sorted(zip(order, results), key=lambda r: r[0])]

    def batch(self, inputs: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        asked, recipe = embedding(options, self.recipe), self.recipe
        how, extra = self.vectors(options), self._encode_options(options)
        texts = [text_of(need_text(given, self.task), asked, recipe) for given in inputs]
        encodings = [self.encodings(text, **vars(extra))[0] for text in texts]
        skipped = prompt_tokens(how, asked, recipe, self.model.words)
        results = []
        for group in [encodings] if self.can_pad else [[e] for e in encodings]:
            (plane,) = self.forward(*group, outputs=[how.output])
            values = Values(plane.shape, plane.numbers)
            for i, encoding in enumerate(group):
                rows = embedded(how, values, i, len(encoding.ids), skipped)
                is_one = how.pooled or bool(how.poolings)
                results.append(_array(rows[0], how.precision) if is_one else _states(rows))
        return results

    def vectors(self, options: Mapping[str, Any]) -> Vectors:
        """How the vectors of texts are made. Raises InputError."""
        outputs = list(self.session("model").outputs)
        return vectors_of(embedding(options, self.recipe), self.recipe, outputs, self.task)

    def index(self, texts: Any = (), precision: str = "float32", **options: Any) -> TextIndex:
        """An index of texts to search in.

        Args:
            texts: the texts.
            precision: "float32", or "int8": a quarter of the memory, about three times as
                fast, scores to about 0.001.
            options: of the embedding of texts, such as prompt_name="document".
        """
        return TextIndex(self, texts, precision, options)

    def load_index(self, source: Any, **options: Any) -> TextIndex:
        """An index that `TextIndex.save` wrote, here or in a page.

        Args:
            source: a path, or bytes.
            options: of the embedding of texts that were given to `index`.

        Raises:
            ModelError: the file is damaged.
            InputError: it was made with another model or other options.
        """
        vectors, texts = load_index(source, self.engine)
        index = TextIndex(self, [], vectors.precision, options)
        index.vectors = vectors
        index.texts = need_texts(texts, vectors.count)
        if texts:
            ((found,),) = vectors._search(index._embed(texts[:1], options), 1, within=1)
            check_same(found["score"])
        return index

    def _encode_options(self, options: Mapping[str, Any]) -> EncodeOptions:
        own = {name: options[name] for name in self.ENCODING}
        given = {**own, **self.inner_options(options, "tokenize_kwargs")}
        return encode_options(given, self.recipe.max_length, self.longest)


class TextIndex:
    """Texts with their embeddings.

    Args:
        pipe: embeds them.
        texts: the first texts.
        precision: of the VectorIndex.
        options: of the embedding of texts.

    Attributes:
        texts: all texts, in the order in which they were added.
        vectors: their VectorIndex.
    """

    def __init__(
        self, pipe: FeatureExtractionPipeline, texts: Any, precision: str, options: dict[str, Any]
    ) -> None:
        self.pipe, self.options = pipe, options
        self.texts: list[str] = []
        self.vectors = VectorIndex(precision=precision, engine=pipe.engine)
        self.add(texts)

    def add(self, texts: Any) -> None:
        """Adds a text or a list of texts."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        vectors = self._embed(texts, self.options)
        with self.vectors.lock:  # texts and vectors stay in one order
            self.vectors.add(vectors)
            self.texts += texts

    def save(self, target: Any = None) -> bytes | None:
        """Writes texts and vectors to a safetensors file, which `load_index` reads.

        Args:
            target: a path (the file is complete or not written at all), an object with `write`, or
                None: returns the bytes.
        """
        return self.vectors.save(target, self.texts)

    def close(self) -> None:
        """Frees the engine's memory. The index is empty then."""
        self.vectors.close()
        self.texts = []

    def __len__(self) -> int:
        return len(self.texts)

    def search(self, query: Any, top_k: int = 10, **options: Any) -> Any:
        """The most similar texts.

        Args:
            query: a text or a list of texts.
            top_k: how many results.
            options: of the embedding of the query, such as prompt_name="query".

        Returns:
            [{"corpus_id": index in `texts`, "score": cosine, "text"}], the highest score first; a
            list of such lists for a list of queries
        """
        queries = [query] if isinstance(query, str) else list(query)
        found = self.vectors.search(self._embed(queries, {**self.options, **options}), top_k)
        results = [[{**r, "text": self.texts[r["corpus_id"]]} for r in row] for row in found]
        return results[0] if isinstance(query, str) else results

    def _embed(self, texts: list[str], options: Mapping[str, Any]) -> list[list[float]]:
        for name in ("quantize", "precision", "return_tensors"):
            if name in options:
                raise InputError(f"an index sets {name} itself", name, "Leave it out.")
        vectors = self.pipe(texts, **options) if texts else []
        if vectors and isinstance(vectors[0][0], list):
            raise InputError("an index needs one vector of each text", "pooling", "Set pooling.")
        return [normalized(v) for v in vectors]


def _array(vector: list[float], precision: str) -> Any:
    """A vector as an array [size]."""
    if precision == "float32":
        return as_output(FLOAT, [len(vector)], pack(FLOAT, vector))
    code = INT8 if precision == "binary" else UINT8
    return as_output(code, [len(vector)], pack(code, [int(x) for x in vector]))


def _states(rows: list[list[float]]) -> Any:
    """Vectors of tokens as an array [1, tokens, size]."""
    flat = [x for row in rows for x in row]
    return as_output(FLOAT, [1, len(rows), len(rows[0])], pack(FLOAT, flat))


def _listed(result: Any) -> Any:
    return result.tolist()


def _stacked(results: list[Any]) -> Any:
    """One array of equally long vectors."""
    from ...compiler.arrays import as_input

    parts = [as_input(r, "") for r in results]
    data = b"".join(bytes(memoryview(d).cast("B")) for _, _, d in parts)
    return as_output(parts[0][0], [len(parts), parts[0][1][0]], data)


def read_recipe(files: ModelFiles) -> Recipe:
    """How a model's files say that embeddings are made. Raises ModelError if one is damaged."""
    data, where = files.read("modules.json"), f"{files.where}/modules.json"
    modules = None if data is None else parse_json(data, where, ModelError)
    return recipe_of(modules, where, lambda name: files.json(name) or {})
