"""Training steps of a language model with LoRA."""

from __future__ import annotations

import onnx

from ..browser import WORK, say
from ..contenders import ONE, TWO
from ..models import SMOLLM2, in_4_bits, language_model
from ..stats import show, summary
from .models import CONTENDERS
from .plans import optimizer, write_plan

# ---- LoRA on a model of the size of SmolLM2-135M ----
TOKENS = 128


ADAPTERS = {"float32": 1536, "4 bits": 614}  # base model: goal in MB of engine memory


def adapter_files():
    """Writes the base model in float32 and in 4 bits (onnxruntime's quantizer, blocks of 32)."""
    folder = WORK / "llm"
    folder.mkdir(parents=True, exist_ok=True)
    full, small = folder / "model.onnx", folder / "model-q4.onnx"
    if not full.exists():
        say("making model.onnx")
        onnx.save(language_model(**SMOLLM2), folder / "part")
        (folder / "part").rename(full)
    if not small.exists():
        say("making model-q4.onnx")
        onnx.save(in_4_bits(onnx.load(full)), folder / "part")
        (folder / "part").rename(small)
    return {"float32": full, "4 bits": small}


def adapter_program(path):
    from edgewise.compiler.training.package import default_lora
    from edgewise.onnx import FileSource, read_model
    from edgewise.training.language_model import causal_lm_inputs
    from edgewise.training.losses import CausalLMLoss
    from edgewise.training.program import Program

    graph = read_model(FileSource(str(path)))
    return Program(
        graph,
        **causal_lm_inputs(graph, 1, TOKENS),
        loss=CausalLMLoss(),
        optimizer=optimizer(),
        lora=default_lora(r=8, lora_alpha=8),
        trainable=[],
    )


# long: the rounds of one case and its report
def adapters(bench, rounds):
    bench.trouble, kept = [], bench.trouble
    table, values = [], {}
    for base, path in adapter_files().items():
        about = {
            "input": {"name": "input_ids", "shape": [1, TOKENS], "vocab": SMOLLM2["vocab"]},
            "labels": {"count": TOKENS, "classes": SMOLLM2["vocab"], "shift": 0},
        }
        plan = write_plan(adapter_program(path), WORK / "train" / f"smollm2-{base[0]}", about)
        for who in (ONE, TWO):
            one = bench.contend(
                f"{who}, {base}",
                "training.js",
                "open",
                f"/bench/train/smollm2-{base[0]}",
                *CONTENDERS[who][1],
            )
            if not one:
                continue
            try:
                one.call("steps", 2, 0)
                ms = one.call("steps", max(3, rounds), 0)["ms"]
                s = summary(ms)
                engine = one.call("memory") / 2**20
                values.setdefault(base, {})[who] = ms
                table.append(
                    [
                        f"{base}, {who}",
                        f"{show(s['median'])} [{show(s['q1'])}–{show(s['q3'])}]",
                        show(TOKENS / s["median"] * 1e3),
                        f"{show(engine)} MB",
                        f"≤ {ADAPTERS[base]} MB",
                        f"{show(plan.arena_bytes / 2**20)} MB",
                        f"{show(one.peak_mb())} MB",
                    ]
                )
                say("  " + ", ".join(table[-1]))
            except Exception as e:
                bench.failed(f"{who}, {base}", e)
            one.close()
    found = {
        "train smollm2-lora": {
            "title": (
                "LoRA step on a base of SmolLM2-135M's size: r = 8, all linear layers, 1 ×"
                f" {TOKENS} tokens"
            ),
            "columns": [
                "base",
                "ms per step",
                "tokens/s",
                "engine memory",
                "goal",
                "arena",
                "peak memory",
            ],
            "table": table,
            "unit": "ms",
            "values": values,
            "trouble": bench.trouble,
            "notes": [
                "No other engine here trains this. The 4-bit base is MatMulNBits in blocks of 32 as"
                " onnxruntime's quantizer writes it; its embedding and output layer, which share"
                " their weights, stay in float32."
            ],
        }
    }
    bench.trouble = kept
    return found
