// hybrid(): text generation on the device or in the cloud, call by call.

import type { Message } from "../../protocol/generation.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { InputError } from "../../shared/errors.ts";
import { type Clock, realClock } from "./clock.ts";
import { Device, type DeviceSource } from "./device.ts";
import { Egress, type LedgerEntry } from "./egress.ts";
import { CLOUD_FIELDS, type Cloud } from "./openai.ts";
import { type Decision, decided, isPrivate, type Policy, rules, type Signals } from "./policy.ts";
import { type Keeper, Rates } from "./rates.ts";
import { type Outcome, relay } from "./relay.ts";
import type { SharedFields, Side } from "./side.ts";
import { machine } from "./surroundings.ts";

/** Options of {@link hybrid}. */
export interface HybridOptions {
  /** A text-generation pipeline, or a function that loads it when it is needed. */
  device?: DeviceSource;
  /** An endpoint, made by {@link openAI}. */
  cloud?: Cloud;
  /** Decides where a call is computed. Default: {@link rules} without options. */
  policy?: Policy;
  /** Bytes of the device's model that are still to be downloaded, for the policy. */
  missing?: number | (() => number | Promise<number>);
  /**
   * Whether the first call that is no private one begins to load the device's model, so that later
   * ones find it; not where the user saves data, nor over 2G. Default: true.
   */
  preload?: boolean;
  /**
   * Milliseconds without a token after which a side has failed, and the other one goes on.
   * Default: 10000.
   */
  stall?: number;
  /**
   * Milliseconds without a first token after which a cloud has failed. Each piece of a model's
   * thoughts begins them anew, as do a hundred pings at most. Default: 60000.
   */
  timeout?: number;
  /** Where measured rates are kept; null: nowhere. Default: `localStorage`. */
  keep?: Keeper | null;
  /** @internal */
  clock?: Clock;
  /** @internal */
  machine?: () => ReturnType<typeof machine>;
}

/** Options of a call: those of text-generation pipelines, and `private`. */
export interface HybridCall extends SharedFields {
  /** Nothing of this call leaves the page. Default: false. */
  private?: boolean;
  /** Receives new text, or has the methods of a text streamer. */
  streamer?: ((text: string) => void) | TextReceiver;
  /** Cancels the call: it rejects with {@link Aborted}, whose `text` is the text so far. */
  signal?: AbortSignal;
  /** False: only the new text. Default: true. */
  return_full_text?: boolean;
  /** Adds `finish_reasons` to the result. */
  return_dict_in_generate?: boolean;
  /** Options that only the device has keep the call there. */
  [field: string]: unknown;
}

/** A text streamer, such as {@link TextStreamer}. */
export interface TextReceiver {
  /** Receives each piece of text; `stream_end` is true for the last one. */
  on_finalized_text(text: string, stream_end: boolean): void;
}

/** A generated text. */
export interface HybridOutput {
  /** As of a text-generation pipeline. */
  generated_text: string | Message[];
  /** With `return_dict_in_generate`: why the text ended. */
  finish_reasons?: string;
}

/** How the last call went. */
export interface LastCall extends Omit<Outcome, "text" | "finish"> {
  /** What the policy decided. */
  decision: Decision;
  /** What it knew. */
  signals: Signals;
}

/** Writes text on one of its sides. */
export interface Hybrid {
  /**
   * Generates text, as a text-generation pipeline.
   * @throws HybridError if no side could finish it; its `text` is the text so far
   * @throws Aborted, InputError
   */
  (input: string | Message[], options?: HybridCall): Promise<HybridOutput[]>;
  (input: (string | Message[])[], options?: HybridCall): Promise<HybridOutput[][]>;
  /** The pieces of a text while it is generated. */
  stream(input: string | Message[], options?: HybridCall): AsyncGenerator<string, void>;
  /** Loads the device's model, so that the next call finds it. */
  load(): Promise<void>;
  /** How the last call went. */
  readonly last: LastCall | undefined;
  /** The requests that left the page. */
  ledger(): LedgerEntry[];
}

// Options of a call that are no fields of the generation.
const OWN = ["private", "streamer", "signal", "return_full_text", "return_dict_in_generate"];
const STALL = 10_000;
const TIMEOUT = 60_000;
const TOKENS = 256;

/**
 * Text generation on the device or in the cloud, with the signature of a text-generation pipeline.
 *
 * ```js
 * const write = hybrid({
 *   device: () => pipeline("text-generation", "model.edge"),
 *   cloud: openAI({ baseURL: "https://example.org/v1", model: "stories" }),
 * });
 * const [{ generated_text }] = await write("Once upon a time", { max_new_tokens: 40 });
 * ```
 * @throws InputError if there is no side
 */
export function hybrid(options: HybridOptions): Hybrid {
  check(options);
  const core = new Core(options);
  const call = (input: string | Message[] | (string | Message[])[], given: HybridCall = {}) =>
    several(input) ? core.each(input, given) : core.one(input as string | Message[], given);
  return Object.defineProperties(call, {
    stream: { value: core.stream.bind(core) },
    load: { value: async () => void (await core.device?.load()) },
    last: { get: () => core.last },
    ledger: { value: () => [...core.egress.entries] },
  }) as unknown as Hybrid;
}

/** Whether an input is a list of inputs. */
function several(input: unknown): input is (string | Message[])[] {
  return Array.isArray(input) && (typeof input[0] === "string" || Array.isArray(input[0]));
}

class Core {
  readonly egress = new Egress();
  readonly device: Device | undefined;
  last: LastCall | undefined;
  private readonly cloud: Side | undefined;
  private readonly rates: Rates;
  private readonly policy: Policy;

  constructor(private readonly options: HybridOptions) {
    const { device, cloud, keep, policy = rules() } = options;
    this.device = device && new Device(device);
    this.cloud = cloud?.side(this.egress);
    this.policy = policy;
    const keeper = keep === undefined ? storage() : (keep ?? undefined);
    this.rates = new Rates(keeper, `edgewise.hybrid ${cloud?.baseURL} ${cloud?.model}`);
  }

  async each(inputs: (string | Message[])[], given: HybridCall): Promise<HybridOutput[][]> {
    inputs.forEach(checkInput);
    const outputs: HybridOutput[][] = [];
    for (const input of inputs) outputs.push(await this.one(input, given));
    return outputs;
  }

  async one(input: string | Message[], given: HybridCall): Promise<HybridOutput[]> {
    checkInput(input);
    const { streamer, signal, return_full_text: full, return_dict_in_generate: detailed } = given;
    throwIfAborted(signal);
    const fields = fieldsOf(given);
    const signals = await this.signals(input, fields, isPrivate(given.private, "hybrid"));
    const decision = decided(this.policy, signals);
    const { first, others } = this.sides(decision, signals);
    if (signals.deviceOnly.length) return await this.direct(input, given, decision, signals);
    const { stall = STALL, timeout = TIMEOUT } = this.options;
    this.preload(signals);
    const tell =
      typeof streamer === "function"
        ? (text: string) => streamer(text)
        : (text: string, end = false) => streamer?.on_finalized_text(text, end);
    const outcome = await relay(
      {
        input,
        fields,
        tokens: signals.tokens,
        prompt: signals.prompt,
        first,
        others,
        patience: decision.patience ?? (decision.where === "cloud" ? stall : undefined),
        stall,
        timeout,
        signal,
        emit: (text) => tell(text),
      },
      this.options.clock ?? realClock,
      this.rates,
    );
    if (typeof streamer === "object") tell("", true);
    const { text, finish, ...how } = outcome;
    this.last = { ...how, decision, signals };
    const generated_text = full === false ? text : joined(input, text);
    return [{ generated_text, ...(detailed ? { finish_reasons: finish } : {}) }];
  }

  /** A call that only the device can do, such as one with beams: the pipeline's own. */
  private async direct(
    input: string | Message[],
    { private: _, ...options }: HybridCall,
    decision: Decision,
    signals: Signals,
  ): Promise<HybridOutput[]> {
    const { clock = realClock } = this.options;
    const pipe = await this.device!.load();
    const begun = clock.now();
    const outputs = (await pipe(input, options)) as HybridOutput[];
    const firstToken = pipe.stats?.prefill_ms ?? clock.now() - begun;
    this.last = { where: "device", firstToken, switches: [], decision, signals };
    return outputs;
  }

  async *stream(input: string | Message[], given: HybridCall = {}): AsyncGenerator<string, void> {
    const control = new AbortController();
    const pieces: string[] = [];
    let wake = () => {};
    let over = false;
    const done = this.one(input, {
      ...given,
      signal: given.signal ? AbortSignal.any([given.signal, control.signal]) : control.signal,
      streamer: (text: string) => {
        pieces.push(text);
        wake();
      },
    });
    const end = () => {
      over = true;
      wake();
    };
    done.then(end, end);
    try {
      while (!over || pieces.length) {
        if (pieces.length) yield pieces.shift()!;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
      await done;
    } finally {
      control.abort();
      done.catch(() => undefined);
    }
  }

  /** Begins to load the model while the cloud answers. */
  private preload({ private: stays, saveData, effectiveType, online }: Signals): void {
    const slow = saveData || !online || /2g/.test(effectiveType ?? "");
    if (this.options.preload === false || stays || slow || this.device?.state !== "absent") return;
    this.device.load().catch(() => undefined); // a call that needs it tries again
  }

  /** What the policy is asked with. */
  private async signals(
    input: string | Message[],
    fields: Record<string, unknown>,
    stays: boolean,
  ): Promise<Signals> {
    const { missing } = this.options;
    const task = { input, prefix: "", tokens: 1, fields };
    const text = typeof input === "string" ? input : input.map((m) => m.content).join(" ");
    return {
      ...(await (this.options.machine ?? machine)()),
      private: stays,
      device: this.device && {
        state: this.device.state,
        missing: typeof missing === "function" ? await missing() : missing,
        rates: this.rates.of("device"),
      },
      cloud: this.cloud?.can(task) ? { rates: this.rates.of("cloud") } : undefined,
      split: false,
      deviceOnly: Object.keys(fields).filter((name) => !CLOUD_FIELDS.includes(name)),
      prompt: Math.ceil(text.length / 4),
      tokens: (fields.max_new_tokens as number | undefined) ?? TOKENS,
      last: this.last?.where,
    };
  }

  /** The sides of a call. A private one has no cloud, whatever a policy says. */
  private sides({ where }: Decision, signals: Signals): { first: Side[]; others: Side[] } {
    const fail = (what: string, remedy: string) => {
      throw new InputError(what, "policy", remedy);
    };
    if (!["device", "cloud", "race"].includes(where))
      fail(`it answers '${where}'`, "A text is written on the device, in the cloud, or by a race.");
    const closed = signals.private || signals.deviceOnly.length > 0 || !signals.cloud;
    const cloud = closed ? [] : [this.cloud!];
    const device = this.device ? [this.device] : [];
    if (signals.private && where !== "device")
      fail("it sends a private call away", "Answer 'device' where signals.private is set.");
    const only = signals.deviceOnly.join(", ");
    if (only && (!device.length || where !== "device"))
      fail(`only a device has ${only}`, "Leave it out, or compute the call on the device.");
    if (where === "device" && !device.length)
      fail("there is no device side for this call", "Give `device`, or allow the cloud.");
    if (where === "cloud" && !cloud.length)
      fail(
        "there is no cloud side for this call",
        "Answer 'device' where signals.cloud is not set.",
      );
    if (where === "race") return { first: [...device, ...cloud], others: [] };
    return where === "device" ? { first: device, others: cloud } : { first: cloud, others: device };
  }
}

/** The generation fields of a call that are set. */
function fieldsOf(given: HybridCall): Record<string, unknown> {
  const set = ([name, value]: [string, unknown]) =>
    !OWN.includes(name) && value !== undefined && value !== null;
  const fields = Object.fromEntries(Object.entries(given).filter(set));
  const most = fields.max_new_tokens ?? TOKENS;
  if (!Number.isSafeInteger(most) || (most as number) < 1)
    throw new InputError(`it is ${String(most)}`, "max_new_tokens", "Give a positive integer.");
  return fields;
}

/** @throws InputError for options that mean nothing */
function check({ device, cloud, policy, stall, timeout }: HybridOptions): void {
  const fail = (what: string, where: string, remedy: string) => {
    throw new InputError(what, where, remedy);
  };
  if (!device && !cloud)
    fail("there is neither a device nor a cloud", "hybrid", "Give one, or both.");
  if (device && typeof device !== "function")
    fail("it is no pipeline", "device", "Await the pipeline, or give a function that loads it.");
  if (cloud && typeof cloud.side !== "function")
    fail("it is no endpoint", "cloud", "Give openAI({ baseURL, model }).");
  if (policy && typeof policy !== "function")
    fail("it is no function", "policy", "Give rules({ ... }), or a function of signals.");
  for (const [name, ms = STALL] of Object.entries({ stall, timeout }))
    if (!(ms > 0)) fail(`it is ${String(ms)}`, name, "Give milliseconds above 0.");
}

function checkInput(input: unknown): void {
  const message = (m: unknown) =>
    typeof (m as Message | null)?.role === "string" && typeof (m as Message).content === "string";
  if (typeof input === "string" || (Array.isArray(input) && input.length && input.every(message)))
    return;
  throw new InputError(
    "the input is neither text nor chat messages",
    "hybrid",
    "Give a string, or messages with role and content.",
  );
}

/** The input with the new text. */
function joined(input: string | Message[], text: string): string | Message[] {
  if (typeof input === "string") return input + text;
  const last = input.at(-1)!;
  return last.role === "assistant"
    ? [...input.slice(0, -1), { ...last, content: last.content + text }]
    : [...input, { role: "assistant", content: text }];
}

function storage(): Keeper | undefined {
  try {
    return globalThis.localStorage;
  } catch {
    return undefined; // not permitted here
  }
}
