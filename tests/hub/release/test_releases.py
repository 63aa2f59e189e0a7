"""Releases: what Python and TypeScript share, the repository, and the client."""

import base64
import json
import os
import threading
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from tests.conformance.vectors import vectors

from . import environment  # noqa: F401

pytest.importorskip("tuf")

from edgewise.cli import main
from edgewise.compiler.sums import source_sums
from edgewise.errors import EdgewiseError, StorageError
from edgewise.extras.release import entropy
from edgewise.extras.release.build import _bfloat16
from edgewise.extras.release.client import Client
from edgewise.extras.release.codec import CHUNK, CODECS, approximate, decode, encode, payload_bytes
from edgewise.extras.release.errors import ReleaseError
from edgewise.extras.release.manifest import Manifest, parse, selected
from edgewise.extras.release.store import open_address
from edgewise.locks import locked
from edgewise.onnx.source import FileSource
from edgewise.package import Package

from .make_vectors import MUTATIONS, content_of, mutated, numbers, refusal

VECTORS = vectors("releases/versions")


def test_codec_vectors():
    assert {v["codec"] for v in VECTORS["codec"]} == set(CODECS)
    for v in VECTORS["codec"]:
        base, new, delta = (base64.b64decode(v[name]) for name in ("base", "new", "delta"))
        assert decode(v["codec"], base, delta) == new


@pytest.mark.parametrize("codec", [c for c in CODECS if c != "float32-q4"])
def test_deltas_are_exact(codec):
    rng = np.random.default_rng(0)
    for count in (12, 13, 5000):
        old, new = numbers(rng, codec, count)
        noise = rng.bytes(len(old))
        for target in (new, old, noise):
            assert decode(codec, old, encode(codec, old, target)) == target


def test_bfloat16_changes_are_small():
    """2e-3 of the weights' norm, as some steps of fine-tuning change them: below 4.5 bits each."""
    rng = np.random.default_rng(0)
    old = (rng.standard_t(8, 200_000) * 0.05).astype("f4")
    new = old + rng.normal(0, 2e-3 * old.std(), old.size).astype("f4")
    a, b = _bfloat16(old.tobytes()), _bfloat16(new.tobytes())
    rounded = np.frombuffer(a, "<f4")
    assert np.abs(rounded - old).max() <= 2**-8 * np.abs(old).max()
    assert 8 * len(encode("float32", a, b)) / old.size < 4.5
    delta, result = approximate(old.tobytes(), new.tobytes())
    assert 8 * len(delta) / old.size < 4.5
    error = np.frombuffer(result, "<f4") - new
    assert np.linalg.norm(error) < 0.15 * np.linalg.norm(new - old)


def test_changes_of_a_matrix_are_predicted():
    """Most of the change is a product of narrow matrices; numbers of all kinds are among them."""
    rng = np.random.default_rng(0)
    shape = (128, 160)
    factors = rng.normal(0, 1, (128, 4)) @ rng.normal(0, 1, (4, 160))
    change = 1e-3 * (factors + rng.normal(0, 1, shape))
    old = rng.normal(0, 0.1, shape)
    old[0, :4] = 0.0, -0.0, 6e-8, 6e4
    for codec, dtype in (("float16", "<f2"), ("float32", "<f4")):
        base, new = old.astype(dtype), (old + change).astype(dtype)
        if codec == "float32":
            base, new = (np.frombuffer(_bfloat16(x.tobytes()), dtype) for x in (base, new))
        a, b = (x.reshape(-1)[100:].tobytes() for x in (base, new))  # a chunk in the middle
        plain, found = encode(codec, a, b), encode(codec, a, b, (160, 100))
        assert decode(codec, a, plain) == decode(codec, a, found) == b
        assert plain[0] == 0 and found[0] > 0 and len(found) < 0.97 * len(plain)


def zlib_of(table):
    packed = zlib.compress(table.tobytes())
    return len(packed).to_bytes(4, "little") + packed


def test_damaged_deltas_are_refused():
    old, new = numbers(np.random.default_rng(0), "float16")
    delta = encode("float16", old, new)
    packed = zlib.compress(bytes(1 << 24))
    length = int.from_bytes(delta[12:16], "little")
    bomb = delta[:12] + len(packed).to_bytes(4, "little") + packed + delta[16 + length :]
    wide = b"\x20" + delta[1:4] + b"\x40\0\0\0" + delta[8:]
    none = delta[:12] + zlib_of(np.zeros(256, "<u2")) + delta[16 + length :]
    too_far = zlib.compress(b"\xff\xff" * 4 + b"\xff" * 200)
    for codec, data in (
        ("float16", delta[:-3]),
        ("float16", delta + b"x"),
        ("float16", bomb),
        ("float16", delta[:-4]),
        ("float16", delta[:-2] + bytes(2)),
        ("float16", delta[:9]),
        ("float16", wide),
        ("float16", none),
        ("float16", b""),
        ("float32-q4", zlib.compress(bytes(payload_bytes("float32-q4", 400) - 1))),
        ("zip", delta),
    ):
        with pytest.raises(ReleaseError):
            decode(codec, old, data)
    with pytest.raises(ReleaseError, match="outside their range"):
        decode("float32-q4", bytes(800), too_far)
    with pytest.raises(ReleaseError):
        decode("float16", bytes(CHUNK + 2), delta)


def test_one_lane_for_many_numbers_is_refused(monkeypatch):
    """NumPy decodes one number for each lane at once."""
    old, new = numbers(np.random.default_rng(0), "float16", 5000)
    with monkeypatch.context() as patched:
        patched.setattr(entropy, "MAX_LANES", 1)
        delta = encode("float16", old, new)
        assert decode("float16", old, delta) == new
    with pytest.raises(ReleaseError, match="too few lanes"):
        decode("float16", old, delta)


def test_manifests_are_refused_in_the_same_words():
    found = [{"path": p, "value": v, "what": refusal(mutated(p, v))} for p, v in MUTATIONS]
    assert found == VECTORS["manifests"]
    manifest = parse(json.dumps(VECTORS["manifest"]).encode(), "it")
    assert parse(manifest.text(), "it") == manifest


def test_rollouts():
    for v in VECTORS["rollout"]:
        manifest = Manifest("letters", 7, "package", 0, "", [], [], fraction=v["fraction"])
        assert selected(v["device"], manifest) is v["selected"]


class Server:
    """Files of the shared repository. `left`: bytes until the connection breaks."""

    def __init__(self):
        self.files, self.left, self.asked, self.sent = {}, None, [], 0
        self.broken = ConnectionError

    def state(self, number):
        self.files.update(VECTORS["repository"]["states"][number])
        return self

    def open(self, address, offset):
        path = address.removeprefix("there/")
        self.asked.append(path)
        if path not in self.files:
            raise FileNotFoundError(path)
        data = base64.b64decode(self.files[path])[offset:]
        for at in range(0, len(data), 97):
            piece = data[at : at + 97]
            if self.left is not None:
                if self.left < len(piece):
                    yield piece[: self.left]
                    self.left = 0
                    raise self.broken("broken")
                self.left -= len(piece)
            self.sent += len(piece)
            yield piece


def client(server, folder):
    root = VECTORS["repository"]["root"].encode()
    return Client(["there"], "letters", str(folder), root, server.open)


def content(folder, installed):
    return base64.b64encode(Path(folder, installed.data).read_bytes()).decode()


def test_versions_of_the_shared_repository(tmp_path):
    server, contents = Server(), VECTORS["repository"]["contents"]
    for state, version in ((0, 1), (1, 2), (2, 2)):  # the third is for no device
        installed = client(server.state(state), tmp_path).update()
        assert installed.version == version
        assert content(tmp_path, installed) == contents[version - 1]
    late = tmp_path / "late"
    assert client(server, late).update().version == 2  # what the third falls back to
    server.asked.clear()
    assert client(server, late).update().version == 2
    assert not [path for path in server.asked if path.startswith("chunks")]


def test_interrupted_at_any_byte(tmp_path):
    server = Server().state(0)
    first = client(server, tmp_path).update()
    server.state(1)
    for left in [*range(0, 4000, 211), None]:
        server.left = left
        try:
            installed = client(server, tmp_path).update()
            if installed.version == 2:
                break
        except ReleaseError:
            assert content(tmp_path, client(server, tmp_path).installed()) == content(
                tmp_path, first
            )
    assert content(tmp_path, installed) == VECTORS["repository"]["contents"][1]


def test_damage_is_refused_or_mended(tmp_path):
    server = Server().state(0)
    installed = client(server, tmp_path).update()
    server.state(1)
    sound = dict(server.files)
    for path in [p for p in sound if p.startswith(("chunks", "targets"))]:
        server.files[path] = base64.b64encode(base64.b64decode(sound[path])[::-1]).decode()
    with pytest.raises(ReleaseError, match="SHA-256|Hash|hash|length"):
        client(server, tmp_path).update()
    assert client(server, tmp_path).installed() == installed
    server.files = sound
    for damage in ("[1]", '{"name": "letters"}', json.dumps({**vars(installed), "sha256": "../x"})):
        (tmp_path / "current.json").write_text(damage)
        assert client(server, tmp_path).installed() is None
    (tmp_path / "current.json").write_text(json.dumps(vars(installed)))
    (tmp_path / "device").write_bytes(b"\xff")
    data = tmp_path / installed.data  # a base that was damaged on this disk
    data.write_bytes(data.read_bytes()[:-400] + bytes(400))
    assert (
        content(tmp_path, client(server, tmp_path).update())
        == (VECTORS["repository"]["contents"][1])
    )


@pytest.mark.parametrize("wrong", [bytes(8), ReleaseError("it is damaged", "it")])
def test_a_delta_that_does_not_lead_to_its_chunk(tmp_path, monkeypatch, wrong):
    """Such as one that this machine computes otherwise: the chunk is fetched as a whole."""

    def decoded(*_):
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    server = Server().state(0)
    client(server, tmp_path).update()
    monkeypatch.setattr("edgewise.extras.release.client.decode", decoded)
    installed = client(server.state(1), tmp_path).update()
    assert content(tmp_path, installed) == VECTORS["repository"]["contents"][1]


def test_what_was_cut_off_is_installed_again(tmp_path):
    server = Server().state(0)
    installed = client(server, tmp_path).update()
    data = tmp_path / installed.data
    data.write_bytes(data.read_bytes()[:-400])
    assert client(server, tmp_path).update() == installed
    assert content(tmp_path, installed) == VECTORS["repository"]["contents"][0]


def test_other_origins_and_folders_of_others(tmp_path):
    server = Server().state(0)
    root = VECTORS["repository"]["root"].encode()
    both = Client(["down", "there"], "letters", str(tmp_path), root, server.open)
    installed = both.update()
    assert content(tmp_path, installed) == VECTORS["repository"]["contents"][0]
    assert len(both.export(str(tmp_path / "out"))) == 2
    with pytest.raises(ReleaseError, match="folder of the release 'letters'"):
        Client(["there"], "other", str(tmp_path), root, server.open).update()
    with locked(str(tmp_path / "lock")), pytest.raises(StorageError, match="another process"):
        both.update()
    data = tmp_path / installed.data
    data.write_bytes(bytes(1) + data.read_bytes()[1:])
    with pytest.raises(ReleaseError, match="damaged"):
        both.export(str(tmp_path / "out2"))
    assert not list((tmp_path / "out2").iterdir())


def test_a_broken_answer_is_an_os_error():
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):  # noqa: N802
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"9\r\nabc")
            self.close_connection = True

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(OSError, match="IncompleteRead"):
            list(open_address(f"http://127.0.0.1:{server.server_port}/x", 0))
    with pytest.raises(OSError):
        list(open_address("http://127.0.0.1:port/x", 0))


def run(*args):
    assert main(["release", *map(str, args)]) == 0


@pytest.fixture
def repository(tmp_path):
    folder, keys = tmp_path / "repository", tmp_path / "keys"
    run("init", folder, "--keys", keys, "--scheme", "ecdsa")
    return folder, keys


def versions_in(targets):
    """Versions of the manifests in a folder."""
    return sorted(json.loads(p.read_text())["version"] for p in targets.glob("*.json"))


def after_round(folder, number):
    """The folder of federated rounds after a round."""
    from edgewise.extras.federated.codec import Schema
    from edgewise.extras.federated.run_folder import RunFolder, State
    from edgewise.extras.federated.settings import Settings

    lora = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16}
    lora["target_modules"] = ["q"]
    shapes = {"m.q.lora_A.weight": (8, 512), "m.q.lora_B.weight": (512, 8)}
    start, change = (np.random.default_rng(seed) for seed in (0, number))
    weights = {}
    for name, shape in shapes.items():
        weights[name] = start.normal(0, 0.1, shape) + number * change.normal(0, 1e-3, shape)
    run = RunFolder(folder)
    if not number:
        run.create(Settings(lora=lora), {n: w.astype("f4") for n, w in weights.items()})
    else:
        run.save(State(number, weights, {}), Schema.of(shapes), lora)


def test_command(repository, tmp_path, capsys):
    """A federated run is a release like any other; keys rotate; a later client catches up."""
    folder, keys = repository
    rounds, state, out = tmp_path / "run", tmp_path / "state", tmp_path / "out"
    assert main(["release", "add", str(folder), str(rounds), "rounds"]) == 1
    after_round(rounds, 0)
    assert main(["release", "add", str(folder), str(rounds), "rounds"]) == 1  # no round yet
    after_round(rounds, 1)
    run("add", folder, rounds, "rounds")
    run("publish", folder, "--keys", keys)
    install = ("apply", "rounds", folder, "--state", state, "-o", out)
    run(*install, "--root", folder / "metadata/1.root.json")
    assert content_of(out) == content_of(rounds / "adapter")
    lent = tmp_path / "lent"  # without the keys that sign after targets
    lent.mkdir()
    for path in [*keys.glob("root*"), *keys.glob("targets*")]:
        (lent / path.name).write_bytes(path.read_bytes())
    served = sorted((folder / "metadata").iterdir()), sorted(keys.iterdir())
    for role in ("targets", "timestamp", "snapshot"):
        assert main(["release", "rotate", str(folder), role, "--keys", str(lent)]) == 1
    assert (sorted((folder / "metadata").iterdir()), sorted(keys.iterdir())) == served
    for role in ("timestamp", "root", "targets"):
        run("rotate", folder, role, "--keys", keys)
    assert "ed25519" not in (folder / "metadata/4.root.json").read_text()
    after_round(rounds, 2)
    run("add", folder, rounds, "rounds", "--fraction", 0, "--round", "q4")
    run("publish", folder, "--keys", keys)
    run(*install)
    assert json.loads((state / "current.json").read_text())["version"] == 1
    run("rollout", folder, "rounds", "--fraction", 1)
    assert main(["release", "add", str(folder), str(rounds), "rounds"]) == 1  # would undo rollout
    run("publish", folder, "--keys", keys)
    capsys.readouterr()
    run(*install)
    received = int(capsys.readouterr().out.split(": ")[1].split()[0])
    assert json.loads((state / "current.json").read_text())["version"] == 2
    size = (rounds / "adapter/adapter_model.safetensors").stat().st_size
    assert 0 < received < size / 6  # 4 bits instead of 32, and a manifest
    run("verify", folder)
    before = {p for p in (folder / "chunks").rglob("*") if p.is_file()}
    (folder / "chunks/ab").mkdir(exist_ok=True)
    (folder / f"chunks/ab/{'cd' * 31}.123.part").write_bytes(b"of an add that was killed")
    settings = folder / "chunks/.htaccess"
    settings.write_text("Header set Cache-Control immutable")
    run("prune", folder)
    before.add(settings)
    assert {p for p in (folder / "chunks").rglob("*") if p.is_file()} == before
    for number in (3, 4):
        after_round(rounds, number)
        run("add", folder, rounds, "rounds", "--keep", 1)
        run("prune", folder)  # what waits to be published stays
        run("publish", folder, "--keys", keys)
    run("prune", folder)
    left = {p for p in (folder / "chunks").rglob("*") if p.is_file()}
    assert before - left and before & left  # the configuration never changed
    assert versions_in(folder / "targets") == [3, 4]
    run("verify", folder)
    run(*install)
    assert content_of(out) == content_of(rounds / "adapter")
    max(left).write_bytes(b"x")
    assert main(["release", "verify", str(folder)]) == 1


def test_what_cannot_be_released(repository, tmp_path):
    folder, keys = repository
    (tmp_path / "x").write_bytes(b"x" * 100)
    for args in (
        ("add", folder, tmp_path / "x", "letters"),
        ("add", folder, tmp_path, "letters"),
        ("add", folder, tmp_path / "x", "../letters"),
        ("rollout", folder, "letters"),
        ("init", folder, "--keys", tmp_path / "other"),
        ("init", tmp_path / "new", "--keys", tmp_path / "new/keys"),
        ("init", tmp_path / "new", "--keys", tmp_path / "new/..keys"),
        ("rotate", folder, "root", "--keys", folder),
        ("publish", folder, "--keys", tmp_path / "none"),
        ("publish", folder, "--keys", keys, "--timestamp-days", "nan"),
        ("publish", folder, "--keys", keys, "--snapshot-days", "1e12"),
        ("publish", folder, "--keys", keys, "--timestamp-days", "-1"),
        ("publish", tmp_path / "nowhere", "--keys", keys),
        ("verify", tmp_path / "nowhere"),
        ("prune", tmp_path / "nowhere"),
        ("add", folder, tmp_path, "letters", "--keep", "17"),
    ):
        assert main(["release", *map(str, args)]) == 1
    with locked(str(folder / "lock")):
        assert main(["release", "publish", str(folder), "--keys", str(keys)]) == 1
    (folder / "staged.json").write_text("{")
    assert main(["release", "publish", str(folder), "--keys", str(keys)]) == 1
    (folder / "staged.json").unlink()
    rounds = tmp_path / "run"
    after_round(rounds, 0)
    after_round(rounds, 1)
    for number in (1, 2):
        run("add", folder, rounds, "rounds", "--fraction", 0)
        if number == 1:
            run("publish", folder, "--keys", keys)
    # the version that waits would get lost
    assert main(["release", "rollout", str(folder), "rounds", "--fraction", "1"]) == 1
    assert oct(os.stat(keys / "root-1.pem").st_mode)[-3:] == "600"
    with pytest.raises(EdgewiseError):
        Client([str(folder)], "letters", str(tmp_path / "c"), None).update()


def mlp(folder, name, weights):
    """A package of two layers, as `edgewise build` writes it."""
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    value = lambda n, shape: helper.make_tensor_value_info(n, 1, shape)
    graph = helper.make_graph(
        nodes,
        "mlp",
        [value("x", ["batch", 64])],
        [value("y", ["batch", 32])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, folder / f"{name}.onnx")
    out = folder / f"{name}.edge"
    args = ("--dims", "batch=2", "-o", str(out))
    assert main(["build", str(folder / f"{name}.onnx"), *args]) == 0
    return out


def test_a_package_of_the_same_shapes_keeps_its_plans(repository, tmp_path):
    folder, keys = repository
    rng = np.random.default_rng(0)
    old = {"a": rng.normal(0, 0.1, (64, 256)), "b": rng.normal(0, 0.1, (256, 32))}
    old = {n: w.astype("f4") for n, w in old.items()}
    new = {n: w + rng.normal(0, 2e-4, w.shape).astype("f4") for n, w in old.items()}
    state, out = tmp_path / "state", tmp_path / "out.edge"
    install = ("apply", "mlp", folder, "--state", state, "-o", out)
    for name, weights in (("old", old), ("new", new)):
        run("add", folder, mlp(tmp_path, name, weights), "mlp", "--round", "q4")
        run("publish", folder, "--keys", keys)
        run(*install, *(("--root", folder / "metadata/1.root.json") if name == "old" else ()))
    first, second = (
        parse(p.read_bytes(), p.name)
        for p in sorted((state / "manifests").iterdir(), key=lambda p: p.stat().st_mtime_ns)
    )
    before = set(first.offsets())
    changed = [c for c in second.chunks if c.sha256 not in before]
    assert len(changed) == 2  # the package's head, which has checksums, and both weights
    deltas = [d for c in changed for d in c.deltas if d.codec == "float32-q4"]
    assert 8 * sum(d.bytes for d in deltas) / sum(w.size for w in new.values()) < 4.5
    package = Package.read(FileSource(out))
    for weight in package.manifest["weights"]:
        data = package.source("weights").read(weight["offset"], weight["bytes"])
        was, want = (next(w for w in x.values() if w.nbytes == weight["bytes"]) for x in (old, new))
        error = np.frombuffer(data, "<f4").reshape(want.shape) - want
        assert np.linalg.norm(error) < 0.15 * np.linalg.norm(want - was)
        sums = source_sums(package.source("weights"), weight["offset"], weight["bytes"])
        assert sums == weight["sums"]
