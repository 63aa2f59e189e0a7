"""Packages for the API of OpenAI run on a pipeline, by the fetch of edgewise/openai: the one of
OpenAI, the AI SDK and LangChain. Their answers are those of the pipeline.
"""

from __future__ import annotations

import json
import shutil
import subprocess

from edgewise.compiler.compile import compile_package
from edgewise.host.session.open import folder_files

from .conftest import BUNDLERS, ROOT

TEMPLATE = (
    "{% if tools %}<tool_call>{% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}"
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function | tojson }}{% endfor %}{{ '\\n' }}{% endfor %}assistant:"
)
SCRIPT = """
import { pipeline } from "edgewise";
import { createClient } from "edgewise/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import {
  generateObject, generateText, jsonSchema, stepCountIs, streamObject, streamText, tool,
} from "ai";
import OpenAI from "openai";

const pipe = await pipeline("text-generation", MODEL);
const { fetch } = createClient({ stories: pipe });
const messages = [{ role: "user", content: "A story of a cat." }];
const plain = { do_sample: false, max_new_tokens: 20, return_full_text: false };
const [{ generated_text: text }] = await pipe(messages, plain);

const baseURL = "http://page/v1";
const openai = new OpenAI({ apiKey: "none", baseURL, fetch });
const settings = { model: "stories", temperature: 0, max_tokens: 20 };
const { choices, usage } = await openai.chat.completions.create({ ...settings, messages });
const chunks = [];
const stream = await openai.chat.completions.create({ ...settings, messages, stream: true });
for await (const chunk of stream) chunks.push(chunk.choices[0]?.delta?.content ?? "");
const refused = await openai.chat.completions
  .create({ ...settings, messages, wrong: 1 })
  .catch((e) => [e.constructor.name, e.status, e.param]);
const models = [];
for await (const model of openai.models.list()) models.push(model.id);

const model = createOpenAICompatible({ name: "page", baseURL, fetch })("stories");
const call = { model, messages, temperature: 0, maxOutputTokens: 20 };
const sdk = await generateText(call);
const sdkChunks = [];
for await (const piece of streamText(call).textStream) sdkChunks.push(piece);

const chat = new ChatOpenAI({
  model: "stories",
  temperature: 0,
  maxTokens: 20,
  apiKey: "none",
  configuration: { baseURL, fetch },
});
const chained = await chat.invoke([["human", "A story of a cat."]]);
const chainChunks = [];
for await (const piece of await chat.stream([["human", "A story of a cat."]]))
  chainChunks.push(piece.content);

// Tools: a named one is called with arguments of its schema.
const schema = {
  type: "object",
  properties: { city: { enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const named = { type: "function", function: { name: "weather" } };
const tools = [{ ...named, function: { ...named.function, parameters: schema } }];
const asked = { ...settings, messages, tools, max_tokens: 90 };
const only = { tool_choice: named, parallel_tool_calls: false };
const called = await openai.chat.completions.create({ ...asked, ...only });
const streamed = await openai.chat.completions.stream({ ...asked, ...only }).finalMessage();
const rawParts = [];
for await (const chunk of await openai.chat.completions.create({ ...asked, ...only, stream: true }))
  rawParts.push(...(chunk.choices[0]?.delta?.tool_calls ?? []));
const weather = tool({
  inputSchema: jsonSchema(schema),
  execute: ({ city }) => ({ city, weather: "sunny" }),
});
const agent = await generateText({
  ...call,
  maxOutputTokens: 90,
  tools: { weather },
  toolChoice: { type: "tool", toolName: "weather" },
  stopWhen: stepCountIs(2),
});
const agentParts = [];
for await (const part of streamText({
  ...call,
  maxOutputTokens: 90,
  tools: { weather },
  toolChoice: { type: "tool", toolName: "weather" },
}).fullStream)
  if (part.type.startsWith("tool-"))
    agentParts.push([part.type, part.input?.city ?? part.delta]);
const chainedCall = await new ChatOpenAI({
  model: "stories",
  temperature: 0,
  maxTokens: 90,
  apiKey: "none",
  configuration: { baseURL, fetch },
})
  .bindTools(tools, { tool_choice: "weather", parallel_tool_calls: false })
  .invoke([["human", "A story of a cat."]]);
const chainedStream = new ChatOpenAI({
  model: "stories",
  temperature: 0,
  maxTokens: 90,
  apiKey: "none",
  configuration: { baseURL, fetch },
}).bindTools(tools, { tool_choice: "weather", parallel_tool_calls: false });
let chainedWhole;
let chainedPieces = 0;
for await (const chunk of await chainedStream.stream([["human", "A story of a cat."]])) {
  chainedWhole = chainedWhole ? chainedWhole.concat(chunk) : chunk;
  chainedPieces += chunk.tool_call_chunks.length;
}
// Objects of a schema: of the AI SDK, whole and in parts, and of LangChain in each of its ways.
const place = {
  title: "place",
  type: "object",
  properties: { ...schema.properties, days: { type: "integer", minimum: 1, maximum: 9 } },
  required: ["city", "days"],
  additionalProperties: false,
};
const structured = createOpenAICompatible({
  ...{ name: "page", baseURL, fetch, supportsStructuredOutputs: true },
})("stories");
const shaped = { ...call, model: structured, maxOutputTokens: 90, schema: jsonSchema(place) };
const partial = [];
const objectStream = streamObject(shaped);
for await (const part of objectStream.partialObjectStream) partial.push(part);
const objects = [(await generateObject(shaped)).object, await objectStream.object];
const longer = new ChatOpenAI({
  ...{ model: "stories", temperature: 0, maxTokens: 90, apiKey: "none" },
  configuration: { baseURL, fetch },
});
for (const method of ["jsonSchema", "functionCalling"]) {
  const asks = longer.withStructuredOutput(place, { method, strict: true });
  objects.push(await asks.invoke([["human", "A story of a cat."]]));
}
const cut = await generateObject({ ...shaped, maxOutputTokens: 2 }).catch((e) => e.name);
const bad = { ...place, properties: { city: { not: {} } } };
const unread = await generateObject({ ...shaped, schema: jsonSchema(bad), maxRetries: 0 }).catch(
  (e) => [e.name, e.statusCode, /not/.test(e.message)],
);
const shapes = { objects, parts: partial.length, cut, unread };
// The pipeline's own loop: tools that answer, throw, hang and return 10 MB.
const acts = [
  ({ city }) => ({ city, sky: "clear" }),
  () => { throw new Error("no sky"); },
  (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve)),
  () => "x".repeat(10_000_000),
];
const told = [];
const ran = await pipe.run(messages, {
  ...{ tool_choice: named, do_sample: false, max_new_tokens: 90 },
  ...{ max_rounds: 4, tool_timeout: 0.2, on_message: (message) => told.push(message) },
  tools: { weather: { parameters: schema, execute: (...a) => acts.shift()(...a) } },
});
const run = {
  ended: [ran.ended, ran.rounds, told.length],
  roles: ran.generated_text.map(({ role }) => role),
  results: ran.generated_text.filter((m) => m.role === "tool").map((m) => JSON.parse(m.content)),
  wrong: await pipe.run(messages, { tools: {} }).catch((e) => e.name),
  time: (await pipe.run(messages, { tools: { now: () => 1 }, time_limit: 1e-9 })).ended,
};
// Responses: text, events and a call.
const short = { model: "stories", temperature: 0, max_output_tokens: 20 };
const replied = await openai.responses.create({ ...short, input: messages });
const replyKinds = [];
let replyText = "";
for await (const e of await openai.responses.create({ ...short, input: messages, stream: true })) {
  replyKinds.push(e.type);
  if (e.type === "response.output_text.delta") replyText += e.delta;
}
const flat = [{ type: "function", name: "weather", parameters: schema, strict: true }];
const wanted = { tools: flat, tool_choice: { type: "function", name: "weather" } };
const replyStream = openai.responses.stream({
  ...{ ...short, ...wanted, max_output_tokens: 90, input: "Where?" },
});
let replyArguments = 0;
replyStream.on("response.function_call_arguments.delta", () => replyArguments++);
const replyCall = await replyStream.finalResponse();
const reply = {
  texts: [replied.output_text, replyText],
  ended: replied.status,
  ends: [replyKinds[0], replyKinds.at(-1)],
  pieces: replyArguments,
  status: replyCall.output[0].status,
  call: replyCall.output.map((o) => [o.type, o.name, JSON.parse(o.arguments).city]),
};
const results = agent.steps.flatMap((step) => step.toolResults.map((r) => r.output.city));
const calls = {
  openai: called.choices[0].message.tool_calls.map((c) => c.function),
  raw: rawParts,
  langchainStream: chainedWhole.tool_calls.map(({ name, args }) => ({ name, args })),
  langchainPieces: chainedPieces,
  stream: streamed.tool_calls.map((c) => c.function),
  finish: called.choices[0].finish_reason,
  steps: agent.steps.length,
  results,
  parts: agentParts,
  langchain: chainedCall.tool_calls.map(({ name, args }) => ({ name, args })),
};

const texts = {
  openai: choices[0].message.content,
  openai_stream: chunks.join(""),
  ai: sdk.text,
  ai_stream: sdkChunks.join(""),
  langchain: chained.content,
  langchain_stream: chainChunks.join(""),
};
const tokens = sdk.usage.outputTokens;
const made = { text, texts, usage, refused, models, tokens, calls, run, reply, shapes };
console.log(JSON.stringify(made));
await pipe.dispose();
"""


def test_clients(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "web/demo/model", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    sources, _ = folder_files(folder)
    with (tmp_path / "chat.edge").open("wb") as file:
        compile_package(sources, capacity=512).write(file)
    program = BUNDLERS / "clients.mjs"
    program.write_text(SCRIPT.replace("MODEL", json.dumps(str(tmp_path / "chat.edge"))))
    done = subprocess.run(
        ["node", program], cwd=BUNDLERS, capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stderr[-1500:]
    got = json.loads(done.stdout)
    assert len(got["text"]) > 20
    assert set(got["texts"].values()) == {got["text"]}
    assert got["usage"]["completion_tokens"] == got["tokens"] == 20
    assert got["refused"] == ["BadRequestError", 400, "wrong"]
    assert got["models"] == ["stories"]
    shapes = got["shapes"]
    assert len(shapes["objects"]) == 4 and shapes["parts"] > 1
    for one in shapes["objects"]:
        assert sorted(one) == ["city", "days"]
        assert one["city"] in ("Paris", "Rome") and one["days"] in range(1, 10)
    assert shapes["cut"] == "AI_NoObjectGeneratedError"
    assert shapes["unread"] == ["AI_APICallError", 400, True]
    reply = got["reply"]
    assert reply["texts"] == [got["text"]] * 2 and reply["ended"] == "incomplete"
    assert reply["pieces"] > 3 and reply["status"] == "completed"
    assert reply["ends"] == ["response.created", "response.incomplete"]
    [[kind, name, city]] = reply["call"]
    assert (kind, name) == ("function_call", "weather") and city in ("Paris", "Rome")
    run = got["run"]
    assert run["ended"] == ["rounds", 4, 4] and run["wrong"] == "InputError"
    assert run["roles"] == ["user", *["assistant", "tool"] * 4] and run["time"] == "time"
    assert run["results"][0]["sky"] == "clear" and run["results"][1] == {"error": "no sky"}
    assert "did not answer within 0.2 s" in run["results"][2]["error"]
    assert "10000000 characters" in run["results"][3]["error"]
    calls = got["calls"]
    [call] = calls["openai"]
    assert call["name"] == "weather" and json.loads(call["arguments"])["city"] in ("Paris", "Rome")
    assert [c["name"] for c in calls["stream"]] == ["weather"]
    assert json.loads(calls["stream"][0]["arguments"]) == json.loads(call["arguments"])
    assert calls["finish"] == "tool_calls"
    assert calls["steps"] == 2 and set(calls["results"]) <= {"Paris", "Rome"} != set()
    kinds = [kind for kind, _ in calls["parts"]]
    assert "tool-call" in kinds and "tool-result" in kinds
    pieces = [text for kind, text in calls["parts"] if kind == "tool-input-delta"]
    assert len(pieces) > 3 and json.loads("".join(pieces)) == json.loads(call["arguments"])
    first, *more = calls["raw"]
    assert first["id"] and first["function"] == {"name": "weather", "arguments": ""}
    pieces = [part["function"]["arguments"] for part in more]
    assert len(pieces) > 3 and json.loads("".join(pieces)) == json.loads(call["arguments"])
    assert calls["langchainStream"] == calls["langchain"] and calls["langchainPieces"] > 3
    [chained] = calls["langchain"]
    assert chained == {"name": "weather", "args": json.loads(call["arguments"])}
