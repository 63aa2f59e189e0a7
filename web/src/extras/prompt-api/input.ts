// What the methods take: conversions of WebIDL, and the checks of the specification.

import type { Message, ResponseFormat } from "../../protocol/generation.ts";
import type {
  LanguageModelCreateCoreOptions,
  LanguageModelExpected,
  LanguageModelPromptOptions,
  LanguageModelSamplingMode,
  LanguageModelTool,
} from "./types.ts";

const ROLES = ["system", "user", "assistant"];
const MODEL_TYPES = ["text", "tool-call", "tool-response"];
const TYPES = [...MODEL_TYPES, "image", "audio"];

/** The fields of each mode. `balanced` is how the pipeline samples without any. */
const MODES: Record<LanguageModelSamplingMode, Record<string, unknown>> = {
  "most-predictable": { do_sample: false },
  predictable: { do_sample: true, top_p: 0.5 },
  "slightly-predictable": { do_sample: true, top_p: 0.8 },
  balanced: {},
  "slightly-creative": { do_sample: true, temperature: 1 },
  creative: { do_sample: true, temperature: 1.2 },
  "most-creative": { do_sample: true, temperature: 1.5 },
};

/** A prompt as a template takes it. */
export interface Input {
  messages: Message[];
  /** Whether the answer continues the last message. */
  prefix: boolean;
}

/** An error of the web. */
export const domError = (what: string, name: string): DOMException => new DOMException(what, name);

const notSupported = (what: string) => domError(what, "NotSupportedError");

function oneOf(value: unknown, names: readonly string[], where: string): string {
  const text = String(value);
  if (names.includes(text)) return text;
  throw new TypeError(`${where} is '${text.slice(0, 80)}', not one of ${names.join(", ")}`);
}

/** Converts a prompt: other values than lists are texts. @throws TypeError, DOMException */
export function readPrompt(given: unknown): Input {
  const listed = typeof given === "object" && given !== null && Symbol.iterator in given;
  if (!listed) return { messages: [{ role: "user", content: String(given) }], prefix: false };
  const all = Array.from(given as Iterable<unknown>, (one) => {
    if (typeof one !== "object" || one === null) throw new TypeError("a message is no object");
    const { role, content, prefix } = one as Record<string, unknown>;
    if (content === undefined) throw new TypeError("a message has no content");
    return { role: oneOf(role, ROLES, "role"), content, prefix: Boolean(prefix) };
  });
  const messages = all.map(({ role, content }) => ({ role, content: textOf(content, role) }));
  const last = all.at(-1);
  if (all.some(({ role, prefix }, i) => prefix && !(role === "assistant" && i === all.length - 1)))
    throw domError("prefix is for a last message of the assistant", "SyntaxError");
  if (!messages.length) messages.push({ role: "user", content: "" });
  return { messages, prefix: Boolean(last?.prefix) };
}

function textOf(content: unknown, role: string): string {
  if (typeof content !== "object" || content === null) return String(content);
  if (!(Symbol.iterator in content)) return String(content);
  const parts = Array.from(content as Iterable<{ type?: unknown; value?: unknown } | null>);
  const texts = parts.map((part) => {
    const type = oneOf(part?.type, TYPES, "content.type");
    if (type !== "text")
      throw notSupported(`this model does not take content of type '${type}' (role '${role}')`);
    if (typeof part!.value !== "string") throw new TypeError("content of type text is no text");
    return part!.value;
  });
  return texts.join("");
}

/** @throws TypeError if a message of the system is not the first one of a session */
export function checkSystem({ messages }: Input, first: boolean): void {
  if (messages.some(({ role }, i) => role === "system" && !(first && i === 0)))
    throw new TypeError("a message of the system has to be the first one of a session");
}

/** Checks options of a session. @throws TypeError, RangeError */
export function checkOptions(options: LanguageModelCreateCoreOptions): void {
  for (const { type, languages } of expected(options)) {
    oneOf(type, TYPES, "type");
    Intl.getCanonicalLocales(languages ?? []);
  }
  if (options.samplingMode !== undefined)
    oneOf(options.samplingMode, Object.keys(MODES), "samplingMode");
  const names = (options.tools ?? []).map(checkTool);
  if (new Set(names).size < names.length) throw new TypeError("two tools have the same name");
}

const expected = ({ expectedInputs = [], expectedOutputs = [] }: LanguageModelCreateCoreOptions) =>
  [...expectedInputs, ...expectedOutputs] as LanguageModelExpected[];

/** Whether a model of texts can do it. */
export const isText = (options: LanguageModelCreateCoreOptions): boolean =>
  expected(options).every(({ type }) => MODEL_TYPES.includes(type));

function checkTool({ name, description, inputSchema, execute }: LanguageModelTool): string {
  const where = `the tool '${String(name).slice(0, 64)}'`;
  if (!name || !description) throw new TypeError(`${where} needs a name and a description`);
  const schema = inputSchema as Record<string, unknown> | null;
  if (typeof schema !== "object" || schema?.type !== "object")
    throw new TypeError(`inputSchema of ${where} is no JSON schema of type object`);
  if (typeof (schema.properties ?? {}) !== "object" || !Array.isArray(schema.required ?? []))
    throw new TypeError(`properties or required of ${where} are no JSON schema's`);
  JSON.stringify(schema); // throws what it throws
  if (typeof execute !== "function") throw new TypeError(`${where} has no function execute`);
  return name;
}

/** Fields of generation. @throws RangeError */
export function samplingOf(options: LanguageModelCreateCoreOptions): Record<string, unknown> {
  const { samplingMode, temperature, topK } = options;
  if (samplingMode !== undefined) return MODES[samplingMode];
  const fields: Record<string, unknown> = {};
  if (temperature !== undefined) {
    if (!(temperature >= 0)) throw new RangeError(`temperature is ${temperature}, not 0 or more`);
    // without any temperature only the most likely token is left
    Object.assign(fields, temperature ? { do_sample: true, temperature } : { do_sample: false });
  }
  if (topK !== undefined) {
    if (!(topK >= 1)) throw new RangeError(`topK is ${topK}, not 1 or more`);
    fields.top_k = Math.floor(Math.min(topK, 2 ** 31 - 1));
  }
  return fields;
}

/** A constraint as the pipeline takes it, and what the model reads of it. */
export interface Constraint {
  format: ResponseFormat;
  text: string;
}

/** @throws TypeError, DOMException */
export function constraintOf(options: LanguageModelPromptOptions): Constraint | undefined {
  const { responseConstraint: given, omitResponseConstraintInput: omit } = options;
  if (given === undefined || given === null) {
    if (omit) throw new TypeError("omitResponseConstraintInput is without responseConstraint");
    return undefined;
  }
  if (typeof given !== "object" || Array.isArray(given))
    throw new TypeError("responseConstraint is neither a JSON schema nor a RegExp");
  if (given instanceof RegExp) {
    if (/[ims]/.test(given.flags)) throw notSupported("flags of a RegExp are not supported");
    const text = omit ? "" : `\n\nThe answer has to match this regular expression: ${given.source}`;
    return { format: { type: "regex", regex: given.source }, text };
  }
  let json: string;
  try {
    json = JSON.stringify(given);
  } catch {
    throw notSupported("responseConstraint cannot be written as JSON");
  }
  return {
    format: { type: "json_schema", json_schema: { schema: JSON.parse(json) } },
    text: omit ? "" : `\n\nAnswer with JSON that follows this schema: ${json}`,
  };
}
