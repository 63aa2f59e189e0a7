// splitSession(): the first part of a model here, the second part at `edgewise serve --split`.

import { throwIfAborted } from "../../shared/abort.ts";
import { InputError } from "../../shared/errors.ts";
import { seconds, Watchdog } from "../../shared/watchdog.ts";
import { realClock } from "../hybrid/clock.ts";
import { address, Egress, type LedgerEntry } from "../hybrid/egress.ts";
import { CloudError } from "../hybrid/events.ts";
import { refused } from "../hybrid/openai.ts";
import {
  type Decision,
  decided,
  isPrivate,
  type Policy,
  rules,
  type Signals,
} from "../hybrid/policy.ts";
import { type Keeper, Rates } from "../hybrid/rates.ts";
import { HybridError } from "../hybrid/relay.ts";
import { machine } from "../hybrid/surroundings.ts";
import { packTensors, type TensorLike, unpackTensors } from "./wire.ts";

/** Tensors by name. */
export type Tensors<T extends TensorLike = TensorLike> = Record<string, T>;

/** What is needed of an `InferenceSession`, of this library or of ONNX Runtime Web. */
export interface SessionLike<T extends TensorLike> {
  run(feeds: Tensors<T>): Promise<Tensors<T>>;
  readonly inputNames?: readonly string[];
}

/** A session, or a function that makes it when it is needed. */
export type SessionSource<T extends TensorLike> = SessionLike<T> | (() => Promise<SessionLike<T>>);

/** Options of {@link splitSession}. */
export interface SplitOptions<T extends TensorLike> {
  /** The first part. */
  first: SessionSource<T>;
  /** Address of the second part, such as `https://example.org/v1/split/name`. */
  rest: string | URL;
  /** Names of the tensors that the second part gets; `edgewise split` prints them. */
  tensors: readonly string[];
  /** The class of tensors: `Tensor`. */
  // biome-ignore format: one exception for both parameters
  // biome-ignore lint/suspicious/noExplicitAny: constructors of both libraries have many forms
  Tensor: new (type: any, data: any, dims: readonly number[]) => T;
  /** The whole model: for private calls, and where the second part cannot be reached. */
  whole?: SessionSource<T>;
  /** The key of the server, or a function that returns it. */
  token?: string | (() => string | Promise<string>);
  /** Decides between `split` and `device`, the whole model. Default: {@link rules}. */
  policy?: Policy;
  /** Bytes of an answer at most. Default: 64 MiB. */
  maxBytes?: number;
  /** Milliseconds in which the server sends nothing, after which it has failed. Default: 60000. */
  stall?: number;
  /** Where measured rates are kept; null: nowhere. Default: null. */
  keep?: Keeper | null;
}

/** Options of a run. */
export interface SplitCall {
  /** Nothing of this run leaves the page: the whole model runs here. Default: false. */
  private?: boolean;
  /** Cancels the run. */
  signal?: AbortSignal;
}

/** A model in two parts. */
export interface SplitSession<T extends TensorLike> {
  /**
   * Runs the model.
   * @returns the outputs of both parts
   * @throws InputError if nothing may compute it; HybridError, Aborted
   */
  run(feeds: Tensors<T>, options?: SplitCall): Promise<Tensors<T>>;
  /** What was decided for the last run, and what happened then. */
  readonly last: (Decision & { switched?: string }) | undefined;
  /** The requests that left the page. */
  ledger(): LedgerEntry[];
}

const MAX_BYTES = 64 << 20;
const STALL = 60_000;

/**
 * A model whose second part runs on a server: inputs stay here, and what `edgewise split` named
 * leaves.
 * @throws InputError for an address that is none, or that is not encrypted
 */
export function splitSession<T extends TensorLike>(options: SplitOptions<T>): SplitSession<T> {
  const url = address(options.rest, "rest");
  url.pathname = url.pathname.replace(/\/$/, "");
  const { stall = STALL } = options;
  if (!(stall > 0))
    throw new InputError(`it is ${String(stall)}`, "stall", "Give milliseconds above 0.");
  return new Split(options, url);
}

class Lazy<T extends TensorLike> {
  ready: boolean;
  private made: Promise<SessionLike<T>> | undefined;

  constructor(private readonly source: SessionSource<T>) {
    this.ready = typeof source !== "function";
  }

  get(): Promise<SessionLike<T>> {
    const { source } = this;
    if (typeof source !== "function") return Promise.resolve(source);
    this.made ??= source().then(
      (made) => {
        this.ready = true;
        return made;
      },
      (e: unknown) => {
        this.made = undefined;
        throw e;
      },
    );
    return this.made;
  }
}

class Split<T extends TensorLike> implements SplitSession<T> {
  last: (Decision & { switched?: string }) | undefined;
  private readonly egress = new Egress();
  private readonly first: Lazy<T>;
  private readonly whole: Lazy<T> | undefined;
  private readonly rates: Rates;

  constructor(
    private readonly options: SplitOptions<T>,
    private readonly url: URL,
  ) {
    this.first = new Lazy(options.first);
    this.whole = options.whole && new Lazy(options.whole);
    this.rates = new Rates(options.keep ?? undefined, `edgewise.split ${url.href}`);
  }

  ledger(): LedgerEntry[] {
    return [...this.egress.entries];
  }

  async run(feeds: Tensors<T>, call: SplitCall = {}): Promise<Tensors<T>> {
    throwIfAborted(call.signal);
    const signals = await this.signals(isPrivate(call.private, "split"));
    const decision = decided(this.options.policy ?? rules(), signals);
    this.last = decision;
    const fail = (what: string, remedy: string) => {
      throw new InputError(what, "policy", remedy);
    };
    if (decision.where === "device") {
      if (!this.whole) fail("the whole model is not here", "Give `whole`, or allow the split.");
      return await this.local(feeds);
    }
    if (decision.where !== "split")
      fail(`it answers '${decision.where}'`, "A split model runs on the device, or split.");
    if (signals.private)
      fail("it sends a private run away", "Answer 'device' where signals.private is set.");
    try {
      return await this.split(feeds, call.signal);
    } catch (e) {
      throwIfAborted(call.signal);
      if (e instanceof InputError) throw e; // the caller's mistake, and no failure of the server
      this.rates.failed("cloud");
      const why = e instanceof Error ? e.message : String(e);
      if (!this.whole)
        throw Object.assign(new HybridError(why, "split", "Give `whole` to go on here."), {
          errors: [e],
        });
      this.last = { ...decision, switched: why };
      return await this.local(feeds);
    }
  }

  private async signals(stays: boolean): Promise<Signals> {
    return {
      ...(await machine()),
      private: stays,
      device: this.whole && {
        state: this.whole.ready ? "ready" : "absent",
        rates: this.rates.of("device"),
      },
      cloud: { rates: this.rates.of("cloud") },
      split: true,
      deviceOnly: [],
      prompt: 0,
      tokens: 0,
    };
  }

  /** Runs the whole model here. */
  private async local(feeds: Tensors<T>): Promise<Tensors<T>> {
    const session = await this.whole!.get();
    const begun = realClock.now();
    const outputs = await session.run(feeds);
    this.observe("device", begun);
    return outputs;
  }

  /** Runs the first part here and the second part there. */
  private async split(
    feeds: Tensors<T>,
    signal = new AbortController().signal,
  ): Promise<Tensors<T>> {
    const session = await this.first.get();
    const begun = realClock.now();
    const known: Tensors<T> = { ...feeds, ...(await session.run(inputsOf(session, feeds))) };
    throwIfAborted(signal);
    const sent: Tensors<T> = {};
    for (const name of this.options.tensors) {
      if (!Object.hasOwn(known, name))
        throw new InputError(`there is no tensor '${name}'`, "split", "Check `tensors`.");
      sent[name] = known[name]!;
    }
    const answer = await this.ask(packTensors(sent), signal);
    const outputs: Tensors<T> = {};
    for (const [name, tensor] of Object.entries(known))
      if (!Object.hasOwn(feeds, name) && !Object.hasOwn(sent, name)) outputs[name] = tensor;
    for (const [name, { type, dims, data }] of await unpackTensors(answer, this.url.href))
      outputs[name] = new this.options.Tensor(type, data, dims);
    this.observe("cloud", begun);
    return outputs;
  }

  private async ask(body: Uint8Array<ArrayBuffer>, signal: AbortSignal) {
    const { token: given, maxBytes = MAX_BYTES, stall = STALL } = this.options;
    const token = typeof given === "function" ? await given() : given;
    const headers: Record<string, string> = { "Content-Type": "application/octet-stream" };
    if (token) headers.Authorization = `Bearer ${token}`;
    const late = new AbortController();
    const silent = `the server sent nothing for ${seconds(stall)}`;
    const end = () => late.abort(new CloudError(silent, this.url.href));
    const dog = new Watchdog(end, stall);
    dog.wake();
    try {
      const either = AbortSignal.any([signal, late.signal]);
      const response = await this.egress.send(this.url, body, headers, either);
      if (!response.ok) throw await refused(response, this.url.href);
      return await whole(response, maxBytes, this.url.href, () => dog.feed());
    } finally {
      dog.stop();
    }
  }

  private observe(where: "device" | "cloud", begun: number): void {
    const first = realClock.now() - begun;
    this.rates.observe(where, { first, prompt: 0, tokens: 0, rest: 0 });
  }
}

/** The inputs of a session: `feeds` may have others, for the second part alone. */
function inputsOf<T extends TensorLike>(session: SessionLike<T>, feeds: Tensors<T>): Tensors<T> {
  const { inputNames: names } = session;
  return Object.fromEntries(
    Object.entries(feeds).filter(([name]) => !names || names.includes(name)),
  );
}

/** The body of an answer. @throws CloudError if it is too long */
async function whole(
  response: Response,
  most: number,
  where: string,
  received: () => void,
): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let total = 0;
  const reader = response.body?.getReader();
  while (reader) {
    const { value, done } = await reader.read();
    if (done) break;
    received();
    total += value.length;
    if (total > most) {
      reader.cancel().catch(() => undefined);
      throw new CloudError(`the answer has more than ${most} bytes`, where);
    }
    pieces.push(value);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}
