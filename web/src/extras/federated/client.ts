// A page's part in federated rounds: the host of python/edgewise/logic/federated/client.py.

import { Client } from "../../logic/federated/client.ts";
import type {
  Announce,
  Progress,
  Receive,
  Request,
  SendPart,
  TakePart,
  Told,
  Train,
  Unpack,
  WriteUpdate,
} from "../../logic/federated/requests.ts";
import { CHUNK } from "../../logic/federated/tasks.ts";
import { timerMs } from "../../shared/abort.ts";
import { drive } from "../../shared/drive.ts";
import { Aborted, EdgewiseError, InputError } from "../../shared/errors.ts";
import { message as textOf } from "../../shared/words.ts";
import { clip, difference } from "./change.ts";
import { type Codec, normOf, pack, Schema, sha256, unpack, type Values } from "./codec.ts";
import { Connection, ConnectionLost } from "./connection.ts";
import type { FederatedOptions, RoundResult } from "./options.ts";
import {
  counted,
  type Finished,
  type Kept,
  keep,
  keptOf,
  type LedgerEntry,
  locked,
  type State,
  Store,
} from "./store.ts";
import { isTime, read } from "./terms.ts";

const CHECK_MS = 10_000; // between looks at the conditions of `when`, and at the connection
const LAST_PAUSE_MS = 10_000;
const ANSWER = 15; // seconds for the answer to hello
const SILENCE_MS = 60_000; // without an answer: the connection is lost
const STEADY_MS = 30_000; // a connection that lived so long was no failure
const KEY = /^[\w-]{42}[AEIMQUYcgkosw048]$/; // base64url of 32 bytes, without padding
const NO_AUTHORITY = "Name who certifies members: the server could invent them.";

type Answers = { [K in Request["kind"]]: (request: Extract<Request, { kind: K }>) => unknown };

const now = (): number => performance.now() / 1000;

/**
 * Takes part in federated rounds: trains where the data is, and sends differences of weights.
 *
 * ```js
 * const client = await FederatedClient.join("wss://example.org/rounds", {
 *   trainer: textTrainer(write, Trainer),
 *   data: [text],
 *   terms: { minimumCohort: 8, maxBytesPerDay: 20e6 },
 *   onRound: ({ round, counted, loss }) => console.log(round, counted, loss),
 * });
 * await client.ledger(); // all that ever left
 * await client.done; // the server has ended the run
 * ```
 */
export class FederatedClient<Data = unknown> {
  /** Resolves when the client has left or the server has ended; rejects if it cannot go on. */
  readonly done: Promise<void>;
  private connection: Connection | undefined;
  private paused = false;
  private available = true;
  private left = false;
  private readonly ending = new AbortController();
  private timer: ReturnType<typeof setInterval> | undefined;
  private answers = false; // whether the server answers `state`
  private since = Infinity; // when the server has welcomed this client
  private welcomed = false;
  private limit: { end: number; signal: AbortSignal } | undefined;
  private arrived: Values = new Map(); // by the last `unpack`
  private trained: Values = new Map(); // by the last `train`
  private kept: Kept | undefined;
  private readonly logic: Client;

  private constructor(
    private readonly url: string,
    private readonly options: FederatedOptions<Data>,
    private readonly schema: Schema,
    private readonly store: Store,
    private readonly state: State,
    private readonly unlock: () => void,
    first: Connection,
  ) {
    this.logic = new Client(state, {
      url,
      schema: schema.sha256,
      shapes: [...schema.shapes] as [string, number[]][],
      settings: options.trainer.settings ?? [],
      terms: read(options.terms ?? {}),
      answer: ANSWER,
    });
    this.done = this.run(first).finally(() => this.end());
    this.done.catch(() => undefined); // for pages that do not look at it
  }

  /**
   * Connects to a server.
   * @param url address of the server, `wss://` (or `ws://` on the same machine)
   * @throws InputError if it cannot be reached or refuses this client, or if another tab takes part
   *   under the same name
   * @throws StorageError if the page may not store anything
   * @throws Aborted if `signal` was aborted before the server had answered
   */
  static async join<Data>(
    url: string,
    options: FederatedOptions<Data>,
  ): Promise<FederatedClient<Data>> {
    const { secureAggregation, authority } = options.terms ?? {};
    if (secureAggregation === "required" && authority === undefined)
      throw new InputError("it is required by the terms", "terms.authority", NO_AUTHORITY);
    if (authority !== undefined && !KEY.test(authority))
      throw new InputError("it is not the base64url of 32 bytes", "terms.authority");
    const { signal } = options;
    const key = `${url} ${options.name ?? "client"}`;
    const unlock = await locked(`edgewise-federated ${key}`);
    let store: Store | undefined;
    let leaving: Promise<unknown> | undefined;
    try {
      const schema = await Schema.of(await options.trainer.shapes(options.data));
      store = await Store.open(key);
      const state = await store.read(schema.sha256);
      const first = await Connection.open(url, signal);
      const client = new FederatedClient(url, options, schema, store, state, unlock, first);
      const leave = (): void => void (leaving = client.leave().catch(() => undefined));
      if (signal?.aborted) leave();
      signal?.addEventListener("abort", leave, { once: true });
      const forget = (): void => signal?.removeEventListener("abort", leave);
      void client.done.then(forget, forget); // another client of this name may come
      await client.greeted;
      return client;
    } catch (e) {
      await leaving; // it forgets the state, which is the next client's after that
      unlock();
      store?.close();
      if (signal?.aborted) throw new Aborted("the client has left");
      throw e instanceof ConnectionLost
        ? new InputError(e.message, url, "Check the address, and whether the server is running.")
        : e;
    }
  }

  private taken!: () => void;
  private turnedAway!: (e: unknown) => void;
  private readonly greeted = new Promise<void>((resolve, reject) => {
    this.taken = resolve;
    this.turnedAway = reject;
  });

  /** All that ever left this origin's clients, oldest first. */
  ledger(): Promise<LedgerEntry[]> {
    return this.stored((store) => store.ledger());
  }

  /** Works with the storage, also after the end. */
  private async stored<T>(work: (store: Store) => Promise<T>): Promise<T> {
    const store = await Store.open(`${this.url} ${this.options.name ?? "client"}`);
    try {
      return await work(store);
    } finally {
      store.close();
    }
  }

  /** Takes no new tasks; the present one is finished. */
  pause(): void {
    this.paused = true;
    void this.look();
  }

  /** Takes tasks again after {@link pause}. */
  resume(): void {
    this.paused = false;
    void this.look();
  }

  /** Leaves for good: ends training, says bye, and forgets the client's state, not its ledger. */
  async leave(): Promise<void> {
    this.left = true;
    const gone = new Aborted("the client has left");
    this.ending.abort(gone);
    this.turnedAway(gone); // if no server has answered yet
    try {
      this.connection?.send("bye");
    } catch {
      // the connection is lost already
    }
    this.connection?.close();
    await this.done.catch(() => undefined);
    await this.stored((store) => store.remove());
  }

  private end(): void {
    clearInterval(this.timer);
    this.connection?.close();
    this.store.close();
    this.unlock();
  }

  /** Tells the server whether this client takes tasks now; finds dead connections. */
  private async look(): Promise<void> {
    const now = !this.paused && (await isTime(this.options.when ?? {}));
    const { connection } = this;
    const news = now !== this.available;
    this.available = now;
    try {
      if (this.answers) {
        connection?.check(SILENCE_MS);
        connection?.ask("state", { available: now });
      } else if (news) connection?.send("state", { available: now });
    } catch {
      // said again when the connection is back
    }
  }

  private async run(first: Connection): Promise<void> {
    this.connection = first; // to be closed, also if the client has left already
    await Promise.resolve(); // the constructor ends first
    this.timer = setInterval(() => void this.look(), CHECK_MS);
    let connection: Connection | undefined = first;
    for (let failures = 0; !this.left; ) {
      this.since = Infinity;
      try {
        connection ??= await Connection.open(this.url, this.ending.signal);
        this.connection = connection;
        if (this.left) return;
        return await drive(this.logic.talk(), (request) => this.answer(request));
      } catch (e) {
        connection?.close();
        if (this.left) return;
        if (!this.welcomed || !(e instanceof ConnectionLost)) {
          this.turnedAway(e);
          throw e;
        }
        this.options.onConnection?.(false);
      }
      connection = undefined;
      if (Date.now() - this.since > STEADY_MS) failures = 0;
      const pause = Math.min(LAST_PAUSE_MS, 100 * 2 ** failures++) * (0.5 + Math.random() / 2);
      await this.sleep(pause);
    }
  }

  /** Waits, until the client leaves at the longest. */
  private sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      setTimeout(resolve, ms);
      this.ending.signal.addEventListener("abort", () => resolve());
    });
  }

  /** Does what a request asks for. Errors of this machine decline a task, whatever they are. */
  private async answer(request: Request): Promise<unknown> {
    try {
      return await (this.requests[request.kind] as (r: Request) => unknown)(request);
    } catch (e) {
      if (e instanceof EdgewiseError || e instanceof ConnectionLost) throw e;
      throw new EdgewiseError(textOf(e), "", "", { cause: e });
    }
  }

  private readonly requests: Answers = {
    hello: () => this.hello(),
    welcome: ({ message }) => this.welcome(message),
    send: ({ name, fields }) => this.connection!.send(name, fields),
    send_part: (request) => this.sendPart(request),
    receive: (request) => this.receive(request),
    expect: ({ size }) => this.connection!.expect(size),
    silent: () => {
      throw new ConnectionLost(`${this.url} does not answer`);
    },
    now,
    allowed: ({ what }) => this.allowed(what),
    sent_today: ({ sha256 }) => this.store.sent(sha256),
    digest: async ({ parts }) => {
      const all = await new Blob(parts as BlobPart[]).arrayBuffer();
      return new Uint8Array(await crypto.subtle.digest("SHA-256", all));
    },
    fingerprint: ({ value }) => sha256(new TextEncoder().encode(JSON.stringify(value))),
    unpack: (request) => this.unpack(request),
    keep: () => void (this.state.values = this.arrived),
    train: (request) => this.train(request),
    write_update: (request) => this.pack(request),
    store: () => this.store.write(this.state),
    counted: () => counted(this.state),
    announce: (request) => this.announce(request),
    take_part: (request) => this.takePart(request),
    progress: ({ run, number, phase, done, total }: Progress) =>
      this.options.onProgress?.({ run, round: number, phase, done, total }),
    result: ({ message }) => this.options.onRound?.(message as unknown as RoundResult),
    last: async () => {
      await this.options.trainer.load(this.state.values);
      this.options.onLast?.(this.state.values);
    },
    declined: ({ error }) => this.options.onDecline?.(error.message),
  };

  private async hello(): Promise<Record<string, unknown>> {
    const { label, ticket, when } = this.options;
    this.available = !this.paused && (await isTime(when ?? {}));
    return { engine: "edgewise/page", name: label, ticket, available: this.available };
  }

  private welcome({ limits, terms }: Record<string, unknown>): void {
    this.answers = (limits as { silence?: unknown } | undefined)?.silence !== undefined;
    this.options.trainer.welcome?.((terms ?? {}) as Record<string, unknown>);
    this.since = Date.now();
    this.welcomed = true;
    this.taken();
    this.options.onConnection?.(true);
  }

  /** A signal that fires at a time of the clock `now`, and when the client leaves. */
  private until(end: number): AbortSignal {
    if (end === Infinity) return this.ending.signal;
    if (this.limit?.end !== end) {
      const late = AbortSignal.timeout(Math.ceil(timerMs(Math.max(0, end - now()) * 1000)));
      this.limit = { end, signal: AbortSignal.any([late, this.ending.signal]) };
    }
    return this.limit.signal;
  }

  private async receive({ end }: Receive): Promise<unknown> {
    try {
      return await this.connection!.next(this.until(end));
    } catch (e) {
      if (e instanceof Aborted && !this.left) return null;
      throw e;
    }
  }

  private async allowed(what: "begin" | "send"): Promise<string> {
    if (what === "begin") return this.available ? "" : "the client takes no tasks now";
    const { unmetered } = this.options.when ?? {};
    return (await isTime({ unmetered })) ? "" : "the connection is metered";
  }

  private async unpack({ parts, file, metadata }: Unpack): Promise<string> {
    const { state, schema } = this;
    const data = new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
    const weights = file.content === "weights";
    const part = weights ? schema : await schema.part(file.part);
    const got = await unpack(data, part, file.codec as Codec, metadata);
    this.arrived = new Map(weights ? got : state.values);
    if (!weights)
      for (const [name, x] of got) {
        const before = state.values.get(name)!;
        const after = x.map((v, i) => before[i]! + v);
        this.arrived.set(name, after);
      }
    return schema.base(this.arrived);
  }

  /** Trains from the weights of a task. */
  private async train({ run, number, seed, config, texts, end }: Train): Promise<Told> {
    const { state, options } = this;
    const signal = this.until(end);
    await options.trainer.load(state.values);
    try {
      // the texts of an audit are public
      const result = await options.trainer.train((texts as Data | null) ?? options.data, {
        round: number,
        seed,
        config: { ...config },
        kept: await keptOf(state, run),
        signal,
        onStep: (step, steps, loss) => this.step(run, number, step, steps, loss),
      });
      this.trained = result.values;
      this.kept = result.kept && (await keep(run, result.kept));
      return { examples: result.examples, steps: result.steps, metrics: result.metrics };
    } catch (e) {
      throw signal.aborted ? new Aborted("the deadline has passed") : e;
    }
  }

  private step(run: string, round: number, done: number, total: number, loss: number): void {
    this.options.onProgress?.({ run, round, phase: "train", done, total, loss });
  }

  private changes(schema: Schema): Values {
    return difference(schema, this.trained, this.state.values);
  }

  private async pack({
    key,
    told,
    part,
    codec,
    metadata,
    ...more
  }: WriteUpdate): Promise<Finished> {
    const { state } = this;
    const schema = await this.schema.part(part);
    const changes = this.changes(schema);
    // what was rounded away comes from this client's data: an audit's update is without it
    const before: Values = more.audit ? new Map() : state.left;
    const clipped = more.clip < Infinity;
    const whole = clipped ? clip(changes, before, more.clip) : changes;
    const left: Values = clipped ? new Map() : before;
    const packed = await pack(whole, schema, codec as Codec, metadata, left);
    return {
      key,
      data: packed.data,
      sha256: await sha256(packed.data),
      ...told,
      norm: normOf(packed.decoded),
      left: more.audit ? state.left : packed.left,
      kept: more.audit ? undefined : this.kept,
      secure: null,
    };
  }

  /** Shows the page what a server is about to see, and writes it down. */
  private async announce({ task, update, finished, data, more }: Announce): Promise<void> {
    const { onSend } = this.options;
    const { norm } = finished as Finished;
    const told = { ...update, ...more } as unknown as LedgerEntry;
    const { run, round, codec, sha256 } = told;
    const file = data as Uint8Array<ArrayBuffer>;
    if (onSend) {
      const schema = await this.schema.part(task.part ?? null);
      const change = task.secure ? undefined : await unpack(file, schema, codec as Codec, {});
      onSend({ run, round, codec, data: file, sha256, norm, base: this.state.values, change });
    }
    const known = Object.entries(told).filter(([, value]) => value != null);
    const entry = Object.fromEntries(known) as unknown as LedgerEntry;
    await this.store.record({ ...entry, url: this.url, norm });
  }

  private async sendPart({ data, sha256, begin, end }: SendPart): Promise<void> {
    const most = this.options.terms?.maxBytesPerDay ?? Infinity;
    if (!(await this.store.spend(this.url, sha256, end - begin, data.length - begin, most)))
      throw new InputError(`the terms allow ${most} bytes a day`, "terms");
    for (let at = begin; at < end; at += CHUNK)
      this.connection!.sendBytes(data.slice(at, Math.min(at + CHUNK, end)));
  }

  /** Takes part in a secure sum. */
  private async takePart(request: TakePart): Promise<void> {
    const { store, state, schema, options } = this;
    const { takePart } = await import("./secure/index.ts");
    const host = {
      ...{ store, state, schema, certify: options.certify },
      changes: (changing: Schema) => this.changes(changing),
      kept: () => this.kept,
      answer: (inner: Request) => this.answer(inner),
    };
    await takePart(host, this.logic, request);
  }
}
