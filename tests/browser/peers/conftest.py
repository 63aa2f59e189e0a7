"""Snippets that run in a library whose API we follow, and in Edgewise: the results are equal.

Those of the library are recorded. Where it is installed, as `make peers` does, it runs beside
Edgewise, and what is recorded must be what it says.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from ..conftest import ROOT

RECORDED = Path(__file__).parent / "recorded"
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
    """peers("package/folder"): serves a folder of a library; returns its address, None if it is
    not installed.
    """

    def serve(folder):
        there = files / "peers" / folder
        if not (MODULES / folder).is_dir():
            return None
        if not there.exists():
            shutil.copytree(MODULES / folder, there)
        return f"/files/peers/{folder}"

    return serve


@pytest.fixture
def compared(visit, server, peers):
    """compared(name, module, snippets, ours): checks that the snippets have the same results in the
    library and in Edgewise, or fail with the same class of JavaScript's; an Error stands for any.

    name: of the recorded results. module: path of the library's module; ours: of Edgewise's.
    """

    def results(url, snippets):
        body = f"const lib = await import({url!r});" + RUN
        got = visit(server, alone=True).run(body, {"snippets": snippets})
        assert "error" not in got, got
        return got

    def check(name, module, snippets, ours):
        folder, _, file = module.rpartition("/")
        recorded = RECORDED / f"{name}.json"
        address = peers(folder)
        if address:
            theirs = results(f"{address}/{file}", snippets)
            if os.environ.get("EDGEWISE_RECORD"):
                lines = ",\n".join(map(json.dumps, theirs))
                recorded.write_text(f"[\n{lines}\n]\n")
        told = json.loads(recorded.read_text())
        assert not address or told == theirs, "record again: EDGEWISE_RECORD=1"
        wrong = [
            f"{snippet}\n  theirs {a}\n  ours   {b}"
            for snippet, a, b in zip(snippets, told, results(ours, snippets), strict=True)
            if a != b and not (a == {"throws": "Error"} and b.keys() == a.keys())
        ]
        assert not wrong, "\n".join(wrong)

    return check
