"""text-ranking: how well documents answer a query. Mirrors CrossEncoder.rank of
sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...compiler.onnx import as_source, read_model
from ...compiler.task_package.decoders import last_token_only
from ...errors import InputError, ModelError
from ...json_text import parse_json
from ...logic.tasks.ranking import Ranking, is_language_model, rank, ranking
from ..session import InferenceSession
from .text import MAX_PLANS, TextPipeline, need_text


class TextRankingPipeline(TextPipeline):
    """Orders documents by how well they answer a query: pipe(query, documents),
    pipe({"query": ..., "documents": [...]}), or a list of these.

    Models are cross-encoders with one label (bge-reranker, jina-reranker, ms-marco-MiniLM), and
    language models that answer "yes" or "no" (Qwen3-Reranker).

    Options:
        top_k: how many documents. Default: all.
        return_documents: whether the results have the documents as "text".
        function_to_apply: "sigmoid", "none", or "default": as the model's files say, else a
            sigmoid.
        prompt: put before the query; of language models the instruction. prompt_name: a name in
            config_sentence_transformers.json.
        max_length: of query and document in tokens. Default: what the model takes; of language
            models at most 8192.

    Returns:
        [{"corpus_id": index of the document, "score"}], the highest score first
    """

    task = "text-ranking"
    STEMS = (("model", "decoder_model_merged"),)
    CALL = {
        "top_k": None,
        "return_documents": False,
        "function_to_apply": None,
        "prompt": None,
        "prompt_name": None,
        "max_length": None,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        self._ranking(options)

    def session(self, stem: str) -> Any:
        """As Pipeline.session; of a language model with the logits of one token."""
        graphs = self.files.graphs if self.files is not None else {}
        if stem not in graphs and "decoder_model_merged" in graphs:
            stem = "decoder_model_merged"
        if stem in graphs and not self.closed and stem not in self.sessions:
            if is_language_model(self.config):
                graph = read_model(as_source(graphs[stem]))
                last_token_only(graph)
                made = InferenceSession(graph, self.session_options, engine=self.engine)
                made.MAX_PLANS = MAX_PLANS
                self.sessions[stem] = made
        return super().session(stem)

    def __call__(  # type: ignore[override]  # the names of sentence-transformers
        self, query: Any, documents: Any = None, *, batch_size: int | None = None, **options: Any
    ) -> Any:
        """See the class and Pipeline.__call__.

        Args:
            query: a text; or {"query", "documents"}, or a list of these.
            documents: a list of texts.
            batch_size: as of Pipeline.__call__.
            options: see the class.
        """
        if documents is not None:
            query = {"query": query, "documents": documents}
        return super().__call__(query, batch_size=batch_size, **options)

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        query, documents = _query(given)
        return self.done(rank(self.model, query, documents, self._ranking(options)))

    def _ranking(self, options: Mapping[str, Any]) -> Ranking:
        return ranking(self.model, options, self._modules(), self._json)

    def _modules(self) -> Any:
        data = None if self.files is None else self.files.read("modules.json")
        return None if data is None else parse_json(data, "modules.json", ModelError)


def _query(given: Any) -> tuple[str, list[str]]:
    """(query, documents) of an input. Raises InputError."""
    if not isinstance(given, dict) or set(given) != {"query", "documents"}:
        raise InputError(
            "the input is no query with documents",
            "text-ranking",
            'Give pipe(query, documents) or {"query": ..., "documents": [...]}.',
        )
    documents = given["documents"]
    if isinstance(documents, (str, bytes, Mapping)) or not hasattr(documents, "__iter__"):
        raise InputError(
            f"a {type(documents).__name__} is no list of documents",
            "documents",
            "Give a list of strings.",
        )
    texts = [need_text(one, f"document {i}") for i, one in enumerate(documents)]
    return need_text(given["query"], "query"), texts
