"""Tokens, formats and files of the language model."""

from __future__ import annotations

import onnx

from ..browser import ROOT, WORK, say
from ..models import SMOLLM2, genai_model, in_4_bits, language_model
from . import gguf_file

PROMPT, STEPS, CAPACITY = 256, 12, 512


IDS = [
    (i * 7919 + 11) % 40000 for i in range(PROMPT + STEPS)
]  # the same tokens for every contender; their own choices are not fed back


# file name: (description, tolerance of the logits relative to the largest logit of onnxruntime-web)
FORMATS = {
    "model": ("float32", 1e-3),
    "int8": ("dynamic int8 (onnxruntime.quantization.quantize_dynamic)", 0.2),
    "4bit": ("4 bits (MatMulNBits, block 32)", 1e-3),
    "4bit-level4": ("4 bits (MatMulNBits, block 32, accuracy_level 4)", 0.1),
    "genai": (
        (
            "4 bits as onnxruntime-genai exports it (GroupQueryAttention, MatMulNBits, block 32,"
            " accuracy_level 4)"
        ),
        0.1,
    ),
}


CASES = {
    f"{case}{'' if f == 'model' else '-' + f}": (case, f)
    for f in FORMATS
    for case in ("prefill", "decode")
}


LAST = "onnxruntime-web, last logits only, 1 thread"


GGUF = {"int8": "Q8_0", "4bit": "Q4_0", "4bit-level4": "Q4_0"}


# tolerance for llama.cpp, relative to the largest logit: it quantizes activations to bytes
CLOSE = 0.1


def make(name, last_only):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = WORK / "llm" / f"{name}{'-last' if last_only else ''}.onnx"
    if path.exists():
        return
    say(f"making {path.name}")
    part = path.with_name("part")
    model = (
        genai_model(**SMOLLM2, last_only=last_only)
        if name == "genai"
        else language_model(**SMOLLM2, last_only=last_only, head=name != "model")
    )
    if name in ("4bit", "4bit-level4", "genai"):
        model = in_4_bits(model, accuracy_level=0 if name == "4bit" else 4)
    if name == "int8":
        onnx.save(model, path.with_name("float"))
        quantize_dynamic(
            path.with_name("float"),
            part,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
        path.with_name("float").unlink()
    else:
        onnx.save(model, part)
    part.rename(path)


def model_files(name="model"):
    """Writes the model, its variant and the package, unless they exist and the compiler is
    unchanged.
    """
    folder = WORK / "llm"
    folder.mkdir(parents=True, exist_ok=True)
    for last_only in (False, True):
        make(name, last_only)
    package = folder / f"{name}.edge"
    sources = list((ROOT / "python/edgewise").rglob("*.py"))
    if not package.exists() or package.stat().st_mtime < max(s.stat().st_mtime for s in sources):
        from edgewise.host.session.decoder import open_package

        part = folder / "part"
        with open(part, "wb") as f:
            open_package(str(folder / f"{name}.onnx"), None, CAPACITY).write(f)
        part.rename(package)
    return folder


def gguf(name):
    """Writes the model in llama.cpp's format, unless it exists."""
    path = WORK / "llm" / f"{GGUF[name]}.gguf"
    if not path.exists():
        say(f"making {path.name}")
        part = path.with_name("part")
        gguf_file.write(
            language_model(**SMOLLM2, head=True), part, GGUF[name], CAPACITY, SMOLLM2, IDS
        )
        part.rename(path)
