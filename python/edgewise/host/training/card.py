"""Model cards: README.md as the Hugging Face hub reads it, beside adapters and merged models."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...compiler.formats.files import ModelFiles

CARD = "README.md"
TRAINING = "## Training"
_MADE = "with Edgewise"
_PLAIN = re.compile(r"[A-Za-z][\w./-]*")
_MARK = re.compile(r"<!-- edgewise ([0-9a-f]{64}) -->\n")
_ID = re.compile(r"[\w.-]+/[\w.-]+")
_TASKS = (  # ends of names of transformers' classes, and the hub's name of what they do
    ("ForCausalLM", "text-generation"),
    ("LMHeadModel", "text-generation"),
    ("ForSequenceClassification", "text-classification"),
    ("ForTokenClassification", "token-classification"),
    ("ForQuestionAnswering", "question-answering"),
    ("ForMaskedLM", "fill-mask"),
    ("ForImageClassification", "image-classification"),
    ("ForAudioClassification", "audio-classification"),
    ("WhisperForConditionalGeneration", "automatic-speech-recognition"),
    ("MarianMTModel", "translation"),
)
_LICENSE = ("license", "license_name", "license_link")


@dataclass
class Base:
    """The model that was trained.

    Attributes:
        id: on the hub, or None.
        license: {"license": ..., "license_name": ..., "license_link": ...}, as far as known.
        task: of the hub, or None: not known.
    """

    id: str | None = None
    license: dict[str, str] = field(default_factory=dict)
    task: str | None = None


@dataclass
class TrainingRun:
    """What a card says of a run.

    Attributes:
        updates: how many.
        losses: of the updates.
        examples: of the data: rows, or comparisons; None: not known.
        tokens: that are learned in an epoch; None: not known.
        evaluation: the last loss on held-out data, or None.
        options: {name: value}.
    """

    updates: int
    losses: Sequence[float]
    examples: int | None = None
    tokens: int | None = None
    evaluation: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def base_of(files: ModelFiles, given: object = None) -> Base:
    """The base of a model's folder: its README.md and config.json say what it is.

    Args:
        files: of the folder.
        given: the model as it was named: an id of the hub counts if the files name none.
    """
    card = front_matter((files.contents(CARD) or b"").decode("utf-8", "replace"))
    config = files.json("config.json")
    named = config.get("_name_or_path")
    local = isinstance(given, str) and os.path.exists(given)
    ids = (card.get("base_model"), None if local else given, named)
    found = next((x for x in ids if isinstance(x, str) and _ID.fullmatch(x)), None)
    task = _task_of(config.get("architectures")) or card.get("pipeline_tag") or None
    return Base(found, {n: card[n] for n in _LICENSE if card.get(n)}, task)


def _task_of(architectures: object) -> str | None:
    """The task that the names of a model's classes say, or None."""
    names = architectures if isinstance(architectures, list) else []
    found = (task for n in names for end, task in _TASKS if isinstance(n, str) and n.endswith(end))
    return next(found, None)


def front_matter(text: str) -> dict[str, str]:
    """The fields of a card that have one text as their value. Of a list it is the first item."""
    found = re.match(r"---\r?\n(.*?)\r?\n---(\r?\n|$)", text, re.DOTALL)
    fields: dict[str, str] = {}
    last = ""
    for line in found[1].splitlines() if found else ():
        pair = re.fullmatch(r"(\w+):\s*(.*)", line)
        item = re.fullmatch(r"\s*-\s+(.*)", line)
        if pair:
            last, value = pair[1], pair[2]
        elif item and last and not fields.get(last):
            value = item[1]
        else:
            continue
        fields[last] = value.strip().strip("\"'").strip()
    return fields


def card(base: Base, library: str, training: str, *, adapter: bool) -> bytes:
    """A card.

    Args:
        base: what was trained.
        library: that reads the files, as the hub names it.
        training: of `training_section`; "" if nothing is known of it.
        adapter: whether it is an adapter; else weights that one was merged into.
    """
    from edgewise import __version__

    relation = "adapter" if adapter else "finetune"
    fields: dict[str, Any] = {}
    if base.id is not None:
        fields |= {"base_model": base.id, "base_model_relation": relation}
    fields |= {"library_name": library, **base.license}
    fields |= {} if base.task is None else {"pipeline_tag": base.task}
    fields["tags"] = [*(["lora"] if adapter else []), "edgewise"]
    name = base.id or "a model"
    title = f"# Adapter of {name}" if adapter else f"# {base.id or 'A model'}, fine-tuned"
    kind = "A LoRA adapter, trained" if adapter else "A model with a LoRA adapter merged, trained"
    known = base.license.get("license_name") or base.license.get("license")
    license_ = (
        f"The license of the base is {known}; it may also apply to this."
        if known
        else "The license of the base is not known here: look it up before you share this."
    )
    lines = ["---", *_yaml(fields), "---", "", title, "", f"{kind} {_MADE} {__version__}."]
    end = "\n".join(["", training]).rstrip()
    first = "\n".join([*lines, license_, ""])
    return f"{first}<!-- edgewise {_digest(first + end)} -->\n{end}".rstrip().encode() + b"\n"


def _digest(text: str) -> str:
    """Of a card without its mark."""
    return hashlib.sha256(text.strip().encode()).hexdigest()


def _yaml(fields: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in fields.items():
        if isinstance(value, list):
            lines += [f"{name}:", *(f"- {_scalar(x)}" for x in value)]
        else:
            lines.append(f"{name}: {_scalar(value)}")
    return lines


def _scalar(text: str) -> str:
    """A text of YAML: one that may be taken for something else is in quotes, as in JSON."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in ("true", "false", "null", "yes", "no")
    return text if plain else json.dumps(text)


def training_section(run: TrainingRun) -> str:
    """What a card says of a run."""
    rows: list[tuple[str, str]] = []
    if run.examples is not None:
        tokens = "" if run.tokens is None else f", {run.tokens:,} learned tokens"
        rows.append(("data", f"{run.examples:,} rows{tokens}"))
    rows.append(("updates", f"{run.updates:,}"))
    if run.losses:
        rows.append(("losses", f"{run.losses[0]:.4f} at first, {run.losses[-1]:.4f} at last"))
    if run.evaluation is not None:
        rows.append(("held-out loss", f"{run.evaluation:.4f}"))
    rows += [(name, f"`{value}`") for name, value in run.options.items() if value is not None]
    table = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join([TRAINING, "", "| | |", "|---|---|", *table])


def section_of(text: str) -> str:
    """The section of a card about training; "" if there is none."""
    at = text.find(f"\n{TRAINING}\n")
    return "" if at < 0 or _MADE not in text else text[at + 1 :].strip()


def may_write(folder: str | os.PathLike[str] | None) -> bool:
    """Whether a card can be written: there is none, or one of `card` that nobody has changed."""
    if folder is None:
        return True
    try:
        with open(os.path.join(folder, CARD), encoding="utf-8", errors="replace") as f:
            text = f.read(1 << 20)
    except OSError:
        return not os.path.exists(os.path.join(folder, CARD))
    mark = _MARK.search(text)
    return mark is not None and _digest(text.replace(mark[0], "", 1)) == mark[1]


__all__ = [
    "CARD",
    "Base",
    "TrainingRun",
    "base_of",
    "card",
    "front_matter",
    "may_write",
    "section_of",
    "training_section",
]
