"""Pages whose Content-Security-Policy refuses what Edgewise needs: one error says what to allow,
and a session that the page has keeps working.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import BROWSERS, PATIENCE
from .drivers import Browser

SCRIPT = """
    const builds = {};
    const said = (e) => ({ name: e.name, what: e.what, where: e.where, remedy: e.remedy });
    const write = async (p) =>
      (await p("Once", { max_new_tokens: 3, do_sample: false }))[0].generated_text;
    const load = async (build) => {
      builds[build] ??= await import(`/${build}.js`);
      return builds[build].pipeline("text-generation", "/files/model.edge", { threads: 1 });
    };
    window.attempt = async (text) => {
      const { build, before } = JSON.parse(text);
      const first = before && (await load(before));
      const wanted = first && (await write(first));
      const refused = await load(build).then(() => "loaded", said);
      const still = first && (await write(first)) === wanted;
      await first?.dispose();
      return JSON.stringify({ refused, still });
    };
"""
POLICIES = {
    # policy, build, build whose session is open before, words of the remedy
    "no worker": ("worker-src 'none'", "edgewise", None, ["env.workerUrl", "worker-src"]),
    "no worker of a blob": (
        "worker-src 'self'",
        "edgewise.inline",
        "edgewise",
        ["worker-src blob:", "edgewise/files"],
    ),
    "no WebAssembly": (
        "script-src 'self' blob:; worker-src 'self' blob:",
        "edgewise.inline",
        "edgewise",
        ["'wasm-unsafe-eval'"],
    ),
}


@pytest.mark.parametrize("name", list(BROWSERS))
def test_policies(
    name: str, open_browser: Callable[[str], Browser], server: str, files: Path
) -> None:
    (files / "policy.js").write_text(SCRIPT)
    call = "async (text) => window.attempt(text)"
    tab = open_browser(name).tab()
    try:
        for policy, (content, build, before, words) in POLICIES.items():
            page = f"policy-{policy.replace(' ', '-')}.html"
            (files / page).write_text(
                f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{content}">'
                "<link rel=icon href='data:,'><script type=module src=/files/policy.js></script>"
            )
            tab.open(f"{server}/files/{page}")
            arg = json.dumps({"build": build, "before": before})
            got = json.loads(tab.evaluate(call, arg, PATIENCE))
            refused = got["refused"]
            assert refused != "loaded" and refused["name"] == "EngineError", (policy, got)
            assert all(word in refused["remedy"] for word in words), (policy, got)
            assert before is None or got["still"], (policy, got)
    finally:
        tab.close()
