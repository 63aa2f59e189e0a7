"""A notebook's drive (drive.mjs), which fetches a complete file whenever it is opened and
serializes JSON each time: models are read with one opening of each file, and small files
completely, whatever size is reported.
"""

import io
import json
import shutil
import textwrap
from pathlib import Path

import pytest

from .letters import LETTERS

MODEL = Path(__file__).parents[1] / "zoo/models/q4_llama"

RUN = textwrap.dedent("""
    import edgewise, js

    js.drive.opens = js.drive.bytes = js.drive.stats = 0
    pipe = edgewise.pipeline(
        "text-generation",
        path,
        tokenizer=Letters(),
        capacity=None if path.endswith(".edge") else 24,
    )
    text = pipe("Once", max_new_tokens=4, do_sample=False)[0]["generated_text"]
    result = [text, js.drive.opens, js.drive.bytes, js.drive.stats]
    pipe.model.free()
""")


@pytest.fixture(scope="module")
def folder(pyodide):
    """A model folder and a package of it on the drive. JSON is written with indentation, which the
    drive removes.
    """
    from edgewise.host.session.decoder import open_package

    target = pyodide.folder / "model"
    target.mkdir(exist_ok=True)
    for file in MODEL.iterdir():
        shutil.copy(file, target / file.name)
    config = (
        json.loads((MODEL / "config.json").read_text())
        if (MODEL / "config.json").exists()
        else {"model_type": "llama", "eos_token_id": 2}
    )
    (target / "config.json").write_text(json.dumps(config, indent=8))
    (target / "generation_config.json").write_text(
        json.dumps({"eos_token_id": 63, "pad_token_id": 0}, indent=8)
    )
    out = io.BytesIO()
    open_package(str(target), capacity=24).write(out)
    pyodide.put("model.edge", out.getvalue())
    return target


@pytest.mark.parametrize("name", ["model.edge", "model"])
def test_each_file_is_opened_once(pyodide, folder, name):
    text, opens, size, stats = pyodide.run(LETTERS + RUN, path=f"/drive/{name}")
    same, none, _, _ = pyodide.run(LETTERS + RUN, path=f"/work/{name}")
    assert text == same and none == 0
    files = [folder.parent / name] if name.endswith(".edge") else list(folder.iterdir())
    assert opens <= len(files)
    assert stats <= (2 if name.endswith(".edge") else 4 * len(files))  # each is a request
    assert size <= sum(f.stat().st_size for f in files)


def test_json_is_read_to_its_end(pyodide, folder):
    """The reported size is that of the text with indentation; the content is the shorter text
    without.
    """
    stated, read, eos, adapter = pyodide.run(
        """
        import os, json
        from edgewise.host.session.decoder import open_package
        from edgewise.training.peft import load_adapter
        from edgewise.errors import EdgewiseError
        stated = os.stat("/drive/model/generation_config.json").st_size
        with open("/drive/model/generation_config.json", "rb") as f:
            read = len(f.read())
        package = open_package("/drive/model", capacity=24)
        try:
            load_adapter("/drive/adapter")
        except EdgewiseError as e:
            adapter = str(e)
        result = [stated, read, package.json("generation_config.json")["eos_token_id"], adapter]""",
        _=_adapter(pyodide),
    )
    assert read < stated and eos == 63
    assert "peft_type" in adapter, adapter  # the configuration was read


def test_a_trainer_reads_the_tokenizer(pyodide, folder):
    """With the tokenizer of the wheel; the texts in the folder are longer than what is read."""
    source = MODEL.parents[3] / "web/demo/model"
    target = pyodide.folder / "trained"
    shutil.copytree(folder, target, dirs_exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        value = json.loads((source / name).read_text())
        (target / name).write_text(json.dumps(value, indent=8))
    ids, text = pyodide.run(
        """
        from edgewise import LoraConfig, Trainer

        tokenizer = Trainer("/drive/trained", adapters=LoraConfig(r=2)).tokenizer
        ids = tokenizer.encode("The old fisherman")
        result = [ids, tokenizer.decode(ids, skip_special_tokens=True)]"""
    )
    assert ids == [1, 297, 492, 1529] and text == "The old fisherman"


def _adapter(pyodide):
    folder = pyodide.folder / "adapter"
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "IA3"}, indent=8))
    (folder / "adapter_model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
