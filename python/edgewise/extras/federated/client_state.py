"""What a client must not lose: its token, the weights that it has, a finished update, and what its
updates have rounded away.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...atomic_file import atomic_file, remove_unfinished
from ...compiler.declare.dtypes import FLOAT, UINT8
from ...compiler.training.safetensors import load_safetensors, save_safetensors
from ...errors import EdgewiseError, StorageError
from ...logic.federated.requests import Finished, Secrets, State
from .codec import Floats, Schema

FILE = "client.safetensors"
FORMAT = "edgewise.federated.client.1"


class ClientState(State):
    """The state of a client, in memory and, with a folder, in one file that is replaced as a whole.

    Attributes:
        token, have, finished, summed: see edgewise.logic.federated.requests.State.
        values: the weights of the last task.
        left: rounding errors of the updates that counted.
        kept: {run: state of the optimizer after the last update that counted}.
        spent: {context of a plan: noise} of the groups that got an update with noise, see
            logic/federated/budget.py. Names of groups are the hub's choice, and may be given twice.
    """

    def __init__(self, folder: str | None, schema: Schema) -> None:
        self.path = None if folder is None else os.path.join(folder, FILE)
        self.schema = schema
        super().__init__(None, None, None, {})
        self.values: dict[str, Floats] = {}
        self.left: dict[str, Floats] = {}
        self.kept: dict[str, bytes] = {}
        self.spent: dict[str, float] = {}
        self._next_left: dict[str, Floats] = {}
        self._next_kept: dict[str, bytes] = {}
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
            self._load()

    def receive(self, values: dict[str, Floats]) -> None:
        """New weights have arrived."""
        self.values, self._next_left, self._next_kept = values, {}, {}

    def next(self, left: dict[str, Floats], kept: Mapping[str, bytes]) -> None:
        """An update was made; `left` is what it has rounded away, `kept` as the attribute."""
        self._next_left, self._next_kept = left, dict(kept)

    def accepted(self) -> None:
        """The update counts."""
        self.left, self._next_left = self._next_left or self.left, {}
        self.kept, self._next_kept = self._next_kept or self.kept, {}

    @classmethod
    def alone(cls, folder: str, schema: Schema) -> ClientState:
        """The state in a folder that no other process uses now."""
        remove_unfinished(folder)
        return cls(folder, schema)

    def save(self) -> None:
        """Writes the file.

        Raises:
            StorageError: it cannot be written.
        """
        if self.path is None:
            return
        tensors: dict[str, Any] = {}
        for part, values in (
            ("values", self.values),
            ("left", self.left),
            ("next", self._next_left),
        ):
            for name, x in values.items():
                tensors[f"{part}/{name}"] = FLOAT, x.shape, np.ascontiguousarray(x).tobytes()
        for part, kept in (("kept", self.kept), ("next kept", self._next_kept)):
            for run, data in kept.items():
                tensors[f"{part}/{run}"] = UINT8, (len(data),), data
        record: dict[str, Any] = {
            "format": FORMAT,
            "schema": self.schema.sha256,
            "token": self.token,
            "have": self.have,
            "summed": self.summed,
            "spent": self.spent,
        }
        if self.finished is not None:
            f = self.finished
            tensors["finished"] = UINT8, (len(f.data),), f.data
            record["finished"] = {
                "key": f.key,
                "examples": f.examples,
                "steps": f.steps,
                "metrics": f.metrics,
                "seed": f.secure.seed.hex() if f.secure else "",
                "agreed": f.secure.agreed if f.secure else {},
            }
        record["sha256"] = {name: _sha256(data) for name, (_, _, data) in tensors.items()}
        text = json.dumps(record)
        metadata = {"client": text, "sha256": _sha256(text.encode())}
        try:
            with atomic_file(self.path, private=True) as file:  # the token and the seed
                save_safetensors(tensors, file, metadata)
        except OSError as e:
            what = f"the state of the client cannot be stored ({e.strerror or e})"
            remedy = "Check the folder and the free disk space."
            raise StorageError(what, self.path, remedy) from None

    def _load(self) -> None:
        """Reads the file, if it is there and of this model. What is damaged is not used."""
        assert self.path is not None
        if not os.path.exists(self.path):
            return
        try:
            with open(self.path, "rb") as file:
                tensors, metadata = load_safetensors(file.read())
            text = metadata["client"]
            if metadata["sha256"] != _sha256(text.encode()):
                raise ValueError
        except (EdgewiseError, KeyError, ValueError):
            _warn(self.path, "the client begins anew, and has forgotten the noise of its groups")
            return
        record = json.loads(text)
        if record.get("format") != FORMAT or record.get("schema") != self.schema.sha256:
            return
        self.token, self.have = record["token"], record["have"]
        whole = {
            name: tensors[name]
            for name, sha256 in record["sha256"].items()
            if name in tensors and _sha256(tensors[name].bytes()) == sha256
        }
        if damaged := record["sha256"].keys() - whole.keys():
            lost = sorted({LOST[n.split("/")[0]] for n in damaged})
            _warn(self.path, f"not used: {', '.join(lost)}")
        if any(n.startswith("values/") for n in damaged):  # they are fetched as a whole
            self.have = None
        self.values = self._read(whole, "values")
        self.left = self._read(whole, "left")
        self._next_left = self._read(whole, "next")
        self.kept, self._next_kept = (
            {k.removeprefix(p): t.bytes() for k, t in whole.items() if k.startswith(p)}
            for p in ("kept/", "next kept/")
        )
        self.summed, self.spent = record["summed"], record["spent"]
        found = record.get("finished")
        if found and "finished" in whole:
            data, key = whole["finished"].bytes(), found["key"]
            seed = bytes.fromhex(found["seed"])
            self.finished = Finished(
                key if isinstance(key, str) else " ".join(map(str, key)),  # of older versions
                data,
                "" if seed else _sha256(data),
                found["examples"],
                found["steps"],
                found["metrics"],
                Secrets(seed, found["agreed"]) if seed else None,
            )

    def _read(self, tensors: Any, part: str) -> dict[str, Floats]:
        return {
            n: np.frombuffer(tensors[key].bytes(), np.float32).reshape(shape)
            for n, shape in self.schema.shapes.items()
            if (key := f"{part}/{n}") in tensors
        }


LOST = {
    "values": "the weights",
    "left": "what updates have rounded away",
    "next": "what updates have rounded away",
    "kept": "the optimizer, training begins with a new one",
    "next kept": "the optimizer, training begins with a new one",
    "finished": "the last update",
}
"""What the tensors of a state are."""


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _warn(path: str, what: str) -> None:
    warnings.warn(f"{path}: the state of the client is damaged ({what})", stacklevel=4)
