"""Tiny models of each task with random weights, in the folders that optimum writes, and what
transformers' pipelines compute with them.
"""

import json

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    BertTokenizerFast,
)

from tests.word_pieces import word_pieces

TEXTS = [
    "Angela Merkel met Barack Obama in Berlin.",
    "I have never seen such a wonderful film, it was naïve and beautiful!",
    "Short.",
    "The price of the Café rose from 12.50 to 99 euros; 日本 was not affected, unlike Zürich.",
]
CONTEXT = (
    "Edgewise was written in Berlin by several engineers. Its engine runs in a web page, and the"
    " compiler is written in Python. The first release had 340 kilobytes of code. "
) * 4
QUESTION = "Where was it written?"
LABELS = ["politics", "film", "prices"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
KINDS = {
    "feature-extraction": (BertModel, {}),
    "text-classification": (
        BertForSequenceClassification,
        {"id2label": {0: "bad", 1: "fair", 2: "good"}},
    ),
    "zero-shot-classification": (
        BertForSequenceClassification,
        {"id2label": {0: "contradiction", 1: "neutral", 2: "entailment"}},
    ),
    "token-classification": (
        BertForTokenClassification,
        {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}},
    ),
    "fill-mask": (BertForMaskedLM, {}),
    "question-answering": (BertForQuestionAnswering, {}),
}


def tokenizer():
    """A WordPiece tokenizer of these texts."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    texts = [*TEXTS, CONTEXT, QUESTION, *LABELS, "This example is about it."]
    word_pieces(made, texts, SPECIAL)
    made.add_special_tokens(SPECIAL)
    cls, sep = made.token_to_id("[CLS]"), made.token_to_id("[SEP]")
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
    )
    return BertTokenizerFast(tokenizer_object=made, model_max_length=128)


def tell_texts_apart(model):
    """Weights with which a text is the sum of its words: with any others all texts are nearly one
    vector, and rounding decides which are nearest.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.constant_(parameter, float(name.endswith("LayerNorm.weight")))
        else:
            torch.nn.init.normal_(parameter, std=1.0 if "word_embeddings" in name else 0.1)


def save(folder, task):
    """Writes the folder of a model; returns (model, tokenizer)."""
    torch.manual_seed(sum(map(ord, task)))
    words = tokenizer()
    kind, more = KINDS[task]
    if "id2label" in more:
        more = {**more, "label2id": {v: k for k, v in more["id2label"].items()}}
    model = kind(BertConfig(vocab_size=len(words), **SIZES, **more)).eval()
    for parameter in model.parameters():  # so that scores differ
        torch.nn.init.normal_(parameter, std=0.3)
    if task == "feature-extraction":
        tell_texts_apart(model)
    (folder / "onnx").mkdir(parents=True)
    words.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict()))
    inputs = words("a b", return_tensors="pt")
    names = ["input_ids", "attention_mask", "token_type_ids"]
    outputs = {
        "feature-extraction": ["last_hidden_state"],
        "question-answering": ["start_logits", "end_logits"],
    }.get(task, ["logits"])
    torch.onnx.export(
        model,
        tuple(inputs[name] for name in names),
        str(folder / "onnx" / "model.onnx"),
        input_names=names,
        output_names=outputs,
        dynamic_axes={n: {0: "batch", 1: "sequence"} for n in [*names, *outputs]},
        opset_version=17,
        dynamo=False,
    )
    return model, words
