// Messages of prompts, as pipelines take them.

import { domError, notSupported, oneOf } from "./refusals.ts";

const ROLES = ["system", "user", "assistant"];
export const MEDIA = ["image", "audio"];
export const TYPES = ["text", ...MEDIA, "tool-call", "tool-response"];

/** A part of a message: a text, or a picture or sound in the field of its type. */
export interface Part {
  type: "text" | "image" | "audio";
  text?: string;
  image?: unknown;
  audio?: unknown;
}

/** A message for a pipeline. Of texts alone the content is a text. */
export interface Turn {
  role: string;
  content: string | Part[];
  tool_calls?: { id: string; type: "function"; function: Called }[];
  tool_call_id?: string;
  name?: string;
}

interface Called {
  name: string;
  arguments: Record<string, unknown>;
}

/** A prompt as a template takes it. */
export interface Input {
  messages: Turn[];
  /** Whether the answer continues the last message. */
  prefix: boolean;
  /** Fails if a picture or sound is none. The messages have copies then. */
  ready: Promise<unknown>;
}

/** What a session takes. */
export interface Takes {
  /** Types of content besides texts. */
  types: readonly string[];
  /** Whether contents are lists of parts. */
  parts: boolean;
  /** Fails with an InputError if a picture or sound cannot be decoded. */
  check(part: Part): Promise<unknown>;
}

/** A call of a tool that the model asks for. */
export class LanguageModelToolCall {
  readonly callId: string;
  readonly name: string;
  readonly arguments: unknown;

  constructor(given: { callId: string; name: string; arguments?: unknown }) {
    this.callId = String(given.callId);
    this.name = String(given.name);
    this.arguments = given.arguments === undefined ? {} : given.arguments;
  }
}

/** What a tool returned. Results are texts, or values for JSON. */
export class LanguageModelToolSuccess {
  readonly callId: string;
  readonly name: string;
  readonly result: readonly { type: string; value: unknown }[];

  constructor(given: {
    callId: string;
    name: string;
    result: Iterable<{ type: string; value: unknown }>;
  }) {
    this.callId = String(given.callId);
    this.name = String(given.name);
    this.result = Object.freeze(Array.from(given.result));
  }
}

/** Why a tool has no result. */
export class LanguageModelToolError {
  readonly callId: string;
  readonly name: string;
  readonly errorMessage: string;

  constructor(given: { callId: string; name: string; errorMessage: string }) {
    this.callId = String(given.callId);
    this.name = String(given.name);
    this.errorMessage = String(given.errorMessage);
  }
}

/** Converts a prompt: other values than lists are texts. @throws TypeError, DOMException */
export function readPrompt(given: unknown, takes: Takes): Input {
  const text = (content: string): Turn => ({
    role: "user",
    content: takes.parts ? [{ type: "text", text: content }] : content,
  });
  const listed = typeof given === "object" && given !== null && Symbol.iterator in given;
  if (!listed) return { messages: [text(String(given))], prefix: false, ready: Promise.resolve() };
  const all = Array.from(given as Iterable<unknown>, (one) => {
    if (typeof one !== "object" || one === null) throw new TypeError("a message is no object");
    const { role, content, prefix } = one as Record<string, unknown>;
    if (content === undefined) throw new TypeError("a message has no content");
    return { role: oneOf(role, ROLES, "role"), content, prefix: Boolean(prefix) };
  });
  const pending: Promise<unknown>[] = [];
  const messages = all.flatMap(({ role, content }) => turnsOf(content, role, takes, pending));
  const last = all.at(-1);
  if (all.some(({ role, prefix }, i) => prefix && !(role === "assistant" && i === all.length - 1)))
    throw domError("prefix is for a last message of the assistant", "SyntaxError");
  if (!messages.length) messages.push(text(""));
  const ready = Promise.all(pending);
  ready.catch(() => undefined); // the work waits for it
  return { messages, prefix: Boolean(last?.prefix), ready };
}

/** A message: with results of tools there are several. */
function turnsOf(
  content: unknown,
  role: string,
  takes: Takes,
  pending: Promise<unknown>[],
): Turn[] {
  const calls: Turn["tool_calls"] = [];
  const results: Turn[] = [];
  const parts: Part[] = [];
  for (const { type, value } of partsOf(content)) {
    if (type === "text") {
      if (typeof value !== "string") throw new TypeError("content of type text is no text");
      parts.push({ type, text: value });
      continue;
    }
    if (type === "tool-call" && role !== "assistant")
      throw new TypeError("calls of tools are for the role assistant");
    if (type === "tool-response" && role !== "user")
      throw new TypeError("results of tools are for the role user");
    if (!takes.types.includes(type))
      throw notSupported(
        `content of type '${type}' is not among expectedInputs, or the model does not take it`,
      );
    if (type === "tool-call") calls.push(callOf(value));
    else if (type === "tool-response") results.push(resultOf(value));
    else {
      if (role !== "user")
        throw notSupported(`the role '${role}' has no content of type '${type}'`);
      const part: Part = { type: type as "image" | "audio" };
      parts.push(part);
      pending.push(filled(part, value, takes));
    }
  }
  const text = () => parts.map(({ text }) => text).join("");
  const turn: Turn = { role, content: takes.parts ? parts : text() };
  if (calls.length) turn.tool_calls = calls;
  return results.length && !parts.length ? results : [...results, turn];
}

function partsOf(content: unknown): { type: string; value: unknown }[] {
  if (typeof content !== "object" || content === null || !(Symbol.iterator in content))
    return [{ type: "text", value: String(content) }];
  const parts = Array.from(content as Iterable<{ type?: unknown; value?: unknown } | null>);
  if (!parts.length) return [{ type: "text", value: "" }];
  return parts.map((part) => ({
    type: oneOf(part?.type, TYPES, "content.type"),
    value: part!.value,
  }));
}

/** Puts a copy of a picture or sound into its part. @throws DOMException, TypeError */
async function filled(part: Part, value: unknown, takes: Takes): Promise<void> {
  const isImage = part.type === "image";
  if (typeof value !== "object" || value === null)
    throw new TypeError(`content of type ${part.type} is a ${typeof value}`);
  const taken = isImage ? pictureOf(value) : soundOf(value);
  part[part.type as "image" | "audio"] = await taken;
  await takes.check(part).catch((e: Error) => {
    if (e.name !== "InputError") throw e;
    throw domError(e.message, isImage ? "InvalidStateError" : "DataError");
  });
}

function bytesOf(value: object): Blob | undefined {
  if (value instanceof Blob) return value;
  if (value instanceof ArrayBuffer) return new Blob([value]);
  return ArrayBuffer.isView(value) ? new Blob([value as Uint8Array<ArrayBuffer>]) : undefined;
}

/** A picture as it is now. */
async function pictureOf(value: object): Promise<unknown> {
  const file = bytesOf(value);
  if (file) return file;
  if (globalThis.HTMLImageElement && value instanceof HTMLImageElement && !value.complete)
    await value.decode().catch(() => undefined); // the next line says what is wrong
  return createImageBitmap(value as ImageBitmapSource);
}

function soundOf(value: object): unknown {
  const file = bytesOf(value);
  if (file) return file;
  if (!("getChannelData" in value))
    throw new TypeError("content of type audio is no AudioBuffer, Blob or buffer");
  const { numberOfChannels: n, sampleRate } = value as AudioBuffer;
  const channel = (_: unknown, i: number) => (value as AudioBuffer).getChannelData(i).slice();
  return { array: Array.from({ length: n }, channel), sampling_rate: sampleRate };
}

/** JSON of a value that is made of plain ones. @throws DOMException */
function plain(value: unknown, what: string): string {
  const check = (_: string, x: unknown) => {
    const made = typeof x === "object" && x !== null && Object.getPrototypeOf(x);
    if (typeof x === "function" || (made && !Array.isArray(x) && Object.getPrototypeOf(made)))
      throw new TypeError(`it has a ${made ? "object of a class" : "function"}`);
    return x;
  };
  try {
    return JSON.stringify(value, check) ?? "null";
  } catch (e) {
    throw domError(`${what} cannot be written as JSON (${(e as Error).message})`, "DataError");
  }
}

function callOf(value: unknown) {
  if (!(value instanceof LanguageModelToolCall))
    throw new TypeError("content of type tool-call is no LanguageModelToolCall");
  const { callId: id, name, arguments: given } = value;
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw domError(`the arguments of '${name}' are no dictionary`, "DataError");
  const values = JSON.parse(plain(given, `the arguments of '${name}'`));
  return { id, type: "function" as const, function: { name, arguments: values } };
}

function resultOf(value: unknown): Turn {
  const turn = { role: "tool", tool_call_id: "", name: "", content: "" };
  if (value instanceof LanguageModelToolError) {
    const { callId, name, errorMessage: error } = value;
    return { ...turn, tool_call_id: callId, name, content: JSON.stringify({ error }) };
  }
  if (!(value instanceof LanguageModelToolSuccess))
    throw new TypeError("content of type tool-response is the result of no tool");
  const { callId, name, result } = value;
  const texts = result.map(({ type, value: one }) => {
    if (MEDIA.includes(type)) throw notSupported(`results of tools have no type '${type}'`);
    oneOf(type, ["text", "object"], "result.type");
    return typeof one === "string" ? one : plain(one, `the result of '${name}'`);
  });
  return { ...turn, tool_call_id: callId, name, content: texts.join("\n") };
}
