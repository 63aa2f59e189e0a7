"""External data that is missing, truncated, damaged or outside of the model's folder."""

import os

import edgewise
import numpy as np
import pytest
from edgewise.errors import ModelError

from .runs import run, session
from .seeds import small
from .wire import Message


# ---- external data ----
def external(**entries):
    data, siblings = small()["external"]
    m = Message.parse(data)
    t = next(x for x in m.walk() if x.kind == "Tensor")
    for f in t.fields:
        if f[0] == 13:
            key = f[2].get(1).decode()
            if key in entries:
                f[2].fields[1][2] = (
                    entries[key].encode() if isinstance(entries[key], str) else entries[key]
                )
    return m.bytes(), siblings


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "-1"},
        {"offset": "65"},
        {"length": "1"},
        {"length": "999999999999999999999999"},
        {"offset": "x"},
        {"offset": ""},
        {"length": "-256"},
        {"offset": "9" * 5000},
        {"location": ""},
        {"location": "other.bin"},
        {"location": b"\xff\xfe"},
    ],
)
def test_external_entries(entries, refused):
    data, siblings = external(**entries)
    refused(lambda: session(data, siblings), ModelError)


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "/etc/passwd",
        "sub/../../secret.bin",
        "link/secret.bin",
        "sub",
        ".",
        "..",
        "weights.bin\0",
        "a" * 5000,
        "nothing.bin",
        "~/x",
        "sub/./../../folder/../secret.bin",
    ],
)
def test_external_data_stays_in_the_folder(location, tmp_path, refused):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(bytes(320))
    (folder / "link").symlink_to(tmp_path)
    (folder / "model.onnx").write_bytes(external(location=location)[0])
    refused(lambda: edgewise.InferenceSession(str(folder / "model.onnx")), ModelError)


@pytest.mark.parametrize("name", ["pipe", "zero", "self", "memory", "proc", "folder"])
def test_external_data_is_a_regular_file(name, tmp_path, refused):
    """An archive can hold pipes, and links to devices: none is waited for, or read without end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for link, to in (
        ("zero", "/dev/zero"),
        ("self", "self"),
        ("memory", "/dev/mem"),
        ("proc", "/proc/self/mem"),
    ):
        (tmp_path / link).symlink_to(to)
    (tmp_path / "model.onnx").write_bytes(external(location=name)[0])
    refused(lambda: edgewise.InferenceSession(str(tmp_path / "model.onnx")), ModelError)


@pytest.mark.parametrize(
    "entries", [("0", str(1 << 64)), (str((1 << 63) - 1), "256"), ("65", "256")]
)
def test_external_data_beyond_its_file(entries, tmp_path, refused):
    data, siblings = external(offset=entries[0], length=entries[1])
    (tmp_path / "model.onnx").write_bytes(data)
    (tmp_path / "weights.bin").write_bytes(siblings["weights.bin"])
    refused(lambda: edgewise.InferenceSession(str(tmp_path / "model.onnx")), ModelError)


def test_external_data_through_links(tmp_path):
    """The layout of download caches: each file of the folder is a link to a blob outside of it.
    Also a folder that is itself reached through a link.
    """
    data, siblings = small()["external"]
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    folder.mkdir()
    for name, content in (("model.onnx", data), ("weights.bin", siblings["weights.bin"])):
        (blobs / f"blob-{name}").write_bytes(content)
        (folder / name).symlink_to(blobs / f"blob-{name}")
    (tmp_path / "through").symlink_to(folder)
    nested = tmp_path / "through" / "sub"
    nested.mkdir()
    (nested / "weights.bin").write_bytes(siblings["weights.bin"])
    (folder / "nested.onnx").write_bytes(external(location="sub/weights.bin")[0])
    x = np.eye(8, dtype="f4")
    want = run(data, siblings, x=x)[0]
    for path in (
        folder / "model.onnx",
        tmp_path / "through" / "model.onnx",
        tmp_path / "through" / "nested.onnx",
    ):
        assert np.array_equal(edgewise.InferenceSession(str(path)).run(None, {"x": x})[0], want)


def test_external_data_truncated_later(tmp_path, refused):
    data, siblings = small()["external"]
    (tmp_path / "model.onnx").write_bytes(data)
    for n in (0, 64, 319):
        (tmp_path / "weights.bin").write_bytes(siblings["weights.bin"][:n])
        refused(
            lambda: edgewise.InferenceSession(str(tmp_path / "model.onnx")),
            ModelError,
            "weights.bin",
        )
    os.unlink(tmp_path / "weights.bin")
    refused(lambda: edgewise.InferenceSession(str(tmp_path / "model.onnx")), ModelError, "missing")
