"""Chats of a page that cannot be answered: an error says why, and the conversation goes on. In
Python: tests/generation/test_formats.py and test_tools.py; tools that throw, hang and return 10 MB:
tests/bundlers/test_clients.py.
"""

from .loading import TEMPLATED

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
BAD = (
    TEMPLATED
    + """
    const p = await ew.pipeline("text-generation", files, { dtype: "q4", capacity: 160 });
    const chat = [{ role: "user", content: "A story of a cat." }];
    const greedy = { do_sample: false, max_new_tokens: 8, return_full_text: false };
    const first = (await p(chat, greedy))[0].generated_text;
    const failures = [];
    for (const options of arg.wrong)
      failures.push(await p(chat, { ...greedy, ...options }).then(
        () => "", (e) => `${e.name}: ${e.message}`));
    const long = [{ role: "user", content: "cat ".repeat(400) }];
    failures.push(await p(long, greedy).then(() => "", (e) => `${e.name}: ${e.message}`));
    const options = { ...greedy, max_new_tokens: 1000, return_dict_in_generate: true };
    const [full] = await p(chat, { ...options, min_new_tokens: 999 });
    const within = { prompt_tokens: p.stats.prompt_tokens, new_tokens: p.stats.new_tokens };
    const schema = { type: "array", items: { enum: ["cat", "dog"] }, minItems: 200 };
    const form = { type: "json_schema", json_schema: { schema } };
    const [cut] = await p(chat, { ...options, response_format: form });
    const last = (await p(chat, greedy))[0].generated_text;
    await p.dispose();
    return { first, last, failures, full, within, cut };
"""
)
ITSELF = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
NOTHING = {"allOf": [{"type": "string"}, {"type": "integer"}]}
EXPLODES = {"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for i in range(9)]} for j in range(9)]}
TOOLS = [{"type": "function", "function": {"name": "now", "description": "The time."}}]


def test_errors_in_words_and_the_conversation_goes_on(visit, server):
    wrong = [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
        for schema in (ITSELF, NOTHING, EXPLODES)
    ]
    given = {"template": TEMPLATE, "wrong": [*wrong, {"tools": TOOLS}]}
    got = visit(server).run(BAD, given)
    assert "error" not in got, got
    words = ["refers to itself", "no finite value", "more than 500", "does not use tools", "160"]
    for failure, part in zip(got["failures"], words, strict=True):
        assert part in failure and failure.split(":")[0] in ("InputError", "UnsupportedField")
    assert got["full"]["finish_reasons"] == got["cut"]["finish_reasons"] == "length"
    assert got["within"]["prompt_tokens"] + got["within"]["new_tokens"] == 160
    assert got["full"]["generated_text"].startswith(got["first"])
    assert got["cut"]["parsed"] and set(got["cut"]["parsed"]) <= {
        "cat",
        "dog",
        "c",
        "d",
        "ca",
        "do",
    }
    assert got["first"] == got["last"] != ""
