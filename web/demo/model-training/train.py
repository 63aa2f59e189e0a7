"""Makes the demo model of Edgewise, end to end: stories -> tokenizer -> training -> export -> 4-bit file -> model card.

    python3.11 -m venv /tmp/demo-venv
    /tmp/demo-venv/bin/pip install torch==2.13.0            # first: the CPU build
    /tmp/demo-venv/bin/pip install -r web/demo/model-training/requirements.txt
    nice -n 5 /tmp/demo-venv/bin/python web/demo/model-training/train.py --out web/demo/model

Nothing is downloaded: the text is written by stories.py next to this file. Everything is seeded. The run goes on where
it was stopped (checkpoints lie in --work); `--steps 150` makes a quick, silly model through the same path in a minute.

One thread: about 50 minutes on a free core with bfloat16 instructions (5,000 tokens a second; 65 minutes beside other
work), then 10 seconds for export, quantization and the samples.
"""

import argparse
import hashlib
import json
import logging
import math
import os
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import torch.nn.functional as F

import stories

SEED = 20
VOCAB = 4096
EOS, BOS = "<|endoftext|>", "<|startoftext|>"
SHAPE = dict(hidden_size=192, intermediate_size=512, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=2,
             head_dim=32, max_position_embeddings=512, rope_theta=10000.0)
BLOCK = 32                      # weights per quantization scale
MATH = torch.bfloat16           # matrix products in training; the weights stay float32


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, flush=True)


# ---------------------------------------------------------------------------------------------------- text and tokens

def make_tokenizer(path, n_stories):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[EOS, BOS], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    feed = stories.stories(SEED + 1)
    tok.train_from_iterator((next(feed) for _ in range(n_stories)), trainer)
    assert tok.get_vocab_size() == VOCAB, "the text has too few words for the table"
    bos = tok.token_to_id(BOS)
    tok.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bos)])
    tok.save(str(path))


def rows_of(tok, feed, steps, per_step, seed):
    """Batches of whole stories, `<bos> story <eos>`, about `per_step` tokens each; rows of a batch are of similar length.

    A story is seen alone, as it will be written, so that its names and things can only come from itself; one row in eight
    holds two stories, so that positions up to the context's end are known too.
    Returns (tokens, where rows start, where batches start among the rows).
    """
    rng = np.random.default_rng(seed)
    tokens, starts, firsts, at, n_rows = [], [0], [0], 0, 0
    while len(firsts) <= steps:
        rows = [np.array(e.ids + [0], np.uint16) for e in tok.encode_batch([next(feed) for _ in range(1024)])]     # the template writes <bos>
        joined, i = [], 0
        while i < len(rows):
            two = rng.random() < 0.125 and i + 1 < len(rows)
            joined.append(np.concatenate(rows[i:i + 1 + two])[:SHAPE["max_position_embeddings"]])
            i += 1 + two
        joined.sort(key=len)
        batches, batch = [], []
        for row in joined:
            if (len(batch) + 1) * len(row) > per_step:
                batches.append(batch)
                batch = []
            batch.append(row)
        batches.append(batch)
        for j in rng.permutation(len(batches)):
            for row in batches[j]:
                tokens.append(row)
                at += len(row)
                starts.append(at)
            n_rows += len(batches[j])
            firsts.append(n_rows)
    return np.concatenate(tokens), np.array(starts), np.array(firsts[:steps + 1])


def batch_of(data, i):
    """Batch i as a matrix, -100 where a row has ended."""
    tokens, starts, firsts = data
    rows = [tokens[starts[r]:starts[r + 1]] for r in range(firsts[i], firsts[i + 1])]
    out = np.full((len(rows), max(map(len, rows))), -100, np.int64)
    for k, row in enumerate(rows):
        out[k, :len(row)] = row
    return torch.from_numpy(out)


# --------------------------------------------------------------------------------------------------------- the network

def fake_q4(w):
    """What MatMulNBits and GatherBlockQuantized will make of w: 4 bits, one scale per 32 inputs; gradients pass through."""
    b = w.reshape(w.shape[0], -1, BLOCK)
    big = b.gather(2, b.abs().argmax(2, keepdim=True))
    scale = big / -8.0
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    q = (b / scale).round().clamp(-8, 7) * scale
    return w + (q.reshape(w.shape) - w).detach()


class Q4Linear(torch.nn.Linear):
    def forward(self, x):
        return F.linear(x, fake_q4(self.weight), self.bias)


class Q4Embedding(torch.nn.Embedding):
    def forward(self, ids):
        return F.embedding(ids, fake_q4(self.weight))


def set_fake_q4(model, on):
    """The last stretch of training sees the 4-bit weights, so that the quantized file is as good as the trained one."""
    for name, mod in model.named_modules():
        if isinstance(mod, torch.nn.Linear) and name != "lm_head":         # the head is kept in 8 bits
            mod.__class__ = Q4Linear if on else torch.nn.Linear
        elif isinstance(mod, torch.nn.Embedding):
            mod.__class__ = Q4Embedding if on else torch.nn.Embedding


def make_model(tied=True):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=VOCAB, bos_token_id=1, eos_token_id=0, pad_token_id=0, tie_word_embeddings=tied,
                         initializer_range=0.02, **SHAPE)
    torch.manual_seed(SEED)
    return LlamaForCausalLM(config)


def loss_of(model, rows, dtype=None, reduction="mean"):
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        logits = model(input_ids=rows.clamp(min=0), use_cache=False).logits
    return F.cross_entropy(logits[:, :-1].reshape(-1, VOCAB).float(), rows[:, 1:].reshape(-1), ignore_index=-100, reduction=reduction)


@torch.no_grad()
def held_out(model, batches):
    model.eval()
    total = sum(loss_of(model, rows, reduction="sum").item() for rows in batches)
    model.train()
    return total / sum(int((rows[:, 1:] >= 0).sum()) for rows in batches)


# ------------------------------------------------------------------------------------------------------------ training

def learning_rate(step, steps, peak, warm):
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))))


def train(args, work, tok):
    q4_from = int(args.steps * 0.75)
    cache = work / f"rows-{args.steps}.npz"
    if not cache.exists():
        say("writing stories,", args.steps * args.tokens, "tokens")
        np.savez(cache, *rows_of(tok, stories.stories(SEED + 2), args.steps, args.tokens, SEED))
    with np.load(cache) as kept:
        data = tuple(kept[name] for name in kept.files)
    unseen = rows_of(tok, stories.stories(SEED + 3), 12, args.tokens, SEED)
    valid = [batch_of(unseen, i) for i in range(12)]

    model = make_model()
    say("parameters:", sum(p.numel() for p in model.parameters()))
    named = list(model.named_parameters())
    matrices = [p for n, p in named if p.dim() == 2 and "embed" not in n]
    opts = [torch.optim.Muon(matrices, lr=args.lr, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([dict(params=[p for n, p in named if "embed" in n], weight_decay=0.1),
                               dict(params=[p for n, p in named if p.dim() == 1], weight_decay=0.0)], lr=args.lr, betas=(0.9, 0.98), fused=True)]
    start, saved = 0, work / f"checkpoint-{args.steps}.pt"
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        for opt, kept in zip(opts, state["opts"]):
            opt.load_state_dict(kept)
        start = state["step"]
        say("resumed at step", start)
    model.train()
    began, seen = time.time(), 0
    for step in range(start, args.steps):
        set_fake_q4(model, step >= q4_from)
        rows = batch_of(data, step)
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = learning_rate(step, args.steps, args.lr, min(100, args.steps // 10 + 1))
        loss = loss_of(model, rows, MATH)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        seen += int((rows >= 0).sum())
        if (step + 1) % 50 == 0:
            say(f"step {step + 1}/{args.steps} loss {loss.item():.4f} {seen / (time.time() - began):.0f} tokens/s")
        if (step + 1) % 250 == 0 or step + 1 == args.steps:
            say(f"held-out loss {held_out(model, valid):.4f}")
            torch.save(dict(model=model.state_dict(), opts=[opt.state_dict() for opt in opts], step=step + 1), str(saved) + ".new")
            os.replace(str(saved) + ".new", saved)
    set_fake_q4(model, False)
    model.eval()
    return model, valid, int(data[1][data[2][-1]])


# -------------------------------------------------------------------------------------------------- export and quantize

def export(model, work, tok_path):
    """optimum's own ONNX export of the Hugging Face folder, then onnxruntime's own quantizer. Nothing is edited in between."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
    from optimum.exporters.onnx import main_export
    from transformers import PreTrainedTokenizerFast

    hf, exported = work / "hf", work / "onnx"
    for folder in (hf, exported):
        shutil.rmtree(folder, ignore_errors=True)
    # saved with two tables (the same numbers), because the embedding gets 4 bits and the head 8
    untied = make_model(tied=False).eval()
    untied.load_state_dict({**model.state_dict(), "lm_head.weight": model.model.embed_tokens.weight.detach().clone()})
    untied.generation_config.update(do_sample=True, temperature=0.8, top_k=40, max_new_tokens=220)
    untied.save_pretrained(hf)
    PreTrainedTokenizerFast(tokenizer_file=str(tok_path), bos_token=BOS, eos_token=EOS, pad_token=EOS,
                            model_max_length=SHAPE["max_position_embeddings"], clean_up_tokenization_spaces=False,
                            padding_side="left").save_pretrained(hf)
    main_export(str(hf), output=str(exported), task="text-generation-with-past", opset=18)

    graph = onnx.load(exported / "model.onnx")
    head = [n.name for n in graph.graph.node if n.op_type == "MatMul" and "lm_head" in n.name]
    others = [n.name for n in graph.graph.node if n.op_type in ("MatMul", "Gather") and n.name not in head]
    assert len(head) == 1, head

    def quantize(model_proto, bits, exclude, ops):
        config = DefaultWeightOnlyQuantConfig(block_size=BLOCK, is_symmetric=True, bits=bits, op_types_to_quantize=ops,
                                              quant_axes={"MatMul": 0, "Gather": 1})
        logging.getLogger("onnxruntime").setLevel(logging.WARNING)
        logging.getLogger(MatMulNBitsQuantizer.__module__).setLevel(logging.WARNING)
        q = MatMulNBitsQuantizer(model_proto, nodes_to_exclude=exclude, algo_config=config)
        q.process()
        return q.model.model

    graph = quantize(graph, 8, others, ("MatMul",))
    gathers = [n.name for n in graph.graph.node if n.op_type == "Gather" and "embed_tokens" not in n.name]
    graph = quantize(graph, 4, head + gathers, ("MatMul", "Gather"))
    onnx.save(graph, exported / "model_q4.onnx")
    return hf, exported


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
        return {f"past_key_values.{i}.{k}": empty for i in range(self.layers) for k in ("key", "value")}

    def step(self, ids, past):
        begin = past["past_key_values.0.key"].shape[2]
        feed = dict(past, input_ids=ids, attention_mask=np.ones((len(ids), begin + ids.shape[1]), np.int64),
                    position_ids=np.broadcast_to(np.arange(begin, begin + ids.shape[1]), ids.shape).copy())
        out = self.run(None, feed)
        names = [f"past_key_values.{i}.{k}" for i in range(self.layers) for k in ("key", "value")]
        return out[0], dict(zip(names, out[1:]))

    def loss(self, batches):
        total = count = 0
        for rows in batches:
            for row in rows:
                row = row[row >= 0]
                logits, _ = self.step(row[None].numpy(), self.start(1))
                total += F.cross_entropy(torch.from_numpy(logits[0, :-1]), row[1:], reduction="sum").item()
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


PROMPTS = ["Once upon a time", "The old fisherman", "In the morning, Anna", "The little robot", "One winter evening"]

CARD = """---
license: apache-2.0
language: en
library_name: transformers.js
pipeline_tag: text-generation
---

# Edgewise storyteller

A tiny Llama that writes short, friendly stories. It is the demo model of Edgewise: small enough ({megabytes:.2f} MB with its tokenizer)
to be part of a page, and made from nothing but this repository: the text comes from the grammar in
`../model-training/stories.py` (words in `words.py`), the model from `../model-training/train.py`. No data and no weights were downloaded.

| | |
|---|---|
| architecture | `LlamaForCausalLM`: {layers} layers, width {hidden}, {heads} query and {kv} key/value heads, {inner} inner, context {context} |
| parameters | {params:,} ({trained:,} trained: input and output embeddings were tied in training) |
| tokenizer | byte-level BPE, {vocab} entries, encodes any text; `<|startoftext|>` is put in front, `<|endoftext|>` ends a story |
| trained on | {tokens:,} tokens of generated stories, each seen once; Muon (AdamW for the embedding), bfloat16 products, the last quarter with fake 4-bit weights |
| `onnx/model_q4.onnx` | exported by optimum-onnx (opset 18, with past), quantized by onnxruntime (which raises it to 21): `MatMulNBits` 4 bits in blocks of 32, the output head 8 bits, embedding 4 bits (`GatherBlockQuantized`); fp32 activations |
| loss on stories of another seed (nats per token; same grammar, so the same phrases in other company) | float32 {loss_torch:.4f}, float32 ONNX {loss_fp32:.4f}, **quantized {loss_q4:.4f}** |

## Samples

From the quantized file in onnxruntime, temperature 0.8, top-k 40, seeds 0-4:

{samples}

## Limits

It knows the small world of its grammar, thirty-seven kinds of story in the same voice: people, animals, robots, weather,
lost things and kind endings. It answers no questions and knows no facts. A prompt that does not sound like the beginning
of such a story ("Hello") leads it astray, a name it has never seen ("Zorblax") may change its spelling on the way, and now
and then a lost ball comes back as a ring. Fine-tune it on your own text to make it speak of something else.
"""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--work", type=Path, default=Path("/tmp/edgewise-demo-model"))
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--tokens", type=int, default=2048, help="tokens in a step")
    p.add_argument("--lr", type=float, default=6e-3)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)

    from tokenizers import Tokenizer
    sign = hashlib.sha256((HERE / "stories.py").read_bytes() + (HERE / "words.py").read_bytes() + json.dumps(SHAPE).encode() + str(VOCAB).encode()).hexdigest()[:8]
    work = args.work / sign                      # another grammar or shape is another run
    work.mkdir(parents=True, exist_ok=True)
    tok_path = work / "tokenizer.json"
    if not tok_path.exists():
        say("training the tokenizer")
        make_tokenizer(tok_path, 30000)
    tok = Tokenizer.from_file(str(tok_path))

    model, valid, seen = train(args, work, tok)
    loss_torch = held_out(model, valid)
    say(f"held-out loss, float32 in torch: {loss_torch:.4f}")
    hf, exported = export(model, work, tok_path)
    loss_fp32, loss_q4 = (Ort(exported / f).loss(valid) for f in ("model.onnx", "model_q4.onnx"))
    say(f"held-out loss in onnxruntime: float32 {loss_fp32:.4f}, quantized {loss_q4:.4f}")

    out = args.out
    (out / "onnx").mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(hf / name, out / name)
    (out / "tokenizer.json").write_text(json.dumps(json.loads((hf / "tokenizer.json").read_text()), ensure_ascii=False, separators=(",", ":")))
    shutil.copy(exported / "model_q4.onnx", out / "onnx" / "model_q4.onnx")
    q4 = Ort(out / "onnx" / "model_q4.onnx")
    texts = [q4.write(tok, prompt, seed=i) for i, prompt in enumerate(PROMPTS)]
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file() and f.name != "README.md")
    trained = sum(p.numel() for p in model.parameters())
    (out / "README.md").write_text(CARD.format(
        megabytes=size / 1e6, layers=SHAPE["num_hidden_layers"], hidden=SHAPE["hidden_size"], heads=SHAPE["num_attention_heads"],
        kv=SHAPE["num_key_value_heads"], inner=SHAPE["intermediate_size"], context=SHAPE["max_position_embeddings"],
        params=trained + VOCAB * SHAPE["hidden_size"], trained=trained, vocab=VOCAB, tokens=seen,
        loss_torch=loss_torch, loss_fp32=loss_fp32, loss_q4=loss_q4,
        samples="\n\n".join("> " + t.replace("\n", "\n> ") for t in texts)))
    for text in texts:
        say("sample:", text)
    say(f"{size / 1e6:.2f} MB in {out}")
    assert size <= 4_000_000, "the demo model must stay within 4 MB"


if __name__ == "__main__":
    main()
