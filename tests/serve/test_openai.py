"""The server as OpenAI's official client sees it."""

import base64
import json
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import onnxruntime
import pytest

from . import environment  # noqa: F401

pytest.importorskip("uvicorn")
if find_spec("openai") is None:  # importing it takes seconds, and every process collects tests
    pytest.skip("OpenAI's client is not installed", allow_module_level=True)

CHAT = [{"role": "user", "content": "A story of a cat."}]
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def pipe(folder):
    import edgewise

    return edgewise.pipeline("text-generation", str(folder))


def openai():
    """The module of OpenAI's client."""
    return import_module("openai")


def greedy(pipe, given, tokens=30):
    """The new text of the pipeline itself."""
    out = pipe(given, do_sample=False, max_new_tokens=tokens, return_full_text=False)
    return out[0]["generated_text"]


def test_models(client):
    models = {m.id: m for m in client.models.list()}
    assert list(models) == ["stories", "tiny", "pirate", "poet"]
    assert models["pirate"].parent == "stories" and models["tiny"].parent is None
    assert client.models.retrieve("poet").id == "poet"
    with pytest.raises(openai().NotFoundError, match="there is no model 'x'"):
        client.models.retrieve("x")


def test_completion_and_chat_are_those_of_the_pipeline(client, pipe):
    done = client.completions.create(model="stories", prompt=PROMPT, temperature=0, max_tokens=30)
    assert done.choices[0].text == greedy(pipe, PROMPT)
    assert done.choices[0].finish_reason == "length"
    prompt = len(pipe.tokenizer.encode(PROMPT))
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (prompt, 30)
    said = client.chat.completions.create(
        model="stories", messages=CHAT, temperature=0, max_completion_tokens=30
    )
    assert said.choices[0].message.content == greedy(pipe, CHAT)


def test_a_stream_is_the_whole_text_in_pieces(client, pipe):
    stream = client.chat.completions.create(
        model="stories",
        messages=CHAT,
        temperature=0,
        max_tokens=30,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(texts) == greedy(pipe, CHAT) and len(texts) > 10
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 30
    assert all("usage" in c.model_fields_set and c.usage is None for c in chunks[:-1])


def test_an_answer_is_continued_from_every_place(client, pipe):
    """What `hybrid` relies on when it changes sides: the text so far is an unfinished message,
    from which a template may trim spaces.
    """
    whole = greedy(pipe, CHAT, 12)
    ids = pipe.tokenizer.encode(whole, add_special_tokens=False)
    for n in range(1, 12, 3):
        so_far = pipe.tokenizer.decode(ids[:n]).rstrip()
        rest = client.chat.completions.create(
            model="stories",
            messages=[*CHAT, {"role": "assistant", "content": so_far}],
            temperature=0,
            max_tokens=12 - n,
            extra_body={"continue_final_message": True, "add_generation_prompt": False},
        )
        assert (so_far.strip() + rest.choices[0].message.content) == whole.strip()


def test_seeds_and_several_sequences(client):
    def texts(**fields):
        done = client.completions.create(
            model="stories", max_tokens=12, temperature=1.2, seed=7, **fields
        )
        return [c.text for c in done.choices]

    first = texts(prompt=[PROMPT, "The dog"], n=2)
    assert first == texts(prompt=[PROMPT, "The dog"], n=2)
    assert len(set(first)) == 4
    assert texts(prompt=PROMPT) == first[:1]


def test_stop_strings_end_the_text_before_them(client, pipe):
    whole = greedy(pipe, PROMPT, 40)
    at = whole.index(".")
    stop = whole[at - 3 : at + 1]  # of several tokens
    fields = {"model": "stories", "prompt": PROMPT, "temperature": 0, "max_tokens": 40}
    done = client.completions.create(stop=[stop, "\0"], **fields)
    assert (done.choices[0].text, done.choices[0].finish_reason) == (
        whole[: whole.index(stop)],
        "stop",
    )
    chunks = list(client.completions.create(stop=stop, stream=True, **fields))
    assert "".join(c.choices[0].text for c in chunks) == done.choices[0].text


def test_adapters_are_models(client, folder, adapters):
    import edgewise
    from edgewise.training.adapters import CausalLM

    model = CausalLM(str(folder), lora=adapters["pirate"])
    own = edgewise.pipeline("text-generation", model)
    seen = set()
    for name in ("pirate", "poet", "stories", "pirate"):
        done = client.completions.create(model=name, prompt=PROMPT, temperature=0, max_tokens=10)
        if name != "poet":
            model.set_adapter("default" if name == "pirate" else None)
            assert done.choices[0].text == greedy(own, PROMPT, 10)
        seen.add(done.choices[0].text)
    assert len(seen) == 3


def test_logprobs_are_onnxruntimes(client, folder, pipe):
    done = client.completions.create(
        model="stories", prompt=PROMPT, temperature=0, max_tokens=5, logprobs=3
    )
    found = done.choices[0].logprobs
    prompt = pipe.tokenizer.encode(PROMPT)
    ids = prompt + pipe.tokenizer.encode(done.choices[0].text, add_special_tokens=False)
    session = onnxruntime.InferenceSession(str(folder / "onnx/model_q4.onnx"))
    feeds = {}
    for given in session.get_inputs():
        if given.name.startswith("past"):
            feeds[given.name] = np.zeros((1, given.shape[1], 0, given.shape[3]), np.float32)
    feeds["input_ids"] = np.array([ids], np.int64)
    feeds["attention_mask"] = np.ones_like(feeds["input_ids"])
    if "position_ids" in {given.name for given in session.get_inputs()}:
        feeds["position_ids"] = np.arange(len(ids))[None]
    logits = session.run(["logits"], feeds)[0][0, len(prompt) - 1 : -1].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(found.token_logprobs, expected.max(-1), atol=0.05)
    best = np.sort(expected, -1)[:, :-4:-1]
    np.testing.assert_allclose([[*t.values()] for t in found.top_logprobs], best, atol=0.05)
    assert "".join(found.tokens) == done.choices[0].text
    said = client.chat.completions.create(
        model="stories", messages=CHAT, max_tokens=3, logprobs=True, top_logprobs=2
    )
    content = said.choices[0].logprobs.content
    assert len(content) == 3 and all(len(t.top_logprobs) == 2 for t in content)


def test_embeddings_are_transformers(client, server, encoder):
    import torch
    import transformers

    texts = ["The quick brown fox.", "My phone is broken!"]
    made = client.embeddings.create(model="tiny", input=texts)  # as base64, the client's default
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    model = transformers.AutoModel.from_pretrained(encoder).eval()
    for text, entry in zip(texts, made.data):
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        expected = torch.nn.functional.normalize(states.mean(0), dim=0)
        np.testing.assert_allclose(entry.embedding, expected, atol=1e-5)
    assert made.usage.prompt_tokens == sum(len(tokenizer(t).input_ids) for t in texts)
    raw = client.embeddings.with_raw_response.create(
        model="tiny", input=texts[0], encoding_format="base64"
    )
    packed = json.loads(raw.text)["data"][0]["embedding"]
    np.testing.assert_allclose(
        np.frombuffer(base64.b64decode(packed), "<f4"), made.data[0].embedding, atol=1e-6
    )


def test_errors_are_those_of_the_client(client):
    with pytest.raises(openai().NotFoundError, match="there are: stories, pirate, poet"):
        client.completions.create(model="x", prompt="a")
    with pytest.raises(openai().BadRequestError, match="does something else"):
        client.completions.create(model="tiny", prompt="a")
    with pytest.raises(openai().BadRequestError, match="context 512; shorten it") as e:
        client.completions.create(model="stories", prompt=[5] * 600)
    assert e.value.code == "context_length_exceeded" and e.value.param == "prompt"
    with pytest.raises(openai().BadRequestError, match="vocabulary has 4096"):
        client.completions.create(model="stories", prompt=[5000])


def test_an_answer_of_a_schema(client):
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "maximum": 20}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema}}
    said = client.chat.completions.create(
        model="stories", messages=CHAT, temperature=1, seed=1, max_tokens=60, response_format=form
    )
    pet = json.loads(said.choices[0].message.content)
    assert pet["name"] in ("cat", "dog") and pet["age"] <= 20
    assert said.choices[0].finish_reason == "stop"


def test_the_format_of_calls_is_refused(client):
    form = {"type": "calls", "family": "hermes", "functions": [{"x": 1}]}
    refused = openai().BadRequestError
    with pytest.raises(refused, match='there is no type "calls"'):
        client.chat.completions.create(model="stories", messages=CHAT, response_format=form)
    with pytest.raises(refused, match='there is no type "calls"'):
        client.responses.create(model="stories", input="Once", text={"format": form})


WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "maximum": 20}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
CALLING = {"model": "stories", "messages": CHAT, "tools": TOOLS, "max_tokens": 90, "seed": 1}


def weather(call):
    """Checks a call of get_weather. Returns its arguments."""
    assert call.type == "function" and call.function.name == "get_weather"
    given = json.loads(call.function.arguments)
    assert given["city"] in ("Paris", "Rome") and given["days"] <= 20 and len(given) == 2
    return given


def test_calls_of_tools(client):
    named = {"type": "function", "function": {"name": "get_weather"}}
    fields = {**CALLING, "tool_choice": named, "parallel_tool_calls": False}
    said = client.chat.completions.create(**fields)
    (call,) = said.choices[0].message.tool_calls
    given = weather(call)
    assert said.choices[0].finish_reason == "tool_calls" and said.choices[0].message.content is None
    deltas, pieces = [], []
    with client.chat.completions.stream(**fields) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                deltas.append(event)
            elif event.type == "tool_calls.function.arguments.delta":
                pieces.append(event.arguments_delta)
        final = stream.get_final_completion()
    assert len(pieces) > 5 and json.loads("".join(pieces)) == given
    assert [(d.name, json.loads(d.arguments)) for d in deltas] == [("get_weather", given)]
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.choices[0].message.tool_calls[0].id == call.id
    chat = [
        *CHAT,
        said.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    next_ = client.chat.completions.create(**{**fields, "messages": chat})
    assert next_.choices[0].message.tool_calls[0].id != call.id
    several = client.chat.completions.create(
        **{**CALLING, "tool_choice": "required", "n": 2, "logprobs": True}
    )
    for choice in several.choices:
        if choice.finish_reason == "tool_calls":
            assert {c.function.name for c in choice.message.tool_calls} <= {"get_weather", "now"}


def test_tools_that_are_not_called(client, pipe):
    """With "none", the answer is that without tools; with "auto", it may be text."""
    fields = {**CALLING, "temperature": 0, "max_tokens": 30}
    none = client.chat.completions.create(**fields, tool_choice="none")
    assert none.choices[0].message.content == greedy(pipe, CHAT)
    auto = client.chat.completions.create(**fields)
    expected = pipe(CHAT, tools=TOOLS, do_sample=False, max_new_tokens=30, return_full_text=False)
    assert auto.choices[0].message.content == expected[0]["generated_text"]
    stop = auto.choices[0].message.content[5:9]
    cut = client.chat.completions.create(**fields, stop=stop)
    assert cut.choices[0].message.content == auto.choices[0].message.content.split(stop)[0]
    assert cut.choices[0].finish_reason == "stop"
    for wrong, param, words in (
        ({"tools": []}, None, None),
        ({"tools": [{"type": "function", "function": {}}]}, "tools", "its name is"),
        ({"tools": 3}, "tools", "tools are not a list"),
        ({"tool_choice": "any"}, "tool_choice", "it is 'any'"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice", "there are no tools"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages", "a call has no"),
        (
            {"response_format": {"type": "json_object"}, "tool_choice": "required"},
            None,
            "exclude each other",
        ),
    ):
        if words is None:
            client.chat.completions.create(**{**fields, **wrong})
            continue
        with pytest.raises(openai().BadRequestError, match=words) as e:
            client.chat.completions.create(**{**fields, **wrong})
        assert e.value.param == param


def test_responses_are_those_of_the_pipeline(client, pipe):
    fields = {"model": "stories", "temperature": 0, "max_output_tokens": 30}
    said = client.responses.create(input="A story of a cat.", **fields)
    assert said.output_text == greedy(pipe, CHAT)
    assert said.status == "incomplete" and said.incomplete_details.reason == "max_output_tokens"
    assert said.usage.output_tokens == 30
    with client.responses.stream(input="A story of a cat.", **fields) as stream:
        events = list(stream)
    kinds = [e.type for e in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.incomplete"
    assert [e.sequence_number for e in events] == list(range(len(events)))
    texts = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(texts) == said.output_text and len(texts) > 10
    system = [{"role": "system", "content": "Be kind.\n\nBe short."}, *CHAT]
    items = [{"role": "developer", "content": "Be short."}, {"type": "message", **CHAT[0]}]
    told = client.responses.create(input=items, instructions="Be kind.", **fields)
    assert told.output_text == greedy(pipe, system)
    form = {"type": "json_schema", "name": "pet", "schema": WEATHER, "strict": True}
    made = client.responses.create(
        **{**fields, "max_output_tokens": 60}, input="Where?", text={"format": form}
    )
    assert made.status == "completed"
    assert json.loads(made.output_text)["city"] in ("Paris", "Rome")


def test_calls_of_responses(client):
    tools = [{"type": "function", "strict": True, **t["function"]} for t in TOOLS]
    named = {"type": "function", "name": "get_weather"}
    fields = {"model": "stories", "tools": tools, "tool_choice": named, "max_output_tokens": 90}
    fields["extra_body"] = {"seed": 1}
    said = client.responses.create(input="A story of a cat.", **fields)
    (call,) = said.output
    assert (call.type, call.name, said.status) == ("function_call", "get_weather", "completed")
    given = json.loads(call.arguments)
    assert given["city"] in ("Paris", "Rome") and given["days"] <= 20
    with client.responses.stream(input="A story of a cat.", **fields) as stream:
        events = [e for e in stream if "function_call" in e.type or "item" in e.type]
        final = stream.get_final_response()
    added, *deltas, done, item_done = events
    assert added.type == "response.output_item.added" and added.item.arguments == ""
    assert {e.type for e in deltas} == {"response.function_call_arguments.delta"}
    assert done.type == "response.function_call_arguments.done" and len(deltas) > 5
    assert "".join(e.delta for e in deltas) == done.arguments == final.output[0].arguments
    assert item_done.type == "response.output_item.done" and item_done.item.status == "completed"
    assert json.loads(final.output[0].arguments) == given
    items = [
        *CHAT,
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
    ]
    fields["tool_choice"] = "none"
    assert client.responses.create(input=items, **fields).output[0].type == "message"
    for wrong, param in (
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"truncation": "auto"}, "truncation"),
    ):
        with pytest.raises(openai().BadRequestError) as e:
            client.responses.create(**{"input": "Hi", **fields, **wrong})
        assert e.value.param == param
