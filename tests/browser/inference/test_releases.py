"""A release in Chromium: installed, updated by deltas, opened by pipelines, and reverted."""

import shutil

import edgewise
import numpy as np
import pytest

from tests.hub.release import environment  # noqa: F401

from ..conftest import MODEL, greedy

pytest.importorskip("tuf")

UPDATE = """
    const { ModelUpdates } = await import("/release.js");
    const root = await (await fetch("/files/repository/metadata/1.root.json")).text();
    const model = "/files/letters.edge";
    const updates = await ModelUpdates.open("/files/repository", { name: "letters", root, model });
    window.updates = updates;
    return await updates[arg]();
"""


@pytest.fixture
def release(files):
    """release(weights' factor) publishes a version."""
    from edgewise.cli import main
    from edgewise.extras.release.content import weight_types
    from edgewise.onnx.source import FileSource
    from edgewise.package import Package

    repository, keys = files / "repository", files.parent / "release-keys"

    def run(*args):
        assert main(["release", *map(str, args)]) == 0

    def publish(factor):
        package = Package.read(FileSource(files / "model.edge"))
        types = weight_types(package.manifest)
        data = bytearray((files / "model.edge").read_bytes())
        start = package.sources["weights"].offset
        for weight in package.manifest["weights"]:
            if types.get(weight["name"]) == "float32":
                count, at = weight["bytes"] // 4, start + weight["offset"]
                numbers = np.frombuffer(data, "<f4", count, at) * np.float32(factor)
                data[at : at + weight["bytes"]] = numbers.astype("<f4").tobytes()
            weight.pop("sums")
        (files / "changed.edge").write_bytes(data)
        package.sources["weights"].source = FileSource(files / "changed.edge")
        package.save(str(files / "version.edge"))
        run("add", repository, files / "version.edge", "letters")
        run("publish", repository, "--keys", keys)

    run("init", repository, "--keys", keys)
    yield publish
    shutil.rmtree(repository)
    shutil.rmtree(keys)


def test_a_release(visit, server, release):
    release(1)
    v = visit(server)
    assert v.run(UPDATE, "update")["version"] == 1
    first = greedy(v, "/files/letters.edge")
    assert first["ids"] == greedy(v, "/files/model.edge")["ids"]
    release(1.5)
    found = v.run(UPDATE, "check")
    assert 0 < found["download"] < found["bytes"] / 5
    assert v.run(UPDATE, "update")["version"] == 2
    v.close()
    w = visit(server)  # the next visit
    assert w.run(UPDATE, "current")["version"] == 2
    second = greedy(w, "/files/letters.edge")
    assert second["ids"] == greedy(w, "/files/version.edge")["ids"] != first["ids"]
    assert not w.asked("letters.edge"), "it is not downloaded"
    assert w.run(UPDATE, "revert")["version"] == 1
    assert greedy(w, "/files/letters.edge")["ids"] == first["ids"]


OPEN_MODEL = """
    const { ModelUpdates } = await import("/release.js");
    const root = await (await fetch("/files/models/metadata/1.root.json")).text();
    const updates = await ModelUpdates.open("/files/models", { name: "tiny", root });
    await updates.update();
    const files = await updates.files();
"""


@pytest.fixture
def model(files, tmp_path):
    """A folder of a model in ONNX, released as "tiny"."""
    from edgewise.cli import main

    for args in (
        ("init", files / "models", "--keys", tmp_path / "keys"),
        ("add", files / "models", MODEL, "tiny"),
        ("publish", files / "models", "--keys", tmp_path / "keys"),
    ):
        assert main(["release", *map(str, args)]) == 0
    yield MODEL
    shutil.rmtree(files / "models")


def test_files_of_a_model_have_their_paths(visit, server, model):
    found = visit(server).run(f"{OPEN_MODEL} return files.map((file) => [file.name, file.size]);")
    paths = [p for p in model.rglob("*") if p.is_file()]
    assert dict(found) == {p.relative_to(model).as_posix(): p.stat().st_size for p in paths}


@pytest.mark.slow("test_files_of_a_model_have_their_paths")
def test_files_of_a_model_go_to_a_pipeline(visit, server, model):
    found = visit(server).run(f"""
        {OPEN_MODEL}
        const pipe = await ew.pipeline("text-generation", files, {{ device: "wasm" }});
        return await pipe("edge", {{ max_new_tokens: 8, do_sample: false }});
    """)
    pipe = edgewise.pipeline("text-generation", str(model))
    assert found == pipe("edge", max_new_tokens=8, do_sample=False)
