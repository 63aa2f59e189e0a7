"""Model cards beside adapters and merged models, read by huggingface_hub."""

import shutil
from pathlib import Path

import edgewise
import pytest
from edgewise import convert_adapter, merge_adapter
from edgewise.host.training.data import TokenRows
from edgewise.host.training.format_calls import call
from huggingface_hub import ModelCard

ROOT = Path(__file__).parents[3]

BASE = """---
base_model: small/Storyteller-1
license: other
license_name: "my license: 2"
language:
- en
---
# A card
license: none
"""
TEXTS = [{"prompt": "Once upon a time", "completion": " a robot."}, {"text": "The owl sat."}]

SMALL = {"adapters": {"r": 2}, "sequence_length": 32, "batch_size": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a base with a card, of an adapter, and the losses of its run."""
    root = tmp_path_factory.mktemp("cards")
    shutil.copytree(ROOT / "web" / "demo" / "model", root / "base")
    (root / "base" / "README.md").write_text(BASE)
    trainer = edgewise.Trainer(
        root / "base", adapters={"r": 4, "lora_alpha": 8}, sequence_length=32, batch_size=1, seed=7
    )
    history = trainer.fit(TEXTS, max_steps=2, progress=False)
    trainer.save_adapter(root / "adapter")
    trainer.free()
    return root, history.losses


def test_the_card_of_an_adapter(trained):
    root, losses = trained
    card = ModelCard.load(root / "adapter" / "README.md")
    fields = card.data.to_dict()
    assert fields == {
        "base_model": "small/Storyteller-1",
        "base_model_relation": "adapter",
        "library_name": "peft",
        "license": "other",
        "license_name": "my license: 2",
        "pipeline_tag": "text-generation",
        "tags": ["lora", "edgewise"],
    }
    assert f"Edgewise {edgewise.__version__}" in card.text and "my license: 2" in card.text
    rows = dict(r.strip("|").split(" | ") for r in card.text.split("\n") if r.startswith("| "))
    rows = {k.strip(): v.strip() for k, v in rows.items()}
    assert rows["data"].startswith("2 rows, ") and rows["updates"] == "2"
    assert rows["losses"] == f"{losses[0]:.4f} at first, {losses[1]:.4f} at last"
    assert rows["r"] == "`4`" and rows["lora_alpha"] == "`8`" and rows["seed"] == "`7`"
    assert rows["optimizer"] == "`AdamW`" and rows["loss"] == "`causal_lm`"


def test_cards_of_exports_tell_of_the_training(trained, tmp_path):
    root, _ = trained
    section = ModelCard.load(root / "adapter" / "README.md").text.split("## Training")[1]
    merge_adapter(root / "base", root / "adapter", tmp_path / "merged", format="safetensors")
    merged = ModelCard.load(tmp_path / "merged" / "README.md")
    assert merged.data.library_name == "transformers" and "lora" not in merged.data.tags
    assert merged.data.to_dict()["base_model_relation"] == "finetune"
    convert_adapter(root / "adapter", root / "base", tmp_path / "peft", format="peft")
    converted = ModelCard.load(tmp_path / "peft" / "README.md")
    assert converted.data.base_model == "small/Storyteller-1"
    for card in (merged, converted):
        assert card.text.split("## Training")[1].strip() == section.strip()
    path = tmp_path / "peft" / "README.md"
    made = path.read_text()
    given = root / "adapter", root / "base", tmp_path / "peft"
    path.write_text(made, newline="\r\n")  # as git may check it out
    convert_adapter(*given, format="peft")
    assert path.read_text() == made
    for mine in ("# Mine\n", "# Mine, trained with Edgewise 1\n", made + "My notes.\n"):
        path.write_text(mine)  # the card of somebody else stays, and a changed one
        convert_adapter(*given, format="peft")
        assert path.read_text() == mine


def test_cards_of_pages(trained):
    """The base and the run are told by the page; the base's card may be missing."""
    from edgewise.compiler.onnx import as_source

    root, _ = trained
    names = ("adapter_config.json", "adapter_model.safetensors")
    files = {n: as_source((root / "adapter" / n).read_bytes(), n) for n in names}
    config = (root / "base" / "config.json").read_bytes()
    files["config.json"] = as_source(config, "config.json")
    run = {"updates": 3, "losses": [2.5, 2.25, 1.125], "examples": 4, "tokens": 56}
    run |= {"evaluation": 1.5, "options": {"loss": "kto", "r": 4}}
    options = {"format": "peft", "adapter": True, "model_file": None, "quantization": None}
    _, made = call(files, {**options, "base_model": "a/b", "license": "mit", "run": run})
    card = ModelCard(made["README.md"].decode())
    assert (card.data.base_model, card.data.license) == ("a/b", "mit")
    assert (
        "2.5000 at first, 1.1250 at last" in card.text and "| held-out loss | 1.5000 |" in card.text
    )
    _, made = call(files, options)
    card = ModelCard(made["README.md"].decode())
    assert card.data.license is None and "not known here" in card.text


def test_the_data_is_counted_for_a_card_alone(trained, tmp_path, monkeypatch):
    """Not after each `fit`, where it takes long and an error of it would hide another one."""
    asked = []
    count = TokenRows.tokens
    monkeypatch.setattr(TokenRows, "tokens", lambda *a: asked.append(a[2]) or count(*a))
    trainer = edgewise.Trainer(trained[0] / "base", **SMALL)
    trainer.fit(TEXTS, max_steps=1, progress=False)
    assert asked == [0]  # the epoch of the one update
    trainer.save_adapter(tmp_path)
    assert asked == [0, None, None] and " learned tokens" in (tmp_path / "README.md").read_text()
    trainer.free()


def test_the_card_of_a_resumed_run_tells_of_all(trained, tmp_path):
    whole = edgewise.Trainer(trained[0] / "base", **SMALL)
    whole.fit(TEXTS, max_steps=3, progress=False, callbacks=[lambda at: at.step < 2])
    whole.save(tmp_path / "run.safetensors")
    whole.fit(TEXTS, max_steps=3, progress=False)
    whole.save_adapter(tmp_path / "whole")
    whole.free()
    resumed = edgewise.Trainer(trained[0] / "base", **SMALL).resume(tmp_path / "run.safetensors")
    resumed.fit(TEXTS, max_steps=3, progress=False)
    resumed.save_adapter(tmp_path / "resumed")
    resumed.free()
    texts = [(tmp_path / n / "README.md").read_text() for n in ("whole", "resumed")]
    assert texts[0] == texts[1] and "| updates | 3 |" in texts[1]


def test_the_task_of_a_base():
    from edgewise.compiler.formats.files import ModelFiles
    from edgewise.compiler.onnx import as_source
    from edgewise.host.training.card import base_of, card

    config = b'{"architectures": ["BertForSequenceClassification"]}'
    base = base_of(ModelFiles({"config.json": as_source(config, "config.json")}))
    made = ModelCard(card(base, "peft", "", adapter=True).decode())
    assert made.data.to_dict()["pipeline_tag"] == "text-classification"
