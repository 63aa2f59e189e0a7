"""Makes text_tasks.json: inputs and results of the post-processing of text tasks.

    PYTHONPATH=python:tests python tests/pipelines/make_text_tasks.py

The results are those of transformers' pipelines, called without a model, and for embeddings those
of PyTorch and NumPy by the formulas of sentence-transformers.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from transformers.pipelines.fill_mask import FillMaskPipeline
from transformers.pipelines.question_answering import QuestionAnsweringPipeline, SquadExample
from transformers.pipelines.text_classification import (
    ClassificationFunction,
    TextClassificationPipeline,
)
from transformers.pipelines.token_classification import (
    AggregationStrategy,
    TokenClassificationPipeline,
)
from transformers.pipelines.zero_shot_classification import ZeroShotClassificationPipeline

FILE = Path(__file__).parents[1] / "conformance/text_tasks.json"
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def join(tokens: list[str]) -> str:
    """How the vectors make text of tokens, as a WordPiece decoder."""
    return " ".join(tokens).replace(" ##", "")


def numbers(rng: random.Random, count: int, spread: float = 3.0) -> list[float]:
    """Random float32 numbers of few digits."""
    return [float(np.float32(round(rng.gauss(0, spread), 3))) for _ in range(count)]


def plain(value):
    """Results with numbers of Python, rounded to what float32 has."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (np.floating, float)):
        return float(f"{float(value):.7g}")
    return value.item() if isinstance(value, np.integer) else value


def embeddings(rng: random.Random):
    """Pooling, normalization and packing."""
    for how in ("mean", "cls", "max", "mean_sqrt_len", "weightedmean", "last_token"):
        for mask in ([1, 1, 1, 1], [0, 1, 1, 0], [1]):
            size = 16
            flat = numbers(rng, len(mask) * size)
            x = torch.tensor(flat).reshape(len(mask), size)
            m = torch.tensor(mask, dtype=torch.float32)[:, None]
            place = torch.arange(1, len(mask) + 1)[:, None]
            ones = [i for i, one in enumerate(mask) if one]
            pooled = {
                "mean": lambda: (x * m).sum(0) / m.sum().clamp(min=1e-9),
                "cls": lambda: x[ones[0]],
                "max": lambda: x.masked_fill(m == 0, -1e9).max(0).values,
                "mean_sqrt_len": lambda: (x * m).sum(0) / m.sum().clamp(min=1e-9).sqrt(),
                "weightedmean": lambda: (x * m * place).sum(0) / (m * place).sum(),
                "last_token": lambda: x[ones[-1]],
            }[how]()
            cut = pooled[:8]
            yield {
                "states": flat,
                "size": size,
                "mask": mask,
                "pooling": how,
                "dimensions": 8,
                "pooled": pooled.tolist(),
                "normalized": torch.nn.functional.normalize(cut, dim=0).tolist(),
                "ubinary": np.packbits(pooled.numpy() > 0).tolist(),
                "binary": (np.packbits(pooled.numpy() > 0).astype(int) - 128).tolist(),
            }


def classification(rng: random.Random):
    """Scores of labels."""
    for count in (1, 2, 5):
        for problem in (None, "single_label_classification", "multi_label_classification",
                        "regression"):  # fmt: skip
            for function in (None, "softmax", "sigmoid", "none"):
                logits = numbers(rng, count)
                config = SimpleNamespace(
                    problem_type=problem,
                    num_labels=count,
                    id2label={i: f"label {i}" for i in range(count)},
                )
                me = SimpleNamespace(framework="pt", model=SimpleNamespace(config=config))
                top_k = rng.choice([1, 3, None])
                yield {
                    "logits": logits,
                    "problem_type": problem,
                    "function": function,
                    "top_k": top_k,
                    "result": TextClassificationPipeline.postprocess(
                        me,
                        {"logits": torch.tensor([logits])},
                        function and ClassificationFunction[function.upper()],
                        top_k,
                        _legacy=False,
                    ),
                }


def zero_shot(rng: random.Random):
    """Scores of candidate labels."""
    for label2id in (
        {"contradiction": 0, "neutral": 1, "entailment": 2},
        {"ENTAILMENT": 0, "other": 1},
        {"a": 0, "b": 1},
    ):
        for multi in (False, True):
            for labels in (["one"], ["one", "two", "three"]):
                rows = [numbers(rng, len(label2id)) for _ in labels]
                config = SimpleNamespace(label2id=label2id)
                me = SimpleNamespace(framework="pt", model=SimpleNamespace(config=config))
                me.entailment_id = ZeroShotClassificationPipeline.entailment_id.fget(me)
                outputs = [
                    {"candidate_label": label, "sequence": "", "logits": torch.tensor([row])}
                    for label, row in zip(labels, rows)
                ]
                found = ZeroShotClassificationPipeline.postprocess(me, outputs, multi)
                yield {
                    "logits": rows,
                    "labels": labels,
                    "label2id": label2id,
                    "multi_label": multi,
                    "result": [found["labels"], found["scores"]],
                }


def fill_mask(rng: random.Random):
    """Tokens of masked positions."""
    tokenizer = SimpleNamespace(mask_token_id=3, pad_token_id=0, decode=lambda *_, **__: "")
    me = SimpleNamespace(framework="pt", tokenizer=tokenizer)
    for top_k, targets in ((5, None), (1, None), (3, [7, 2, 11]), (5, [4, 9])):
        logits = numbers(rng, 20)
        outputs = {"input_ids": torch.tensor([[3]]), "logits": torch.tensor([[logits]])}
        found = FillMaskPipeline.postprocess(
            me, outputs, top_k, None if targets is None else np.array(targets)
        )
        yield {
            "logits": logits,
            "top_k": top_k,
            "targets": targets,
            "result": [[r["token"], r["score"]] for r in found],
        }


def pieces(rng: random.Random, text: str, prefix: bool):
    """(token, start, end) of a text, cut at random places within words."""
    for word in re.finditer(r"\w+|[^\w\s]", text):
        start = word.start()
        while start < word.end():
            end = min(word.end(), start + rng.randrange(2, 6))
            inside = prefix and start > word.start()
            yield ("##" if inside else "") + text[start:end].lower(), start, end
            start = end


def entities(rng: random.Random):
    """Entities of tokens."""
    text = "Angela Merkel lived in Berlin, near the Brandenburg Gate."
    for prefix in (True, False):
        for strategy in ("none", "simple", "first", "average", "max"):
            for ignored in (["O"], [], ["O", "PER", "B-LOC"]):
                tokens = list(pieces(rng, text, prefix))
                logits = [numbers(rng, len(LABELS)) for _ in tokens]
                model = SimpleNamespace(continuing_subword_prefix="##" if prefix else None)
                tokenizer = SimpleNamespace(
                    _tokenizer=SimpleNamespace(model=model),
                    unk_token_id=5,
                    convert_ids_to_tokens=lambda i, tokens=tokens: (
                        tokens[i - 10][0] if i >= 10 else "[UNK]"
                    ),
                    convert_tokens_to_string=join,
                )
                unknown = rng.randrange(len(tokens))
                ids = [5 if i == unknown else i + 10 for i in range(len(tokens))]
                me = object.__new__(TokenClassificationPipeline)
                me.framework, me.tokenizer = "pt", tokenizer
                me.model = SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(LABELS))))
                output = {
                    "logits": torch.tensor([logits]),
                    "sentence": text,
                    "input_ids": torch.tensor([ids]),
                    "offset_mapping": torch.tensor([[t[1:] for t in tokens]]),
                    "special_tokens_mask": torch.zeros(1, len(tokens), dtype=torch.int64),
                }
                yield {
                    "text": text,
                    "prefix": prefix,
                    "strategy": strategy,
                    "ignored": ignored,
                    "labels": LABELS,
                    "tokens": [
                        {"token": t, "start": a, "end": b, "unknown": i == unknown}
                        for i, (t, a, b) in enumerate(tokens)
                    ],
                    "logits": logits,
                    "result": me.postprocess(
                        [output], AggregationStrategy[strategy.upper()], ignored
                    ),
                }


class FakeEncoding:
    """What transformers asks of the `tokenizers` library's Encoding."""

    def __init__(self, offsets, words):
        self.offsets, self.words = offsets, words

    def token_to_word(self, i):
        return self.words[i]

    def word_to_chars(self, word, sequence_index):
        found = [o for i, o in enumerate(self.offsets) if self.words[i] == word and i > 3]
        return found[0][0], found[-1][1]


def answers(rng: random.Random):
    """Answers of one or two parts of a context."""
    text = "Angela Merkel lived in Berlin, near the Brandenburg Gate."
    found = list(re.finditer(r"\w+|[^\w\s]", text))
    words = [(i, m.start(), m.end()) for i, m in enumerate(found)]
    halves = [(i, a, b) for i, s, e in words for a, b in ((s, (s + e) // 2), ((s + e) // 2, e))
              if b > a]  # fmt: skip
    for parts in ([halves], [halves[:12], halves[8:]]):
        for align in (True, False):
            for impossible in (True, False):
                for top_k, longest in ((1, 15), (4, 3)):
                    described, outputs = [], []
                    for tokens in parts:
                        # [CLS] question of two tokens [SEP] context [SEP]
                        offsets = [(0, 0), (0, 3), (4, 7), (0, 0),
                                   *((a, b) for _, a, b in tokens), (0, 0)]  # fmt: skip
                        own = [None, 0, 1, None, *(w for w, _, _ in tokens), None]
                        sequences = [None, 0, 0, None, *[1] * len(tokens), None]
                        start, end = numbers(rng, len(offsets)), numbers(rng, len(offsets))
                        allowed = [i == 0 or s == 1 for i, s in enumerate(sequences)]
                        described.append(
                            {
                                "start": start,
                                "end": end,
                                "allowed": allowed,
                                "offsets": offsets,
                                "words": own,
                                "sequences": sequences,
                            }
                        )
                        outputs.append(
                            {
                                "start": torch.tensor([start]),
                                "end": torch.tensor([end]),
                                "p_mask": torch.tensor([[int(not a) for a in allowed]]),
                                "example": SquadExample(None, "q", text, None, None, None),
                                "encoding": FakeEncoding(offsets, own),
                            }
                        )
                    me = object.__new__(QuestionAnsweringPipeline)
                    me.framework = "pt"
                    me.tokenizer = SimpleNamespace(is_fast=True, padding_side="right")
                    result = me.postprocess(outputs, top_k, impossible, longest, align)
                    yield {
                        "context": text,
                        "parts": described,
                        "top_k": top_k,
                        "max_answer_len": longest,
                        "impossible": impossible,
                        "align": align,
                        "result": result if isinstance(result, list) else [result],
                    }


def poolings(rng: random.Random):
    """Contents of 1_Pooling/config.json, and the ways of pooling that they mean."""
    flag = "pooling_mode_{}".format
    for config, names in (
        ({flag("mean_tokens"): True, "word_embedding_dimension": 32}, ["mean"]),
        ({flag("mean_tokens"): True, flag("cls_token"): True}, ["cls", "mean"]),
        ({flag("lasttoken"): True, flag("mean_tokens"): False}, ["last_token"]),
        ({"pooling_mode": "lasttoken"}, ["last_token"]),
        ({"pooling_mode": ["max", "mean_tokens"]}, ["max", "mean"]),
    ):
        yield {"config": config, "poolings": names}


def all_cases() -> dict[str, list]:
    """All cases with their results, by the names of their tasks."""
    rng = random.Random(14)
    makers = (embeddings, classification, zero_shot, fill_mask, entities, answers, poolings)
    return {f.__name__: [plain(case) for case in f(rng)] for f in makers}


def main() -> None:
    """Writes the file."""
    lines = [
        f'  "{name}": [\n' + ",\n".join(f"    {json.dumps(c)}" for c in cases) + "\n  ]"
        for name, cases in all_cases().items()
    ]
    about = "Post-processing of text tasks; tests/pipelines/make_text_tasks.py makes it."
    FILE.write_text("{\n" + ",\n".join([f'  "about": {json.dumps(about)}', *lines]) + "\n}\n")


if __name__ == "__main__":
    main()
