// What sessions need of a pipeline.

import type {
  AudioTextToTextPipeline,
  ImageTextToTextPipeline,
} from "../../page/pipelines/asking.ts";
import type {
  GenerateOptions,
  MessageDelta,
  TextGenerationPipeline,
} from "../../page/text-generation.ts";
import type { Message, ToolDefinition } from "../../protocol/generation.ts";
import { LanguageModelToolCall, MEDIA, type Part, type Takes, type Turn } from "./content.ts";
import { domError } from "./refusals.ts";
import type { LanguageModelMessageContent, LanguageModelTool } from "./types.ts";

/** Pipelines that sessions can have. */
export type ChatPipeline =
  | TextGenerationPipeline
  | ImageTextToTextPipeline
  | AudioTextToTextPipeline;

/** Receives pieces of an answer. */
export type Tell = (piece: string | LanguageModelMessageContent) => unknown;

/** What the model adds to a conversation: the last message is the answer. */
export interface Answer {
  messages: Turn[];
  /** In the form of sessions whose answers are lists of parts. */
  parts: LanguageModelMessageContent[];
  finish: string | undefined;
}

/** A pipeline with chats. */
export interface Backend extends Pick<Takes, "parts" | "check"> {
  /** Types of content that it takes besides texts. */
  readonly media: readonly string[];
  /** Whether it calls tools. */
  readonly calls: boolean;
  /** Most tokens of a conversation. */
  readonly capacity: number;
  /**
   * Tokens of messages. `opens`: with the beginning of an answer; `prefix`: the last one is open.
   */
  count(
    messages: Turn[],
    given: { opens: boolean; prefix: boolean; tools: LanguageModelTool[] },
  ): Promise<number>;
  /**
   * Answers messages.
   * @param tools which it may call; those without `execute` are calls in the answer
   */
  answer(
    messages: Turn[],
    tools: LanguageModelTool[],
    fields: GenerateOptions,
    tell: Tell | undefined,
  ): Promise<Answer>;
}

/** A pipeline for sessions. */
export const backendOf = (pipe: ChatPipeline): Backend =>
  pipe.task === "text-generation"
    ? new Texts(pipe as TextGenerationPipeline)
    : new Media(pipe as ImageTextToTextPipeline);

/** Whether a pipeline has chats. */
export async function isChat(backend: Backend): Promise<boolean> {
  const content = backend.parts ? [{ type: "text" as const, text: "" }] : "";
  const given = { opens: true, prefix: false, tools: [] };
  return backend.count([{ role: "user", content }], given).then(
    () => true,
    () => false,
  );
}

const definitionsOf = (tools: LanguageModelTool[]): ToolDefinition[] =>
  tools.map(({ name, description, inputSchema: parameters }) => ({
    name,
    description,
    parameters,
  }));

class Texts implements Backend {
  readonly media = [];
  readonly calls = true;
  readonly parts = false;

  constructor(private readonly pipe: TextGenerationPipeline) {}

  get capacity(): number {
    return this.pipe.info.capacity;
  }

  async check(): Promise<void> {}

  async count(
    messages: Turn[],
    { opens, prefix, tools }: Parameters<Backend["count"]>[1],
  ): Promise<number> {
    const ids = await this.pipe.tokenizer.apply_chat_template(messages as Message[], {
      add_generation_prompt: opens && !prefix,
      continue_final_message: prefix,
      tokenize: true,
      ...(tools.length ? { tools: definitionsOf(tools) } : {}),
    });
    return ids.length;
  }

  answer(
    messages: Turn[],
    tools: LanguageModelTool[],
    fields: GenerateOptions,
    tell: Tell | undefined,
  ): Promise<Answer> {
    const given = messages as Message[];
    return tools.length && tools[0]!.execute
      ? this.looped(given, tools, fields, tell)
      : this.once(given, tools, fields, tell);
  }

  /** An answer, with the calls of tools that the model asks for. */
  private async once(
    messages: Message[],
    tools: LanguageModelTool[],
    fields: GenerateOptions,
    tell: Tell | undefined,
  ): Promise<Answer> {
    const shape = { return_full_text: false, return_dict_in_generate: true };
    const asked = tools.length
      ? { tools: definitionsOf(tools), ...(tell ? { on_delta: told(tell) } : {}) }
      : { streamer: tell };
    const [made] = await this.pipe(messages, { ...fields, ...shape, ...asked });
    const { generated_text, tool_calls = [], finish_reasons: finish } = made!;
    const content = generated_text as string;
    const message: Turn = { role: "assistant", content };
    if (tool_calls.length) message.tool_calls = tool_calls;
    const parts: LanguageModelMessageContent[] = tool_calls.map(partOf);
    if (content || !parts.length) parts.unshift({ type: "text", value: content });
    return { messages: [message], parts, finish };
  }

  /** An answer after tools have been executed as the model asked for them. */
  private async looped(
    messages: Message[],
    tools: LanguageModelTool[],
    fields: GenerateOptions,
    tell: Tell | undefined,
  ): Promise<Answer> {
    const functions = tools.map(({ name, description, inputSchema: parameters, execute }) => {
      const call = (given: Record<string, unknown>) => execute!(given);
      return [name, { description, parameters, execute: call }];
    });
    const { generated_text, ended } = await this.pipe.run(messages, {
      ...fields,
      tools: Object.fromEntries(functions),
      on_delta: ({ content }: MessageDelta) => content && tell?.(content),
    });
    if (ended !== "answer")
      throw domError("the model called tools again and again, without an answer", "OperationError");
    const made = generated_text.slice(messages.length) as Turn[];
    const parts = [{ type: "text" as const, value: made.at(-1)!.content as string }];
    return { messages: made, parts, finish: undefined };
  }
}

const partOf = ({ id: callId, function: called }: NonNullable<Turn["tool_calls"]>[number]) => ({
  type: "tool-call" as const,
  value: new LanguageModelToolCall({ callId, ...called }),
});

const told =
  (tell: Tell) =>
  ({ content, tool_calls = [] }: MessageDelta) => {
    if (content) tell(content);
    for (const call of tool_calls) tell(partOf(call));
  };

class Media implements Backend {
  readonly media: readonly string[];
  readonly calls = false;
  readonly parts = true;

  constructor(private readonly pipe: ImageTextToTextPipeline) {
    this.media = MEDIA.filter((kind) => pipe.task.startsWith(kind));
  }

  get capacity(): number {
    return this.pipe.info.capacity!;
  }

  check(part: Part): Promise<unknown> {
    return this.pipe.processor([{ role: "user", content: [part] }] as never);
  }

  async count(
    messages: Turn[],
    { opens, prefix }: Parameters<Backend["count"]>[1],
  ): Promise<number> {
    const { input_ids } = await this.pipe.processor(messages as never, {
      add_generation_prompt: opens && !prefix,
      continue_final_message: prefix,
    });
    return input_ids.dims[1]!;
  }

  async answer(
    messages: Turn[],
    _: LanguageModelTool[],
    fields: GenerateOptions,
    tell: Tell | undefined,
  ): Promise<Answer> {
    const shape = { return_full_text: false, return_dict_in_generate: true };
    const options = { ...fields, ...shape, ...(tell ? { streamer: tell } : {}) };
    const [made] = await this.pipe(messages as never, options as never);
    const { generated_text, finish_reasons: finish } = made!;
    const text = generated_text as string;
    const message: Turn = { role: "assistant", content: [{ type: "text", text }] };
    return { messages: [message], parts: [{ type: "text", value: text }], finish };
  }
}
