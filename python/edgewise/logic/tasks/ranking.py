"""text-ranking: how well documents answer a query. Mirrors CrossEncoder.rank of
sentence-transformers, and of language models the code on the card of Qwen3-Reranker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from ...errors import InputError
from ..native import option, written
from ..options import read_choice, read_count, read_flag, read_text
from ..post.classification import sigmoid
from ..text.encoding import EncodeOptions, Encoding
from .inputs import Values, row
from .texts import Run, Runs, TextModel, Words

FUNCTIONS = ("default", "sigmoid", "none")
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and"
    ' the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
MAX_TOKENS = 8192
"""Most tokens that a language model reads, where it takes as many."""


class Ranked(TypedDict):
    """A document with its score. corpus_id: its place in the list."""

    corpus_id: int
    score: float
    text: NotRequired[str]


@dataclass(frozen=True)
class Answers:
    """Tokens of a language model that say whether a document answers a query.

    Attributes:
        right: id of "yes".
        wrong: id of "no"; None: the score is the logit of `right`.
    """

    right: int
    wrong: int | None


@dataclass(frozen=True)
class Ranking:
    """How documents are ranked.

    Attributes:
        top_k: how many; None: all.
        texts: whether the results have the documents.
        squashed: whether scores are between 0 and 1.
        encode: most tokens, and which text is cut.
        prompt: put before the query; of language models the instruction.
        answers: of a language model; None: it is a cross-encoder.
    """

    top_k: int | None
    texts: bool
    squashed: bool
    encode: EncodeOptions
    prompt: str
    answers: Answers | None


Config = Callable[[str], dict[str, Any]]
"""The contents of a JSON file of the model; {} if there is none."""


def is_language_model(config: Mapping[str, Any]) -> bool:
    """Whether documents are ranked by the next token. config: contents of config.json."""
    kinds: object = config.get("architectures")
    return isinstance(kinds, list) and len(kinds) > 0 and str(kinds[0]).endswith("ForCausalLM")


def ranking(
    model: TextModel, options: Mapping[str, Any], modules: object, config: Config
) -> Ranking:
    """The options of text-ranking: `top_k`, `return_documents`, `function_to_apply`, `prompt`,
    `prompt_name` and `max_length`.

    Args:
        model: to rank with.
        options: of a call.
        modules: contents of modules.json; None: there is none.
        config: reads other files.

    Raises:
        InputError: one is not valid, or the tokenizer has no answers.
    """
    own = config("config_sentence_transformers.json")
    answers = None
    if is_language_model(model.config):
        answers = _answers(model.words, modules, config)
    function = read_choice(options, "function_to_apply", "default", FUNCTIONS)
    if function == "default":
        function = _function(model.config, own)
    most = read_count(options, "max_length")
    if most is None and answers is not None:
        most = MAX_TOKENS if model.longest is None else min(MAX_TOKENS, model.longest)
    return Ranking(
        read_count(options, "top_k"),
        read_flag(options, "return_documents", False),
        function == "sigmoid",
        EncodeOptions("longest_first", most),
        _prompt(options, own, INSTRUCTION if answers is not None else ""),
        answers,
    )


def _function(config: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The function from logits to scores that the model's files name, by default a sigmoid."""
    former: object = config.get("sentence_transformers")
    names: list[object] = [config.get("sbert_ce_default_activation_function")]
    if isinstance(former, dict):
        names = [former.get("activation_fn"), *names]
    for name in [own.get("activation_fn"), *names]:
        if isinstance(name, str):
            return "none" if name.endswith("Identity") else "sigmoid"
    return "sigmoid"


def _prompt(options: Mapping[str, Any], own: Mapping[str, Any], otherwise: str) -> str:
    given = read_text(options, "prompt")
    named: object = options.get("prompt_name")
    found: object = own.get("prompts")
    prompts: dict[str, Any] = found if isinstance(found, dict) else {}
    if named is not None and not (isinstance(named, str) and named in prompts):
        raise InputError(
            f"the model has no prompt {written(named)}",
            option("prompt_name"),
            f"It has: {', '.join(prompts) or 'none'}.",
        )
    if given is not None:
        return given
    name: object = own.get("default_prompt_name") if named is None else named
    text: object = prompts.get(name) if isinstance(name, str) else None
    return text if isinstance(text, str) else otherwise


def _answers(words: Words, modules: object, config: Config) -> Answers:
    """The answers that the model's files name, else "yes" and "no". Raises InputError."""
    listed: list[Any] = modules if isinstance(modules, list) else []
    for module in listed:
        if isinstance(module, dict) and str(module.get("type")).endswith("LogitScore"):
            path: object = module.get("path")
            found = config(f"{path}/config.json" if path else "config.json")
            right: object = found.get("true_token_id")
            wrong: object = found.get("false_token_id")
            if isinstance(right, int):
                return Answers(right, wrong if isinstance(wrong, int) else None)
    yes, no = words.id_of("yes"), words.id_of("no")
    if yes is None or no is None:
        raise InputError(
            'the tokenizer has no tokens "yes" and "no"',
            "text-ranking",
            "Give a model that was trained to rank, such as Qwen3-Reranker.",
        )
    return Answers(yes, no)


def rank(
    model: TextModel, query: str, documents: Sequence[str], how: Ranking
) -> Generator[Run, Runs, list[Ranked]]:
    """The documents that answer a query, the best first.

    Raises:
        InputError: the model has other scores, or no room for a document.
    """
    scores: list[float] = []
    for document in documents:
        read = _read(model.words, query, document, how)
        found = yield Run(read, ["logits"], False)
        scores.append(_score(found[0], len(read.ids), how))
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    results: list[Ranked] = []
    for i in order[: how.top_k]:
        one: Ranked = {"corpus_id": i, "score": scores[i]}
        if how.texts:
            one["text"] = documents[i]
        results.append(one)
    return results


def _read(words: Words, query: str, document: str, how: Ranking) -> Encoding:
    """A query with a document, as the model reads them."""
    if how.answers is None:
        return words.encodings(how.prompt + query, document, how.encode)[0]
    before, after = words.ids(BEFORE), words.ids(AFTER)
    most = how.encode.max_length
    room = None if most is None else most - len(before) - len(after)
    if room is not None and room < 1:
        raise InputError(
            f"the prompt alone has {len(before) + len(after)} tokens",
            option("max_length"),
            f"Give more than {most}.",
        )
    text = f"<Instruct>: {how.prompt}\n<Query>: {query}\n<Document>: {document}"
    inner = words.encodings(text, None, EncodeOptions("longest_first", room))[0].ids
    ids = [*before, *inner, *after]
    return Encoding(ids, [0] * len(ids), [0] * len(ids))


def _score(values: Values, tokens: int, how: Ranking) -> float:
    """The score of a document. tokens: that the model has read."""
    answers = how.answers
    if answers is None:
        logits = row(values, 0)
        if len(values.dims) != 2 or len(logits) != 1:
            raise InputError(
                f"its logits are [{', '.join(map(str, values.dims))}]",
                "text-ranking",
                "Ranking needs a model with one score: give a cross-encoder with one label.",
            )
        score = logits[0]
    else:
        # of the last token alone, where the graph was cut to it
        at = min(tokens, values.dims[1]) - 1 if len(values.dims) == 3 else 0
        logits = row(values, at)
        most = answers.right if answers.wrong is None else max(answers.right, answers.wrong)
        if most >= len(logits):
            raise InputError(
                f"the model has {len(logits)} tokens, and its answer is the token {most}",
                "text-ranking",
                "Model and tokenizer do not belong together.",
            )
        score = logits[answers.right] - (0.0 if answers.wrong is None else logits[answers.wrong])
    return sigmoid([score])[0] if how.squashed else score
