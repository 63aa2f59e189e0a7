"""Damaged weights in pages. (Damaged manifests and plans: tests/browsers/test_hostile.py and
tests/hostile/test_readers.py.)
"""

import json

import pytest

from ..conftest import greedy
from ..loading import error


def flipped(package, which):
    """The package with one flipped bit in a weight; and the name of the weight."""
    length = int.from_bytes(package[8:16], "little")
    manifest, start = json.loads(package[16 : 16 + length]), -(-(16 + length) // 64) * 64
    weight = manifest["weights"][which]
    broken = bytearray(package)
    broken[start + manifest["files"]["weights"][0] + weight["offset"] + weight["bytes"] // 2] ^= 4
    return bytes(broken), weight["name"]


@pytest.mark.parametrize("keep", [False, True], ids=["fetched", "kept"])
def test_damaged_weights(visit, server, files, package, keep):
    """A bit of a weight flips in transfer: an error names the file and the weight, nothing is
    stored, and the next load succeeds.
    """
    (files / "passing.edge").write_bytes(package)
    v = visit(server)
    good = greedy(v, "/files/passing.edge")
    for which in (0, -1):
        broken, name = flipped(package, which)
        (files / "passing.edge").write_bytes(broken)
        got = greedy(v, "/files/passing.edge", {"cache_files": keep})
        error(got, "PackageError", name, "checksum", "passing.edge")
        assert v.run("return (await ew.cacheBytes()).files") == 0
        (files / "passing.edge").write_bytes(package)
        assert greedy(v, "/files/passing.edge", {"cache_files": keep})["ids"] == good["ids"]
        v.run("await ew.clearCache()")


def test_damaged_stored_weights(visit, server, files, package):
    """A stored weight is damaged: the next visit detects it, deletes the file and fetches
    it again.
    """
    (files / "stored.edge").write_bytes(package)
    v = visit(server)
    good = greedy(v, "/files/stored.edge", {"cache_files": True})
    assert len(v.asked("stored.edge")) == 1
    assert v.run("""
        const dir = await (
          await (await navigator.storage.getDirectory()).getDirectoryHandle("edgewise")
        ).getDirectoryHandle("files");
        for await (const entry of dir.values()) {
          if (!entry.name.endsWith(".data")) continue;
          const bytes = new Uint8Array(await (await entry.getFile()).arrayBuffer());
          bytes[bytes.length - 5000] ^= 1;
          const out = await entry.createWritable();
          await out.write(bytes);
          await out.close();
          return bytes.length;
        }
    """) == len(package)
    w = visit(server)
    error(
        greedy(w, "/files/stored.edge", {"cache_files": True}),
        "PackageError",
        "checksum",
        "stored.edge",
    )
    assert greedy(w, "/files/stored.edge", {"cache_files": True})["ids"] == good["ids"]
    assert len(w.asked("stored.edge")) == 1, "it is fetched again"
