"""Models by their id: what huggingface_hub downloads is what runs, and its cache and environment
variables are those that count. Each test runs a process of its own, since huggingface_hub reads the
variables when it is imported.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from .server import COMMIT, Hub

pytest.importorskip("huggingface_hub")
onnx = pytest.importorskip("onnx")
ROOT = Path(__file__).parents[2]
MODEL = ROOT / "web/demo/model"

GENERATE = """
    import edgewise
    lm = edgewise.CausalLM({model!r}, dtype={dtype!r}, capacity=32)
    print(json.dumps(edgewise.generate(lm, [5, 6, 7], max_new_tokens=6, do_sample=False)))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with the model `tests/story`: the demo's, in a second precision with its weights in
    a file that no convention names.
    """
    root = tmp_path_factory.mktemp("models")
    folder = root / "tests/story"
    shutil.copytree(MODEL, folder)
    (folder / "pytorch_model.bin").write_bytes(bytes(1000))
    model = onnx.load(folder / "onnx/model_q4.onnx")
    onnx.save_model(
        model,
        folder / "onnx/model_q4f16.onnx",
        save_as_external_data=True,
        location="somewhere.else",
        size_threshold=0,
    )
    return root


@pytest.fixture
def hub(models):
    with Hub(models) as hub:
        yield hub


@pytest.fixture
def run(tmp_path):
    """run(code, **environment): the JSON that a process prints, or its error as a text."""

    def run(code, **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        done = subprocess.run(
            [sys.executable, "-c", "import json\n" + textwrap.dedent(code)],
            env={
                **kept,
                "PYTHONPATH": str(ROOT / "python"),
                "HF_HOME": str(tmp_path),
                "HF_HUB_DISABLE_TELEMETRY": "1",
                "NO_PROXY": "*",
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=550,
        )
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_model_is_downloaded_once(hub, run, tmp_path, models):
    """Only the files that it needs, including weights whose file only the graph names."""
    dtype = "q4f16"
    wanted = run(GENERATE.format(model=str(models / "tests/story"), dtype=dtype))
    assert len(wanted[0]) == 9
    code = GENERATE.format(model="tests/story", dtype=dtype)
    assert run(code, HF_ENDPOINT=hub.url) == wanted
    texts = [f.name for f in MODEL.glob("*.json")]
    assert sorted(hub.downloads) == sorted([f"model_{dtype}.onnx", "somewhere.else", *texts])

    count = len(hub.downloads)
    assert run(code, HF_ENDPOINT=hub.url) == wanted and len(hub.downloads) == count
    asked = len(hub.requests)
    assert run(code, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1") == wanted
    assert len(hub.requests) == asked  # not one request
    assert run(code, HF_ENDPOINT="http://127.0.0.1:1") == wanted  # no connection

    # The library finds the files where it looks for its own downloads.
    found = run(
        """
        import huggingface_hub as hub
        name = "onnx/model_q4f16.onnx"
        info, = hub.scan_cache_dir().repos
        print(json.dumps([hub.try_to_load_from_cache("tests/story", name), info.repo_id,
                          [r.commit_hash for r in info.revisions]]))
        """
    )
    assert Path(found[0]).is_relative_to(tmp_path / "hub/models--tests--story/snapshots")
    assert found[1:] == ["tests/story", [COMMIT]]


def test_downloads_of_the_library_are_used(hub, run, tmp_path):
    """What huggingface_hub has downloaded to HF_HUB_CACHE is not downloaded again."""
    where = {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(tmp_path / "elsewhere")}
    run(
        'import huggingface_hub as h; print(json.dumps(h.snapshot_download("tests/story")))',
        **where,
    )
    count = len(hub.downloads)
    assert count > 5
    assert run(GENERATE.format(model="tests/story", dtype="q4"), **where)
    assert len(hub.downloads) == count and not (tmp_path / "hub").exists()


def test_session_and_pipeline_take_ids(hub, run):
    code = """
        import edgewise
        session = edgewise.InferenceSession("tests/story")
        pipe = edgewise.pipeline(
            "text-generation", "tests/story", "tests/story", revision="%s", capacity=32
        )
        text = pipe("The sea", max_new_tokens=3, do_sample=False)[0]["generated_text"]
        print(json.dumps([session.get_inputs()[0].name, text]))
    """
    name, text = run(code % COMMIT, HF_ENDPOINT=hub.url)
    assert name == "input_ids" and text.startswith("The sea") and len(text) > 7
    error = run(code % "other", HF_ENDPOINT=hub.url)
    assert "no such revision" in error and "tests/story: other" in error


def test_files_of_a_task(hub, run, models):
    """The graph of the dtype with external data, and the small files, also those in folders."""
    pooling = models / "tests/story/1_Pooling/config.json"
    pooling.parent.mkdir()
    pooling.write_text('{"pooling_mode_mean_tokens": true}')
    code = """
        import edgewise
        from edgewise.pipelines.files import ModelFiles
        files = ModelFiles("tests/story", dtype={"model": "q4f16"}, revision=%r)
        session = edgewise.InferenceSession(files.graphs["model"])
        print(json.dumps([session.get_inputs()[0].name, files.json("1_Pooling/config.json")]))
    """
    try:
        found = run(code % COMMIT, HF_ENDPOINT=hub.url)
        assert found == ["input_ids", {"pooling_mode_mean_tokens": True}]
        graphs = {name for name in hub.downloads if not name.endswith((".json", ".txt"))}
        assert graphs == {"model_q4f16.onnx", "somewhere.else"}
        assert run(code % COMMIT, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1") == found
        assert "no such revision" in run(code % "other", HF_ENDPOINT=hub.url)
    finally:
        shutil.rmtree(pooling.parent)


def test_token(hub, run):
    hub.private.add("tests/story")
    code = GENERATE.format(model="tests/story", dtype="q4")
    error = run(code, HF_ENDPOINT=hub.url)
    assert "NoSuchFile" in error and "private models need HF_TOKEN" in error
    assert run(code, HF_ENDPOINT=hub.url, HF_TOKEN=hub.token)
    assert hub.requests[-1][2] is None or hub.requests[-1][2] == f"Bearer {hub.token}"


def test_errors_name_the_remedy(hub, run):
    code = GENERATE.format(model="tests/missing", dtype="q4")
    assert "nor a model of the hub" in run(code, HF_ENDPOINT=hub.url)
    assert "HF_HUB_OFFLINE" in run(code, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
    told = run(code, HF_ENDPOINT="http://127.0.0.1:1")
    assert "there is no such file or folder; taken for the id of a model of the hub" in told
    assert "the hub cannot be reached" in told
    assert "Check the path; for the hub the connection" in told
    wrong = GENERATE.format(model="tests/story", dtype="fp16")
    assert "no model file for dtype 'fp16'" in run(wrong, HF_ENDPOINT=hub.url)
    without = 'import sys; sys.modules["huggingface_hub"] = None\n' + textwrap.dedent(code)
    assert "pip install edgewise[hub]" in run(without)


PROBED = """
    import socket, urllib.request
    from edgewise.host import hub
    probed = []
    def connect(*args):
        probed.append(args[0])
        raise OSError("refused")
    socket.create_connection = connect
    print(json.dumps([hub._unreachable() is None, probed]))
"""


@pytest.mark.parametrize(
    ("environment", "passed"),
    [
        ({}, False),
        ({"ALL_PROXY": "http://127.0.0.1:1"}, True),
        ({"HTTPS_PROXY": "http://127.0.0.1:1"}, True),
        ({"HTTP_PROXY": "http://127.0.0.1:1"}, False),  # of another scheme
        ({"ALL_PROXY": "http://127.0.0.1:1", "NO_PROXY": "other.example,.hub.example"}, False),
        ({"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "other.example"}, True),
    ],
)
def test_the_hub_is_not_probed_where_a_proxy_reaches_it(run, monkeypatch, environment, passed):
    names = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
    for name in names:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    environment = {"NO_PROXY": "", **environment}
    found = run(PROBED, **environment, HF_ENDPOINT="https://eu.hub.example")
    assert found == [passed, [] if passed else [["eu.hub.example", 443]]]


def test_paths_take_precedence(run, tmp_path, models):
    """A folder that looks like an id is read; a file that is missing is not asked for."""
    shutil.copytree(models / "tests", tmp_path / "tests")
    code = f"import os; os.chdir({str(tmp_path)!r})\n"
    assert run(code + textwrap.dedent(GENERATE.format(model="tests/story", dtype="q4")))
    missing = run('import edgewise; edgewise.InferenceSession("tests/model.onnx")')
    assert "Check the path" in missing
