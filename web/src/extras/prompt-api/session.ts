// A session: messages that a pipeline answers, in their order.

import type { GenerateOptions } from "../../page/text-generation.ts";
import type { Answer, Backend, Tell } from "./backend.ts";
import { type Input, type Part, readPrompt, type Takes, type Turn } from "./content.ts";
import { checkSystem, constraintOf } from "./input.ts";
import { domError } from "./refusals.ts";
import type {
  LanguageModelMessageContent,
  LanguageModelPrompt,
  LanguageModelPromptOptions,
  LanguageModelSamplingMode,
  LanguageModelTool,
} from "./types.ts";

/** Tokens that an answer should have room for, at most an eighth of the context. */
const ANSWER = 256;

/** What a session begins with. */
export interface Start {
  backend: Backend;
  /** Fields of each generation. */
  fields: GenerateOptions;
  mode: LanguageModelSamplingMode;
  tools: LanguageModelTool[];
  /** Types of content besides texts that its messages may have. */
  types: string[];
  /** Whether answers are lists of parts, with the calls of tools. */
  lists: boolean;
}

type Handler = ((event: Event) => unknown) | null;
type Work<T> = (signal: AbortSignal) => Promise<T>;

/** A session of the browser's Prompt API, answered by a pipeline. */
export class LanguageModel extends EventTarget {
  /** Called when messages leave the session, since the context is full. */
  oncontextoverflow: Handler = null;
  /** The older name of `oncontextoverflow`. */
  onquotaoverflow: Handler = null;
  /** How answers are sampled. */
  readonly samplingMode: LanguageModelSamplingMode;

  /** Messages that stay: those of the beginning. */
  private initial: Turn[] = [];
  /** What was appended, or asked and answered, since. */
  private turns: Turn[][] = [];
  private usage = 0;
  private last: Promise<unknown> = Promise.resolve();
  private readonly end = new AbortController();

  /** @internal */
  constructor(private readonly start: Start) {
    super();
    if (!start?.backend) throw new TypeError("Illegal constructor: use LanguageModel.create()");
    this.samplingMode = start.mode;
    this.addEventListener("contextoverflow", (event) => this.oncontextoverflow?.(event));
    this.addEventListener("quotaoverflow", (event) => this.onquotaoverflow?.(event));
  }

  /** Tokens of the session. */
  get contextUsage(): number {
    return this.usage;
  }

  /** Tokens that a session can have. */
  get contextWindow(): number {
    return this.start.backend.capacity;
  }

  /** The older name of `contextUsage`. */
  get inputUsage(): number {
    return this.contextUsage;
  }

  /** The older name of `contextWindow`. */
  get inputQuota(): number {
    return this.contextWindow;
  }

  /**
   * Answers a prompt: with a text, or with a list of parts if the session has `tool-call` among its
   * `expectedOutputs` and no tool with a function.
   * @throws DOMException: QuotaExceededError, NotSupportedError, InvalidStateError after `destroy`,
   *   SyntaxError, OperationError, UnknownError; of what is no picture or sound InvalidStateError
   *   and DataError; the signal's reason
   * @throws TypeError
   */
  async prompt<T extends string | LanguageModelMessageContent[] = string>(
    input: LanguageModelPrompt,
    options?: LanguageModelPromptOptions,
  ): Promise<T> {
    const answer = this.asked(input, options ?? {}, undefined);
    return this.inTurn(options?.signal, answer) as Promise<T>;
  }

  /** As `prompt`: the pieces of the answer. */
  promptStreaming<T extends string | LanguageModelMessageContent = string>(
    input: LanguageModelPrompt,
    options: LanguageModelPromptOptions = {},
  ): ReadableStream<T> {
    const left = new AbortController();
    const signals = [left.signal, this.end.signal, ...(options.signal ? [options.signal] : [])];
    const signal = AbortSignal.any(signals);
    signal.throwIfAborted();
    return new ReadableStream<T>({
      start: (controller) => {
        const tell: Tell = (piece) => signal.aborted || controller.enqueue(this.listed(piece) as T);
        const work = async () => this.inTurn(signal, this.asked(input, options, tell));
        const done = () => left.signal.aborted || controller.close();
        work().then(done, (e) => controller.error(e));
      },
      cancel: () => left.abort(),
    });
  }

  /** Adds messages, which are answered with the next prompt. @throws as `prompt` */
  async append(input: LanguageModelPrompt, options?: { signal?: AbortSignal }): Promise<void> {
    const read = this.read(input);
    await this.inTurn(options?.signal, async (signal) => {
      await read.ready;
      checkSystem(read, this.isNew);
      const { turns } = await this.room(read, false);
      await this.keep(turns, read.messages, signal);
    });
  }

  /** Tokens that a prompt would add. @throws as `prompt` */
  async measureContextUsage(
    input: LanguageModelPrompt,
    options?: LanguageModelPromptOptions,
  ): Promise<number> {
    const read = this.constrained(input, options ?? {}).read;
    checkSystem(read, true);
    const before = read.messages[0]!.role === "system" ? [] : this.messages(this.turns);
    return this.raced(options?.signal, async () => {
      await read.ready;
      const all = await this.count([...before, ...read.messages]);
      return Math.max(0, all - (await this.count(before)));
    });
  }

  /** The older name of `measureContextUsage`. */
  measureInputUsage(
    input: LanguageModelPrompt,
    options?: LanguageModelPromptOptions,
  ): Promise<number> {
    return this.measureContextUsage(input, options);
  }

  /** A session with the same messages. @throws as `prompt` */
  clone(options?: { signal?: AbortSignal }): Promise<LanguageModel> {
    return this.raced(options?.signal, async () => {
      const made = new (this.constructor as typeof LanguageModel)(this.start);
      made.initial = this.initial;
      made.turns = this.turns;
      made.usage = this.usage;
      return made;
    });
  }

  /** Ends the session and what it does. The pipeline stays. */
  destroy(): void {
    this.endWith(domError("the session has been destroyed", "InvalidStateError"));
  }

  /** @internal */
  async begin(prompts: unknown, signal: AbortSignal | undefined): Promise<void> {
    const read = Array.isArray(prompts) && !prompts.length ? undefined : this.read(prompts);
    if (read) checkSystem(read, true);
    await this.raced(signal, async () => {
      if (!read) return;
      await read.ready;
      await this.room(read, false);
      this.initial = read.messages;
      this.usage = await this.count(read.messages);
    });
    signal?.addEventListener("abort", () => this.endWith(signal.reason), { once: true });
  }

  private endWith(reason: unknown): void {
    this.end.abort(reason);
  }

  private get isNew(): boolean {
    return !this.initial.length && !this.turns.length;
  }

  private read(input: unknown): Input {
    const { backend, types } = this.start;
    const takes: Takes = {
      types,
      parts: backend.parts,
      check: (part) => backend.check(part),
    };
    return readPrompt(input, takes);
  }

  /** A piece of an answer in the form of the session. */
  private listed(piece: Parameters<Tell>[0]): unknown {
    return this.start.lists && typeof piece === "string" ? { type: "text", value: piece } : piece;
  }

  private messages(turns: Turn[][]): Turn[] {
    return [...this.initial, ...turns.flat()];
  }

  private constrained(input: unknown, options: LanguageModelPromptOptions) {
    const read = this.read(input);
    const constraint = constraintOf(options);
    const last = read.messages.findLast(({ role }) => role === "user");
    if (last && constraint) last.content = extended(last.content, constraint.text);
    return { read, format: constraint?.format };
  }

  /** The work of a prompt, whose input is read at once. */
  private asked(
    input: unknown,
    options: LanguageModelPromptOptions,
    tell: Tell | undefined,
  ): Work<Answer["parts"] | string> {
    const { read, format } = this.constrained(input, options);
    const { backend, tools, fields, lists } = this.start;
    if (read.prefix && tools.length)
      throw domError("prefix is not supported with tools", "NotSupportedError");
    return async (signal) => {
      await read.ready;
      checkSystem(read, this.isNew);
      const { turns, used } = await this.room(read, true);
      const messages = [...this.messages(turns), ...read.messages];
      const made = await backend.answer(
        messages,
        tools,
        {
          max_new_tokens: this.contextWindow - used,
          ...fields,
          signal,
          response_format: format ?? null,
          continue_final_message: read.prefix,
        },
        tell,
      );
      if (format && made.finish === "length")
        throw domError("the answer is too long for responseConstraint", "SyntaxError");
      await this.keep(turns, [...read.messages, ...made.messages], signal, read.prefix);
      return lists ? made.parts : textOf(made.messages.at(-1)!.content);
    };
  }

  /**
   * The turns that leave room for an input, and for an answer if there is one; and all tokens.
   * @throws QuotaExceededError
   */
  private async room({ messages, prefix }: Input, asks: boolean) {
    const window = this.contextWindow;
    const size = (turns: Turn[][]) =>
      this.count([...this.messages(turns), ...messages], asks, asks && prefix);
    const spare = asks ? Math.min(ANSWER, window >> 3) : 0;
    let turns = this.turns;
    let used = await size(turns);
    while (used + spare > window && turns.length) {
      turns = turns.slice(1);
      used = await size(turns);
    }
    if (used + Number(asks) > window) {
      const requested = await this.count([...this.messages(this.turns), ...messages]);
      throw quotaError(Math.max(requested, window + 1), window);
    }
    if (turns.length < this.turns.length) {
      this.turns = turns;
      for (const name of ["contextoverflow", "quotaoverflow"]) this.dispatchEvent(new Event(name));
    }
    return { turns, used };
  }

  /** Adds a turn, unless the signal was faster. */
  private async keep(turns: Turn[][], messages: Turn[], signal: AbortSignal, joins = false) {
    let turn = messages;
    if (joins) {
      const [begun, rest] = messages.slice(-2) as [Turn, Turn];
      const content = extended(begun.content, textOf(rest.content));
      turn = [...messages.slice(0, -2), { ...begun, content }];
    }
    const isSystem = this.isNew && turn[0]!.role === "system";
    const usage = await this.count([...this.messages(turns), ...turn]);
    signal.throwIfAborted();
    this.usage = usage;
    if (isSystem) this.initial = [turn[0]!];
    this.turns = [...turns, isSystem ? turn.slice(1) : turn];
  }

  /** Tokens of messages. */
  private async count(messages: Turn[], opens = false, prefix = false): Promise<number> {
    const { backend, tools } = this.start;
    return messages.length ? backend.count(messages, { opens, prefix, tools }) : 0;
  }

  /** Does work after what was begun before. */
  private inTurn<T>(signal: AbortSignal | undefined, work: Work<T>): Promise<T> {
    return this.raced(signal, (both) => {
      const turn = this.last.then(() => {
        both.throwIfAborted();
        return work(both);
      });
      this.last = turn.catch(() => undefined);
      return turn;
    });
  }

  /** Does work until it is aborted, with the errors of the web. */
  private async raced<T>(signal: AbortSignal | undefined, work: Work<T>): Promise<T> {
    const both = signal ? AbortSignal.any([this.end.signal, signal]) : this.end.signal;
    both.throwIfAborted();
    const over = new AbortController();
    const aborted = new Promise<never>((_, reject) => {
      both.addEventListener("abort", () => reject(both.reason), { signal: over.signal });
    });
    try {
      const made = await Promise.race([work(both), aborted]);
      both.throwIfAborted();
      return made;
    } catch (e) {
      throw both.aborted ? both.reason : webError(e);
    } finally {
      over.abort();
    }
  }
}

/** A content with more text at its end. */
function extended(content: Turn["content"], text: string): Turn["content"] {
  if (typeof content === "string") return content + text;
  const last = content.at(-1);
  if (last?.type !== "text") return [...content, { type: "text", text }];
  return [...content.slice(0, -1), { ...last, text: last.text + text }];
}

const textOf = (content: Turn["content"]): string =>
  typeof content === "string" ? content : content.map(({ text }: Part) => text ?? "").join("");

/** By names: the page's "edgewise" has classes of its own. */
const REFUSALS = ["InputError", "UnsupportedField", "TokenizerError"];

function webError(e: unknown): unknown {
  const { name = "", message = "" } = (e ?? {}) as Error;
  if (e instanceof DOMException || e instanceof TypeError || e instanceof RangeError) return e;
  return domError(message, REFUSALS.includes(name) ? "NotSupportedError" : "UnknownError");
}

/** Browsers that do not have the class have the name. */
function quotaError(requested: number, quota: number): DOMException {
  const what = `the prompt makes ${requested} tokens, and the context has ${quota}`;
  const { QuotaExceededError: Class } = globalThis as {
    QuotaExceededError?: new (what: string, sizes: object) => DOMException;
  };
  if (Class) return new Class(what, { requested, quota });
  return Object.assign(domError(what, "QuotaExceededError"), { requested, quota });
}
