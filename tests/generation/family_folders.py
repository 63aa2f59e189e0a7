"""The models of families/ as folders of transformers: with the whole config.json, and a tokenizer
whose tokens are the printable letters, so that texts tell tokens.
"""

import json
from pathlib import Path

import transformers

from .families import make
from .test_families import stored

SPECIAL = ["<pad>", "<s>", "</s>"]
LETTERS = [chr(33 + i) for i in range(make.VOCAB - len(SPECIAL))]
TOKENIZER = {
    "model": {
        "type": "BPE",
        "vocab": {token: i for i, token in enumerate([*SPECIAL, *LETTERS])},
        "merges": [],
    },
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "added_tokens": [{"id": i, "content": t, "special": True} for i, t in enumerate(SPECIAL)],
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
    },
}


def config_of(name):
    """The configuration of transformers of a model of families/."""
    whole, config, fields = make.MODELS[name.partition("_")[2]]
    made = getattr(transformers, f"{config}Config")(**{**make.BASE, **fields})
    made.architectures = [f"{whole}ForCausalLM"]
    return made


def hub_folder(name, folder):
    """Writes a model's folder."""
    folder = Path(folder)
    for file, content in stored(name).items():
        (folder / file).write_bytes(content)
    (folder / "config.json").write_text(json.dumps(config_of(name).to_dict()))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return folder


def text_of(ids):
    """The text of tokens; special ones are not in it."""
    return "".join(LETTERS[i - len(SPECIAL)] for i in ids if i >= len(SPECIAL))
