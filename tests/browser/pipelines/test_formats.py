"""Formats of generated text in a page. On a GPU: tests/browser/webgpu/test_generation.py."""

import json

import edgewise

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
OPTIONS = {"max_new_tokens": 80, "return_full_text": False, "return_dict_in_generate": True}
CALLS = [
    {"do_sample": False},
    {"seed": 3},
    {"seed": 4, "num_return_sequences": 2},
    {"do_sample": False, "num_beams": 3},
]
RUN = """
    const p = await ew.pipeline("text-generation", "/files/model.edge", { device: "wasm" });
    const out = { results: [], parsed: [], errors: [] };
    const options = { response_format: arg.form, ...arg.options };
    for (const more of arg.calls) out.results.push(await p("Once", { ...options, ...more }));
    await p("Once", { ...options, seed: 3, on_parsed: (value) => out.parsed.push(value) });
    const choices = { type: "choices", choices: ["yes", "no"] };
    out.choice = (await p("Once", { ...options, response_format: choices }))[0];
    for (const form of [{ type: "object", not: {} }, { type: "regex", regex: "(?=a)" }])
      await p("Once", { response_format: form }).catch((e) => out.errors.push(e.message));
    return out;
"""


def test_formats(visit, server, files):
    """Texts are those of Python, and follow the schema."""
    page = visit(server)
    found = page.run(RUN, {"form": FORM, "options": OPTIONS, "calls": CALLS})
    assert "error" not in found, found
    write = edgewise.pipeline("text-generation", str(files / "model.edge"))
    for options, results in zip(CALLS, found["results"], strict=True):
        expected = write("Once", response_format=FORM, **OPTIONS, **options)
        for result in results:
            value = json.loads(result["generated_text"])
            assert result["parsed"] == value and result["finish_reasons"] == "eos"
            assert value.keys() >= {"name", "age"} and value.keys() <= SCHEMA["properties"].keys()
        texts = [one["generated_text"] for one in results]
        assert texts == [one["generated_text"] for one in expected]
    assert len(found["parsed"]) > 3
    assert found["parsed"][-1] == found["results"][1][0]["parsed"]
    assert found["choice"]["generated_text"] in ("yes", "no") and "parsed" not in found["choice"]
    assert "the schema has 'not'" in found["errors"][0]
    assert "not regular" in found["errors"][1]
    assert page.asked("worker-grammar")
