"""How families of models write calls of tools and reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .bodies import ARGS, CALL_ID, DEEPSEEK_CALL, DEEPSEEK_END, DEEPSEEK_PART, GEMMA_QUOTES, Body

DEEPSEEK_BEGIN = "<\uff5ctool\u2581calls\u2581begin\uff5c>"
DEEPSEEK_STOP = "<\uff5ctool\u2581calls\u2581end\uff5c>"


@dataclass(frozen=True)
class Form:
    """A part of an answer.

    Attributes:
        start: the mark before it.
        end: the mark after it. The end of the answer ends it, too.
        body: how its calls are written; None: it is reasoning.
    """

    start: str
    end: str
    body: Body | None


@dataclass(frozen=True)
class Family:
    """Models that write calls alike.

    Attributes:
        name: of the family.
        signs: a template or tokenizer that has one of them is of it.
        forms: the parts of an answer.
        bare: whether an answer that is an object of JSON, or a list of calls as in Python, is one
            of known tools.
    """

    name: str
    signs: list[str]
    forms: list[Form]
    bare: bool = False


THINK: Form = Form("<think>", "</think>", None)
HERMES: Form = Form("<tool_call>", "</tool_call>", "json")

HARMONY = "harmony"
HARMONY_MARKS = (
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
)

FAMILIES = (
    Family(HARMONY, ["<|constrain|>", "<|channel|>analysis"], []),
    Family("deepseek", [DEEPSEEK_BEGIN], [THINK, Form(DEEPSEEK_BEGIN, DEEPSEEK_STOP, "deepseek")]),
    Family(
        "mistral",
        ["[TOOL_CALLS]"],
        [THINK, Form("[THINK]", "[/THINK]", None), Form("[TOOL_CALLS]", "", "mistral")],
    ),
    Family(
        "lfm2",
        ["<|tool_call_start|>", "<|tool_list_start|>"],
        [THINK, Form("<|tool_call_start|>", "<|tool_call_end|>", "python")],
    ),
    Family(
        "functiongemma",
        ["<start_function_call>"],
        [Form("<start_function_call>", "<end_function_call>", "gemma")],
    ),
    Family(
        "gemma4",
        ["<tool_call|>"],
        [
            Form("<|channel>thought", "<channel|>", None),
            Form("<|tool_call>", "<tool_call|>", "gemma"),
        ],
    ),
    Family("coder", ["<function="], [THINK, HERMES, Form("<function=", "</function>", "function")]),
    Family("hermes", ["<tool_call>"], [THINK, HERMES]),
    # Granite 3 and Phi-4: a list of JSON, which only Phi ends by a mark, or begins with a word
    Family(
        "list",
        ["<|tool_call|>"],
        [
            THINK,
            HERMES,
            Form("<|tool_call|>", "<|/tool_call|>", "json"),
            Form("functools[", "", "functools"),
        ],
    ),
    Family(
        "llama",
        ["<|python_tag|>", "<|start_header_id|>"],
        [THINK, Form("<|python_tag|>", "", "llama")],
        True,
    ),
    Family("gemma", ["<start_of_turn>", "tool_code"], [Form("```tool_code", "```", "python")]),
    Family("json", [], [THINK, HERMES], True),
)
"""The first one applies. The last one is for templates that are not known."""

RESPONSES = ("<tool_response>", "</tool_response>", "<|tool_response>", "<tool_response|>")
"""The marks of results. Gemma 4 ends an answer with one."""
INNER = (ARGS, CALL_ID, DEEPSEEK_CALL, DEEPSEEK_END, DEEPSEEK_PART, *GEMMA_QUOTES)


def family_of(template: str, tokens: Sequence[str]) -> Family:
    """The family of a model.

    Args:
        template: its chat template.
        tokens: its special tokens.
    """
    for family in FAMILIES:
        if any(sign in template for sign in family.signs):
            return family
    known = set(tokens)
    for family in FAMILIES:
        if any(sign in known for sign in family.signs):
            return family
    return FAMILIES[len(FAMILIES) - 1]


def family_named(name: Any) -> Family | None:
    """The family of a name."""
    return next((family for family in FAMILIES if family.name == name), None)


def marks_of(family: Family) -> list[str]:
    """The marks in answers. Those that are special tokens have to be decoded to parse answers."""
    marks: list[str] = [*HARMONY_MARKS] if family.name == HARMONY else []
    for form in family.forms:
        marks.extend([mark for mark in (form.start, form.end) if mark != ""])
    marks.extend(INNER)
    return marks


def all_marks() -> list[str]:
    """The marks of all families, and those of results."""
    found: set[str] = set(RESPONSES)
    for family in FAMILIES:
        found |= set(marks_of(family))
    return sorted(found)
