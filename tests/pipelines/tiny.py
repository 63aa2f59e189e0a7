"""Tiny random models of text tasks: BERT-like with WordPiece, RoBERTa-like with byte-level BPE.

Each is saved as transformers saves it, and exported beside that as optimum names files
(onnx/model.onnx).
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from tests.word_pieces import word_pieces

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Angela Merkel lived in Berlin, and worked near the Brandenburg Gate since 1990.",
    "My phone is broken; it needs to be repaired before Friday!",
    "Élise ate a crème brûlée in Montréal.",
    "transformers.js and ONNX run models in web pages, don't they?",
]
HEADS = {
    "base": ("Model", ["last_hidden_state"]),
    "sequence": ("ForSequenceClassification", ["logits"]),
    "score": ("ForSequenceClassification", ["logits"]),
    "tokens": ("ForTokenClassification", ["logits"]),
    "mask": ("ForMaskedLM", ["logits"]),
    "questions": ("ForQuestionAnswering", ["start_logits", "end_logits"]),
}
LABELS = {
    "sequence": ["contradiction", "neutral", "entailment"],
    "score": ["LABEL_0"],
    "tokens": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
}


def tokenizer_of(kind: str):
    """A trained tokenizer of transformers. kind: "bert" or "roberta"."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from tokenizers.decoders import ByteLevel, WordPiece

    if kind == "bert":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = WordPiece()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        word_pieces(tokenizer, TEXTS, special)
        tokenizer.add_special_tokens(special)
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        names = dict(zip(("pad", "unk", "cls", "sep", "mask"), special))
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = ByteLevel()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        tokenizer.train_from_iterator(TEXTS, trainer)
        tokenizer.post_processor = processors.RobertaProcessing(
            ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False
        )
        names = dict(zip(("cls", "pad", "sep", "unk", "mask"), special))
        inputs = ["input_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        model_input_names=inputs,
        **{f"{name}_token": token for name, token in names.items()},
    )


def make(folder: Path, kind: str, head: str, **config) -> Path:
    """Makes a model and returns its folder. config: changes of its configuration."""
    import torch
    import transformers

    torch.manual_seed(len(kind) * 10 + len(head))
    tokenizer = tokenizer_of(kind)
    prefix = {"bert": "Bert", "roberta": "Roberta"}[kind]
    labels = LABELS.get(head, [])
    settings = getattr(transformers, f"{prefix}Config")(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=66 if kind == "roberta" else 64,
        type_vocab_size=1 if kind == "roberta" else 2,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.4,
        id2label=dict(enumerate(labels)) or None,
        label2id={label: i for i, label in enumerate(labels)} or None,
        **config,
    )
    suffix, outputs = HEADS[head]
    model = getattr(transformers, prefix + suffix)(settings).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "onnx").mkdir()
    inputs = [
        n for n in ("input_ids", "attention_mask", "token_type_ids")
        if n in tokenizer.model_input_names
    ]  # fmt: skip
    example = tokenizer("a b", "c", return_tensors="pt", return_token_type_ids=True)
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in [*inputs, *outputs]}
    if head in ("sequence", "score"):
        axes["logits"] = {0: "batch_size"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            kwargs={name: example[name] for name in inputs},
            f=str(folder / "onnx" / "model.onnx"),
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
    return folder


def with_embedding(folder: Path) -> Path:
    """Gives a graph the output `sentence_embedding`: twice the largest states."""
    from edgewise.compiler.declare.dtypes import FLOAT
    from edgewise.ir import Info, Node
    from edgewise.onnx.editor import ModelEditor

    path = next(folder.rglob("*.onnx"))
    editor = ModelEditor(path.read_bytes())
    state, name = editor.graph.outputs[0].name, "sentence_embedding"
    editor.add_nodes(
        [
            Node("ReduceMax", [state], ["largest"], {"axes": [1], "keepdims": 0}),
            Node("Add", ["largest", "largest"], [name]),
        ]
    )
    editor.add_output(Info(name, FLOAT, ["batch_size", editor.graph.outputs[0].shape[-1]]))
    editor.write(path)
    return folder


def as_sentence_transformer(folder: Path, pooling: dict, normalize: bool = True, **config) -> None:
    """Adds the files of sentence-transformers to a model."""
    modules = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{m}"}
                for i, (m, p) in enumerate(zip(modules, paths))
            ]
        )
    )
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
