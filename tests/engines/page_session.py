"""A page's InferenceSession in Node, with the API of Python's, and its TrainingSession: tests run
the same models in both hosts, and CPython answers what Pyodide would.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import numpy as np
from edgewise import errors
from edgewise.arrays import as_input, as_output, as_strings, holds_strings
from edgewise.compiler.declare.dtypes import CODE, NAME
from edgewise.extras.onnxruntime_training.artifact_files import calls as artifact_calls
from edgewise.host.session import NodeArg, inference_calls
from edgewise.onnx import BytesSource

ROOT = Path(__file__).parents[2]
DEFINES = ("VERSION", "COMPILER", "WHEEL")  # of web/bundle.mjs
_process = None


def _host():
    """One Node process for all sessions, which come one after the other."""
    global _process
    if _process is None or _process.poll() is not None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")  # each process writes its own
        out = ROOT / ".build" / f"page_host-{worker}.mjs"
        esbuild = ROOT / "web/node_modules/.bin/esbuild"
        source = ROOT / "tests/engines/page_host.ts"
        defines = [f'--define:__{name}__="test"' for name in DEFINES]
        subprocess.run(
            [
                esbuild,
                source,
                "--bundle",
                "--format=esm",
                "--platform=node",
                f"--outfile={out}",
                "--log-level=warning",
                *defines,
            ],
            check=True,
        )
        engines = (ROOT / "web/dist/engine").as_uri() + "/"
        _process = subprocess.Popen(
            ["node", out, engines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    return _process


def close():
    """Ends the process."""
    global _process
    if _process is not None:
        _process.stdin.close()
        _process.wait()
        _process = None


class _Page:
    """Asks the process, and answers what it asks of Python. asked: that, in order."""

    def _call(self, message):
        process = _host()
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        while True:
            answer = json.loads(process.stdout.readline())
            if "ask" in answer:
                self.asked.append(answer["ask"]["call"])
                process.stdin.write(json.dumps(_python(answer)) + "\n")
                process.stdin.flush()
            elif "error" in answer:
                e = answer["error"]
                raise getattr(errors, e["name"])(
                    e["what"] + (f" {e['stack']}" if "Mistake" in e["remedy"] else ""),
                    e["where"],
                    e["remedy"],
                )
            else:
                return answer["value"]


class PageTraining(_Page):
    """A page's TrainingSession. files: {"checkpoint", "train", "eval", "optimizer": bytes}."""

    def __init__(self, **files: bytes):
        self.asked = []
        self.info = self._call({"artifacts": {name: _text(data) for name, data in files.items()}})

    def step(self, kind: str, feeds: dict) -> dict:
        """A pass over a batch: kind "train" or "eval". Returns {output: array}."""
        out = self._call(
            {"step": {"kind": kind, "feeds": {n: _encoded(x) for n, x in feeds.items()}}}
        )
        return {n: _decoded(v) for n, v in out.items()}

    def update(self):
        """The optimizer's step."""
        self._call({"update": True})

    def reset(self):
        """The next step begins with gradients of zero."""
        self._call({"reset": True})

    def save(self) -> bytes:
        """A checkpoint's bytes."""
        return base64.b64decode(self._call({"save": True}))

    def export(self, outputs: list) -> bytes:
        """The evaluation model's bytes, up to these outputs."""
        return base64.b64decode(self._call({"export": outputs}))


class PageSession(_Page):
    """As edgewise.InferenceSession."""

    def __init__(self, data: bytes, *, cache: bool = False, engine=None, **options):
        self.asked = []
        bounds = {
            "max_loop_trips": 1 << 20,
            "max_compilations": 1 << 14,
            "max_memory_bytes": 1 << 31,
            **options,
        }
        self.info = self._call({"open": _text(data), "options": {"cache": cache, **bounds}})
        self.outputs = {o["name"]: o for o in self.info["outputs"]}

    def run(self, names, feeds, abort=None, pinned=None, copied=None):
        """As InferenceSession.run. abort: milliseconds after which the run is to end. pinned: names
        of outputs that stay; they come as {"pinned": ...}. copied: names of outputs of which the
        engine keeps a copy, too. Sets `used`, bytes that the engine holds afterwards, `driven`, the
        runs that the driver has made, and `copies`, {name: the copy, as one that stays}.
        """
        names = list(names or self.outputs)
        message = {
            "feeds": {n: _encoded(x) for n, x in feeds.items()},
            "outputs": names,
            "pinned": pinned,
            "copied": copied,
        }
        value = self._call({"run": message if abort is None else {**message, "abort": abort}})
        self.used, self.driven = value["used"], value["driven"]
        self.copies = {
            n: {"type": v["type"], "dims": v["dims"], "pinned": v["keep"]}
            for n, v in zip(names, value["outputs"], strict=True)
            if v and "keep" in v
        }
        return [
            feeds[v["fed"]] if isinstance(v, dict) and "fed" in v else _decoded(v)
            for v in value["outputs"]
        ]

    def read(self, pinned):
        """An output that stayed."""
        return _decoded({**pinned, "data": self._call({"read": pinned["pinned"]})})

    def drop(self, *pinned):
        """Lets go of outputs that stayed; gives the bytes that are in use then."""
        return self._call({"drop": [p["pinned"] for p in pinned]})

    def kept(self, **instead: bytes) -> dict[str, bytes]:
        """Replaces files of the browser's storage; returns all of them."""
        held = self._call({"kept": {name: _text(data) for name, data in instead.items()}})
        return {name: base64.b64decode(data) for name, data in held.items()}

    def get_inputs(self):
        """As InferenceSession.get_inputs, names alone."""
        return [NodeArg(i["name"], "", []) for i in self.info["inputs"]]

    def get_outputs(self):
        """Likewise."""
        return [NodeArg(o["name"], "", []) for o in self.info["outputs"]]

    def free(self):
        """As InferenceSession.free."""


def _python(answer):
    try:
        files = {n: BytesSource(base64.b64decode(b), n) for n, b in answer["files"].items()}
        manifest, blobs = (
            inference_calls if answer["ask"].get("of") == "inference" else artifact_calls
        ).call(files, answer["ask"])
        return {"manifest": manifest, "files": {n: _text(b) for n, b in blobs.items()}}
    except errors.EdgewiseError as e:
        return {
            "error": {
                "name": type(e).__name__,
                "what": e.what,
                "where": e.where,
                "remedy": e.remedy,
                "stack": "",
                "fields": {},
            }
        }


def _text(data):
    return base64.b64encode(bytes(data)).decode()


def _encoded(x):
    if x is None or isinstance(x, dict) and "pinned" in x:
        return x
    if isinstance(x, list) and (not x or not isinstance(x[0], str)):
        return {"sequence": [_encoded(v) for v in x]}
    if isinstance(x, dict):
        return {"map": [[k, v.item() if hasattr(v, "item") else v] for k, v in x.items()]}
    if holds_strings(x):
        shape, strings = as_strings(x, "")
        return {"type": "string", "dims": list(shape), "strings": strings}
    dtype, shape, data = as_input(x, "")
    return {"type": NAME[dtype], "dims": list(shape), "data": _text(data)}


def _decoded(v):
    if v is None or "pinned" in v and "data" not in v:
        return v
    if "sequence" in v:
        return [_decoded(x) for x in v["sequence"]]
    if "map" in v:
        of = str if v["value"] == "string" else float if v["value"].startswith("float") else int
        return {(k if v["key"] == "string" else int(k)): of(x) for k, x in v["map"]}
    if v["type"] == "string":
        return np.array(v["strings"], object).reshape(v["dims"])
    return np.asarray(as_output(CODE[v["type"]], v["dims"], base64.b64decode(v["data"])))
