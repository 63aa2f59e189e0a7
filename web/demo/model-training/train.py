"""Makes the demo model of Edgewise, end to end: stories -> tokenizer -> training -> 4-bit file ->
model card.

    make native
    python3.11 -m venv /tmp/demo-venv
    /tmp/demo-venv/bin/pip install torch==2.13.0            # first: the CPU build
    /tmp/demo-venv/bin/pip install -r web/demo/model-training/requirements.txt
    PYTHONPATH=python /tmp/demo-venv/bin/python web/demo/model-training/train.py --out
    web/demo/model

Edgewise itself trains, natively. PyTorch is there for one thing: transformers and optimum export
the ONNX file of the model with random weights, which is what training begins with; what it ends
with is the same file with other weights.

Nothing is downloaded: the text is written by stories.py next to this file. Everything is seeded.
The run goes on where it was stopped (checkpoints lie in --work); `--steps 150` makes a quick, silly
model through the same path in a minute. A run that has ended goes on with more steps, too: a second
round, which begins with the rate that the longer run has there.

Two threads of a free machine with AVX-512: about 9,000 tokens a second, half an hour for 9,000
steps.
"""

import argparse
import collections
import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import stories
from edgewise.engine.native import NativeEngine
from edgewise.ir import Node
from edgewise.onnx import ModelEditor, as_source, read_model
from edgewise.training import AdamW, Muon, Program, TrainingSession
from edgewise.training.export import export_parameters
from edgewise.training.language_model import causal_lm_inputs
from edgewise.training.safetensors import load_safetensors, save_safetensors

SEED = 20
VOCAB = 4096
EOS, BOS = "<|endoftext|>", "<|startoftext|>"
SHAPE = dict(
    hidden_size=192,
    intermediate_size=512,
    num_hidden_layers=6,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=512,
    rope_theta=10000.0,
)
BLOCK = 32  # weights per quantization scale
GRID = 16  # lengths of rows are multiples of it: one plan for each length
HELD_OUT = 128  # rows
STRANGE = 0.15  # share of stories with words that are not the grammar's
EMBEDDING = "model.embed_tokens.weight"


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, flush=True)


# ----------------------------------------------------------------------
# text and tokens


def make_tokenizer(path, n_stories):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[EOS, BOS],
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    feed = stories.stories(SEED + 1)
    tok.train_from_iterator((next(feed) for _ in range(n_stories)), trainer)
    assert tok.get_vocab_size() == VOCAB, "the text has too few words for the table"
    bos = tok.token_to_id(BOS)
    tok.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bos)]
    )
    tok.save(str(path))


def rows_of(tok, feed, strange=0.0):
    """Endless rows (ids, labels) of whole stories, `<bos> story <eos>`; labels are ids, -100 where
    nothing is to be learned.

    A story is seen alone, as it will be written, so that its names and things can only come from
    itself; one row in eight holds two stories, so that positions up to the context's end are known
    too.

    strange: share of the stories in which a word is one that the grammar does not have, and as many
    that are spelled in other pieces. Without them a fifth of the vocabulary is never seen, all its
    rows end up the same, and no adapter could tell them apart: what people teach the model is full
    of such pieces. It learns to go on with them, not to begin them.
    """
    rng, pieces, most = (
        np.random.default_rng(SEED),
        pieces_of(tok),
        SHAPE["max_position_embeddings"],
    )
    while True:
        some = [(next(feed), "") for _ in range(1024)]
        some = [
            with_new_word(story, pieces, rng) if rng.random() < strange else (story, "")
            for story, _ in some
        ]
        rows = []
        for e, (story, word) in zip(tok.encode_batch([story for story, _ in some]), some):
            at = story.index(word)
            row = (
                e.ids + [0],
                [
                    -100 if start < at + len(word) and end > at else i
                    for i, (start, end) in zip(e.ids, e.offsets)
                ]
                + [0],
            )  # the template writes <bos>
            rows.append(spelled(tok, row, rng) if rng.random() < strange else row)
        rows = iter(rows)
        for row in rows:
            more = next(rows, ([], [])) if rng.random() < 0.125 else ([], [])
            yield tuple((x + y)[:most] for x, y in zip(row, more))


def pieces_of(tok):
    """What the vocabulary's entries write, as far as they are text."""
    return [
        t for t in (tok.decode([i]).strip() for i in range(2, VOCAB)) if t and "\ufffd" not in t
    ]


SCRIPTS = (
    (0x21, 0x7E),
    (0xA1, 0x17F),
    (0x391, 0x3C9),
    (0x410, 0x44F),
    (0x5D0, 0x5EA),
    (0x621, 0x64A),
    (0x905, 0x939),
    (0x2010, 0x203A),
    (0x3041, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1F64F),
)


def new_word(pieces, rng):
    """One to four pieces of the vocabulary, and now and then any sign of any script."""
    word = ""
    for _ in range(rng.integers(1, 5)):
        low, high = SCRIPTS[0 if rng.random() < 0.6 else rng.integers(1, len(SCRIPTS))]
        word += (
            pieces[rng.integers(len(pieces))]
            if rng.random() < 0.65
            else chr(rng.integers(low, high + 1))
        )
    kind = rng.random()
    return word.upper() if kind < 0.15 else word[:1].upper() + word[1:] if kind < 0.6 else word


def with_new_word(story, pieces, rng):
    """The story with one of its words, a long one that comes more than once, replaced everywhere by
    a new word; and that word.
    """
    counts = collections.Counter(w for w in re.findall(r"\b[A-Za-z]{4,}\b", story))
    often = sorted(w for w, n in counts.items() if n > 1)
    if not often:
        return story, ""
    word = new_word(pieces, rng)
    return re.sub(rf"\b{often[rng.integers(len(often))]}\b", lambda _: word, story), word


def spelled(tok, row, rng, share=0.1):
    """The row with a share of its tokens in two halves, cut anywhere: subword regularization, as
    BPE-dropout (Provilkov et al., 2020).
    """
    ids, labels = [], []
    for i, label in zip(*row):
        text = tok.decode([i]) if i > 1 and rng.random() < share else ""
        if len(text) < 2 or "\ufffd" in text:
            ids.append(i)
            labels.append(label)
            continue
        cut = rng.integers(1, len(text))
        first, second = (
            tok.encode(half, add_special_tokens=False).ids for half in (text[:cut], text[cut:])
        )
        ids += first + second
        labels += [-100] * len(first) + (second if label >= 0 else [-100] * len(second))
    return ids, labels


def batch_of(rows, length):
    """Rows as what a step is fed; 0 and -100 where a row has ended."""
    ids, labels = (
        np.zeros((len(rows), length), np.int64),
        np.full((len(rows), length), -100, np.int64),
    )
    for i, row in enumerate(rows):
        ids[i, : len(row[0])], labels[i, : len(row[0])] = row
    return {"input_ids": ids, "labels": labels}


def grid(row):
    return -(-len(row[0]) // GRID) * GRID


def batches_of(rows, tokens):
    """Endless batches of rows of similar length, as many as make `tokens` tokens: a few shapes, and
    little padding.
    """
    waiting = {}
    for row in rows:
        length = grid(row)
        waiting.setdefault(length, []).append(row)
        if len(waiting[length]) == max(1, tokens // length):
            yield batch_of(waiting.pop(length), length)


# ----------------------------------------------------------------------
# the network


def first_export(work, tok_path):
    """The model with random weights as a Hugging Face folder and as optimum's ONNX export of it.

    Two tables, because in the
    quantized file the embedding has 4 bits and the head 8; in training they are one.
    """
    hf, exported = work / "hf", work / "onnx"
    if (exported / "model.onnx").exists():
        return hf, exported
    import torch
    from optimum.exporters.onnx import main_export
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(SEED)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            bos_token_id=1,
            eos_token_id=0,
            pad_token_id=0,
            tie_word_embeddings=False,
            initializer_range=0.02,
            **SHAPE,
        )
    ).eval()
    model.generation_config.update(do_sample=True, temperature=0.8, top_k=40, max_new_tokens=220)
    model.save_pretrained(hf)
    PreTrainedTokenizerFast(
        tokenizer_file=str(tok_path),
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        model_max_length=SHAPE["max_position_embeddings"],
        clean_up_tokenization_spaces=False,
        padding_side="left",
    ).save_pretrained(hf)
    main_export(str(hf), output=str(work / "exporting"), task="text-generation-with-past", opset=18)
    shutil.rmtree(exported, ignore_errors=True)
    os.replace(work / "exporting", exported)
    return hf, exported


def head_of(graph):
    """The output head's product, and the name of its table [width, vocabulary]."""
    (head,) = (n for n in graph.nodes if n.op == "MatMul" and "lm_head" in n.name)
    return head, head.inputs[1]


def training_graph(path, in_q4):
    """The exported graph with the embedding as its head, and, in the last stretch of training, with
    weights that are seen in 4 bits, so that the quantized file is as good as the trained one.
    """
    e = ModelEditor(path)
    head, table = head_of(e.graph)
    e.remove_initializer(table)
    e.add_nodes([Node("Transpose", [EMBEDDING], [table], {"perm": [1, 0]})], head)
    if in_q4:  # the head is kept in 8 bits
        for node in [n for n in e.graph.nodes if n.op in ("MatMul", "Gather") and n is not head]:
            weight = node.inputs[0 if node.op == "Gather" else 1]
            if weight in e.graph.constants:
                e.replace_input(
                    node,
                    node.inputs.index(weight),
                    fake_q4(e, node, weight, 1 if node.op == "Gather" else 0),
                )
    return read_model(as_source(e.write()))


def fake_q4(e, before, weight, axis):
    """Adds what MatMulNBits and GatherBlockQuantized will make of a weight: 4 bits, one scale per
    32 along the axis; gradients pass through.
    """
    rows, columns = shape = e.graph.constants[weight].shape
    e.add_initializer(
        f"{weight}.blocks",
        np.array([rows // BLOCK, BLOCK, columns] if axis == 0 else [rows, columns // BLOCK, BLOCK]),
    )
    e.add_initializer(f"{weight}.shape", np.array(shape))
    e.add_initializer(f"{weight}.axis", np.array([axis + 1]))
    for name, x in (
        ("q4.zero", 0.0),
        ("q4.one", 1.0),
        ("q4.least", -8.0),
        ("q4.most", 7.0),
        ("q4.fine", 2.0**26),
    ):
        e.add_initializer(name, np.array(x, np.float32))

    def op(name, *inputs, **attrs):
        out = e.unused_name(f"{weight}.q4")
        e.add_nodes([Node(name, list(inputs), [out], attrs)], before)
        return out

    b = op("Reshape", weight, f"{weight}.blocks")
    low, high = (op(f"Reduce{m}", b, f"{weight}.axis", keepdims=1) for m in ("Min", "Max"))
    largest = op("Where", op("Less", op("Add", low, high), "q4.zero"), low, high)
    scale = op("Div", largest, "q4.least")
    scale = op("Where", op("Equal", scale, "q4.zero"), "q4.one", scale)
    q = op("Mul", op("Clip", op("Round", op("Div", b, scale)), "q4.least", "q4.most"), scale)
    change = op(
        "Div", op("Round", op("Mul", op("Sub", q, b), "q4.fine")), "q4.fine"
    )  # Round: no gradient goes this way
    return op("Add", weight, op("Reshape", change, f"{weight}.shape"))


class Network:
    """The model in training: sessions by shape, all with the same states."""

    def __init__(self, path, engine):
        self.path, self.engine, self.graphs, self.sessions, self.first, self.names = (
            path,
            engine,
            {},
            {},
            None,
            "all",
        )

    def session(self, shape, in_q4):
        """The TrainingSession for batches of a shape (rows, length)."""
        key = (*shape, in_q4)
        if key not in self.sessions:
            if in_q4 not in self.graphs:
                self.graphs[in_q4] = training_graph(self.path, in_q4)
            p = Program(
                self.graphs[in_q4],
                **causal_lm_inputs(self.graphs[in_q4], *shape),
                trainable=self.names,
                max_grad_norm=1.0,
                optimizer=Muon(weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
                groups=[
                    (EMBEDDING, dict(optimizer=AdamW(betas=(0.9, 0.98)), weight_decay=0.1)),
                    ("*norm.weight", dict(optimizer=AdamW(betas=(0.9, 0.98)), weight_decay=0.0)),
                ],
            )
            self.sessions[key] = TrainingSession(p, self.engine, SEED, share=self.first)
            if self.first is None:
                self.first, self.names = self.sessions[key], p.trainable
                self.first.initialize()
        return self.sessions[key]

    def train(self, batch, in_q4, rate):
        return float(self.session(batch["labels"].shape, in_q4).train(batch, rate)["loss"])

    def held_out(self, batches):
        """Mean loss in nats per token, of the float32 weights."""
        total = count = 0
        for batch in batches:
            n = int((batch["labels"][:, 1:] >= 0).sum())
            total += n * float(self.session(batch["labels"].shape, False).evaluate(batch)["loss"])
            count += n
        return total / count

    def state(self):
        return {
            n: (s.dtype, s.shape, self.first.read(n)) for n, s in self.first.program.states.items()
        }

    def parameters(self):
        return {n: x for n, x in self.state().items() if n in self.names}


# ----------------------------------------------------------------------
# training


def learning_rate(step, steps, peak):
    """Warm-up, a plateau, and from half of the way on straight to zero.

    On the plateau a run may still become longer or shorter.
    """
    return peak * min(1.0, (step + 1) / 100, 2 * (steps - step) / steps)


def train(args, work, tok, exported):
    net = Network(exported / "model.onnx", NativeEngine(args.threads))
    held_out = sorted(
        itertools.islice(rows_of(tok, stories.stories(SEED + 3)), HELD_OUT),
        key=lambda row: len(row[0]),
    )
    held_out = [batch_of(list(rows), length) for length, rows in itertools.groupby(held_out, grid)]
    net.session(held_out[0]["labels"].shape, False)  # states are there from now on
    say("parameters:", sum(int(np.prod(shape)) for _, shape, _ in net.parameters().values()))
    start, seen, seconds, rounds, saved = 0, 0, 0.0, [], work / "checkpoint.safetensors"
    if saved.exists():
        tensors, told = load_safetensors(saved)
        for name, t in tensors.items():
            net.first.write(name, t.bytes())
        start, seen, seconds = int(told["step"]), int(told["tokens"]), float(told["seconds"])
        rounds = [end for end in told.get("ends", "").split() if int(end) <= start]
        say("resumed at step", start)
    rounds += [str(args.steps)] if start < args.steps else []
    batches = itertools.islice(
        batches_of(rows_of(tok, stories.stories(SEED + 2), STRANGE), args.tokens), start, args.steps
    )
    began, here = time.time(), 0
    for step, batch in enumerate(batches, start):
        loss = net.train(
            batch, step >= args.steps * 3 // 4, learning_rate(step, args.steps, args.lr)
        )
        here += int((batch["labels"] >= 0).sum())
        if (step + 1) % 50 == 0:
            say(
                f"step {step + 1}/{args.steps} loss {loss:.4f} {(seen + here) / 1e6:.2f} million"
                f" tokens, {here / (time.time() - began):.0f} tokens/s"
            )
        if (step + 1) % 500 == 0 or step + 1 == args.steps:
            save_safetensors(
                net.state(),
                str(saved),
                dict(
                    step=str(step + 1),
                    tokens=str(seen + here),
                    seconds=str(seconds + time.time() - began),
                    ends=" ".join(rounds),
                ),
            )
            say(f"held-out loss {net.held_out(held_out):.4f}")
    return net, held_out, seen + here, seconds + time.time() - began, rounds


# --------------------------------------------------------------------------------------------------
# export and quantize


def export(net, exported):
    """The trained weights in the export's place, then onnxruntime's own quantizer."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import (
        DefaultWeightOnlyQuantConfig,
        MatMulNBitsQuantizer,
    )

    weights = net.parameters()
    dtype, shape, data = weights[EMBEDDING]
    weights[head_of(read_model(as_source(exported / "model.onnx")))[1]] = (
        dtype,
        shape[::-1],
        np.frombuffer(data, np.float32).reshape(shape).T.tobytes(),
    )
    export_parameters(as_source(exported / "model.onnx"), weights, exported / "model_trained.onnx")

    graph = onnx.load(exported / "model_trained.onnx")
    head = [n.name for n in graph.graph.node if n.op_type == "MatMul" and "lm_head" in n.name]
    others = [
        n.name for n in graph.graph.node if n.op_type in ("MatMul", "Gather") and n.name not in head
    ]
    assert len(head) == 1, head

    def quantize(model_proto, bits, exclude, ops):
        config = DefaultWeightOnlyQuantConfig(
            block_size=BLOCK,
            is_symmetric=True,
            bits=bits,
            op_types_to_quantize=ops,
            quant_axes={"MatMul": 0, "Gather": 1},
        )
        logging.getLogger("onnxruntime").setLevel(logging.WARNING)
        logging.getLogger(MatMulNBitsQuantizer.__module__).setLevel(logging.WARNING)
        q = MatMulNBitsQuantizer(model_proto, nodes_to_exclude=exclude, algo_config=config)
        q.process()
        return q.model.model

    graph = quantize(graph, 8, others, ("MatMul",))
    gathers = [
        n.name for n in graph.graph.node if n.op_type == "Gather" and "embed_tokens" not in n.name
    ]
    graph = quantize(graph, 4, head + gathers, ("MatMul", "Gather"))
    onnx.save(graph, exported / "model_q4.onnx")


class Ort:
    """The exported file in onnxruntime."""

    def __init__(self, path):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.run = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run
        self.layers = SHAPE["num_hidden_layers"]

    def start(self, batch):
        empty = np.zeros((batch, SHAPE["num_key_value_heads"], 0, SHAPE["head_dim"]), np.float32)
        return {
            f"past_key_values.{i}.{k}": empty for i in range(self.layers) for k in ("key", "value")
        }

    def step(self, ids, past):
        begin = past["past_key_values.0.key"].shape[2]
        feed = dict(
            past,
            input_ids=ids,
            attention_mask=np.ones((len(ids), begin + ids.shape[1]), np.int64),
            position_ids=np.broadcast_to(np.arange(begin, begin + ids.shape[1]), ids.shape).copy(),
        )
        out = self.run(None, feed)
        names = [f"past_key_values.{i}.{k}" for i in range(self.layers) for k in ("key", "value")]
        return out[0], dict(zip(names, out[1:]))

    def loss(self, batches):
        total = count = 0
        for batch in batches:
            for row in batch["labels"]:
                row = row[row >= 0]
                scores = self.step(row[None], self.start(1))[0][0, :-1].astype(np.float64)
                scores -= scores.max(1, keepdims=True)
                total += float(
                    (np.log(np.exp(scores).sum(1)) - scores[np.arange(len(row) - 1), row[1:]]).sum()
                )
                count += len(row) - 1
        return total / count

    def write(self, tok, prompt, temperature=0.8, top_k=40, most=230, seed=0):
        rng = np.random.default_rng(seed)
        ids, past, done = np.array([tok.encode(prompt).ids]), self.start(1), []
        while len(done) < most:
            logits, past = self.step(ids, past)
            scores = logits[0, -1].astype(np.float64)
            if temperature == 0:
                pick = int(scores.argmax())
            else:
                top = np.argsort(scores)[-top_k:]
                p = np.exp((scores[top] - scores[top].max()) / temperature)
                pick = int(rng.choice(top, p=p / p.sum()))
            if pick == 0:
                break
            done.append(pick)
            ids = np.array([[pick]])
        return prompt + tok.decode(done)


PROMPTS = [
    "Once upon a time",
    "The old fisherman",
    "In the morning, Anna",
    "The little robot",
    "One winter evening",
]

CARD = """---
license: apache-2.0
language: en
library_name: transformers.js
pipeline_tag: text-generation
---

# Edgewise storyteller

A tiny Llama that writes short, friendly stories. It is the demo model of Edgewise: small enough ({megabytes:.2f} MB with its tokenizer)
to be part of a page, and made from nothing but this repository: the text comes from the grammar in
`../model-training/stories.py` (sentences in `stories.json`, words in `words.py`), the model from `../model-training/train.py`. No data and no weights were downloaded.

| | |
|---|---|
| architecture | `LlamaForCausalLM`: {layers} layers, width {hidden}, {heads} query and {kv} key/value heads, {inner} inner, context {context} |
| parameters | {params:,} ({trained:,} trained: input and output embeddings were tied in training) |
| tokenizer | byte-level BPE, {vocab} entries, encodes any text; `<|startoftext|>` is put in front, `<|endoftext|>` ends a story |
| trained by | Edgewise's native engine (`train.py` with `{rounds}`): {minutes:.0f} minutes, {speed:,.0f} tokens a second on {threads} threads of a shared machine, float32 |
| trained on | {tokens:,} tokens of generated stories, each seen once, in {steps:,} steps; {strange:.0%} of them with a word that the grammar does not have, as many spelled in other pieces; Muon (AdamW for embedding and norms), the last quarter with fake 4-bit weights |
| `onnx/model_q4.onnx` | exported by optimum-onnx (opset 18, with past), quantized by onnxruntime (which raises it to 21): `MatMulNBits` 4 bits in blocks of 32, the output head 8 bits, embedding 4 bits (`GatherBlockQuantized`); fp32 activations |
| loss on stories of another seed (nats per token; same grammar, so the same phrases in other company) | float32 {loss_edgewise:.4f}, float32 in onnxruntime {loss_fp32:.4f}, **quantized {loss_q4:.4f}** |

## Samples

From the quantized file in onnxruntime, temperature 0.8, top-k 40, seeds 0-4:

{samples}

## Limits

It knows the small world of its grammar, thirty-seven kinds of story in the same voice: people, animals, robots, weather,
lost things and kind endings. It answers no questions and knows no facts. A prompt that does not sound like the beginning
of such a story ("Hello") leads it astray, a name it has never seen ("Zorblax") may lose its end on the way, and now
and then a lost ball comes back as a ring. Fine-tune it on your own text to make it speak of something else.
"""


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--work", type=Path, default=Path("/tmp/edgewise-demo-model"))
    p.add_argument("--steps", type=int, default=9000)
    p.add_argument("--tokens", type=int, default=2048, help="tokens in a step")
    p.add_argument("--lr", type=float, default=6e-3)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()

    from tokenizers import Tokenizer

    sign = hashlib.sha256(
        (HERE / "stories.py").read_bytes()
        + (HERE / "words.py").read_bytes()
        + json.dumps(SHAPE).encode()
        + str(VOCAB).encode()
    ).hexdigest()[:8]
    work = args.work / sign  # another grammar or shape is another run
    work.mkdir(parents=True, exist_ok=True)
    tok_path = work / "tokenizer.json"
    if not tok_path.exists():
        say("training the tokenizer")
        make_tokenizer(tok_path, 30000)
    tok = Tokenizer.from_file(str(tok_path))

    hf, exported = first_export(work, tok_path)
    net, held_out, seen, seconds, rounds = train(args, work, tok, exported)
    loss_edgewise = net.held_out(held_out)
    say(f"held-out loss in Edgewise: {loss_edgewise:.4f}")
    export(net, exported)
    loss_fp32, loss_q4 = (
        Ort(exported / f).loss(held_out) for f in ("model_trained.onnx", "model_q4.onnx")
    )
    say(f"held-out loss in onnxruntime: float32 {loss_fp32:.4f}, quantized {loss_q4:.4f}")

    out = args.out
    (out / "onnx").mkdir(parents=True, exist_ok=True)
    for name in (
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
    ):
        shutil.copy(hf / name, out / name)
    (out / "tokenizer.json").write_text(
        json.dumps(
            json.loads((hf / "tokenizer.json").read_text()),
            ensure_ascii=False,
            separators=(",", ":"),
        )
    )
    shutil.copy(exported / "model_q4.onnx", out / "onnx" / "model_q4.onnx")
    q4 = Ort(out / "onnx" / "model_q4.onnx")
    texts = [q4.write(tok, prompt, seed=i) for i, prompt in enumerate(PROMPTS)]
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file() and f.name != "README.md")
    trained = sum(int(np.prod(shape)) for _, shape, _ in net.parameters().values())
    (out / "README.md").write_text(
        CARD.format(
            megabytes=size / 1e6,
            layers=SHAPE["num_hidden_layers"],
            hidden=SHAPE["hidden_size"],
            heads=SHAPE["num_attention_heads"],
            kv=SHAPE["num_key_value_heads"],
            inner=SHAPE["intermediate_size"],
            context=SHAPE["max_position_embeddings"],
            params=trained + VOCAB * SHAPE["hidden_size"],
            trained=trained,
            vocab=VOCAB,
            tokens=seen,
            loss_edgewise=loss_edgewise,
            steps=int(rounds[-1]),
            strange=STRANGE,
            rounds="`, then `".join(f"--steps {end}" for end in rounds),
            speed=seen / seconds,
            minutes=seconds / 60,
            threads=args.threads,
            loss_fp32=loss_fp32,
            loss_q4=loss_q4,
            samples="\n\n".join("> " + t.replace("\n", "\n> ") for t in texts),
        )
    )
    for text in texts:
        say("sample:", text)
    say(f"{size / 1e6:.2f} MB in {out}")
    assert size <= 4_000_000, "the demo model must stay within 4 MB"


if __name__ == "__main__":
    main()
