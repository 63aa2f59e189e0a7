// A side of a hybrid behind an endpoint of OpenAI's form: edgewise serve, llama.cpp, vLLM, Ollama.

import { InputError } from "../../shared/errors.ts";
import { address, type Egress } from "./egress.ts";
import { CloudError, eventsOf } from "./events.ts";
import { continued, continues, type Piece, type Side, type Task } from "./side.ts";

/** Options of {@link openAI}. */
export interface OpenAIOptions {
  /** Address of the API, such as `https://example.org/v1`. */
  baseURL: string | URL;
  /** Name of the model there. */
  model: string;
  /** The key, or a function that returns it. Default: none is sent. */
  token?: string | (() => string | Promise<string>);
  /**
   * How the endpoint continues an unfinished answer of a chat. `fields`: with vLLM's
   * `continue_final_message`, which `edgewise serve` has too and others ignore. `message`: whenever
   * the last message is the assistant's. `never`: it begins a new answer, as OpenAI's own models
   * do; such an endpoint cannot take over in the middle of a chat's answer. Default: `fields`.
   */
  continues?: "fields" | "message" | "never";
  /** Further fields of each request's body. */
  extra?: Record<string, unknown>;
}

/** An endpoint, ready to be a side. Made by {@link openAI}. */
export interface Cloud {
  readonly baseURL: string;
  readonly model: string;
  /** @internal */
  side(egress: Egress): Side;
}

type Fields = Record<string, unknown>;

const FINISH: Record<string, string> = { stop: "eos", length: "length" };
// ends that are none, of vLLM: the text is not whole
const UNFINISHED = new Set<unknown>(["abort", "error"]);
// of life, in a row and without text or thoughts: a proxy may send them for a model that hangs
const MAX_SIGNS = 100;
const NAMES = {
  temperature: "temperature",
  top_k: "top_k",
  top_p: "top_p",
  min_p: "min_p",
  repetition_penalty: "repetition_penalty",
  presence_penalty: "presence_penalty",
  frequency_penalty: "frequency_penalty",
  stop_strings: "stop",
} as const;
/** The generation options that an endpoint has. */
export const CLOUD_FIELDS: readonly string[] = [
  ...Object.keys(NAMES),
  "max_new_tokens",
  "do_sample",
  "seed",
];

/**
 * An endpoint of OpenAI's form.
 * @throws InputError for an address that is none, or that is not encrypted
 */
export function openAI(options: OpenAIOptions): Cloud {
  const url = address(options.baseURL, "baseURL");
  if (typeof options.model !== "string" || !options.model)
    throw new InputError("there is no model", "openAI", "Name a model of the endpoint.");
  return {
    baseURL: url.href,
    model: options.model,
    side: (egress) => ({
      where: "cloud",
      write: (task, signal) => write(task, signal, url, options, egress),
      can: (task) => options.continues !== "never" || !continues(task),
    }),
  };
}

/** The address and the body of a request. */
function request(task: Task, options: OpenAIOptions): [path: string, Record<string, unknown>] {
  const { fields } = task;
  const body: Record<string, unknown> = {
    ...options.extra,
    model: options.model,
    stream: true,
    max_tokens: task.tokens,
  };
  for (const [name, theirs] of Object.entries(NAMES))
    if (fields[name] !== undefined && fields[name] !== null) body[theirs] = fields[name];
  if (fields.seed !== undefined && fields.seed !== null)
    body.seed = Number(BigInt.asIntN(53, BigInt(fields.seed as number)));
  if (fields.do_sample === false) {
    for (const name of ["top_k", "top_p", "min_p"]) delete body[name];
    body.temperature = 0;
  }
  const input = continued(task);
  if (typeof input === "string") return ["completions", { ...body, prompt: input }];
  const more =
    continues(task) && (options.continues ?? "fields") === "fields"
      ? { continue_final_message: true, add_generation_prompt: false }
      : {};
  return ["chat/completions", { ...body, messages: input, ...more }];
}

async function* write(
  task: Task,
  signal: AbortSignal,
  base: URL,
  options: OpenAIOptions,
  egress: Egress,
): AsyncGenerator<Piece> {
  const [path, body] = request(task, options);
  const url = new URL(path, base);
  const token = typeof options.token === "function" ? await options.token() : options.token;
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  signal.throwIfAborted();
  const response = await egress.send(url, JSON.stringify(body), headers, signal);
  if (!response.ok) throw await refused(response, url.href);
  const finish = yield* pieces(response, url.href);
  if (!finish) throw new CloudError("the answer has no end", url.href);
}

/** The pieces of an answer. Returns whether one of them was the last. */
async function* pieces(response: Response, where: string): AsyncGenerator<Piece, boolean> {
  let signs = 0;
  for await (const event of eventsOf(response, where)) {
    const record = event ? parsed(event, where) : {};
    const error = errorOf(record);
    if (error) throw failure(error, where, response.status);
    // counts of tokens have none
    const choice = (Array.isArray(record.choices) && record.choices[0]) || {};
    const { delta, text, finish_reason: finish } = choice as Fields;
    const { content, reasoning_content: thought, reasoning } = (delta ?? {}) as Fields;
    const given = content ?? text ?? "";
    if (typeof given !== "string") throw new CloudError("a piece is no text", where);
    if (UNFINISHED.has(finish)) throw new CloudError(`the endpoint gave up (${finish})`, where);
    const end = typeof finish === "string" ? endOf(finish) : undefined;
    if (given || end) yield { text: given, tokens: given ? 1 : 0, finish: end };
    else if (thought || reasoning || signs < MAX_SIGNS) yield { text: "", tokens: 0, alive: true };
    signs = given || thought || reasoning ? 0 : signs + 1;
    if (end) return true;
  }
  return false;
}

/** OpenAI's reason of an end, as transformers'. */
function endOf(reason: string): string {
  return Object.hasOwn(FINISH, reason) ? FINISH[reason]! : reason.slice(0, 40);
}

/** What a body tells of an error: OpenAI's form and Ollama's, older vLLM's, and FastAPI's. */
function errorOf({ error, object, message, detail }: Record<string, unknown>): unknown {
  if (error) return error;
  return object === "error" ? { message } : typeof detail === "string" ? detail : undefined;
}

function parsed(text: string, where: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value) return value as Record<string, unknown>;
  } catch {
    // told below
  }
  throw new CloudError("an event is no JSON object", where);
}

const MAX_REFUSAL = 64 << 10; // bytes

/** The error of an answer that is none. */
export async function refused(response: Response, where: string): Promise<CloudError> {
  let text = "";
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  try {
    while (reader && text.length < MAX_REFUSAL) {
      const { value, done } = await reader.read();
      if (done) break;
      text += value;
    }
  } catch {
    // what came until then is enough
  } finally {
    reader?.cancel().catch(() => undefined);
  }
  try {
    return failure(errorOf(parsed(text, where)), where, response.status);
  } catch {
    const plain = /^text\/plain\b/.test(response.headers.get("content-type") ?? "");
    return failure(plain ? text.trim() || undefined : undefined, where, response.status);
  }
}

function failure(error: unknown, where: string, status: number): CloudError {
  const message = typeof error === "string" ? error : (error as { message?: unknown })?.message;
  const words = typeof message === "string" ? message : "it gave no reason";
  return Object.assign(new CloudError(`the endpoint refused (${status}): ${words}`, where), {
    status,
  });
}
