"""OpenAI's API on a pipeline of the page, and its fetch. Texts are the pipeline's, and
log-probabilities those of CausalLM's logits.
"""

import json

import numpy as np
from edgewise import pipeline

from .conftest import MODEL
from .loading import TEMPLATED

START = """
    const { createClient } = await import("/openai.js");
    const pipe = await ew.pipeline("text-generation", "/demo/model/");
    const client = createClient(pipe);
    const failure = async (work) => {
      try { await work(); } catch (e) { return { name: e.name, what: e.what, param: e.param }; }
      return "nothing failed";
    };
    const greedy = { model: "any", temperature: 0, max_tokens: 20 };
"""
TEXTS = """
    const prompt = "Once upon a time";
    const whole = await client.completions.create({ ...greedy, prompt });
    const chunks = [];
    const counted = { stream: true, stream_options: { include_usage: true } };
    for await (const c of await client.completions.create({ ...greedy, prompt, ...counted }))
      chunks.push(c);
    const cut = await client.completions.create({ ...greedy, prompt, stop: [arg.stop, "zzz"] });
    const sampled = { ...greedy, temperature: 1, seed: 1, n: 2 };
    const two = await client.completions.create({ ...sampled, prompt });
    const scored = await client.completions.create({ ...greedy, prompt, logprobs: 3 });
    const left = [];
    for await (const c of await client.completions.create({ ...greedy, prompt, stream: true })) {
      left.push(c.choices[0].text);
      break;
    }
    const after = await client.completions.create({ ...greedy, prompt });
    const pieces = [];
    for await (const text of pipe.stream(prompt, { max_new_tokens: 20, do_sample: false }))
      pieces.push(text);
    return { whole, chunks, cut, two, scored, left, after, pieces };
"""


def test_texts(visit, server):
    pipe = pipeline("text-generation", MODEL)
    fields = {"do_sample": False, "return_full_text": False}
    [expected] = pipe("Once upon a time", max_new_tokens=20, **fields)
    text = expected["generated_text"]
    stop = text.split()[5]
    got = visit(server).run(START + TEXTS, {"stop": stop})
    assert "error" not in got, got
    [choice] = got["whole"]["choices"]
    assert choice == {"index": 0, "text": text, "logprobs": None, "finish_reason": "length"}
    prompt = len(pipe.tokenizer.encode("Once upon a time"))
    usage = got["whole"]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, 20)
    *parts, last = got["chunks"]
    assert "".join(c["choices"][0]["text"] for c in parts) == text and len(parts) > 5
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 20
    [cut] = got["cut"]["choices"]
    assert cut["text"] == text[: text.index(stop)] and cut["finish_reason"] == "stop"
    first, second = got["two"]["choices"]
    assert first["text"] != second["text"] and second["index"] == 1
    assert "".join(got["left"]) and text.startswith("".join(got["left"]))
    assert got["after"]["choices"] == got["whole"]["choices"]
    assert "".join(got["pieces"]) == text
    scores(pipe, got["scored"]["choices"][0]["logprobs"])


def scores(pipe, told):
    """The log-probabilities of 20 tokens."""
    ids = pipe.tokenizer.encode("Once upon a time")
    lm = pipe.model
    sequence = lm.open()
    address = lm.forward(sequence, ids)
    for i in range(20):
        logits = np.array(lm.logits(address))
        expected = np.sort(logits - np.logaddexp.reduce(logits))[::-1]
        assert abs(told["token_logprobs"][i] - expected[0]) < 1e-3
        found = sorted(told["top_logprobs"][i].values(), reverse=True)
        np.testing.assert_allclose(found, expected[:3], atol=1e-3)
        address = lm.forward(sequence, [int(np.argmax(logits))])


WRONG = """
    const chat = [{ role: "user", content: "Hi" }];
    const failures = [];
    for (const body of arg.bodies)
      failures.push(await failure(() => client.chat.completions.create(body)));
    const answers = [];
    for (const [path, init] of arg.requests) {
      const answer = await client.fetch("https://api.example/v1" + path, init);
      answers.push([answer.status, await answer.json()]);
    }
    const end = new AbortController();
    end.abort();
    const aborted = await failure(() => client.completions.create(
      { ...greedy, prompt: "Once" }, { signal: end.signal }));
    const after = await client.completions.create({ ...greedy, prompt: "Once" });
    return { failures, answers, aborted, after, none: await failure(async () => createClient({})) };
"""


def test_wrong_requests(visit, server):
    user = [{"role": "user", "content": "Hi"}]
    wrong = [
        ({}, "messages"),
        ({"messages": user}, "model"),
        ({"model": "any", "messages": user, "temprature": 1}, "temprature"),
        ({"model": "any", "messages": user, "temperature": "hot"}, "temperature"),
        ({"model": "any", "messages": [{"role": "user", "content": [{"type": "x"}]}]}, "messages"),
        ({"model": "any", "messages": user, "n": 99}, "n"),
        ({"model": "any", "messages": user, "max_tokens": 1.5}, "max_tokens"),
        ({"model": "any", "messages": user, "stop": ["", "a"]}, "stop"),
    ]
    post = {"method": "POST", "headers": {"Content-Type": "application/json"}}
    requests = [
        ["/models", {}],
        ["/models/edgewise", {}],
        ["/nothing", {}],
        ["/completions", {**post, "body": "{"}],
        ["/completions", {**post, "body": "[]"}],
        ["/completions", {**post, "body": json.dumps({"model": "any", "prompt": [1] * 4000})}],
        ["/completions", {**post, "body": json.dumps({"model": "any", "prompt": [10**7]})}],
    ]
    given = {"bodies": [body for body, _ in wrong], "requests": requests}
    got = visit(server).run(START + WRONG, given)
    assert "error" not in got, got
    assert [f["param"] for f in got["failures"]] == [param for _, param in wrong]
    assert {f["name"] for f in got["failures"]} == {"RequestError"}
    assert [status for status, _ in got["answers"]] == [200, 200, 404, 400, 400, 400, 400]
    codes = [body["error"]["code"] for _, body in got["answers"][2:]]
    assert codes == ["not_found", "invalid_json", "invalid_json", "context_length_exceeded", None]
    assert got["aborted"]["name"] == "Aborted"
    assert len(got["after"]["choices"][0]["text"]) > 0
    assert got["none"]["name"] == "InputError"


TOOLS = (
    TEMPLATED
    + """
    const { createClient } = await import("/openai.js");
    const pipe = await ew.pipeline("text-generation", files, { dtype: "q4" });
    const messages = [{ role: "user", content: "Where is it sunny?" }];
    const greedy = { do_sample: false, max_new_tokens: 90 };
    const tool_choice = { type: "function", function: { name: "weather" } };
    const seen = [];
    const execute = ({ city }) => (seen.push(city), { city, sky: "clear <|endoftext|>" });
    const weather = { parameters: arg.schema, execute };
    const deltas = [];
    const ran = await pipe.run(messages, { ...greedy, tool_choice, tools: { weather },
      max_rounds: 2, on_delta: (delta) => deltas.push(delta) });
    const client = createClient(pipe);
    const tools = [{ type: "function", function: { name: "weather", parameters: arg.schema } }];
    const body = { model: "any", messages, tools, tool_choice, max_tokens: 90, temperature: 0 };
    const said = await client.chat.completions.create(body);
    const refused = await pipe("Hi", { tools: [{ name: "f" }] }).catch((e) => e.message);
    return { ran, seen, deltas, said: said.choices[0], refused };
"""
)


def test_tools(visit, server):
    """A named tool is called with arguments of its schema."""
    template = (
        "{% for t in tools or [] %}<tool_call>{{ t.function.name }}{% endfor %}"
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}assistant:"
    )
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    got = visit(server).run(TOOLS, {"template": template, "schema": schema})
    assert "error" not in got, got
    assert (got["ran"]["rounds"], got["ran"]["ended"]) == (2, "rounds")
    assert len(got["seen"]) == 2 and set(got["seen"]) <= {"Paris", "Rome"}
    roles = [m["role"] for m in got["ran"]["generated_text"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]
    result = json.loads(got["ran"]["generated_text"][2]["content"])
    assert result == {"city": got["seen"][0], "sky": "clear <|endoftext|>"}
    calls = [d["tool_calls"][0]["function"] for d in got["deltas"] if "tool_calls" in d]
    assert [c["arguments"]["city"] for c in calls] == got["seen"]
    [call] = got["said"]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": got["seen"][0]}
    assert got["said"]["finish_reason"] == "tool_calls"
    assert "tools need a chat" in got["refused"]
