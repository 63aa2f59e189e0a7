"""The engine with 64-bit addresses: the results of the others, also beyond 4 GB."""

import subprocess

import numpy as np
import pytest
from edgewise.host.session.decoder import DecoderModel

from .conftest import ROOT, WEB, greedy

WIDE = "relaxed-threads-64"
GB = 2**30


@pytest.mark.parametrize("threads", [1, 2])
def test_same_text(visit, server, threads):
    v = visit(server)
    asked = {"flavour": WIDE, "threads": threads}
    got = greedy(v, "/files/model.edge", asked)
    assert "error" not in got, got
    assert (got["info"]["flavour"], got["info"]["threads"]) == (WIDE, threads)
    assert got["ids"] == greedy(v, "/files/model.edge", {"threads": threads})["ids"]


@pytest.fixture(scope="module")
def script(files):
    defines = [f'--define:__{x}__="test"' for x in ("VERSION", "COMPILER", "WHEEL")]
    subprocess.run(
        [
            WEB / "node_modules/.bin/esbuild",
            ROOT / "tests/browser/wide.ts",
            *("--bundle", "--format=esm", "--log-level=warning"),
            f"--outfile={files / 'wide.mjs'}",
            *defines,
        ],
        check=True,
    )


def test_beyond_4_gb(visit, server, files, script):
    """All of a model lies above 2^32, and a browser that refuses more memory says so."""
    got = visit(server).run(
        """
            const { play } = await import("/files/wide.mjs");
            const engines = new URL("/engine/", location.href).href;
            return play("/files/model.edge", engines, arg.taken, arg.more);
        """,
        {"taken": 9 * GB // 2, "more": 12 * GB},
    )
    assert got["first"] > 4 * GB
    model = DecoderModel(files / "model.edge")
    sequence = model.open()
    for ids, logits in zip([[1, 2, 3], [4], [5]], got["logits"], strict=True):
        want = model.logits(model.forward(sequence, ids))
        np.testing.assert_allclose(want, logits, rtol=1e-3, atol=1e-3)
    assert "12288 MB" in got["refused"] and "at most 16384 MB" in got["refused"]


@pytest.mark.parametrize(
    "gigabytes, lacks, want",
    [
        (3, "", ["relaxed-threads"]),
        (3.9, "", [WIDE]),
        *((3.9, lacks, ["relaxed-threads"]) for lacks in ("memory64", "room", "file")),
        (5, "", [WIDE]),
        (17, "", ["OutOfMemory", "17408 MB", "at most 16384 MB"]),
        (7, "half", [WIDE]),
        (12, "half", ["OutOfMemory", "12288 MB", "at most 8192 MB"]),
        (5, "memory64", ["OutOfMemory", "5120 MB", "(Chrome 1", "no 64-bit", "Edge 133"]),
        (5, "room", ["OutOfMemory", "5120 MB", "more than 4096 MB", "could not allocate"]),
        (5, "file", ["OutOfMemory", "5120 MB", "more than 4096 MB", "HTTP 404"]),
    ],
)
def test_chosen_by_size(visit, server, script, gigabytes, lacks, want):
    """Only for models that need it, or may need it where it can be had; what no memory holds is
    refused before weights are read.
    """
    got = visit(server).run(
        """
            const { chosen } = await import(`/files/wide.mjs?${JSON.stringify(arg)}`);
            return chosen(new URL("/engine/", location.href).href, arg.bytes, arg.lacks);
        """,
        {"bytes": int(gigabytes * GB), "lacks": lacks},
    )
    assert got == want[0] or len(want) > 1 and all(part in got for part in want), got


def test_file_that_shrinks(visit, server):
    """A file that is shorter than when it was chosen is one error; the whole file is then read."""
    got = visit(server).run(
        """
            const root = await navigator.storage.getDirectory();
            const handle = await root.getFileHandle("chosen.edge", { create: true });
            const whole = await (await fetch("/files/model.edge")).blob();
            const write = async (data) => {
              const out = await handle.createWritable();
              await out.write(data);
              await out.close();
              return handle.getFile();
            };
            const file = await write(whole);
            await write(whole.slice(0, whole.size / 2));
            const errors = [];
            const load = (x) => ew.pipeline("text-generation", x, { flavour: arg });
            await load(file).catch((e) => errors.push(`${e.name}: ${e.message}`));
            const p = await load(await write(whole));
            const [{ generated_text }] = await p("Once", { max_new_tokens: 2 });
            const { flavour } = p.info;
            await p.dispose();
            await root.removeEntry("chosen.edge");
            return { errors, flavour, text: generated_text };
        """,
        WIDE,
    )
    assert len(got["errors"]) == 1 and got["flavour"] == WIDE and got["text"], got
    assert "ModelError" in got["errors"][0] and "could not be read" in got["errors"][0], got
