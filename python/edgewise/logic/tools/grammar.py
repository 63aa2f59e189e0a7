"""The grammar of answers with calls: the family's own form around arguments of the tools' schemas.

It is a `response_format` that only the hosts of text generation make (choice.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import EdgewiseError, InputError, UnsupportedField
from ..grammar.automaton import anything, automaton_of, difference, intersection
from ..grammar.json_grammar import JsonGrammar, Writing, is_word, names_of
from ..grammar.network import Network
from ..grammar.nodes import (
    ANY,
    Automaton,
    Node,
    automaton_node,
    characters,
    choice,
    literal,
    never,
    nothing,
    optional,
    repeat,
    sequence,
    token,
)
from ..grammar.program import program_of
from ..grammar.rules import Option, texts_automaton, value_of
from ..native import listed, written
from .bodies import ARGS, DEEPSEEK_CALL, DEEPSEEK_END, DEEPSEEK_PART, GEMMA_QUOTES
from .families import DEEPSEEK_BEGIN, DEEPSEEK_STOP, HARMONY, Family, Form, family_named

PYTHON: Writing = Writing("True", "False", "None")
SPACES = [(9, 10), (32, 32)]


def calls_program(form: Mapping[str, Any]) -> list[int]:
    """The words for the engine. form: of `calls_format`.

    Raises:
        InputError, UnsupportedField: a schema contradicts itself, or has what is not supported.
    """
    return _Calls(form).program()


class _Calls:
    """The grammar of one format."""

    def __init__(self, form: Mapping[str, Any]) -> None:
        family = family_named(form.get("family"))
        functions = listed(form.get("functions"))
        named = all(isinstance(f, dict) and isinstance(f.get("name"), str) for f in functions or [])
        if family is None or not functions or not named:
            raise InputError('there is no type "calls"', "response_format", "Pass tools=.")
        self.family: Family = family
        self.functions: list[dict[str, Any]] = functions
        self.marks: set[str] = {str(mark) for mark in listed(form.get("marks")) or []}
        self.required = form.get("required") is True
        self.parallel = form.get("parallel") is True
        self.thinking = form.get("thinking") is True
        self.blocks = form.get("blocks") is True
        self.network = Network("tools")
        self.space = optional(literal(" "))

    def program(self) -> list[int]:
        """The words for the engine."""
        calls = self._harmony() if self.family.name == HARMONY else self._answer()
        self.network.define("answer", calls)
        return program_of(self.network, "answer", "no arguments satisfy the schema")

    # Around calls

    def _mark(self, text: str) -> Node:
        return token(text) if text in self.marks else literal(text)

    def _without(self, text: str) -> Node:
        """Any text without a mark."""
        if text in self.marks:
            return repeat(characters(ANY), 0)
        return automaton_node(_free_of(text))

    def _reasoning(self) -> Node:
        """The reasoning before an answer, which the prompt may have begun."""
        for form in self.family.forms:
            if form.body is None and (self.thinking or form.start in self.marks):
                rest = sequence(
                    [
                        self._without(form.end),
                        self._mark(form.end),
                        repeat(characters(SPACES), 0, 4),
                    ]
                )
                if self.thinking:
                    return rest
                return optional(sequence([self._mark(form.start), rest]))
        return nothing()

    def _answer(self) -> Node:
        block, between, start = self._form()
        many = sequence([block, repeat(sequence([literal(between), block]), 0)])
        calls = many if self.parallel else block
        if self.required:
            return sequence([self._reasoning(), calls])
        if start == "":  # a call without a mark is the whole answer
            other = [(0, 8), (11, 12), (14, 31), (33, ord("{") - 1), (ord("{") + 1, 0x10FFFF)]
            text = sequence([characters(other), repeat(characters(ANY), 0)])
            return sequence([self._reasoning(), choice([optional(text), calls])])
        free = self._without(start)
        if self.parallel:
            rest = repeat(sequence([block, free]), 0)
        else:
            rest = optional(block)
        return sequence([self._reasoning(), free, rest])

    def _harmony(self) -> Node:
        """The channels of gpt-oss, after "<|start|>assistant"."""
        message = self._mark("<|message|>")
        analysis = [
            self._mark("<|channel|>"),
            literal("analysis"),
            message,
            self._without("<|end|>"),
            self._mark("<|end|>"),
            self._mark("<|start|>"),
            literal("assistant"),
        ]
        channel = [self._mark("<|channel|>"), literal("commentary to=functions.")]
        json = [literal(" "), self._mark("<|constrain|>"), literal("json"), message]
        called = choice(
            [sequence([*channel, literal(f["name"]), *json, self._json(f)]) for f in self.functions]
        )
        final = [self._mark("<|channel|>"), literal("final"), message]
        text = sequence([*final, repeat(characters(ANY), 0)])
        answer = called if self.required else choice([called, text])
        return sequence([repeat(sequence(analysis), 0, 1), answer])

    # The forms of calls

    def _form(self) -> tuple[Node, str, str]:
        """(calls of a part, what stands between two parts, the mark that begins one)"""
        name = self.family.name
        form = next((f for f in self.family.forms if f.body is not None), None)
        if form is None or name in ("llama", "json"):
            key = "parameters" if name == "llama" else "arguments"
            return self._each(lambda f: self._object(f, key)), "; ", ""
        if name == "deepseek":
            return self._deepseek(), "\n", DEEPSEEK_BEGIN
        if name == "mistral":
            return self._mistral(form), "", form.start
        if name == "list":
            form = next((f for f in self.family.forms if f.start == "<|tool_call|>"), form)
            ended = self._mark(form.end) if form.end in self.marks else nothing()
            return sequence([self._mark(form.start), self._list(), ended]), "", form.start
        if name in ("lfm2", "gemma"):
            return self._python(form), "\n", form.start
        start, end = self._mark(form.start), self._mark(form.end)
        if name in ("functiongemma", "gemma4"):
            inside = self._each(lambda f: self._gemma(f))
            return sequence([start, inside, end]), "", form.start
        inside = self._each(lambda f: self._xml(f) if name == "coder" else self._plain(f))
        line = literal("\n")
        return sequence([start, line, inside, line, end]), "\n", form.start

    def _each(self, make: Callable[[dict[str, Any]], Node]) -> Node:
        return choice([make(f) for f in self.functions])

    def _plain(self, function: dict[str, Any]) -> Node:
        return self._object(function, "arguments")

    def _object(self, function: dict[str, Any], key: str) -> Node:
        """{"name": ..., "arguments": ...}"""
        name: str = function["name"]
        begun = '{"name": "' + name + '", "' + key + '": '
        return sequence([literal(begun), self._json(function), literal("}")])

    def _list(self) -> Node:
        """A list of such objects."""
        one = self._each(lambda f: self._plain(f))
        more = repeat(sequence([literal(", "), one]), 0) if self.parallel else nothing()
        return sequence([literal("["), one, more, literal("]")])

    def _mistral(self, form: Form) -> Node:
        start = self._mark(form.start)
        if ARGS not in self.marks:
            return sequence([start, literal(" "), self._list()])
        args = self._mark(ARGS)

        def one(function: dict[str, Any]) -> Node:
            return sequence([start, literal(function["name"]), args, self._json(function)])

        return self._each(one)

    def _deepseek(self) -> Node:
        first, sep, end = (self._mark(m) for m in (DEEPSEEK_CALL, DEEPSEEK_PART, DEEPSEEK_END))

        def one(function: dict[str, Any]) -> Node:
            name, given = literal(function["name"]), self._json(function)
            if self.blocks:
                block = [literal("\n```json\n"), given, literal("\n```")]
                return sequence([first, literal("function"), sep, name, *block, end])
            return sequence([first, name, sep, given, end])

        call = self._each(one)
        more = nothing()
        if self.parallel:
            more = repeat(sequence([literal("\n") if self.blocks else nothing(), call]), 0)
        return sequence([self._mark(DEEPSEEK_BEGIN), call, more, self._mark(DEEPSEEK_STOP)])

    def _python(self, form: Form) -> Node:
        """[f(a=1), g()], or in Gemma's form a call on a line."""

        def one(function: dict[str, Any]) -> Node:
            name: str = function["name"]
            return sequence(
                [literal(name + "("), self._fields(function, PYTHON, _named), literal(")")]
            )

        call = self._each(one)
        start, end = self._mark(form.start), self._mark(form.end)
        if self.family.name == "gemma":
            return sequence([start, literal("\n"), call, literal("\n"), end])
        more = repeat(sequence([literal(", "), call]), 0) if self.parallel else nothing()
        return sequence([start, literal("["), call, more, literal("]"), end])

    def _gemma(self, function: dict[str, Any]) -> Node:
        quotes = [quote for quote in GEMMA_QUOTES if quote in self.marks]
        quote = quotes[0] if len(quotes) > 0 else GEMMA_QUOTES[-1]
        writing = Writing(quote=self._mark(quote))
        name: str = function["name"]
        return sequence([literal("call:" + name), self._value(function, writing, nothing())])

    def _xml(self, function: dict[str, Any]) -> Node:
        """<function=f><parameter=a>...</parameter></function>, where strings are as they are."""
        name: str = function["name"]
        begun = literal("<function=" + name + ">\n")
        return sequence([begun, self._fields(function, None, _tagged), literal("</function>")])

    # Arguments

    def _grammar(
        self, function: dict[str, Any], writing: Writing | None, space: Node
    ) -> tuple[JsonGrammar, str]:
        """The grammar of a function's arguments, and the name of their schema."""
        name: str = function["name"]
        given: dict[str, Any] = function["parameters"]
        kind: Any = given.get("type")
        if kind is not None and kind != "object" and "object" not in (listed(kind) or []):
            raise InputError(
                f"its parameters are of the type {written(kind)}", f"tools, {name}", 'Use "object".'
            )
        schema: dict[str, Any] = {**given, "type": "object"}
        try:
            grammar = JsonGrammar(schema, space, self.network, name + " ", writing)
            return grammar, grammar.start()
        except EdgewiseError as e:
            raise _of_tool(e, name) from None

    def _json(self, function: dict[str, Any]) -> Node:
        return self._value(function, None, self.space)

    def _value(self, function: dict[str, Any], writing: Writing | None, space: Node) -> Node:
        """A function's arguments as an object."""
        grammar, start = self._grammar(function, writing, space)
        try:
            node = grammar.value(start)
            grammar.define()
        except EdgewiseError as e:
            raise _of_tool(e, function["name"]) from None
        return node

    def _fields(
        self, function: dict[str, Any], writing: Writing | None, make: Callable[[str, Node], Node]
    ) -> Node:
        """Arguments that are no object of JSON. writing: None: strings are as they are."""
        grammar, start = self._grammar(function, writing, self.space)
        comma = nothing() if writing is None else literal(", ")
        try:
            made: list[Node] = []
            for option in grammar.schemas.options(start):
                rule = option.objects
                if rule is None:
                    continue
                names = names_of(rule)
                entries: list[Node] = []
                for name in names:
                    where = grammar.schemas.all_of(value_of(rule, name))
                    value = grammar.value(where) if writing is not None else _raw(grammar, where)
                    entries.append(make(name, value) if _is_plain(name, writing) else never())
                needed = [name in rule.required for name in names]
                made.append(grammar.listed(entries, needed, never(), comma))
            grammar.define()
        except EdgewiseError as e:
            raise _of_tool(e, function["name"]) from None
        return choice(made)


def _named(name: str, value: Node) -> Node:
    return sequence([literal(name + "="), value])


def _tagged(name: str, value: Node) -> Node:
    return sequence([literal(f"<parameter={name}>\n"), value, literal("\n</parameter>\n")])


def _is_plain(name: str, writing: Writing | None) -> bool:
    """Whether a name can be written without quotation marks."""
    return is_word(name) if writing is not None else name != "" and ">" not in name


def _raw(grammar: JsonGrammar, name: str) -> Node:
    """A value of a schema whose strings are as they are, up to a mark."""
    made: list[Node] = []
    for option in grammar.schemas.options(name):
        text = option.texts
        rest = Option(
            option.null, option.booleans, option.numbers, None, option.arrays, option.objects
        )
        made.append(grammar.option(rest, name))
        if text is None:
            continue
        if text.values is not None:
            made.append(choice([literal(x) for x in text.values]))
        else:
            whole = texts_automaton(text, "tools")
            made.append(automaton_node(intersection(whole, _free_of("</parameter>"), "tools")))
    return choice(made)


def _free_of(text: str) -> Automaton:
    """All texts without a text."""
    some = repeat(characters(ANY), 0)
    return difference(anything(), automaton_of(sequence([some, literal(text), some]), ""), "")


def _of_tool(error: EdgewiseError, name: str) -> EdgewiseError:
    """An error of a schema, with the name of the tool."""
    where = f"tools, {name}, {error.where}".replace("response_format, ", "")
    if isinstance(error, UnsupportedField):
        return UnsupportedField(error.what, where, error.remedy)
    return InputError(error.what, where, error.remedy)
