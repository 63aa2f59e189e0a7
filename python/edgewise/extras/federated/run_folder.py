"""The folder of a run.

run.json              the settings
initial.safetensors   the weights at the beginning
state.safetensors     what the next round needs, in float64
weights.safetensors   the weights after the last round, in float32; with LoRA:
adapter/              the same as an adapter in PEFT's layout
rounds.jsonl          a line for each round: who took part, who was refused and why
privacy.json          rounds with noise that have begun, and whether the budget has ended the run
barred.json           clients that an audit has shut out, or that are left out of secure sums:
                      SHA-256 of their tickets, and why
ended                 empty: the clients were given the last weights
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...atomic_file import atomic_file, remove_unfinished
from ...compiler.declare.dtypes import DOUBLE, FLOAT
from ...compiler.training.peft import Adapter, LoraConfig, save_adapter
from ...compiler.training.safetensors import load_safetensors, save_safetensors
from ...errors import InputError, ModelError, StorageError
from ...json_text import parse_json
from ...locks import locked
from .codec import Schema, Values
from .settings import Settings

FORMAT = "edgewise.federated.run.1"
NUMPY = {FLOAT: np.float32, DOUBLE: np.float64}


@dataclass
class State:
    """A run after a round.

    Attributes:
        number: the round; 0: none yet.
        arrays: weights by name.
        parts: {"base": the weights that clients have, "m" and "v": FedAdam's moments,
            "m": FedAvgM's last step}, each
            {name: array}.
    """

    number: int
    arrays: dict[str, Any]
    parts: dict[str, dict[str, Any]]


class RunFolder:
    """The folder of a run. Files are replaced as a whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def _replace(self, name: str, text: str) -> None:
        """Writes a file as a whole, for its owner alone: it may have tickets and keys."""
        with atomic_file(self._file(name), private=True) as file:
            file.write(text.encode())

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def exists(self) -> bool:
        """Whether a run is there."""
        return os.path.exists(self._file("run.json"))

    @property
    def ended(self) -> bool:
        """Whether all rounds were made and the clients had time to fetch the last weights."""
        return os.path.exists(self._file("ended"))

    def end(self) -> None:
        """Notes that the run has ended."""
        with open(self._file("ended"), "wb"):
            pass

    @contextlib.contextmanager
    def lock(self, name: str = "serving", patience: float = 0.0) -> Iterator[None]:
        """Keeps other processes out of a `with` block. What serves a run has another lock than the
        rounds, which may be in a process of their own.

        Args:
            name: of the lock.
            patience: seconds to wait for another process to end.

        Raises:
            StorageError: another process is in.
        """
        what = "another process serves the run of this folder"
        remedy = "Stop it, or give another folder."
        end = time.monotonic() + patience
        with contextlib.ExitStack() as held:
            while True:
                try:
                    held.enter_context(locked(self._file(f"{name}.lock"), what, remedy))
                    break
                except StorageError:
                    if time.monotonic() >= end:
                        raise
                time.sleep(0.1)
            yield

    def clean(self) -> None:
        """Removes what killed processes have not finished. Only within the lock of the rounds."""
        for folder in (self.path, self._file("adapter")):
            remove_unfinished(folder)

    def create(self, settings: Settings, weights: Values) -> None:
        """Writes settings and first weights.

        Raises:
            InputError: there is a run already. StorageError: another process is beginning one.
        """
        os.makedirs(self.path, exist_ok=True)
        with self.lock():  # two that begin at once would mix their settings
            if self.exists:
                raise InputError("there is a run already", self.path, "Add --resume, or remove it.")
            first = {
                n: (FLOAT, x.shape, np.ascontiguousarray(x).tobytes()) for n, x in weights.items()
            }
            save_safetensors(first, self._file("initial.safetensors"))
            text = json.dumps({"format": FORMAT, **asdict(settings)}, indent=1)
            self._replace("run.json", text + "\n")

    def settings(self) -> Settings:
        """The settings.

        Raises:
            ModelError, InputError: there is no run, or its file is damaged.
        """
        if not self.exists:
            raise InputError("there is no run", self.path, "Start one with `edgewise federate`.")
        with open(self._file("run.json"), "rb") as file:
            fields = parse_json(file.read(), self._file("run.json"))
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ModelError("it is not the settings of a run", self._file("run.json"))
        try:
            return Settings(**fields)
        except TypeError:  # an unknown field, or a value that is no number
            raise ModelError("it is not the settings of a run", self._file("run.json")) from None

    def state(self) -> State:
        """The state after the last round that was written.

        Raises:
            ModelError: a file is damaged.
        """
        path = self._file("state.safetensors")
        if not os.path.exists(path):
            return State(0, self._arrays("initial.safetensors")[0][""], {})
        parts, metadata = self._arrays("state.safetensors")
        weights = parts.pop("weights", {})
        if not weights:
            raise ModelError("it is not the state of a run", path)
        return State(_number(metadata, path), weights, parts)

    def state_number(self) -> int:
        """The last round that was written.

        Raises:
            ModelError: the file is damaged.
        """
        path = self._file("state.safetensors")
        if not os.path.exists(path):
            return 0
        return _number(load_safetensors(path)[1], path)

    def budget(self) -> tuple[int, bool]:
        """(rounds with noise that have begun, whether the budget has ended the run)."""
        path = self._file("privacy.json")
        if not os.path.exists(path):
            return 0, False
        with open(path, "rb") as file:
            fields = parse_json(file.read(), path)
        begun = fields.get("begun") if isinstance(fields, dict) else None
        if type(begun) is not int or begun < 0:
            raise ModelError("it is not the budget of a run", path)
        return begun, fields.get("ended") is True

    def spend(self, begun: int, ended: bool = False) -> None:
        """Writes how many rounds with noise have begun: before one begins, since a process that is
        killed may have published its result.
        """
        self._replace("privacy.json", json.dumps({"begun": begun, "ended": ended}))

    def barred(self) -> dict[str, str]:
        """{SHA-256 of a ticket: why its client was shut out, or is left out of secure sums}."""
        path = self._file("barred.json")
        if not os.path.exists(path):
            return {}
        with open(path, "rb") as file:
            fields = parse_json(file.read(), path)
        if not isinstance(fields, dict) or not all(isinstance(x, str) for x in fields.values()):
            raise ModelError("it does not say which clients were shut out", path)
        return fields

    def bar(self, barred: Mapping[str, str]) -> None:
        """Writes who was shut out: before the state, so that a killed run keeps it."""
        self._replace("barred.json", json.dumps(dict(barred)))

    def lines(self) -> list[dict[str, Any]]:
        """The complete lines of rounds.jsonl, the last one of each round."""
        found: dict[int, dict[str, Any]] = {}
        with contextlib.suppress(FileNotFoundError), open(self._file("rounds.jsonl"), "rb") as file:
            for text in file:
                with contextlib.suppress(ValueError):
                    line = json.loads(text)
                    if text.endswith(b"\n") and type(line) is dict and "round" in line:
                        found[line["round"]] = line
        return [found[number] for number in sorted(found)]

    def _arrays(self, name: str) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """{part: {name: array}} of a file whose names are PART//NAME."""
        with open(self._file(name), "rb") as file:
            tensors, metadata = load_safetensors(file.read())
        parts: dict[str, dict[str, Any]] = {}
        for key, t in tensors.items():
            part, _, own = key.rpartition("//")
            parts.setdefault(part, {})[own] = np.frombuffer(t.bytes(), NUMPY[t.dtype]).reshape(
                t.shape
            )
        return parts, metadata

    def save(self, state: State, schema: Schema, lora: Mapping[str, Any] | None) -> None:
        """Writes the state, and the weights for users."""
        tensors = {
            f"{part}//{n}": (DOUBLE, x.shape, np.ascontiguousarray(x, np.float64).tobytes())
            for part, arrays in {"weights": state.arrays, **state.parts}.items()
            for n, x in arrays.items()
        }
        weights = {
            n: (FLOAT, shape, np.ascontiguousarray(state.arrays[n], np.float32).tobytes())
            for n, shape in schema.shapes.items()
        }
        save_safetensors(weights, self._file("weights.safetensors"))
        if lora is not None:
            config = LoraConfig.from_dict(dict(lora), "run.json")
            save_adapter(Adapter.of(config, weights), self._file("adapter"))
        save_safetensors(tensors, self._file("state.safetensors"), {"round": str(state.number)})

    def log(self, line: Mapping[str, Any]) -> None:
        """Adds a line to rounds.jsonl, in the place of one that a killed process began."""
        with open(self._file("rounds.jsonl"), "a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json.dumps(line).encode() + b"\n")


def _number(metadata: Mapping[str, str], path: str) -> int:
    """The round of a file's state."""
    number = metadata.get("round", "")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise ModelError("it is not the state of a run", path)
    return int(number)
