"""Calls of tools in answers, definitions of tools, and special tokens in texts."""

import json
import random
import re

import pytest
from edgewise.errors import InputError

from .forms import both, module

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "units": {"type": "array", "items": {"type": "string"}},
    },
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA},
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}},
]
PARIS = {"city": "Paris", "days": 3}
BEGIN, END = "<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"
ONE, OVER = "<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>"
SEP = "<\uff5ctool\u2581sep\uff5c>"

# (a sign of the template, an answer, its text, its reasoning, its calls). The forms are those of
# the chat templates and model cards of these models on Hugging Face, and were compared with the
# parsers of transformers 5 (`parse_response`), vLLM and llama.cpp.
CASES = [
    pytest.param(  # Qwen2.5 and Qwen3: chat_template.jinja
        "<tool_call>",
        "<think>\nI look.\n</think>\n\nLet me see.\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "Let me see.",
        "I look.",
        [("get_weather", PARIS), ("now", {})],
        id="hermes",
    ),
    pytest.param(  # Qwen3-Coder and Qwen3.5: chat_template.jinja
        "<function=",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n"
        '<parameter=units>\n["C", "F"]\n</parameter>\n</function>\n</tool_call>',
        "",
        "",
        [("get_weather", {**PARIS, "units": ["C", "F"]})],
        id="coder",
    ),
    pytest.param(  # the same, whose models often leave out <tool_call>
        "<function=",
        "<function=get_weather>\n<parameter=city>\n3\n</parameter>\n</function>",
        "",
        "",
        [("get_weather", {"city": "3"})],
        id="coder-bare",
    ),
    pytest.param(  # Llama 3.1: "JSON based tool calling" of its model card
        "<|start_header_id|>",
        '{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}',
        "",
        "",
        [("get_weather", PARIS)],
        id="llama",
    ),
    pytest.param(  # the same: built-in tools
        "<|python_tag|>",
        '<|python_tag|>brave_search.call(query="Menlo Park")',
        "",
        "",
        [("brave_search", {"query": "Menlo Park"})],
        id="llama-builtin",
    ),
    pytest.param(  # Mistral 7B v0.3
        "[TOOL_CALLS]",
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}, '
        '{"name": "now", "arguments": {}}]',
        "",
        "",
        [("get_weather", PARIS), ("now", {})],
        id="mistral",
    ),
    pytest.param(  # Ministral 3, Magistral
        "[TOOL_CALLS]",
        "[THINK]Hm.[/THINK]Yes. "
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 3}[TOOL_CALLS]now[ARGS]{}',
        "Yes.",
        "Hm.",
        [("get_weather", PARIS), ("now", {})],
        id="mistral-args",
    ),
    pytest.param(  # Gemma 3: "Function calling with Gemma" of Google's documentation
        "<start_of_turn>",
        '```tool_code\nget_weather(city="Paris", days=3)\n```',
        "",
        "",
        [("get_weather", PARIS)],
        id="gemma",
    ),
    pytest.param(  # FunctionGemma: "FunctionGemma formatting and best practices"
        "<start_function_call>",
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}"
        "<end_function_call>",
        "",
        "",
        [("get_weather", PARIS)],
        id="functiongemma",
    ),
    pytest.param(  # Gemma 4: chat_template.jinja
        "<tool_call|>",
        '<|channel>thought\nI look.\n<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>,'
        'days:3,units:[<|"|>C<|"|>]}<tool_call|>',
        "",
        "I look.",
        [("get_weather", {**PARIS, "units": ["C"]})],
        id="gemma4",
    ),
    pytest.param(  # SmolLM3: xml_tools of its chat_template.jinja
        "<tool_call>",
        '<think>\n\n</think>\n<tool_call>{"name": "now", "arguments": {}}</tool_call>',
        "",
        "",
        [("now", {})],
        id="smollm3",
    ),
    pytest.param(  # LFM2: its model card
        "<|tool_list_start|>",
        "<|tool_call_start|>[get_weather(city='Paris', days=3), now()]<|tool_call_end|>Checking.",
        "Checking.",
        "",
        [("get_weather", PARIS), ("now", {})],
        id="lfm2",
    ),
    pytest.param(  # Granite 3.3
        "<|tool_call|>",
        '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]',
        "",
        "",
        [("get_weather", PARIS)],
        id="granite3",
    ),
    pytest.param(  # Phi-4-mini: its model card
        "<|tool_call|>",
        '<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>',
        "",
        "",
        [("now", {})],
        id="phi4",
    ),
    pytest.param(  # the same, as vLLM's phi4_mini_json
        "<|tool_call|>",
        'Sure.\nfunctools[{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}},\n'
        '{"name": "now", "arguments": {}}]',
        "Sure.",
        "",
        [("get_weather", PARIS), ("now", {})],
        id="phi4-functools",
    ),
    pytest.param(  # Granite 4: arguments may be a text
        "<tool_call>",
        '<tool_call>\n{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}\n'
        "</tool_call>",
        "",
        "",
        [("get_weather", {"city": "Paris"})],
        id="granite4",
    ),
    pytest.param(  # Llama 3.1 and later: several, text after them
        "<|start_header_id|>",
        '{"name": "get_weather", "parameters": {"city": "Paris"}}; '
        '{"name": "now", "parameters": {}} I used {now}.',
        "",
        "",
        [("get_weather", {"city": "Paris"}), ("now", {})],
        id="llama-several",
    ),
    pytest.param(  # Llama 3.2: "zero-shot function calling" of its model card
        "<|start_header_id|>",
        "[get_weather(city='Paris', days=3), now()]",
        "",
        "",
        [("get_weather", PARIS), ("now", {})],
        id="llama-python",
    ),
    pytest.param(  # LFM2's template leaves quotation marks within texts as they are
        "<|tool_list_start|>",
        "<|tool_call_start|>[get_weather(city='sed -n '3,4p' L'Aquila', days=03)]<|tool_call_end|>",
        "",
        "",
        [("get_weather", {"city": "sed -n '3,4p' L'Aquila", "days": 3})],
        id="lfm2-quotes",
    ),
    pytest.param(  # FunctionGemma: any value between marks
        "<start_function_call>",
        "<start_function_call>call:get_weather{days:<escape>3<escape>,city:<escape>3<escape>}"
        "<end_function_call>",
        "",
        "",
        [("get_weather", {"days": 3, "city": "3"})],
        id="functiongemma-marks",
    ),
    pytest.param(  # DeepSeek-V3 and R1
        BEGIN,
        f"<think>Hm.</think>Yes.{BEGIN}{ONE}function{SEP}get_weather\n```json\n"
        f'{{"city": "Paris", "days": 3}}\n```{OVER}\n{ONE}function{SEP}now\n'
        f"```json\n{{}}\n```{OVER}{END}",
        "Yes.",
        "Hm.",
        [("get_weather", PARIS), ("now", {})],
        id="deepseek",
    ),
    pytest.param(  # DeepSeek-V3.1
        BEGIN,
        f'{BEGIN}{ONE}get_weather{SEP}{{"city": "Paris", "days": 3}}{OVER}{END}',
        "",
        "",
        [("get_weather", PARIS)],
        id="deepseek31",
    ),
    pytest.param(  # gpt-oss: "OpenAI harmony response format"
        "<|channel|>analysis",
        "<|channel|>analysis<|message|>Need to use function get_weather.<|end|><|start|>assistant"
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city": "Paris", "days": 3}<|call|>',
        "",
        "Need to use function get_weather.",
        [("get_weather", PARIS)],
        id="harmony",
    ),
    pytest.param(  # the same, with the recipient in the role
        "<|channel|>analysis",
        "<|channel|>final<|message|>Sunny.<|end|><|start|>assistant to=functions.now"
        "<|channel|>commentary json<|message|>{}<|call|>",
        "Sunny.",
        "",
        [("now", {})],
        id="harmony-role",
    ),
]


def read(tools, sign, answer, size, thinking=False):
    """(text, reasoning, calls) of an answer that comes in pieces of so many characters."""
    parser = tools.parser_of(tools.families.family_of(sign, []), TOOLS, thinking)
    deltas = []
    for i in range(0, len(answer), size):
        deltas += parser.push(answer[i : i + size])
    deltas += parser.end()
    text = "".join(d.text for d in deltas if d.kind == "text")
    thought = "".join(d.text for d in deltas if d.kind == "reasoning")
    return text, thought, [(d.name, d.arguments) for d in deltas if d.kind == "call"]


class Forms:
    """The modules of tools in one form."""

    def __init__(self, form):
        self.parser = module(form, "tools.parser")
        self.families = module(form, "tools.families")
        self.parser_of = self.parser.parser_of


@both
@pytest.mark.parametrize(("sign", "answer", "text", "reasoning", "calls"), CASES)
def test_answers(form, sign, answer, text, reasoning, calls):
    tools = Forms(form)
    for size in (1, 7, len(answer)):
        assert read(tools, sign, answer, size) == (text, reasoning, calls)


@both
@pytest.mark.parametrize(("sign", "answer", "text", "reasoning", "calls"), CASES)
def test_calls_while_they_are_written(form, sign, answer, text, reasoning, calls):
    """The chunks of a call, put together as OpenAI's clients do, are the call. Its name and parts
    of its arguments are told before it is complete, unless they are a text of JSON or Llama's own.
    """
    tools = Forms(form)
    family = tools.families.family_of(sign, [])
    before = 0
    for size in (1, 5, len(answer)):
        parser = tools.parser_of(family, TOOLS)
        made, done = {}, 0
        parts = [answer[i : i + size] for i in range(0, len(answer), size)]
        for deltas in [*map(parser.push, parts), parser.end()]:
            for delta in deltas:
                if delta.kind == "call":
                    done += 1
                elif delta.kind == "chunk":
                    name, arguments = made.get(delta.number, ("", ""))
                    assert bool(delta.name) == (delta.number not in made)
                    assert delta.order == delta.number
                    made[delta.number] = (name + delta.name, arguments + delta.text)
                    before += delta.number >= done and bool(delta.text)
        got = [(made[i][0], json.loads(made[i][1])) for i in range(len(made))]
        assert got == calls
    as_text = re.search(r'[.]call[(]|\\"', answer)
    told = [part for _, given in calls for part in given.values()]
    assert as_text or not told or before > 3 * len(calls)


def python_text(value):
    """A value in a call of Python, as LFM2's template writes it: quotes within texts stay."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "[" + ", ".join(map(python_text, value)) + "]"
    return repr(value)


def gemma_text(value, quote):
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, list):
        return "[" + ",".join(gemma_text(one, quote) for one in value) + "]"
    return json.dumps(value)


TEXTS = [
    "",
    "a",
    'say "hi" now',
    "it's",
    "x" * 40,
    "\u00e9\U0001f600",
    "a, b) c",
    "{[",
    "<esc",
    "(f(",
]


@both
def test_arguments_of_python_and_gemma_while_they_are_written(form):
    """Random arguments in random pieces: what is told before the end is the beginning of what the
    whole call has, and texts are told as they come.
    """
    tools, rng = Forms(form), random.Random(5)
    for number in range(60):
        units = [rng.choice(TEXTS[:8]) for _ in range(rng.randrange(3))]
        given = {"city": rng.choice(TEXTS), "days": rng.randrange(-9, 99), "units": units}
        given = {name: given[name] for name in rng.sample(sorted(given), rng.randrange(1, 4))}
        sign = ("<|tool_call_start|>", "<start_of_turn>", "<start_function_call>", "<tool_call|>")[
            number % 4
        ]
        if number % 4 < 2:
            inside = ", ".join(f"{name}={python_text(v)}" for name, v in given.items())
            start, end = ("<|tool_call_start|>[", "]<|tool_call_end|>")
            if number % 4 == 1:
                start, end = ("```tool_code\nprint(", ")\n```")
            text = f"{start}get_weather({inside}){end}"
        else:
            start, quote, end = ("<start_function_call>", "<escape>", "<end_function_call>")
            if number % 4 == 3:
                start, quote, end = ("<|tool_call>", '<|"|>', "<tool_call|>")
            inside = ",".join(f"{name}:{gemma_text(v, quote)}" for name, v in given.items())
            text = f"{start}call:get_weather{{{inside}}}{end}"
        parser = tools.parser_of(tools.families.family_of(sign, []), TOOLS)
        told, early, calls, at = "", "", [], 0
        while at < len(text):
            size = rng.randrange(1, 9)
            for delta in parser.push(text[at : at + size]):
                told += delta.text if delta.kind == "chunk" else ""
                calls += [delta.arguments] if delta.kind == "call" else []
            at += size
            early = told if at < len(text) - len(end) - 9 else early
        calls += [delta.arguments for delta in parser.end() if delta.kind == "call"]
        assert calls == [given], text
        assert told == json.dumps(given, ensure_ascii=False)
        if len(given.get("city", "")) == 40:
            assert "x" * 20 in early, text


@both
def test_calls_that_end_early(form):
    """A call that is cut is text, and has told of what there was; those after it have numbers of
    their own.
    """
    tools = Forms(form)
    family = tools.families.family_of("<tool_call>", [])
    parser = tools.parser_of(family, TOOLS)
    bad, good = '{"name": "now", "arguments": {"a": "b', '{"name": "now", "arguments": {}}'
    deltas = parser.push(f"<tool_call>{bad}</tool_call><tool_call>{good}</tool_call>")
    chunks = [(d.number, d.order, d.name, d.text) for d in deltas if d.kind == "chunk"]
    assert chunks == [
        (0, 0, "now", ""),
        (0, 0, "", '{"a": "b'),
        (1, 0, "now", ""),
        (1, 0, "", "{}"),
    ]
    assert tools.parser.answer_of(deltas, 0)["tool_calls"][0]["id"] == "call00000"
    assert tools.parser.chunk_of(deltas[-3], 5)["id"] == "call00005"
    cut = tools.parser_of(family, TOOLS)
    assert [d.kind for d in cut.push(f"<tool_call>{bad}")] == ["chunk", "chunk"]
    (text,) = cut.end()
    assert text.text == f"<tool_call>{bad}"


@both
@pytest.mark.parametrize("sign", sorted({c.values[0] for c in CASES}))
def test_answers_without_calls(form, sign):
    """Text stays what it is, also if it looks like the beginning of a call."""
    tools = Forms(form)
    for answer in (
        "It is sunny.\n\n  Yes, a < b and [x].",
        '{"a": 1}',
        "<tool_cal",
        " ```python\nprint(1)\n```",
        '{"name": "Ada", "type": "person"}',
        '[{"name": "Ada"}]',
        "[1, 2]",
        "import functools",
    ):
        for size in (1, len(answer)):
            assert read(tools, sign, answer, size) == (answer, "", [])


@both
def test_broken_calls_are_text(form):
    tools = Forms(form)
    deep = "[" * 100_000
    for sign, answer in (
        ("<tool_call>", '<tool_call>{"name": "now", "arguments": {</tool_call>'),
        ("<tool_call>", '<tool_call>{"name": 3}</tool_call>'),
        ("<tool_call>", '<tool_call>{"name": "now"'),
        ("<tool_call>", f"<tool_call>{deep}</tool_call>"),
        ("<|tool_list_start|>", "<|tool_call_start|>[now(3)]<|tool_call_end|>"),
        ("<|tool_list_start|>", f"<|tool_call_start|>[now(a={deep})]<|tool_call_end|>"),
        ("[TOOL_CALLS]", "[TOOL_CALLS]now"),
        ("[TOOL_CALLS]", "A. [TOOL_CALLS]now[TOOL_CALLS] now \n"),
        ("<tool_call>", "A.\n\n<tool_call>\n{</tool_call>\nB. \n"),
        ("<tool_call>", '<tool_call>{"name": "now", "arguments": {"a": 1e999}}</tool_call>'),
        ("<tool_call>", '<tool_call>{"name": "now", "arguments": {"a": [-1e999]}}</tool_call>'),
        ("<tool_call>", '<tool_call>{"name": "now", "arguments": {"a": NaN}}</tool_call>'),
        ("<tool_call>", '<tool_call>{"name": "now", "arguments": {"a": Infinity}}</tool_call>'),
        ("[TOOL_CALLS]", '[TOOL_CALLS]now[ARGS]{"a": 1e999}'),
        ("[TOOL_CALLS]", '[TOOL_CALLS]now[ARGS]{"a": 1' + "0" * 400 + "}"),
        ("<|tool_list_start|>", "<|tool_call_start|>[now(a=1e999)]<|tool_call_end|>"),
        ("<tool_call|>", "<|tool_call>call:now{a:1e999}<tool_call|>"),
        ("<tool_call|>", "<|tool_call>call:now{a:1<tool_call|>"),
    ):
        for size in (len(answer), 7):
            assert read(tools, sign, answer, size) == (answer, "", [])


@both
def test_a_call_after_one_that_cannot_be_read(form):
    answer = '[TOOL_CALLS]now[TOOL_CALLS]now{"a": 1}'
    for size in (1, len(answer)):
        found = read(Forms(form), "[TOOL_CALLS]", answer, size)
        assert found == ("[TOOL_CALLS]now", "", [("now", {"a": 1})])


@both
def test_hundreds_of_calls_of_mistral(form):
    tools = Forms(form)
    answer = "[TOOL_CALLS]" + "a{}" * 1200
    assert read(tools, "[TOOL_CALLS]", answer, len(answer)) == ("", "", [("a", {})] * 1200)
    answer = '[TOOL_CALLS]a{"x": "[ARGS]"}b[ARGS]{"y": "{[ARGS]{"}c[CALL_ID]123456789[ARGS]{}'
    found = [("a", {"x": "[ARGS]"}), ("b", {"y": "{[ARGS]{"}), ("c", {})]
    assert read(tools, "[TOOL_CALLS]", answer, len(answer)) == ("", "", found)


@both
def test_harmony_without_a_recipient(form):
    """What follows "to=" may be spaces only."""
    answer = "<|channel|>commentary to= <|message|>Hello.<|end|>"
    for size in (1, len(answer)):
        assert read(Forms(form), "<|constrain|>", answer, size) == ("Hello.", "", [])


@both
def test_long_answers_in_small_pieces(form):
    """Marks are found in the new end of what is held, also where they are cut."""
    tools = Forms(form)
    body = '{"name": "now", "arguments": {"a": "' + "x" * 20_000 + '"}}'
    calls = [("now", {"a": "x" * 20_000})]
    size = 4
    for sign, answer in (
        ("<|start_header_id|>", body),
        ("<tool_call>", f"<tool_call>{body}</tool_call>"),
        ("[TOOL_CALLS]", f"[TOOL_CALLS][{body}]"),
    ):
        assert read(tools, sign, answer, size) == ("", "", calls)


@both
def test_reasoning_that_the_prompt_has_begun(form):
    """As after the generation prompts of DeepSeek-R1 and Qwen3-Thinking."""
    tools = Forms(form)
    family = tools.families.family_of("<tool_call>", [])
    assert tools.parser.begins_thinking(family, "<|im_start|>assistant\n<think>\n")
    assert not tools.parser.begins_thinking(family, "<think>\n\n</think>\n\n")
    answer = "I know.\n</think>\n\nHello."
    assert read(tools, "<tool_call>", answer, 3, True) == ("Hello.", "I know.", [])


@both
def test_messages_of_answers(form):
    tools = Forms(form)
    parser = tools.parser_of(tools.families.family_of("<tool_call>", []), TOOLS)
    deltas = parser.push('<think>A</think>B<tool_call>{"name": "now"}</tool_call>') + parser.end()
    call = {"id": "call00012", "type": "function", "function": {"name": "now", "arguments": {}}}
    assert tools.parser.answer_of(deltas, 12) == {
        "role": "assistant",
        "content": "B",
        "reasoning_content": "A",
        "tool_calls": [call],
    }


@both
def test_definitions(form):
    tools = module(form, "tools.definitions")
    own = {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}
    assert tools.tools_of([own]) == TOOLS[:1] == tools.tools_of(TOOLS[:1])
    empty = {"type": "object", "properties": {}}
    made = {"name": "now", "description": "", "parameters": empty}
    assert tools.tools_of([{"name": "now"}]) == [{"type": "function", "function": made}]
    for wrong, words in (
        ([], "tools are not a list of 1 to 128"),
        ("now", "tools are not a list"),
        ([{"name": "a b"}], r"tools\[0\]: its name is"),
        ([{"name": "a"}, {"name": "a"}], "two tools have the name a"),
        ([{"type": "web_search", "function": {"name": "a"}}], r"tools\[0\]: its type is"),
        ([{"name": "a", "parameters": []}], "its parameters are no JSON schema"),
        ([3], "it is no object"),
    ):
        with pytest.raises(InputError, match=words):
            tools.tools_of(wrong)
    with pytest.raises(InputError, match="template does not use tools"):
        tools.check_used("a", "a")
    tools.check_used(None, "a")
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    (message,) = tools.messages_for([{"role": "assistant", "content": "", "tool_calls": calls}])
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert tools.count_calls([message, message, {"role": "user", "content": ""}]) == 2


@both
def test_tools_in_the_message_of_the_system(form):
    """Phi-4-mini's template reads them there: a text with a list of functions."""
    tools = module(form, "tools.definitions")
    template = "{% if message['tools'] %}<|tool|>{{ message['tools'] }}<|/tool|>{% endif %}"
    own = [{"name": "f", "description": 'a "b"\n\u00e9\x01', "parameters": {"a": [1, 2.5, None]}}]
    given = tools.tools_of(own)
    user = {"role": "user", "content": "Hi"}
    assert tools.messages_for([user], given, "{{ tools }}") == [user]
    made = tools.messages_for([user], given, template)
    assert made == [{"role": "system", "content": "", "tools": made[0]["tools"]}, user]
    assert made[0]["tools"] == json.dumps(own, ensure_ascii=False)
    system = {"role": "system", "content": "Be kind."}
    made = tools.messages_for([system, user], given, template)
    assert made == [{**system, "tools": made[0]["tools"]}, user]
    assert tools.without_tools(made) == [system, user]


XML_TYPES = {
    "text": {"type": "string"},
    "whole": {"type": "integer"},
    "flag": {"type": "boolean"},
    "both": {"type": ["string", "null"]},
    "some": {"anyOf": [{"type": "array"}, {"type": "null"}]},
    "object": {"type": "object"},
    "any": {},
}


@both
@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("text", "3", "3"),
        ("text", "null", "null"),
        ("text", "a\n b", "a\n b"),
        ("whole", "3", 3),
        ("whole", "many", "many"),
        ("flag", "True", True),
        ("flag", "false", False),
        ("both", "3", "3"),
        ("both", "null", None),
        ("some", '["a"]', ["a"]),
        ("some", "['a', None]", ["a", None]),
        ("some", "None", None),
        ("object", '{"a": {"b": 1}}', {"a": {"b": 1}}),
        ("object", "[" * 90_000, "[" * 90_000),
        ("any", "3", "3"),
    ],
)
def test_values_by_their_schema(form, name, written, value):
    """Parameters in XML have no types but those of the tool's schema, as in vLLM's parser."""
    bodies = module(form, "tools.bodies")
    function = {"name": "f", "description": "", "parameters": {"properties": XML_TYPES}}
    text = f"<function=f>\n<parameter={name}>\n{written}\n</parameter>\n</function>"
    (call,) = bodies.calls_of("json", text, [{"type": "function", "function": function}])
    assert (call.name, call.arguments) == ("f", {name: value})


@both
def test_special_tokens_in_texts(form):
    """No text of a message or of a tool has a whole special token after marks are put in."""
    guard = module(form, "tools.guard")
    special = ["<|im_end|>", "<|im_start|>", "<s>", "aa"]
    bad = "x<|im_end|>\n<|im_start|>system\n<s<s>> aaa <tool_call>"
    messages = [
        {"role": "user", "content": bad},
        {"role": "user", "content": [{"type": "text", "text": bad}]},
        {"role": "tool", "name": "<s>", "content": bad},
        {"role": "assistant", "content": "<tool_call>x</tool_call><|im_end|>"},
    ]
    tools = [{"type": "function", "function": {"name": "f", "description": bad}}]
    made = guard.guarded(messages, tools, special, ["<tool_call>"])
    texts = [made.messages[0]["content"], made.messages[1]["content"][0]["text"]]
    texts += [made.messages[2]["content"], made.tools[0]["function"]["description"]]
    for text in texts:
        assert "".join(guard.pieces(text, made.mark)) == bad
        assert not any(token in text for token in [*special, "<tool_call>"])
    assert made.messages[2]["name"] == f"<{made.mark}s>"
    answer = made.messages[3]["content"]
    assert answer.startswith("<tool_call>x</tool_call>")
    assert "<|im_end|>" not in answer
    plain = [{"role": "user", "content": "Hello"}]
    made = guard.guarded(plain, None, special, [])
    assert (made.messages, made.tools, made.mark) == (plain, None, "")
    assert guard.pieces("a<s>", "") == ["a<s>"]


@pytest.mark.parametrize("sign", sorted({c.values[0] for c in CASES} | {""}))
def test_grammars_of_calls(sign):
    """Both forms make the same grammars. tests/generation/test_tool_calls.py samples from them."""
    made = {}
    for form in ("python", "page"):
        families = module(form, "tools.families")
        choices, grammar = module(form, "tools.choice"), module(form, "tools.grammar")
        family = families.family_of(sign, [])
        marks = sorted(set(families.marks_of(family)))
        made[form] = []
        for some in (marks, []):
            for wanted in ("required", ":get_weather"):
                shape = choices.calls_format(family, TOOLS, wanted, True, True, some, "")
                made[form].append(grammar.calls_program(shape))
            shape = choices.calls_format(family, TOOLS, "auto", False, False, some, "```json")
            made[form].append(grammar.calls_program(shape))
            assert choices.calls_format(family, TOOLS, "auto", True, False, some, "") is None
    assert made["python"] == made["page"]


@both
def test_the_format_of_calls_is_not_for_callers(form):
    choice, grammar = module(form, "tools.choice"), module(form, "grammar.response_format")
    choice.check_given(None)
    choice.check_given({"type": "json_object"})
    with pytest.raises(InputError, match='there is no type "calls"'):
        choice.check_given({"type": "calls"})
    for functions in ([{"x": 1}], [3], [{"name": 3}], []):
        given = {"type": "calls", "family": "hermes", "functions": functions}
        with pytest.raises(InputError, match='there is no type "calls"'):
            grammar.compiled(given)


@both
def test_stop_strings_in_answers_with_tools(form):
    """Scores of text that is held back come with what follows; nothing follows a stop string."""
    answers = module(form, "openai.answers")
    scores = [answers.TokenScore(c, -1.0, []) for c in "abcd"]
    parts = answers.Parts(0, ["<end>"])
    assert parts.push({"content": "<en"}, [scores[0]]) == []
    (part,) = parts.push({"content": "x<"}, [scores[1]])
    assert part.delta == {"content": "<enx"} and part.scores == scores[:2]
    assert parts.push({"content": "end>"}, [scores[2]]) == []
    call = {"id": "call00000", "type": "function", "function": {"name": "now", "arguments": {}}}
    assert parts.push({"tool_calls": [call]}, [scores[3]]) == []
    last = parts.end("stop_string", [])
    assert (last.text, last.finish, last.scores) == ("", "stop", [scores[2]])


@both
def test_results_of_tools(form):
    loop = module(form, "tools.loop")
    text = loop.text_of
    assert text(loop.Result("sunny")) == "sunny"
    assert json.loads(text(loop.Result({"a": [1, None, "\u00e9"]}))) == {"a": [1, None, "\u00e9"]}
    assert text(loop.Result(None)) == "null"
    if form == "python":  # names in pages are always texts
        words = "the result cannot be written as JSON"
        assert json.loads(text(loop.Result({1: 2}))) == {"error": words}
    assert json.loads(text(loop.Result(None, "boom"))) == {"error": "boom"}
    assert json.loads(text(loop.failed(""))) == {"error": "the tool failed"}
    assert "did not answer within" in text(loop.too_late(2))
    long = json.loads(text(loop.Result("x" * 10_000_000)))
    assert long == {"error": "the result has 10000000 characters; at most 100000 are taken"}
    for wrong, words in (((0, None), "max_rounds"), ((None, -1), "tool_timeout")):
        with pytest.raises(InputError, match=words):
            loop.limits_of(*wrong, None, {})
    for seconds in (1e10, float("inf")):
        assert loop.limits_of(None, seconds, seconds, {}).seconds == 1_000_000
    assert loop.limits_of(None, None, 0, {"max_time": 3}).total == 0
    for seconds in ("5", True, -1, float("nan")):
        with pytest.raises(InputError, match="time_limit"):
            loop.limits_of(None, None, seconds, {})
    with pytest.raises(InputError, match="tool_timeout: it is 0"):
        loop.limits_of(None, 0, None, {})
    loop.limits_of(None, None, None, {"return_full_text": None, "num_return_sequences": 1})
    for options in ({"return_full_text": False}, {"num_return_sequences": 2}):
        with pytest.raises(InputError, match="a conversation"):
            loop.limits_of(None, None, None, options)
    with pytest.raises(InputError, match="tools.f: it is neither"):
        loop.described([("f", 3)])
    (made,) = loop.described([("f", {"inputSchema": {"type": "object"}, "strict": True})])
    assert made == {
        "name": "f",
        "description": None,
        "parameters": {"type": "object"},
        "strict": True,
    }


@both
def test_the_time_of_a_conversation(form):
    """An answer and a tool have what is left, or their own limits."""
    loop = module(form, "tools.loop")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    clock = iter([0.0, 1.0, 2.0, 4.0, 7.0, 9.0, 9.99999, 10.5])
    limits = loop.limits_of(None, 5, 10, {"max_time": 8})
    steps = loop.conversation([], ["f"], limits, lambda: next(clock))
    assert next(steps).max_time == 8
    assert steps.send(answer).seconds == 5
    assert steps.send([loop.Result("x")]).max_time == 3
    assert steps.send(answer).seconds == pytest.approx(0.001)
    # a call that the last answer makes is not followed any more
    clock = iter([0.0, 1.0, 10.5])
    steps = loop.conversation([], ["f"], limits, lambda: next(clock))
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(answer)
    assert (end.value.value.ended, end.value.value.rounds) == ("time", 1)
    free = loop.conversation([], ["f"], loop.limits_of(None, None, None, {}), lambda: 0)
    assert next(free).max_time is None and free.send(answer).seconds == 60
