"""Packages of text-to-speech, which task_package/synthesis.py makes. Mirrors
web/src/worker/pipelines/synthesis/speak.ts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ....compiler.arrays import as_input, as_output
from ....compiler.declare.dtypes import FLOAT, INT32, INT64, unpack
from ....compiler.processors.styles import Styles
from ....compiler.tokenizers.vits import VitsTokenizer
from ....errors import InputError, PackageError
from ....seeds import RunSeeds, check_seed
from ...session.packaged import ProgramSession

if TYPE_CHECKING:
    from ....compiler.package import Package
    from ...engine import Engine

TASK = "text-to-speech"
WHERE = "processor.speech"
# Inputs of the models; the second program has others, which the first one computes.
_INPUTS = ("attention_mask", "speaker_id", "input_lengths", "scales", "sid", "style", "speed")
_SCALES = ("noise_scale", "length_scale", "noise_w")


class TooManyFrames(InputError):
    """A part of a text takes more frames than the package has plans for."""


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
        most: tokens that there are plans for.

    Raises:
        PackageError: the package is for another version of the engine, or damaged.
    """

    def __init__(self, package: Package, engine: Engine | None = None) -> None:
        described = package.manifest.get("processor", {}).get("speech")
        if described is None:
            raise _damaged("it does not describe how its model speaks")
        self.described = described
        self.type, self.tokens = described["type"], described["tokens"]
        self.least, self.most = described["least"], described["most"]
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

    def config(self) -> dict[str, Any]:
        """The fields that the model's own files have."""
        d = self.described
        return {
            "sampling_rate": d["sampling_rate"],
            "num_speakers": d["speakers"],
            **({"phoneme_id_map": d["vocabulary"]} if self.type == "piper" else {}),
            **({"vocab": d["vocabulary"]} if self.type == "kokoro" else {}),
            "speaker_id_map": d.get("speaker_names"),
            "phoneme_type": "text" if d.get("is_text") else "",
            "audio": {"sample_rate": d["sampling_rate"]},
            "inference": dict(zip(_SCALES, d.get("scales", ()))),
        }

    def tokenizer(self) -> VitsTokenizer:
        """That of VITS."""
        names = ("add_blank", "normalize", "phonemize", "is_uroman", "language")
        config = {name: value for name, value in self.described.items() if name in names}
        vocabulary = cast("dict[str, int]", self.described["vocabulary"])  # not Piper's
        return VitsTokenizer(vocabulary, {**config, "unk_token": self.described.get("unknown")})

    def styles(self) -> Styles:
        """The voices of Kokoro."""
        return _Styles(self)

    def run(self, names: Sequence[str], feeds: Mapping[str, Any], options: Any = None) -> list[Any]:
        """Speaks a part of a text.

        Args:
            names: [output].
            feeds: {name of an input: value}.
            options: of these, `seed`.

        Raises:
            TooManyFrames: see there.
            InputError: the text is too short, or an input is missing.
        """
        seeds = RunSeeds(check_seed(getattr(options, "seed", None), "seed"))
        given = {**feeds, **self._padded(feeds)}
        if self.first is self.second:
            return self.first.run(names, given, seeds=seeds)
        made = self._run(self.first, given, list(self.first.outputs), seeds)
        between = {**given, **made}
        count = self._frames(made)
        for name in self.second.inputs:
            if name not in between:
                between[name] = as_output(INT64, [count], bytes(8 * count))
        return list(self._run(self.second, between, names, seeds).values())

    def free(self) -> None:
        """Frees the memory of all programs."""
        for part in self.parts.values():
            part.free()

    @staticmethod
    def _run(
        part: ProgramSession, feeds: Mapping[str, Any], names: Sequence[str], seeds: RunSeeds
    ) -> dict[str, Any]:
        chosen = {n: x for n, x in feeds.items() if n in part.inputs}
        return dict(zip(names, part.run(names, chosen, seeds=seeds)))

    def _padded(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Tokens of at least the shortest length, and which of them count."""
        ids = list(feeds[self.tokens][0])
        count, missing = len(ids), max(0, self.least - len(ids))
        if missing and "attention_mask" not in self.inputs and self.type != "piper":
            raise InputError("the text is too short for the model", TASK, "Give a longer one.")
        if count > self.most:
            raise InputError(
                f"a part of the text has {count} tokens, and the package has plans for {self.most}",
                TASK,
                "Divide the text.",
            )
        padded: dict[str, Any] = {self.tokens: [ids + [0] * missing]}
        if "attention_mask" in self.inputs:
            padded["attention_mask"] = [[1] * count + [0] * missing]
        return padded

    def _frames(self, made: Mapping[str, Any]) -> int:
        """How many frames the second program makes. Raises TooManyFrames, PackageError."""
        name, (least, most) = self.described["length"], self.described["frames"]
        if name not in made:
            raise _damaged(f"it has no output '{name}'")
        code, _, data = as_input(made[name], name)
        raw = memoryview(data).cast("B").tobytes()
        if code not in (INT64, INT32) or not raw:
            raise _damaged(f"its output '{name}' is no whole number")
        count = int(unpack(code, raw, 1)[0])
        if least <= count <= most:
            return count
        kind = TooManyFrames if count > most else InputError
        raise kind(
            f"the model speaks a part of the text in {count} frames",
            TASK,
            f"The package is for {least} to {most}: choose another speed, or build it with "
            "--max-length.",
        )


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
