"""Packages of text-to-speech, which task_package/synthesis.py makes. Its
programs are run for logic/speech/voices.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import as_input, as_output
from ....compiler.declare.dtypes import FLOAT, INT32, INT64, unpack
from ....compiler.processors.styles import Styles
from ....errors import PackageError
from ....seeds import RunSeeds, check_seed
from ...session.packaged import ProgramSession

if TYPE_CHECKING:
    from ....compiler.package import Package
    from ...engine import Engine

TASK = "text-to-speech"
WHERE = "processor.speech"
# Inputs of the models; the second program has others, which the first one computes.
_INPUTS = ("attention_mask", "speaker_id", "input_lengths", "scales", "sid", "style", "speed")


class PackagedVoice:
    """The programs of a package as one session, with the part of InferenceSession's interface that
    the pipeline uses.

    Args:
        package: of the task.
        engine: as of ProgramSession.

    Attributes:
        type: "vits", "piper" or "kokoro".
        inputs: {name: Info} of the model.
        outputs: {name: Info}.

    Raises:
        PackageError: the package is for another version of the engine, or damaged.
    """

    def __init__(self, package: Package, engine: Engine | None = None) -> None:
        described = package.manifest.get("processor", {}).get("speech")
        if described is None:
            raise _damaged("it does not describe how its model speaks")
        self.described = described
        self.type, self.tokens = described["type"], described["tokens"]
        self.seeds = RunSeeds(None)
        self.between: dict[str, Any] = {}  # what the second program gets
        output = described["output"]
        programs = package.manifest["programs"]
        self.parts: dict[str, ProgramSession] = {}
        try:
            for name in programs:
                self.parts[name] = ProgramSession(package, name, engine)
        except BaseException:
            self.free()
            raise
        names = ("text", "frames") if "length" in described else ("model", "model")
        if not all(name in self.parts for name in names):
            raise _damaged(f"it has no program '{names[0]}' or '{names[1]}'")
        self.first, self.second = (self.parts[name] for name in names)
        known = {**self.second.inputs, **self.first.inputs}
        self.inputs = {n: i for n, i in known.items() if n == self.tokens or n in _INPUTS}
        if output not in self.second.outputs:
            raise _damaged(f"its graphs have no output '{output[:40]}'")
        self.outputs = {output: self.second.outputs[output]}

    def styles(self) -> Styles:
        """The voices of Kokoro."""
        return _Styles(self)

    def say(self, feeds: Mapping[str, Any], seed: Any) -> int | list[Any]:
        """Speaks a part of a text.

        Args:
            feeds: {name of an input: value}.
            seed: of random numbers; None: unpredictable.

        Returns:
            [sound]; or the number of frames, of which `sound` makes it

        Raises:
            InputError: an input is missing.
        """
        self.seeds = RunSeeds(check_seed(seed, "seed"))
        if self.first is self.second:
            return self.first.run(list(self.outputs), feeds, seeds=self.seeds)
        made = self._run(self.first, feeds, list(self.first.outputs))
        self.between = {**feeds, **made}
        return self._frames(made)

    def sound(self, frames: int) -> list[Any]:
        """[sound] of what `say` has computed."""
        for name in self.second.inputs:
            if name not in self.between:
                self.between[name] = as_output(INT64, [frames], bytes(8 * frames))
        return list(self._run(self.second, self.between, list(self.outputs)).values())

    def free(self) -> None:
        """Frees the memory of all programs."""
        for part in self.parts.values():
            part.free()

    def _run(
        self, part: ProgramSession, feeds: Mapping[str, Any], names: Sequence[str]
    ) -> dict[str, Any]:
        chosen = {n: x for n, x in feeds.items() if n in part.inputs}
        return dict(zip(names, part.run(names, chosen, seeds=self.seeds)))

    def _frames(self, made: Mapping[str, Any]) -> int:
        """How many frames the second program makes. Raises PackageError."""
        name = self.described["length"]
        if name not in made:
            raise _damaged(f"it has no output '{name}'")
        code, _, data = as_input(made[name], name)
        raw = memoryview(data).cast("B").tobytes()
        if code not in (INT64, INT32) or not raw:
            raise _damaged(f"its output '{name}' is no whole number")
        return int(unpack(code, raw, 1)[0])


class _Styles(Styles):
    """The voices of a package: rows of the program "style"."""

    def __init__(self, voice: PackagedVoice) -> None:
        super().__init__([], lambda name: None)
        self.session = voice.parts.get("style")
        self.voices: Mapping[str, tuple[int, int]] = voice.described.get("voices", {})

    @property
    def names(self) -> list[str]:
        """As Styles.names."""
        return sorted(self.voices)

    def row(self, voice: Any, count: int) -> list[float]:
        """As Styles.row."""
        name = self._name(voice) if voice is None or isinstance(voice, (str, os.PathLike)) else ""
        if name not in self.voices or self.session is None:
            return super().row(voice, count)
        first, rows = self.voices[name]
        (style,) = self.session.run(["style"], {"row": [first + min(count, rows - 1)]})
        _, shape, data = as_input(style, "style")
        return list(unpack(FLOAT, memoryview(data).cast("B").tobytes(), shape[-1]))


def _damaged(what: str) -> PackageError:
    return PackageError(
        what, WHERE, "Build it again with this version: `edgewise build --task text-to-speech`."
    )
