"""Options of `edgewise train` and `edgewise build --train`: the variants of LoRA and of runs."""

import json

import pytest
from edgewise.cli import main
from edgewise.host.session.decoder import open_package
from peft import LoraConfig, PeftConfig

MODEL = "web/demo/model"
SIZES = ["--batch-size", "1", "--sequence-length", "32", "--lora-r", "4", "--lora-alpha", "8"]
VARIANTS = [
    *["--use-dora", "--use-rslora", "--lora-dropout", "0.1"],
    *["--target-modules", "q_proj", "v_proj", "down_proj"],
    *["--rank-pattern", "q_proj=2", "--alpha-pattern", "v_proj=3.5", "q_proj=2"],
    *["--modules-to-save", "norm", "--bias", "none"],
]
FIELDS = {
    "r": 4,
    "lora_alpha": 8.0,
    "use_dora": True,
    "use_rslora": True,
    "lora_dropout": 0.1,
    "rank_pattern": {"q_proj": 2},
    "alpha_pattern": {"v_proj": 3.5, "q_proj": 2.0},
    "modules_to_save": ["norm"],
    "bias": "none",
}


def texts(tmp_path, name="texts.jsonl", count=6):
    words = [{"text": f"The old robot number {i} had a lamp and a cat."} for i in range(count)]
    (tmp_path / name).write_text("\n".join(map(json.dumps, words)))
    return str(tmp_path / name)


def test_train(tmp_path, capsys):
    folder = str(tmp_path / "mine")
    options = ["--loraplus-lr-ratio", "4", "--ema-decay", "0.5", "--packing", "--epochs", "20"]
    stops = ["--evaluation", texts(tmp_path, "held.jsonl", 2), "--evaluate-every", "1"]
    stops += ["--early-stopping-patience", "1", "--load-best-model-at-end"]
    rate = ["--learning-rate", "0.5"]  # so high that evaluations do not improve for long
    command = ["train", MODEL, texts(tmp_path), "--lora", "--adapter", folder]
    assert not main([*command, *SIZES, *VARIANTS, *options, *stops, *rate])
    updates = int(capsys.readouterr().out.split(" updates")[0].split()[-1])
    assert updates < 20 * 3  # 6 texts fill 3 rows, and the run ends early
    config = PeftConfig.from_pretrained(folder)
    assert isinstance(config, LoraConfig) and set(config.target_modules) == {
        *("q_proj", "v_proj", "down_proj")
    }
    for name, value in FIELDS.items():
        assert getattr(config, name) == value, name


def test_build(tmp_path, capsys):
    out = str(tmp_path / "model.edge")
    more = ["--ema-decay", "0.9", "--packing", "--max-length", "64"]
    assert not main(["build", MODEL, "-o", out, "--train", "lora", *SIZES, *VARIANTS, *more])
    [program] = open_package(out).manifest["training"]
    assert program["packing"] and "swap" in program["plans"] and "magnitudes" in program["plans"]
    assert {n: program["lora"][n] for n in FIELDS} == FIELDS
    sizes = [
        s["shape"]
        for s in program["states"]
        if s["name"].endswith("0.self_attn.q_proj.lora_A.weight")
    ]
    assert sizes and sizes[0][0] == 2


@pytest.mark.parametrize(
    "options, error",
    [
        (["--use-dora"], "--use-dora: it is for --lora"),
        (["--lora", "--early-stopping-patience", "2"], "it is for --evaluation"),
        (["--lora", "--rank-pattern", "q_proj"], "name=value"),
        (["--lora", "--rank-pattern", "q_proj=two"], "'two' is not an integer"),
        (["--lora", "--rank-pattern", "q_proj=scalar"], "'scalar' is not an integer"),
        (["--lora", "--rank-pattern", "q_proj=4,8"], "'4,8' is not an integer"),
        (["--lora", "--alpha-pattern", "q_proj=4,8"], "'4,8' is not one number"),
        (["--lora", "--ema-decay", "1.5"], "ema_decay: it is 1.5"),
        (["--lora", "--router-aux-loss-coef", "0.1"], "no experts"),
    ],
)
def test_refusals(tmp_path, capsys, options, error):
    assert main(["train", MODEL, texts(tmp_path), *options, "--steps", "1"]) == 1
    assert error in capsys.readouterr().err
