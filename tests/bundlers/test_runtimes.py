"""The same API in Node, Deno and Bun: models are files, and worker threads write and train."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from .conftest import BUNDLERS, MODEL

PACKAGES = BUNDLERS / "node_modules"
RUNTIMES = {
    "node": ["node"],
    "deno": [PACKAGES / "@deno" / "linux-x64-glibc" / "deno", "run", "-A"],
    "bun": [PACKAGES / "@oven" / "bun-linux-x64" / "bin" / "bun"],
}
SCRIPT = """
import { env, fineTune, pipeline } from "edgewise";

process.chdir(FOLDER);
const write = await pipeline("text-generation", "model.edge", { threads: 2 });
const [{ generated_text: text }] = await write("Once", { max_new_tokens: 8, do_sample: false });
const losses = [];
await fineTune(write, "The king of the hill said hello. ".repeat(60), {
  max_steps: 3,
  onStep: ({ loss }) => losses.push(loss),
});
const { flavour, threads } = write.info;
const missing = await pipeline("text-generation", "none.edge").catch((e) => e.name);
await write.dispose();
env.workerUrl = "ends.mjs"; // ends without an error
const ended = await pipeline("text-generation", "model.edge").catch((e) => e.message);
console.log(JSON.stringify({ text, losses, missing, ended, flavour, threads }));
"""


@pytest.mark.parametrize("name", RUNTIMES)
def test_runtime(tmp_path, text, name) -> None:
    command = RUNTIMES[name]
    if not shutil.which(command[0]):
        pytest.skip(f"{name} is not built for this machine")
    shutil.copy(MODEL, tmp_path / "model.edge")
    (tmp_path / "ends.mjs").write_text("process.exit(0);")
    program = BUNDLERS / f"{name}.mjs"
    program.write_text(SCRIPT.replace("FOLDER", json.dumps(str(tmp_path))))
    printed = subprocess.run(
        [*command, program],
        cwd=BUNDLERS,
        env=os.environ | {"DENO_NO_UPDATE_CHECK": "1"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=550,
    ).stdout
    answer = json.loads(printed)
    assert answer["text"] == text and answer["missing"] == "ModelError"
    assert "the worker failed (it ended with code 0)" in answer["ended"]
    assert len(answer["losses"]) == 3 and answer["losses"][2] < answer["losses"][0]
    # threads need no permission outside of browsers, but a build that the runtime can load
    if answer["flavour"] != "simd128":
        assert answer["threads"] == 2
    assert name == "node" or answer["flavour"] == "relaxed-threads"
