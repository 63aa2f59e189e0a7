"""Which families of models are tested, from which exporters and on which hosts: writes
docs/reference/models.md from the tests (`make models`, or python tests/families.py).

A test registers the families that it compares with another implementation by a mark, on itself, on
a parameter or on the module:

    @pytest.mark.family("Qwen3", exporter="optimum")
    pytest.param("lfm2", marks=pytest.mark.family("LFM2", exporter="GenAI"))
    pytestmark = pytest.mark.families("tests/generation/test_families.py")

The last one stands for all marks of another file, on the host of this one. The name is one of
FAMILIES, the exporter one of EXPORTERS; both are literals, since the marks are read from the text
of the tests. The host is that of the test's folder (HOSTS), unless the mark has `host="WebGPU"`.
tests/structure/test_families.py checks that the table is up to date.
"""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs/reference/models.md"
# The first folder that a test is in decides.
HOSTS = {
    "tests/gpu": "WebGPU",
    "tests/browser/webgpu": "WebGPU",
    "tests/browser": "Page",
    "tests/browsers": "Page",
    "tests/bundlers": "Page",
    "tests": "Python",
}
EXPORTERS = {
    "optimum": "optimum-onnx",
    "transformers": "the exporter of transformers 5",
    "GenAI": "the builder of ONNX Runtime GenAI",
    "torch": "`torch.onnx.export` of a module with the names of files of onnx-community",
    "real": "a real model, as its authors publish it",
    "hand": "a graph that a test writes, with an exporter's operators and names",
}
TEXT, CHAT = "text-generation", "image-text-to-text"
SPEECH, SPEAK = "automatic-speech-recognition", "text-to-speech"
HEAR, READ = "audio-text-to-text", "image-to-text"
DETECT, FIND = "object-detection", "zero-shot-object-detection"
MASKS, EMBED = "mask-generation", "feature-extraction"
# {group: {family: task}}
FAMILIES: dict[str, dict[str, str]] = {
    "Qwen": {
        "Qwen2": TEXT,  # and DeepSeek-R1-Distill-Qwen
        "Qwen3": TEXT,
        "Qwen3 MoE": TEXT,
        "Qwen3-Next": TEXT,
        "Qwen3.5": TEXT,
        "Qwen3.5 MoE": TEXT,
        "Qwen2-VL": CHAT,
        "Qwen2.5-VL": CHAT,
        "Qwen3-VL": CHAT,
        "Qwen3.5-VL": CHAT,
    },
    "LFM": {"LFM2": TEXT, "LFM2 MoE": TEXT, "LFM3": TEXT, "LFM2-VL": CHAT, "LFM3-VL": CHAT},
    "Gemma": {
        "Gemma 2": TEXT,
        "Gemma 3": TEXT,
        "Gemma 3n": TEXT,
        "Gemma 4": TEXT,
        "Gemma 3 with pictures": CHAT,
        "Gemma 3n with pictures": CHAT,
        "Gemma 4 with pictures": CHAT,
        "PaliGemma": CHAT,
    },
    "Llama and its kind": {
        "Llama 3": TEXT,
        "Mistral": TEXT,
        "Ministral 3": TEXT,
        "SmolLM3": TEXT,
        "Phi-4": TEXT,
        "Granite": TEXT,
        "Granite 4": TEXT,
        "OLMo 2": TEXT,
        "OLMo 3": TEXT,
        "HunYuan": TEXT,
        "EXAONE 4": TEXT,
        "ERNIE 4.5": TEXT,
        "Nemotron": TEXT,
        "Apertus": TEXT,
        "Cohere": TEXT,
        "Cohere 2": TEXT,
        "GLM 4": TEXT,
        "MiniCPM": TEXT,
        "Bonsai": TEXT,
    },
    "Mixtures and latent attention": {"gpt-oss": TEXT, "Mixtral": TEXT, "DeepSeek V3": TEXT},
    "Hybrid, recurrent and state space models": {
        "Granite 4 H": TEXT,
        "Falcon-H1": TEXT,
        "Nemotron-H": TEXT,
        "Bamba": TEXT,
        "Mamba": TEXT,
        "Mamba 2": TEXT,
        "Jamba": TEXT,
        "Zamba 2": TEXT,
        "OLMo Hybrid": TEXT,
        "Kimi Linear": TEXT,
        "RWKV 7": TEXT,
        "Zaya": TEXT,
        "xLSTM": TEXT,
    },
    "Pictures to text": {
        "Idefics3": CHAT,
        "SmolVLM": CHAT,
        "Granite-Docling": CHAT,
        "LLaVA": CHAT,
        "LLaVA-NeXT": CHAT,
        "LLaVA-OneVision": CHAT,
        "Pixtral": CHAT,
        "Mistral 3": CHAT,
        "FastVLM": CHAT,
        "Janus": CHAT,
        "Florence-2": READ,
        "TrOCR": READ,
        "ViT-GPT2": READ,
        "Donut": "document-question-answering",
        "LayoutLM": "document-question-answering",
        "LightOnOCR": CHAT,
        "GLM-OCR": CHAT,
        "ViLT": "visual-question-answering",
        "PP-OCR": READ,
    },
    "Speech to text": {
        "Whisper": SPEECH,
        "Moonshine": SPEECH,
        "Moonshine streaming": SPEECH,
        "wav2vec 2.0": SPEECH,
        "Parakeet CTC": SPEECH,
        "Parakeet TDT": SPEECH,
        "Canary": SPEECH,
        "RNN-T": SPEECH,
        "FastConformer with caches": SPEECH,
        "Cohere ASR": SPEECH,
        "Qwen3-ASR": SPEECH,
        "Voxtral": HEAR,
        "Ultravox": HEAR,
        "Qwen2-Audio": HEAR,
        "Granite Speech": HEAR,
        "pyannote": "speaker-diarization",
    },
    "Text to speech": {
        "Kokoro": SPEAK,
        "Piper": SPEAK,
        "VITS": SPEAK,
        "Supertonic": SPEAK,
        "Chatterbox": SPEAK,
        "Pocket TTS": SPEAK,
        "OuteTTS": SPEAK,
        "Orpheus": SPEAK,
        "Qwen3-TTS": SPEAK,
        "SpeechT5": SPEAK,
        "SNAC": "codec",
        "Mimi": "codec",
        "DAC": "codec",
        "EnCodec": "codec",
    },
    "Embeddings and rerankers": {
        "MiniLM": EMBED,
        "BGE": EMBED,
        "E5": EMBED,
        "ModernBERT": EMBED,
        "EmbeddingGemma": EMBED,
        "EmbeddingGemma 2": EMBED,
        "Qwen3-Embedding": EMBED,
        "Cross-encoders": "text-ranking",
        "Qwen3-Reranker": "text-ranking",
    },
    "Segments and objects by prompts": {
        "SAM": MASKS,
        "SAM 2": MASKS,
        "SAM 3": MASKS,
        "SlimSAM": MASKS,
        "EdgeTAM": MASKS,
        "Grounding DINO": FIND,
        "OWLv2": FIND,
    },
    "Pictures": {
        "YOLO": DETECT,
        "D-FINE": DETECT,
        "RT-DETR 2": DETECT,
        "RF-DETR": DETECT,
        "Depth Anything": "depth-estimation",
        "Depth Anything 3": "depth-estimation",
        "DINOv3": "image-feature-extraction",
        "CLIP": "zero-shot-image-classification",
        "SigLIP 2": "zero-shot-image-classification",
        "SigLIP 2 NaFlex": "zero-shot-image-classification",
        "BEN2 and RMBG": "background-removal",
        "SegFormer": "image-segmentation",
        "Mask2Former": "image-segmentation",
        "EoMT": "image-segmentation",
        "ViTPose": "keypoint-detection",
        "SuperPoint": "keypoint-detection",
        "Swin2SR": "image-to-image",
        "Stable Diffusion": "text-to-image",
        "Stable Diffusion XL": "text-to-image",
    },
}
TASKS = {family: task for group in FAMILIES.values() for family, task in group.items()}
HEAD = """# Models

Families of models that tests compare with another implementation: tiny models of the real \
architecture with random weights, or real ones, from the input that a user has to the result. \
Others run, too, where `edgewise inspect` finds nothing that is missing.

Generated by `make models` from the marks of the tests \
([tests/families.py](../../tests/families.py)). A column has the exporters that the family was \
tested from on this host: in *Python*, in a *page* (Chromium, WebAssembly), and on *WebGPU* (in \
software). Exporters: \
"""
WHOLE = {"break_long_words": False, "break_on_hyphens": False}


class Mark(NamedTuple):
    """A family that a test registers.

    Attributes:
        path: of the file, within the repository.
        line: of the mark.
        family, exporter, host: as in the module's description.
    """

    path: str
    line: int
    family: str
    exporter: str
    host: str


def marks_of(text: str, path: str) -> Iterator[Mark]:
    """The marks of a test file.

    Raises:
        ValueError: one is not as the module's description says.
    """
    if "mark.famil" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func).endswith("mark.families"):
            other = ast.literal_eval(node.args[0])
            for mark in marks_of((ROOT / other).read_text(), other):
                yield mark._replace(path=path, line=node.lineno, host=_host(path))
            continue
        if not ast.unparse(node.func).endswith("mark.family"):
            continue
        where = f"{path}:{node.lineno}"
        given = {k.arg: k.value for k in node.keywords}
        values = [*node.args, *given.values()]
        if len(node.args) != 1 or "exporter" not in given or set(given) - {"exporter", "host"}:
            raise ValueError(f'{where}: write family("Name", exporter="...")')
        if not all(isinstance(v, ast.Constant) and isinstance(v.value, str) for v in values):
            raise ValueError(f"{where}: write names of families and exporters as literals")
        family, exporter = (ast.literal_eval(v) for v in (node.args[0], given["exporter"]))
        host = ast.literal_eval(given["host"]) if "host" in given else _host(path)
        for name, known in ((family, TASKS), (exporter, EXPORTERS), (host, HOSTS.values())):
            if name not in known:
                raise ValueError(f"{where}: {name!r} is none of {', '.join(known)}")
        yield Mark(path, node.lineno, family, exporter, host)


def _host(path: str) -> str:
    return next(host for folder, host in HOSTS.items() if path.startswith(f"{folder}/"))


def marks() -> list[Mark]:
    """Those of all tests."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    own = {Path(__file__), ROOT / "tests/structure/test_families.py"}
    return [
        mark
        for path in paths
        if path not in own
        for mark in marks_of(path.read_text(), path.relative_to(ROOT).as_posix())
    ]


def table() -> str:
    """The text of docs/reference/models.md."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    files: dict[str, set[str]] = defaultdict(set)
    for mark in marks():
        found[mark.family][mark.host].add(mark.exporter)
        files[mark.family].add(mark.path)
    named = "; ".join(f"*{name}*, {what}" for name, what in EXPORTERS.items())
    title, *texts = f"{HEAD}{named}.".split("\n\n")
    lines = ["\n\n".join([title, *(textwrap.fill(t, 100, **WHOLE) for t in texts)])]
    hosts = ("Python", "Page", "WebGPU")
    for group, families in FAMILIES.items():
        shown = [family for family in families if family in found]
        if not shown:
            continue
        lines += ["", f"## {group}", "", f"| family | task | {' | '.join(hosts)} | tests |"]
        lines += [f"|{'---|' * (len(hosts) + 3)}"]
        for family in shown:
            cells = [", ".join(sorted(found[family][host], key=str.lower)) or "-" for host in hosts]
            links = [f"[{Path(p).stem}](../../{p})" for p in sorted(files[family])]
            parts = (family, families[family], *cells, ", ".join(links))
            lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(table())
