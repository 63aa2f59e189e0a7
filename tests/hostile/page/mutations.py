"""Mutations of a package of a language model, for pages and for their reader in Node."""

import hashlib
import json
import random
from collections.abc import Iterator

from browser.conftest import edit_package


# long: a table of mutations
def mutations(package: bytes):
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
        (("decoder", "caches", 0, "rows"), [1]),
        (("decoder", "caches", 0, "rows"), [0, 2**53 - 1]),
        (("decoder", "caches", 0, "rows"), [-1, -1]),
        (("decoder", "caches", 0, "fixed"), True),
        (("decoder",), None),
        (("weights",), {}),
        (("files",), []),
        (("task",), "text-to-nothing"),
        (("decoder", "plans", 0, "slots", 0, "kind"), "__proto__"),
        (("decoder", "logits_type"), "float64"),
        (("decoder", "cache_dtype"), "int16"),
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


def mutated(package: bytes, edit) -> bytes:
    """The package with an edit of `mutations`."""
    data = bytearray(package)
    if isinstance(edit, int):
        return package[:edit]
    if isinstance(edit, list):
        for at, byte in edit:
            data[at] = byte
        return bytes(data)
    if not isinstance(edit, tuple):
        return edit_package(package, edit if callable(edit) else lambda m: edit)
    # bytes of a plan, with a correct checksum: whoever changes a plan can also change that
    name, offset, size, changes = edit
    start = -(-(16 + int.from_bytes(package[8:16], "little")) // 64) * 64 + offset
    for at, byte in changes:
        data[start + at] = byte
    digest = hashlib.sha256(data[start : start + size]).hexdigest()
    return edit_package(bytes(data), lambda m: m["sha256"].update({name: digest}))


def damaged(package: bytes) -> Iterator[tuple[str, bytes]]:
    """Returns (description, mutated package)."""
    for what, edit in mutations(package):
        yield what, mutated(package, edit)
