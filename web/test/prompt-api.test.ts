// Sessions of the Prompt API with tools, on a pipeline that answers by a rule.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  createLanguageModel,
  type LanguageModelTool,
  type Message,
} from "../src/extras/prompt-api/index.ts";
import { runTools } from "../src/page/tool-loop.ts";

type Pipe = Parameters<typeof createLanguageModel>[0];
type Call = Parameters<typeof runTools>[0];

/** Calls `weather` for each city that the user names, then tells what it was told. */
const call: Call = async (messages, { on_delta }) => {
  const last = messages.at(-1)!;
  const cities = last.role === "user" ? last.content.split(" ") : [];
  const results = messages.filter(({ role }) => role === "tool").map(({ content }) => content);
  const content = cities.length ? "Let me see. " : results.join(" and ");
  on_delta?.({ content });
  const tool_calls = cities.map((city, i) => {
    return { id: `call${i}`, type: "function", function: { name: "weather", arguments: { city } } };
  });
  const message: Message = { role: "assistant", content, ...(cities.length ? { tool_calls } : {}) };
  return [{ generated_text: [...messages, message] }];
};
const lengths: number[] = [];
const pipe = {
  info: { capacity: 1000 },
  tokenizer: {
    apply_chat_template: async (messages: Message[], options?: { tools?: unknown[] }) => {
      if (options?.tools) lengths.push(options.tools.length);
      return Array.from(JSON.stringify(messages));
    },
  },
  run: (messages: Message[], options: Parameters<typeof runTools>[2]) =>
    runTools(call, messages, options),
} as unknown as Pipe;

test("tools are executed until the model answers", async () => {
  const asked: unknown[] = [];
  const weather: LanguageModelTool = {
    name: "weather",
    description: "The weather of a city.",
    inputSchema: { type: "object", properties: { city: { type: "string" } } },
    execute: async (input) => {
      asked.push(input);
      return `sun in ${input.city}`;
    },
  };
  const session = await createLanguageModel(pipe).create({ tools: [weather] });
  assert.equal(await session.prompt("Paris Rome"), "sun in Paris and sun in Rome");
  assert.deepEqual(asked, [{ city: "Paris" }, { city: "Rome" }]);
  assert.deepEqual(new Set(lengths), new Set([1])); // they are counted
  const usage = session.contextUsage;
  const pieces: string[] = [];
  for await (const piece of (await session.clone()).promptStreaming("Oslo")) pieces.push(piece);
  assert.equal(pieces.at(-1), "sun in Paris and sun in Rome and sun in Oslo");
  assert.equal(session.contextUsage, usage);
});

test("a tool that throws is told to the model", async () => {
  const weather: LanguageModelTool = {
    name: "weather",
    description: "The weather of a city.",
    inputSchema: { type: "object" },
    execute: () => {
      throw new Error("no network");
    },
  };
  const session = await createLanguageModel(pipe).create({ tools: [weather] });
  assert.equal(await session.prompt("Paris"), '{"error": "no network"}');
});
