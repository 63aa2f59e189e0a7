"""A server with the demo's model under a chat template, two adapters of it, and a tiny encoder."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from . import environment  # noqa: F401

DEMO = Path(__file__).parents[2] / "web/demo/model"
TEMPLATE = (
    "{{ bos_token }}{% if tools %}<tool_call>{% for t in tools %}{{ t.function.name }} "
    "{% endfor %}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content | trim }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}{% endfor %}"
    "{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The demo's model with a chat template that trims, as Llama's."""
    path = tmp_path_factory.mktemp("models") / "stories"
    shutil.copytree(DEMO, path)
    config = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    return path


@pytest.fixture(scope="session")
def adapters(folder):
    """{name: folder} of adapters of different ranks on different layers."""
    from edgewise.training.peft import Adapter, LoraConfig, save_adapter

    random, made = np.random.default_rng(0), {}
    for name, rank, layer in (("pirate", 4, "v_proj"), ("poet", 2, "q_proj")):
        width = 64 if layer == "v_proj" else 192
        modules = [f"model.layers.{i}.self_attn.{layer}" for i in range(6)]

        def matrix(*shape):
            return random.standard_normal(shape, dtype="float32") * np.float32(0.5)

        lora = {m: (matrix(rank, 192), matrix(width, rank)) for m in modules}
        config = LoraConfig(r=rank, lora_alpha=rank, target_modules=[layer])
        made[name] = str(folder.parent / name)
        save_adapter(Adapter(config, lora), made[name])
    return made


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """A folder with a tiny BERT."""
    from tests.pipelines.tiny import make

    return make(tmp_path_factory.mktemp("encoder"), "bert", "base")


@pytest.fixture(scope="session")
def catalog(folder, adapters, encoder):
    from edgewise.extras.serve.catalog import Catalog

    return Catalog({"stories": str(folder), "tiny": str(encoder)}, adapters)


@pytest.fixture(scope="session")
def server(catalog):
    from edgewise.extras.serve.launch import Server
    from edgewise.extras.serve.options import Limits, ServeOptions

    limits = Limits(body=20_000, tokens=200, waiting=3, seconds=0.5)
    options = ServeOptions(port=0, origins=("https://page.example",), limits=limits)
    with Server(catalog, options) as server:
        yield server


@pytest.fixture(scope="session")
def client(server):
    import openai

    return openai.OpenAI(base_url=server.url, api_key="any", max_retries=0)
