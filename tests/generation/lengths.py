"""How long transformers makes a text by max_length, max_new_tokens, min_length and min_new_tokens
that come from keywords, a configuration object, the model's generation_config.json, and
combinations. `python tests/generation/lengths.py` writes tests/conformance/generation_lengths.json.
"""

import json
import random
import warnings
from pathlib import Path

FILE = Path(__file__).parents[1] / "conformance/generation_lengths.json"
EOS = 7
DEFAULTS = {"max_length": 20, "max_new_tokens": None, "min_length": 0, "min_new_tokens": None}


def cases():
    """[(length of the prompt, whether the end is likely, {"file", "config", "fields"})]"""
    rng = random.Random(4)
    values = {
        "max_length": [20, 9, 30],
        "max_new_tokens": [3, 12],
        "min_length": [11, 4],
        "min_new_tokens": [2, 6],
    }
    sets = [{}] + [{name: value} for name, some in values.items() for value in some]
    for _ in range(24):
        sets.append(
            {
                name: rng.choice(values[name])
                for name in rng.sample(list(values), rng.randrange(2, 4))
            }
        )
    chosen = [({}, {}, {})]
    for one in sets[1:]:
        chosen += [(one, {}, {}), ({}, one, {}), ({}, {}, one)]
    chosen += [
        ({}, {"max_new_tokens": 3}, {"max_new_tokens": None, "max_length": 9}),
        ({"max_new_tokens": 3}, {}, {"max_length": 9}),
    ]
    for _ in range(30):
        chosen.append(tuple(rng.choice(sets) for _ in range(3)))
    for file, config, fields in chosen:
        # What a configuration object sets to the default, and the model's file to something else,
        # comes from the file in transformers and from the object here; see GenerationConfig
        if any(
            value == DEFAULTS[name] and file.get(name, value) != value
            for name, value in config.items()
        ):
            continue
        for prompt, ends in ((5, False), (5, True), (1, True), (10, False)):
            yield prompt, ends, {"file": file, "config": config, "fields": fields}


def lengths_of_transformers():
    """[{prompt, ends, file, config, fields, length}]; length null: refused."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=16,
            n_positions=64,
            n_embd=8,
            n_layer=1,
            n_head=1,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    rows = []
    for prompt, ends, sources in cases():
        bias = [[[EOS], 100.0 if ends else -100.0]]
        model.generation_config = transformers.GenerationConfig(
            eos_token_id=EOS, pad_token_id=0, **sources["file"]
        )
        config = transformers.GenerationConfig(**sources["config"]) if sources["config"] else None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ids = model.generate(
                    torch.ones(1, prompt, dtype=torch.long),
                    generation_config=config,
                    do_sample=False,
                    sequence_bias=bias,
                    **sources["fields"],
                )
            length = ids.shape[1]
        except ValueError:
            length = None
        rows.append({"prompt": prompt, "ends": ends, **sources, "length": length})
    return rows


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(row) for row in lengths_of_transformers())
    FILE.write_text(f"[\n{lines}\n]\n")
