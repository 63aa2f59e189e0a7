// The client of endpoints against a server that the test plays.

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import test, { after, before } from "node:test";
import { Egress } from "../../src/extras/hybrid/egress.ts";
import { CloudError } from "../../src/extras/hybrid/events.ts";
import { type HybridCall, hybrid } from "../../src/extras/hybrid/hybrid.ts";
import { type OpenAIOptions, openAI } from "../../src/extras/hybrid/openai.ts";
import type { HybridError } from "../../src/extras/hybrid/relay.ts";
import { InputError } from "../../src/shared/errors.ts";

interface Asked {
  path: string;
  headers: IncomingMessage["headers"];
  body: Record<string, unknown>;
}

let asked: Asked[] = [];
let answer: (response: ServerResponse) => void;
let baseURL = "";
const server = createServer(async (request, response) => {
  let text = "";
  for await (const piece of request) text += piece;
  asked.push({ path: request.url!, headers: request.headers, body: JSON.parse(text) });
  answer(response);
});

before(async () => {
  await new Promise<void>((done) => server.listen(0, "localhost", done));
  baseURL = `http://localhost:${(server.address() as AddressInfo).port}/v1`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

/** Answers with these bytes, in pieces of `size`. */
function streams(text: string, size = 7, end = true): void {
  answer = async (response) => {
    response.setHeader("Content-Type", "text/event-stream");
    const bytes = Buffer.from(text);
    for (let i = 0; i < bytes.length; i += size) {
      response.write(bytes.subarray(i, i + size));
      if (i % 5 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    if (end) response.end();
    else response.destroy();
  };
}

const piece = (content: string, finish_reason: string | null = null) =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason }] })}`;

async function ask(
  input: string | { role: string; content: string }[],
  options: HybridCall = {},
  more: Partial<OpenAIOptions> = {},
) {
  asked = [];
  const write = hybrid({ cloud: openAI({ baseURL, model: "m", ...more }), keep: null });
  const [out] = await write(input, { return_full_text: false, ...options });
  return { text: out!.generated_text, asked: asked[0]!, ledger: write.ledger() };
}

/** The error of the endpoint behind a HybridError. */
async function refusal(promise: Promise<unknown>): Promise<Error> {
  const error = (await promise.then(
    () => assert.fail("it was not refused"),
    (e: unknown) => e,
  )) as HybridError;
  return error.errors[0] as Error;
}

test("a stream in odd pieces, with comments and other line ends", async () => {
  const text = [": hello", "event: x", piece("é€"), "", piece("😀 "), "", piece("a"), "", ""];
  text.push('data: {"choices": [],', 'data: "usage": {}}', "", piece("", "stop"), "");
  for (const [end, size] of [
    ["\n", 1],
    ["\r\n", 3],
    ["\r", 1000],
  ] as const) {
    streams([...text, "data: [DONE]", "", ""].join(end), size);
    assert.equal((await ask("x")).text, "é€😀 a");
  }
});

test("pings are signs of life, but not for ever", async () => {
  const pings = (n: number) => ":\n\n".repeat(n);
  const end = `${piece("b", "stop")}\n\ndata: [DONE]\n\n`;
  streams(`${pings(150)}${piece("a")}\n\n${pings(2)}data:\n\n${end}`, 1000);
  const side = openAI({ baseURL, model: "m" }).side(new Egress());
  const task = { input: "x", prefix: "", tokens: 9, fields: {} };
  const found: string[] = [];
  for await (const { text, alive } of side.write(task, new AbortController().signal))
    found.push(text || (alive ? "." : "?"));
  assert.equal(found.join(""), `${".".repeat(100)}a...b`);
});

test("reasons of an end that nobody knows are told as they are", async () => {
  const cloud = openAI({ baseURL, model: "m" });
  for (const [reason, told] of [
    ["stop", "eos"],
    ["constructor", "constructor"],
    ["content_filter", "content_filter"],
  ] as const) {
    streams(`${piece("a", reason)}\n\ndata: [DONE]\n\n`);
    const write = hybrid({ cloud, keep: null });
    const [out] = await write("x", { return_dict_in_generate: true });
    assert.equal(out!.finish_reasons, told);
  }
});

test("what is sent, and what is written down", async () => {
  streams(`${piece("a", "length")}\n\ndata: [DONE]\n\n`);
  const fields = {
    max_new_tokens: 9,
    temperature: 0.5,
    top_k: 4,
    seed: 7n,
    stop_strings: ["."],
    repetition_penalty: null,
  };
  const { asked: got, ledger } = await ask("Hi", fields, { token: async () => "key" });
  assert.equal(got.path, "/v1/completions");
  assert.deepEqual(got.body, {
    model: "m",
    stream: true,
    max_tokens: 9,
    temperature: 0.5,
    top_k: 4,
    stop: ["."],
    seed: 7,
    prompt: "Hi",
  });
  assert.equal(got.headers.authorization, "Bearer key");
  assert.deepEqual([got.headers.cookie, got.headers.referer], [undefined, undefined]);
  assert.deepEqual(
    ledger.map((e) => [e.url, e.bytes]),
    [[`${baseURL}/completions`, Number(got.headers["content-length"])]],
  );
  const greedy = await ask("Hi", { do_sample: false, temperature: 3, top_p: 0.1 });
  assert.deepEqual([greedy.asked.body.temperature, greedy.asked.body.top_p], [0, undefined]);
});

test("an unfinished answer is sent as one", async () => {
  const chat = [
    { role: "user", content: "Hi" },
    { role: "assistant", content: "Well" },
  ];
  streams(`${piece(", hello", "stop")}\n\ndata: [DONE]\n\n`);
  const { body, path } = (await ask(chat)).asked;
  assert.equal(path, "/v1/chat/completions");
  assert.deepEqual([body.continue_final_message, body.add_generation_prompt], [true, false]);
  const plain = (await ask(chat, {}, { continues: "message" })).asked.body;
  assert.ok(!("continue_final_message" in plain));
  await assert.rejects(ask(chat, {}, { continues: "never" }), InputError);
});

for (const [what, text, words] of [
  ["breaks off", `${piece("abc")}\n\n`, /broke off/],
  ["has no end", `${piece("abc")}\n\ndata: [DONE]\n\n`, /has no end/],
  ["is no JSON", "data: {\n\n", /no JSON object/],
  ["is a list", "data: [1]\n\n", /has no end|broke off/],
  ["has a piece that is no text", 'data: {"choices": [{"text": 5}]}\n\n', /no text/],
  ["has an error", 'data: {"error": {"message": "too hot"}}\n\n', /too hot/],
  ["has an older vLLM's error", 'data: {"object": "error", "message": "too hot"}\n\n', /too hot/],
  ["is a line without end", `data: ${"x".repeat(3 << 20)}`, /longer than any/],
] as const)
  test(`a stream that ${what}`, async () => {
    streams(text, 1 << 16);
    const error = await refusal(ask("x"));
    assert.ok(error instanceof CloudError);
    assert.match(error.message, words);
  });

test("refusals are told in the endpoint's words, bounded", async () => {
  for (const [status, body, words, type = "application/json"] of [
    [401, '{"error": {"message": "no key"}}', /\(401\): no key/],
    [500, "<html>", /\(500\): it gave no reason/],
    [400, JSON.stringify({ error: { message: "y".repeat(1e6) } }), /no reason|y{20}/],
    [404, '{"error": "not here"}', /not here/],
    [400, '{"object": "error", "message": "too long"}', /too long/],
    [
      400, // llama.cpp's
      '{"error":{"code":400,"message":"request (551 tokens) exceeds the available context size ' +
        '(512 tokens), try increasing it","type":"exceed_context_size_error","n_ctx":512}}',
      /\(400\): request \(551 tokens\) exceeds/,
    ],
    [503, '{"detail": "model is loading"}', /model is loading/],
    [429, "rate limited\n", /\(429\): rate limited/, "text/plain; charset=utf-8"],
    [400, "[1]", /no reason/],
  ] as const) {
    answer = (response) => {
      response.writeHead(status, { "Content-Type": type });
      response.end(body);
    };
    const error = (await refusal(ask("x"))) as CloudError;
    assert.match(error.message, words);
    assert.ok(error.status === status && error.message.length < 1500);
  }
  answer = (response) => {
    response.writeHead(307, { Location: "http://localhost:1/" });
    response.end();
  };
  assert.match((await refusal(ask("x"))).message, /fetch failed|redirect/);
});

test("addresses at which texts could be read on the way", () => {
  for (const wrong of [
    "http://example.org/v1",
    "ftp://localhost/",
    "nowhere",
    "http://127.0.0.1.evil.example/",
  ])
    assert.throws(() => openAI({ baseURL: wrong, model: "m" }), InputError);
  for (const right of ["https://example.org/v1", "http://127.0.0.1:8000/v1", "http://[::1]/"])
    assert.match(openAI({ baseURL: right, model: "m" }).baseURL, /\/$/);
});
