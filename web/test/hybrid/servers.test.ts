// Streams as llama.cpp's server, vLLM and Ollama send them: fields, comments and ends that OpenAI's
// documentation does not have.

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import { hybrid } from "../../src/extras/hybrid/hybrid.ts";
import { openAI } from "../../src/extras/hybrid/openai.ts";
import type { HybridError } from "../../src/extras/hybrid/relay.ts";

const { fetch } = globalThis;
afterEach(() => {
  globalThis.fetch = fetch;
});

/** Asks an endpoint that answers with these bytes, `size` at a time. */
async function ask(text: string, size: number) {
  const bytes = new TextEncoder().encode(text);
  globalThis.fetch = async () => {
    let at = 0;
    const pull = (to: ReadableStreamDefaultController<Uint8Array>) => {
      if (at < bytes.length) to.enqueue(bytes.slice(at, (at += size)));
      else to.close();
    };
    const headers = { "Content-Type": "text/event-stream" };
    return new Response(new ReadableStream({ pull }), { headers });
  };
  const write = hybrid({
    cloud: openAI({ baseURL: "http://localhost/v1", model: "m" }),
    keep: null,
  });
  const options = { return_full_text: false, return_dict_in_generate: true };
  const [out] = await write([{ role: "user", content: "Hi" }], options);
  return `${out!.generated_text}|${out!.finish_reasons}`;
}

/** Events of a server: what all have in common, and what each adds. */
function events(common: object, choices: object[], more: string[] = []): string {
  const lines = choices.map((choice) => {
    const { usage, timings, ...rest } = choice as Record<string, unknown>;
    const list = usage && !Object.keys(rest).length ? [] : [{ index: 0, ...rest }];
    return `data: ${JSON.stringify({ ...common, choices: list, usage, timings })}`;
  });
  return `${[...lines, ...more].join("\n\n")}\n\n`;
}

const chunk = { object: "chat.completion.chunk", created: 1780390177, model: "m" };
const llama = { ...chunk, id: "chatcmpl-uI7JNfld", system_fingerprint: "b9465-23e6dab86" };
const vllm = { ...chunk, id: "chatcmpl-8b2b9172" };
const ollama = { ...chunk, id: "chatcmpl-693", system_fingerprint: "fp_ollama" };
const completion = { ...ollama, id: "cmpl-12", object: "text_completion" };
const none = { finish_reason: null };
const usage = { completion_tokens: 2, prompt_tokens: 24, total_tokens: 26 };
const timings = { cache_n: 0, prompt_n: 24, prompt_ms: 51.5, predicted_n: 2 };
const done = ["data: [DONE]"];
const role = { ...none, delta: { role: "assistant", content: null } };
const hello = [
  { ...none, delta: { content: "Hel" } },
  { ...none, delta: { content: "lo" } },
];

// as llama.cpp's server of October 2026 sent them, without numbers that nobody reads
const RECORDED = `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant",\
"content":null}}],"created":1795444473,"id":"chatcmpl-2xNg","model":"m","object":\
"chat.completion.chunk"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hel"}}],"id":"chatcmpl-2xNg"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"lo"}}],"id":"chatcmpl-2xNg"}

data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"id":"chatcmpl-2xNg",\
"timings":{"cache_n":0,"prompt_n":11,"prompt_ms":2.667,"predicted_n":3,"predicted_ms":1.682}}

data: [DONE]

`;

const STREAMS: Record<string, string> = {
  "llama.cpp, as recorded": RECORDED,
  "llama.cpp, which pings while it reads the prompt":
    ":\n\n:\n\n" +
    events(llama, [role, ...hello, { finish_reason: "stop", delta: {}, timings }], done),
  "llama.cpp with counts of tokens": events(
    llama,
    [role, ...hello, { finish_reason: "stop", delta: {} }, { usage, timings }],
    done,
  ),
  "llama.cpp with a model that thinks": events(
    llama,
    [
      role,
      { ...none, delta: { reasoning_content: "They greet." } },
      ...hello,
      { finish_reason: "stop", delta: {}, timings },
    ],
    done,
  ),
  "vLLM, whose last text comes with the end": events(
    vllm,
    [
      { ...none, delta: { role: "assistant", content: "" }, logprobs: null },
      { ...none, delta: { content: "Hel" }, logprobs: null, token_ids: null },
      { delta: { content: "lo" }, logprobs: null, finish_reason: "stop", stop_reason: null },
      { usage },
    ],
    done,
  ),
  "vLLM with a model that thinks": events(
    vllm,
    [
      { ...none, delta: { role: "assistant", content: "" } },
      { ...none, delta: { reasoning: "They greet." } },
      ...hello,
      { delta: { content: "" }, finish_reason: "stop", stop_reason: null },
    ],
    done,
  ),
  Ollama: events(
    ollama,
    [
      { ...none, delta: { role: "assistant", content: "", reasoning: "They greet." } },
      { ...none, delta: { role: "assistant", content: "Hel" } },
      { ...none, delta: { role: "assistant", content: "lo" } },
      { finish_reason: "stop", delta: { role: "assistant", content: "" } },
      { usage },
    ],
    done,
  ),
  "an older Ollama, whose reasons are empty": events(
    ollama,
    [
      { finish_reason: "", delta: { role: "assistant", content: "Hel" } },
      { finish_reason: "", delta: { role: "assistant", content: "lo" } },
      { finish_reason: "stop", delta: { role: "assistant", content: "" } },
    ],
    done,
  ),
  "Ollama's completions": events(
    completion,
    [
      { ...none, text: "Hel" },
      { ...none, text: "lo" },
      { finish_reason: "stop", text: "" },
    ],
    done,
  ),
  "a proxy that sends empty events and other fields":
    "retry: 3000\n\ndata:\n\nid: 7\nevent: message\n" +
    events(vllm, [...hello, { finish_reason: "stop", delta: {} }], done),
};

for (const [name, text] of Object.entries(STREAMS))
  test(name, async () => {
    for (const size of [11, 1 << 16]) {
      assert.equal(await ask(text, size), "Hello|eos");
      assert.equal(await ask(text.replaceAll("\n", "\r\n"), size), "Hello|eos");
    }
  });

const begun = events(llama, [role, ...hello]);
for (const [name, text, words] of [
  [
    "llama.cpp",
    `${begun}data: {"error":{"code":500,"message":"out of slots","type":"server_error"}}\n\n`,
    /out of slots/,
  ],
  [
    "llama.cpp of 2025",
    `${begun}error: {"code":400,"message":"the context is full"}\n\ndata: [DONE]\n\n`,
    /the context is full/,
  ],
  [
    "vLLM",
    `${begun}data: {"error":{"message":"engine is dead","type":"InternalServerError",` +
      '"param":null,"code":500}}\n\ndata: [DONE]\n\n',
    /engine is dead/,
  ],
  [
    "vLLM, whose engine pauses",
    begun + events(vllm, [{ delta: {}, finish_reason: "abort" }], done),
    /gave up \(abort\)/,
  ],
  // its errors lose their text on the way to this form
  ["Ollama", begun + events(ollama, [{ ...none, delta: { content: "" } }]), /broke off/],
] as const)
  test(`an error within a stream of ${name} is none of its ends`, async () => {
    const error = (await ask(text, 11).then(
      (found) => assert.fail(found),
      (e: unknown) => e,
    )) as HybridError;
    assert.match(String(error.errors[0]), words);
    assert.equal(error.text.slice(0, 5), "Hello");
  });
