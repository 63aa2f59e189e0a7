"""Pages in which a library whose API we follow runs beside Edgewise: both run the same snippets.

The libraries are those that the benchmark compares with; `make peers` installs them. Without them
these tests are skipped.
"""

import shutil

import pytest

from ..conftest import ROOT

MODULES = ROOT / ".build" / "bench" / "node" / "node_modules"

# What a snippet returns, as JSON: tensors by type, shape and elements, errors by the class of
# JavaScript that a caller can catch.
RUN = """
    const seen = (x) => {
      if (typeof x === "bigint") return `${x}n`;
      if (typeof x === "number") return Number.isFinite(x) ? Math.fround(x) : String(x);
      if (Array.isArray(x) || ArrayBuffer.isView(x)) return Array.from(x, seen);
      if (x && typeof x.type === "string" && Array.isArray(x.dims))
        return { type: x.type, dims: x.dims, data: seen(x.data), in: x.data.constructor.name };
      if (x && typeof x === "object")
        return Object.fromEntries(Object.entries(x).map(([name, y]) => [name, seen(y)]));
      return x;
    };
    const kinds = [TypeError, RangeError];
    const results = [];
    const make = Object.getPrototypeOf(async function () {}).constructor;
    for (const snippet of arg.snippets)
      try {
        results.push(seen(await new make("lib", snippet)(lib)));
      } catch (e) {
        results.push({ throws: (kinds.find((kind) => e instanceof kind) ?? Error).name });
      }
    return results;
"""


@pytest.fixture(scope="session")
def peers(files):
    """peers("package/folder"): serves a folder of a library; returns its address."""

    def serve(folder):
        if not (MODULES / folder).is_dir():
            pytest.skip("`make peers` installs the libraries that we are compared with")
        there = files / "peers" / folder
        if not there.exists():
            shutil.copytree(MODULES / folder, there)
        return f"/files/peers/{folder}"

    return serve


@pytest.fixture
def both(visit, server, peers):
    """both(module, snippets, ours): the results of the same snippets in the library and in
    Edgewise. module: path of the library's; ours: of Edgewise's.
    """

    def run(module, snippets, ours="/edgewise.js"):
        folder, _, name = module.rpartition("/")
        address = f"{peers(folder)}/{name}"
        results = []
        for url in (address, ours):
            body = f"const lib = await import({url!r});" + RUN
            got = visit(server, alone=True).run(body, {"snippets": snippets})
            assert "error" not in got, got
            results.append(got)
        return results

    return run


def compared(both, module, snippets, ours="/edgewise.js"):
    theirs, own = both(module, snippets, ours)
    wrong = [
        f"{snippet}\n  theirs {a}\n  ours   {b}"
        for snippet, a, b in zip(snippets, theirs, own, strict=True)
        if a != b
    ]
    assert not wrong, "\n".join(wrong)
