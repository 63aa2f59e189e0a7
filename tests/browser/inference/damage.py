"""Damage to a stored package with the plans of a model, and packages that others may have written:
{description: function that changes the package}.
"""

from ..conftest import edit_package


def flipped(data):
    """Flips one bit of the plan, which is the first part."""
    at = -(-(16 + int.from_bytes(data[8:16], "little")) // 64) * 64 + 100
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def changed(change):
    def of(data):
        def edit(manifest):
            manifest["sha256"] = {}  # whoever changes a part can also change its checksum
            change(manifest)

        return edit_package(data, edit)

    return of


def _slot(manifest, kind):
    return next(s for s in manifest["inference"]["plans"][0]["slots"] if s["kind"] == kind)


def _plan(**fields):
    return lambda m: m["inference"]["plans"][0].update(fields)


DAMAGE = {
    "cut off": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "another file": lambda data: b"<!doctype html>" * 100,
    "a flipped bit in the plan": flipped,
    "no cache entry": changed(lambda m: m.pop("cache")),
    "marks that are none": changed(lambda m: m["cache"].update(marks=7)),
    "a mark of a file elsewhere": changed(
        lambda m: m["cache"]["marks"].update({"//localhost:9/x": "1", "../x": "2"})
    ),
    "a mark of a file that is not there": changed(
        lambda m: m["cache"]["marks"].update({"none.bin": "1"})
    ),
    "a mark of no file at all": changed(lambda m: m["cache"]["marks"].update({"\ud800": "1"})),
    "ranges that are none": changed(lambda m: m["cache"].update(ranges=None)),
    "no plans": changed(lambda m: m["inference"].update(plans=[])),
    "an input's slot that is too short": changed(lambda m: _slot(m, "input").update(bytes=4)),
    "numbers of an input that is none": changed(_plan(known={"y": ["1"]})),
    "a plan for an input that is none": changed(
        lambda m: m["inference"]["plans"][0]["inputs"].update(y=["float32", [1]])
    ),
    "weights beyond the file": changed(lambda m: [w.update(offset=1 << 30) for w in m["weights"]]),
    "more weights than there is memory": changed(
        lambda m: m["weights"].append(
            {"name": "more", "file": "//constants", "offset": 0, "bytes": 1 << 40}
        )
    ),
    "constants that are not there": changed(
        lambda m: [w.update(file="//constants") for w in m["weights"]]
    ),
    "a plan that is none": changed(
        lambda m: m["files"].update(
            {"plan/0": m["files"]["//notes/plan/0"], "//notes/plan/0": m["files"]["plan/0"]}
        )
    ),
    "another table of kernels": changed(lambda m: m.update(table_hash=1)),
    "a language model": changed(lambda m: m.update(task="text-generation")),
}

# the damage that concerns the model's files, which a page fetches
OF_FILES = [how for how in DAMAGE if "mark" in how or how in ("cut off", "weights beyond the file")]
