"""Damaged packages and weights in pages."""

import base64
import hashlib
import json
import random

import pytest

from .conftest import edit_package, greedy
from .loading import error

# Damaged packages


# long: a table of mutations
def mutations(package):
    """(description, edit): values of a package replaced by other types and extremes, names of
    missing parts, and invalid plans.
    """

    def at(*path):
        def change(value):
            def edit(m):
                here = m
                for key in path[:-1]:
                    here = here[key]
                here[path[-1]] = value

            return edit

        return change

    numbers = [-1, 1.5, 2**31, 2**32, 2**53, 1e300, "1", None, [], True]
    places = [
        ("format",),
        ("table_hash",),
        ("files", "weights", 0),
        ("files", "weights", 1),
        ("files", "plan/1", 0),
        ("files", "plan/1", 1),
        ("weights", 0, "offset"),
        ("weights", 0, "bytes"),
        ("decoder", "capacity"),
        ("decoder", "vocab_size"),
        ("decoder", "caches", 0, "bytes"),
        ("decoder", "plans", 0, "tokens"),
        ("decoder", "plans", 0, "registers", "past"),
        ("decoder", "plans", 0, "slots", 0, "bytes"),
        ("decoder", "plans", 1, "slots", 3, "bytes"),
    ]
    pick = random.Random(1)
    for place in places:
        for value in pick.sample(numbers, 2):
            yield f"{place} = {value!r}", at(*place)(value)
    for place, value in (
        (("weights", 0, "name"), "x"),
        (("weights", 0, "file"), "../../etc/passwd"),
        (("weights", 0, "file"), "tokenizer.json"),
        (("decoder", "plans", 0, "file"), "plan/99"),
        (("decoder", "plans"), []),
        (("decoder", "plans", 0, "slots"), []),
        (("decoder", "caches"), []),
        (("decoder",), None),
        (("weights",), {}),
        (("files",), []),
        (("task",), "text-to-image"),
        (("decoder", "plans", 0, "slots", 0, "kind"), "__proto__"),
        (("decoder", "logits_type"), "float64"),
        (("decoder", "cache_dtype"), "int8"),
        (("files", "plan/1"), [0, 10]),
    ):
        yield f"{place} = {value!r}", at(*place)(value)
    yield "a manifest of nothing", b"null"
    yield "a manifest that is not JSON", b"{" * 5000
    yield "a deep manifest", b"[" * 200_000
    yield "a manifest that is not UTF-8", b"\xff\xfe" * 50
    yield (
        "a manifest of 2^60 bytes",
        [[8 + i, byte] for i, byte in enumerate((2**60).to_bytes(8, "little"))],
    )
    length = int.from_bytes(package[8:16], "little")
    manifest, start = json.loads(package[16 : 16 + length]), -(-(16 + length) // 64) * 64
    for name in ("plan/1", "plan/16", "plan/128"):
        offset, size = manifest["files"][name]
        for _ in range(6):
            yield (
                f"bytes of {name}",
                (
                    name,
                    offset,
                    size,
                    [
                        [pick.randrange(size), pick.randrange(256)]
                        for _ in range(pick.choice([1, 1, 2, 8]))
                    ],
                ),
            )
    position = start + manifest["files"]["plan/1"][0] + 500
    yield "a plan that its checksum knows", [[position, package[position] ^ 255]]
    for _ in range(8):
        yield "cut off", pick.randrange(len(package))


def as_parts(package, edit):
    """An edit as the page applies it: [first bytes, offset of the remaining bytes, bytes to change,
    length].
    """
    if isinstance(edit, list):
        return [[], 0, edit, len(package)]
    if isinstance(edit, int):
        return [[], 0, [], edit]
    if isinstance(
        edit, tuple
    ):  # bytes of a plan, with a correct checksum: whoever changes a plan can also change that
        name, offset, size, changes = edit
        data = -(-(16 + int.from_bytes(package[8:16], "little")) // 64) * 64
        plan = bytearray(package[data + offset : data + offset + size])
        for at, byte in changes:
            plan[at] = byte
        head, origin, _, length = as_parts(
            package, lambda m: m["sha256"].update({name: hashlib.sha256(plan).hexdigest()})
        )
        return [head, origin, [[len(head) + offset + at, byte] for at, byte in changes], length]
    whole = edit_package(package, edit if callable(edit) else lambda m: edit)
    data = -(-(16 + int.from_bytes(package[8:16], "little")) // 64) * 64
    head = len(whole) - (len(package) - data)
    return [list(whole[:head]), data, [], len(whole)]


def test_hostile_packages(visit, server, package):
    """The load fails with an EdgewiseError or the change has no effect; an existing pipeline still
    works.
    """
    v = visit(server)
    v.run(
        "window.p = await ew.pipeline('text-generation', '/files/model.edge'); window.before ="
        " (await p('Once', {max_new_tokens: 8, do_sample: false}))[0].generated_text;"
    )
    outcomes = {}
    v.page.evaluate(
        "(text) => { window.base = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)); }",
        base64.b64encode(package).decode(),
    )
    for what, edit in mutations(package):
        got = v.page.evaluate(
            """
                async ([head, from, edits, length]) => {
                  const bytes = new Uint8Array(
                    await new Blob([new Uint8Array(head), base.slice(from)]).arrayBuffer(),
                  ).slice(0, length);
                  for (const [at, byte] of edits) bytes[at] = byte;
                  try {
                    const q = await ew.pipeline(
                      "text-generation",
                      new File([bytes], "hostile.edge"),
                      { threads: 1 },
                    );
                    try {
                      await q("Once", { max_new_tokens: 2, do_sample: false, max_time: 5 });
                      return "fine";
                    } finally {
                      await q.dispose();
                    }
                  } catch (e) {
                    return e instanceof ew.EdgewiseError && e.what && e.name !== "EdgewiseError"
                      ? e.name
                      : `not ours: ${e.name} ${e.message} ${e.stack}`;
                  }
                }
            """,
            as_parts(package, edit),
        )
        assert not got.startswith("not ours"), (what, got)
        if not what.startswith("bytes of"):
            assert got != "fine", what
        outcomes[got] = outcomes.get(got, 0) + 1
    print(outcomes)
    after = v.run(
        "const t = (await p('Once', {max_new_tokens: 8, do_sample: false}))[0].generated_text;"
        " await p.dispose(); return t === before"
    )
    assert after is True


# Damaged weights


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
