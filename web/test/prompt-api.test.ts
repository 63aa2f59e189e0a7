// Sessions of the Prompt API with tools, on a pipeline that answers by a rule.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type LanguageModelMessageContent as Content,
  createLanguageModel,
  type LanguageModelCreateOptions,
  type LanguageModelTool,
  LanguageModelToolCall,
  LanguageModelToolError,
  LanguageModelToolSuccess,
  type Message,
} from "../src/extras/prompt-api/index.ts";
import type { ToolCall } from "../src/page/text-generation.ts";
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
  task: "text-generation",
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

const CALLS: LanguageModelCreateOptions = {
  expectedInputs: [{ type: "tool-call" }, { type: "tool-response" }],
  expectedOutputs: [{ type: "tool-call" }],
  tools: [{ name: "weather", description: "Of a city.", inputSchema: { type: "object" } }],
};
const parts = async (work: Promise<string>) => (await work) as unknown as Content[];
const user = (...content: Content[]) => [{ role: "user" as const, content }];
const success = (callId: string, ...values: unknown[]): Content => ({
  type: "tool-response",
  value: new LanguageModelToolSuccess({
    callId,
    name: "weather",
    result: values.map((value) => ({ type: "text", value })),
  }),
});

/** As `call`, by the form of the pipeline. */
const open = Object.assign(
  async (messages: Message[], { on_delta, tools }: Parameters<typeof call>[1]) => {
    const [made] = await call(messages, { on_delta: on_delta ?? (() => undefined) } as never);
    const { content, tool_calls } = (made!.generated_text as Message[]).at(-1)! as Message & {
      tool_calls?: ToolCall[];
    };
    assert.equal((tools as unknown[]).length, 1);
    if (tool_calls) on_delta?.({ tool_calls });
    return [{ generated_text: content, ...(tool_calls ? { tool_calls } : {}) }];
  },
  pipe,
) as unknown as Pipe;

test("calls of tools without a function are in the answer", async () => {
  const session = await createLanguageModel(open).create(CALLS);
  const asked = await parts(session.prompt("Paris Rome"));
  assert.deepEqual(
    asked.map(({ type, value }) => (type === "tool-call" ? value.arguments : value)),
    ["Let me see. ", { city: "Paris" }, { city: "Rome" }],
  );
  const ids = asked.flatMap(({ type, value }) => (type === "tool-call" ? [value.callId] : []));
  const failed = new LanguageModelToolError({
    callId: ids[1]!,
    name: "weather",
    errorMessage: "no network",
  });
  const results = [
    success(ids[0]!, "sun", { degrees: 20 }),
    { type: "tool-response", value: failed },
  ];
  const told = await parts(session.prompt(user(...(results as Content[]))));
  const value = 'sun\n{"degrees":20} and {"error":"no network"}';
  assert.deepEqual(told, [{ type: "text", value }]);
  const streamed: unknown[] = [];
  const copy = await session.clone();
  for await (const piece of copy.promptStreaming<Content>("Oslo")) streamed.push(piece.type);
  assert.deepEqual(streamed, ["text", "tool-call"]);
  const again = await createLanguageModel(open).create(CALLS);
  await again.append([{ role: "assistant", content: asked }, ...user(results[0] as Content)]);
  assert.deepEqual(await parts(again.prompt(user(results[1] as Content))), told);
});

test("calls and results that are none are refused", async () => {
  const session = await createLanguageModel(open).create(CALLS);
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  const called = (given: unknown): Content => ({
    type: "tool-call",
    value: new LanguageModelToolCall({ callId: "a", name: "weather", arguments: given }),
  });
  const said = (...content: Content[]) => [{ role: "assistant" as const, content }];
  const image = { type: "image", value: new Blob() };
  const inside = new LanguageModelToolSuccess({ callId: "a", name: "b", result: [image] });
  const own = [{ ...CALLS.tools![0]!, execute: () => "" }, CALLS.tools![0]!].map((one, i) => ({
    ...one,
    name: `tool${i}`,
  }));
  const cases: [() => Promise<unknown>, string][] = [
    [() => session.prompt(said(called([]))), "DataError"],
    [() => session.prompt(said(called(circular))), "DataError"],
    [() => session.prompt(user(success("a", circular))), "DataError"],
    [() => session.prompt(user(success("a", () => 0))), "DataError"],
    [() => session.prompt(user(success("a", 12n))), "DataError"],
    [() => session.prompt(user(success("a", new Map()))), "DataError"],
    [() => session.prompt(user({ type: "tool-response", value: inside })), "NotSupportedError"],
    [() => session.prompt(user(called({}))), "TypeError"],
    [() => session.prompt(said(success("a", "b"))), "TypeError"],
    [() => session.prompt(user({ type: "tool-response", value: {} as never })), "TypeError"],
    [() => createLanguageModel(open).create({ tools: CALLS.tools! }), "TypeError"],
    [() => createLanguageModel(open).create({ ...CALLS, tools: own }), "TypeError"],
    [
      async () => (await createLanguageModel(open).create()).prompt(said(called({}))),
      "NotSupportedError",
    ],
  ];
  for (const [work, name] of cases)
    assert.equal(
      await work().then(
        () => "",
        (e: Error) => e.name,
      ),
      name,
    );
});
