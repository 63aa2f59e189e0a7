// What the methods take: conversions of WebIDL, and the checks of the specification.

import type { ResponseFormat } from "../../protocol/generation.ts";
import { type Input, TYPES } from "./content.ts";
import { notSupported, oneOf } from "./refusals.ts";
import type {
  LanguageModelCreateCoreOptions,
  LanguageModelPromptOptions,
  LanguageModelSamplingMode,
  LanguageModelTool,
} from "./types.ts";

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

/** @throws TypeError if a message of the system is not the first one of a session */
export function checkSystem({ messages }: Input, first: boolean): void {
  if (messages.some(({ role }, i) => role === "system" && !(first && i === 0)))
    throw new TypeError("a message of the system has to be the first one of a session");
}

/** Checks options of a session. @throws TypeError, RangeError */
export function checkOptions(options: LanguageModelCreateCoreOptions): void {
  const { expectedInputs = [], expectedOutputs = [], tools = [] } = options;
  for (const { type, languages } of [...expectedInputs, ...expectedOutputs]) {
    oneOf(type, TYPES, "type");
    Intl.getCanonicalLocales(languages ?? []);
  }
  if (options.samplingMode !== undefined)
    oneOf(options.samplingMode, Object.keys(MODES), "samplingMode");
  const names = tools.map(checkTool);
  if (new Set(names).size < names.length) throw new TypeError("two tools have the same name");
  const own = tools.filter(({ execute }) => execute).length;
  const open = expectedOutputs.some(({ type }) => type === "tool-call");
  if (own < tools.length && !open)
    throw new TypeError("tools need a function execute, or 'tool-call' among expectedOutputs");
  if (own && own < tools.length)
    throw new TypeError("either all tools have a function execute, or none");
}

/**
 * Whether a model can do it.
 * @param takes types of content besides text
 * @param tools whether it calls tools
 */
export function isFor(
  { expectedInputs = [], expectedOutputs = [], tools = [] }: LanguageModelCreateCoreOptions,
  takes: readonly string[],
  calls: boolean,
): boolean {
  const known = ["text", ...(calls ? ["tool-call", "tool-response"] : [])];
  const inputs = [...known, ...takes];
  return (
    expectedInputs.every(({ type }) => inputs.includes(type)) &&
    expectedOutputs.every(({ type }) => known.includes(type)) &&
    (calls || !tools.length)
  );
}

function checkTool({ name, description, inputSchema, execute }: LanguageModelTool): string {
  const where = `the tool '${String(name).slice(0, 64)}'`;
  if (!name || !description) throw new TypeError(`${where} needs a name and a description`);
  const schema = inputSchema as Record<string, unknown> | null;
  if (typeof schema !== "object" || schema?.type !== "object")
    throw new TypeError(`inputSchema of ${where} is no JSON schema of type object`);
  if (typeof (schema.properties ?? {}) !== "object" || !Array.isArray(schema.required ?? []))
    throw new TypeError(`properties or required of ${where} are no JSON schema's`);
  JSON.stringify(schema); // throws what it throws
  if (execute !== undefined && typeof execute !== "function")
    throw new TypeError(`execute of ${where} is no function`);
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
