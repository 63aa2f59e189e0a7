"""Tiny random models that rank: a cross-encoder, and a Qwen3 as Qwen3-Reranker is exported."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

QUERY = "Where did she live?"
DOCUMENTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Angela Merkel lived in Berlin, and worked near the Brandenburg Gate since 1990.",
    "My phone is broken; it needs to be repaired before Friday!",
    "Élise ate a crème brûlée in Montréal.",
]


def chat_tokenizer(ends: bool = False):
    """A byte-level tokenizer with the tokens of Qwen's prompts and answers. ends: whether it puts
    a token after a text, as that of Qwen3-Embedding.
    """
    import transformers
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers
    from tokenizers.decoders import ByteLevel

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator([*DOCUMENTS, "yes no yes no yes no"] * 2, trainer)
    made.add_tokens([AddedToken(word) for word in ("yes", "no") if made.token_to_id(word) is None])
    if ends:
        made.post_processor = processors.TemplateProcessing(
            single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        padding_side="left",
        model_max_length=4096,
    )


def small_qwen3(kind: str, words, **config):
    """A Qwen3 of random weights. kind: "Qwen3ForCausalLM" or "Qwen3Model"."""
    import torch
    import transformers

    torch.manual_seed(5)
    settings = transformers.Qwen3Config(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_position_embeddings=4096,
        initializer_range=0.3,
        attn_implementation="eager",
        tie_word_embeddings=False,
        architectures=[kind],
        **config,
    )
    return getattr(transformers, kind)(settings).eval()


def make_qwen3(folder: Path, kind: str, output: str):
    """Writes the model's folder, with the inputs of an export for generation; returns
    (model, tokenizer). output: name of its first output.
    """
    import torch
    from transformers.cache_utils import DynamicCache

    words = chat_tokenizer(ends=kind == "Qwen3Model")
    model = small_qwen3(kind, words)
    layers = model.config.num_hidden_layers

    class Exported(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask, positions, *past):
            cache = DynamicCache()
            for i in range(layers):
                cache.update(past[2 * i], past[2 * i + 1], i)
            keys, queries = mask.shape[1], ids.shape[1]
            places = torch.arange(keys)
            seen = places[None, :] <= places[keys - queries :][:, None]
            allowed = seen[None, None] & (mask[:, None, None, :] > 0)
            made = self.model(
                input_ids=ids,
                attention_mask=torch.where(allowed, 0.0, -1e30),
                position_ids=positions,
                past_key_values=cache,
            )
            after = [x for layer in made.past_key_values.layers for x in (layer.keys, layer.values)]
            return made[0], *after

    names = [f"{i}.{part}" for i in range(layers) for part in ("key", "value")]
    past, present = [f"past_key_values.{n}" for n in names], [f"present.{n}" for n in names]
    ids = torch.randint(5, 50, (1, 4))
    given = [ids, torch.ones(1, 6, dtype=torch.int64), torch.arange(2, 6)[None]]
    given += [torch.randn(1, 2, 2, 8) for _ in past]
    axes = {name: {0: "batch", 1: "sequence"} for name in ("input_ids", "position_ids", output)}
    axes["attention_mask"] = {0: "batch", 1: "total"}
    axes |= {name: {0: "batch", 2: "past"} for name in past}
    axes |= {name: {0: "batch", 2: "total"} for name in present}
    words.save_pretrained(folder)
    model.config.save_pretrained(folder)
    (folder / "onnx").mkdir(exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Exported(),
            tuple(given),
            str(folder / "onnx" / "model.onnx"),
            input_names=["input_ids", "attention_mask", "position_ids", *past],
            output_names=[output, *present],
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
    return model, words


def card_scores(model, words, query, documents, instruction=None, most=8192):
    """The scores of Qwen3-Reranker's card: each document alone, without padding."""
    import torch

    before = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query"
        ' and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n"
    )
    after = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    first = words.encode(before, add_special_tokens=False)
    last = words.encode(after, add_special_tokens=False)
    task = "Given a web search query, retrieve relevant passages that answer the query"
    instruction = instruction or task
    scores = []
    for document in documents:
        pair = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
        room = most - len(first) - len(last)
        inner = words(pair, truncation="longest_first", max_length=room)["input_ids"]
        ids = torch.tensor([first + inner + last])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[:, -1, :]
        two = [logits[:, words.convert_tokens_to_ids(word)] for word in ("no", "yes")]
        both = torch.nn.functional.log_softmax(torch.stack(two, dim=1), dim=1)
        scores += both[:, 1].exp().tolist()
    return scores


def ranked(scores, documents=None):
    """Scores as CrossEncoder.rank returns them."""
    found = [{"corpus_id": i, "score": s} for i, s in enumerate(scores)]
    if documents is not None:
        for one in found:
            one["text"] = documents[one["corpus_id"]]
    return sorted(found, key=lambda one: one["score"], reverse=True)


def set_json(path: Path, **fields) -> None:
    """Sets fields of a JSON file, which may be missing."""
    found = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**found, **fields}))
