"""Makes the adapters that test_peft.py reads, with PEFT itself (0.21): python make_adapters.py
(needs peft, torch). The files beside it are its output.
"""

import json
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.tuners_utils import check_target_module_exists
from torch import nn

HERE = Path(__file__).parent


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.v_proj = nn.Linear(6, 4), nn.Linear(6, 4, bias=False)


class Model(nn.Module):
    """Something of everything: an embedding, layers in a list, a convolution, a head."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.conv = nn.Conv2d(1, 3, (3, 1))
        self.head = nn.Linear(8, 2)

    def forward(self, ids):
        x = self.embed(ids)
        x = torch.cat(
            [
                x[..., :2],
                torch.cat([layer.q_proj(x) + layer.v_proj(x) for layer in self.layers], -1)[
                    ..., :6
                ],
            ],
            -1,
        )
        return self.head(x) + self.conv(x[:, None]).mean()


def make(name, **config):
    torch.manual_seed(0)
    model = get_peft_model(Model(), LoraConfig(**config))
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.copy_(torch.randn_like(p) / 4)
    model.eval()
    model.save_pretrained(HERE / name)
    (HERE / name / "README.md").unlink(missing_ok=True)
    scaling = {
        n.removeprefix("base_model.model."): m.scaling["default"]
        for n, m in model.named_modules()
        if hasattr(m, "scaling") and "default" in m.scaling
    }
    (HERE / name / "expected.json").write_text(
        json.dumps({"scaling": scaling}, sort_keys=True) + "\n"
    )


NAMES = [
    "model.embed_tokens",
    "model.layers.0.self_attn.q_proj",
    "model.layers.0.self_attn.v_proj",
    "model.layers.0.mlp.up_proj",
    "model.layers.1.self_attn.q_proj",
    "model.layers.11.mlp.up_proj",
    "model.layers.1.experts.0.up_proj",
    "model.h.0.attn.c_attn",
    "q_proj",
    "xq_proj",
    "lm_head",
    "model.lm_head.q_proj",
    "lm_head2",
]
CONFIGS = [
    dict(target_modules=["q_proj"]),
    dict(target_modules=["self_attn.q_proj", "lm_head"]),
    dict(target_modules=["proj"]),
    dict(target_modules=r".*\.layers\.[0-3]\..*_proj"),
    dict(target_modules="q_proj"),
    dict(target_modules=r"model.*", exclude_modules=["q_proj"]),
    dict(target_modules=r".*", exclude_modules=r".*layers.*"),
    dict(target_modules=["q_proj", "lm_head", "up_proj"], modules_to_save=["lm_head"]),
    dict(target_modules=["q_proj", "up_proj"], layers_to_transform=[1, 11]),
    dict(target_modules=["q_proj", "up_proj"], layers_to_transform=0),
    dict(
        target_modules=["q_proj", "up_proj", "c_attn"], layers_to_transform=[0], layers_pattern="h"
    ),
    dict(
        target_modules=["q_proj", "up_proj", "c_attn"],
        layers_to_transform=[0, 1],
        layers_pattern=["h", "layers"],
    ),
    dict(target_modules=["up_proj"], layers_to_transform=[]),
    dict(target_modules=["up_proj", "model.layers.0.mlp.up_proj"], layers_to_transform=[1]),
]


if __name__ == "__main__":
    rows = [
        {
            "config": c,
            "matched": [n for n in NAMES if check_target_module_exists(LoraConfig(**c), n)],
        }
        for c in CONFIGS
    ]
    (HERE / "matching.json").write_text(json.dumps({"names": NAMES, "rows": rows}, indent=1) + "\n")
    make(
        "adapter_all",
        r=2,
        lora_alpha=8,
        target_modules=["q_proj", "v_proj", "embed", "conv"],
        modules_to_save=["head"],
        bias="lora_only",
        rank_pattern={"layers.1.q_proj": 3},
        alpha_pattern={r"layers\.\d\.v_proj": 5},
        base_model_name_or_path="nowhere/tiny",
    )
    make(
        "adapter_rs",
        r=4,
        lora_alpha=2,
        target_modules=r".*layers\.0\..*_proj",
        use_rslora=True,
        lora_dropout=0.1,
        task_type=None,
    )
