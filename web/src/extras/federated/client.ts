// A page's part in federated rounds: protocol 1 as python/edgewise/extras/federated/client.py.

import { clip_of, file_of, STAGES } from "../../logic/federated/tasks.ts";
import { timerMs } from "../../shared/abort.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import { message as textOf } from "../../shared/words.ts";
import { auditKey, clip, configOf, difference, textsOf } from "./change.ts";
import { CODECS, type Codec, normOf, pack, Schema, sha256, unpack, type Values } from "./codec.ts";
import { Connection, ConnectionLost, type Message } from "./connection.ts";
import { Download } from "./download.ts";
import type { FederatedOptions, RoundProgress, RoundResult } from "./options.ts";
import {
  countedBefore,
  countedBy,
  type Finished,
  type Kept,
  keep,
  keptOf,
  type LedgerEntry,
  locked,
  type State,
  Store,
} from "./store.ts";
import { epsilonOf, isTime, objection } from "./terms.ts";
import type { LocalResult } from "./trainers.ts";
import { upload } from "./upload.ts";

const CHECK_MS = 10_000; // between looks at the conditions of `when`, and at the connection
const LAST_PAUSE_MS = 10_000;
const ANSWER_MS = 15_000; // for the answer to hello
const SILENCE_MS = 60_000; // without an answer: the connection is lost
const STEADY_MS = 30_000; // a connection that lived so long was no failure
const MAX_SECONDS = 3600; // of a task
const KEY = /^[\w-]{42}[AEIMQUYcgkosw048]$/; // base64url of 32 bytes, without padding
const NO_AUTHORITY = "Name who certifies members: the server could invent them.";

const timeLimit = (seconds: number) => AbortSignal.timeout(Math.ceil(timerMs(seconds * 1000)));

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
  private readonly download = new Download();

  private constructor(
    private readonly url: string,
    private readonly options: FederatedOptions<Data>,
    private readonly schema: Schema,
    private readonly store: Store,
    private readonly state: State,
    private readonly unlock: () => void,
    first: Connection,
  ) {
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

  private welcomed!: () => void;
  private turnedAway!: (e: unknown) => void;
  private readonly greeted = new Promise<void>((resolve, reject) => {
    this.welcomed = resolve;
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
    let welcomed = false;
    for (let failures = 0; !this.left; ) {
      let since = Infinity;
      try {
        connection ??= await Connection.open(this.url, this.ending.signal);
        this.connection = connection;
        if (this.left) return;
        await this.greet(connection);
        since = Date.now();
        welcomed = true;
        this.welcomed();
        this.options.onConnection?.(true);
        if (await this.serve(connection)) return;
      } catch (e) {
        connection?.close();
        if (this.left) return;
        if (!welcomed || !(e instanceof ConnectionLost)) {
          this.turnedAway(e);
          throw e;
        }
        this.options.onConnection?.(false);
      }
      connection = undefined;
      if (Date.now() - since > STEADY_MS) failures = 0;
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

  private async greet(connection: Connection): Promise<void> {
    const { state, options } = this;
    this.available = !this.paused && (await isTime(options.when ?? {}));
    connection.send("hello", {
      protocols: [1],
      engine: "edgewise/page",
      schema: this.schema.sha256,
      codecs: CODECS,
      resume: state.token,
      have: state.have,
      name: options.label,
      ticket: options.ticket,
      available: this.available,
      secure: [1],
    });
    const answer = await connection.message(AbortSignal.timeout(ANSWER_MS)).catch((e) => {
      throw e instanceof Aborted ? new ConnectionLost(`${this.url} does not answer`) : e;
    });
    if (answer.kind === "refused")
      throw new InputError(String(answer.reason), this.url, `The server says: ${answer.code}.`);
    state.token = String(answer.token);
    countedBefore(answer, state);
    await this.store.write(state);
    this.answers = (answer.limits as { silence?: unknown } | undefined)?.silence !== undefined;
    options.trainer.welcome?.((answer.terms ?? {}) as Record<string, unknown>);
  }

  /** Handles messages. Returns true after the server's bye. */
  private async serve(connection: Connection): Promise<boolean> {
    for (;;) {
      const message = await connection.message();
      if (message.kind === "bye") return true;
      const last = message.kind === "weights";
      if (!last && message.kind !== "task") {
        await this.other(message);
        continue;
      }
      try {
        await (last ? this.last(connection, message) : this.task(connection, message));
      } catch (e) {
        if (e instanceof ConnectionLost) throw e;
        if (this.left) return true;
        if (last) {
          this.options.onDecline?.(textOf(e));
          continue;
        }
        const late = e instanceof Aborted;
        if (late && !(Number(message.deadline) > this.longest)) continue; // the server knows
        // errors of this machine are not told: their texts may quote its data
        const known = e instanceof InputError && ["terms", "when"].includes(e.where);
        const reason = known ? e.where : late ? "too long" : "training failed";
        connection.send("decline", { run: message.run, round: message.round, reason });
        this.options.onDecline?.(textOf(e));
      }
    }
  }

  /** Handles messages that may come at any time. */
  private async other(message: Message): Promise<void> {
    if (message.kind === "result") this.options.onRound?.(message as unknown as RoundResult);
    if (countedBy(message, this.state)) await this.store.write(this.state);
  }

  /** @throws InputError if a task does not meet the terms */
  private async agree(task: Message, finished?: Finished): Promise<void> {
    const terms = this.options.terms ?? {};
    const counted = terms.maxBytesPerDay !== undefined;
    const sent = counted ? await this.store.sent(finished?.sha256) : 0;
    const reason = objection(terms, task, sent, finished?.data.length ?? 0);
    if (reason) throw new InputError(reason, "terms");
  }

  /** Takes the weights after the last round, outside of a task. */
  private async last(connection: Connection, message: Message): Promise<void> {
    const { state, options } = this;
    const seconds = timeLimit(this.longest);
    await this.fetch(connection, message, AbortSignal.any([seconds, this.ending.signal]));
    connection.send("have", { base: message.base }); // the server waits for it
    await options.trainer.load(state.values);
    options.onLast?.(state.values);
  }

  /** Most seconds of a task. */
  private get longest(): number {
    return this.options.terms?.maxSeconds ?? MAX_SECONDS;
  }

  private async task(connection: Connection, task: Message): Promise<void> {
    const { state } = this;
    const { when } = this.options;
    const seconds = Math.min(Number(task.deadline), this.longest);
    if (!(seconds >= 0)) throw new InputError("its deadline is no number", "task");
    const end = AbortSignal.any([timeLimit(seconds), this.ending.signal]);
    const key = `${task.run} ${task.round} ${task.base}${await auditKey(task.audit)}`;
    const { finished } = state;
    const begun = finished?.key === key || (finished?.secure && finished.key.startsWith(`${key} `));
    await this.agree(task, begun ? finished : undefined);
    if (!begun && !this.available) throw new InputError("the client takes no tasks now", "when");
    await this.fetch(connection, task, end);
    if (task.secure) return this.sum(connection, task, seconds, end);
    if (state.finished?.key !== key) await this.train(task, key, end);
    await this.agree(task, state.finished);
    // what was begun is finished, but never sent over a metered connection
    if (!(await isTime({ unmetered: when?.unmetered })))
      throw new InputError("the connection is metered", "when");
    await this.send(connection, task, state.finished!, end);
  }

  private async fetch(connection: Connection, task: Message, end: AbortSignal): Promise<void> {
    const { state, schema } = this;
    if (state.have === task.base) return;
    const file = file_of(task, [...schema.shapes]);
    const codec = file.codec as Codec;
    const blob = await this.download.fetch(
      connection,
      task,
      file,
      end,
      (message) => this.other(message),
      (bytes) => this.progress(task, "fetch", bytes, file.size),
    );
    const data = new Uint8Array(await blob.arrayBuffer());
    if ((await sha256(data)) !== file.sha256)
      throw new InputError("the weights do not match their SHA-256", "task");
    const weights = file.content === "weights";
    const got = await unpack(data, weights ? schema : await schema.part(file.part), codec, {
      kind: file.content,
      base: weights ? String(task.base) : (state.have ?? ""),
    });
    const values = new Map(weights ? got : state.values);
    if (!weights)
      for (const [name, x] of got) {
        const before = state.values.get(name)!;
        const after = x.map((v, i) => before[i]! + v);
        values.set(name, after);
      }
    if ((await schema.base(values)) !== task.base)
      throw new InputError("the weights are not those that the task names", "task");
    Object.assign(state, { have: task.base, values, finished: undefined });
    await this.store.write(state);
  }

  private progress(
    task: Message,
    phase: RoundProgress["phase"],
    done: number,
    total: number,
    loss?: number,
  ): void {
    const [run, round] = [String(task.run), Number(task.round)];
    const more = loss !== undefined && { loss };
    this.options.onProgress?.({ run, round, phase, done, total, ...more });
  }

  /** Takes part in a secure sum. */
  private async sum(
    connection: Connection,
    task: Message,
    seconds: number,
    end: AbortSignal,
  ): Promise<void> {
    const { url, store, state, options } = this;
    const schema = await this.schema.part(task.part);
    const { takePart } = await import("./secure/index.ts");
    const stages = STAGES * Number((task.secure as { stage?: unknown }).stage);
    const late = timeLimit(seconds + Math.min(stages, this.longest));
    const signal = AbortSignal.any([late, this.ending.signal]);
    await takePart(
      {
        ...{ connection, url, schema, store, state, signal },
        terms: options.terms ?? {},
        certify: options.certify,
        train: () => this.changes(task, end),
        other: (message) => this.other(message),
        send: (file, codec, more) => this.send(connection, { ...task, codec }, file, signal, more),
      },
      task,
    );
  }

  /** Trains from the weights of a task. */
  private async changes(
    task: Message,
    signal: AbortSignal,
  ): Promise<{ schema: Schema; changes: Values; result: LocalResult; kept?: Kept }> {
    const { state, options } = this;
    const [{ part, audit }, run] = [task, String(task.run)];
    const schema = await this.schema.part(part);
    const config = configOf(task, options.trainer.settings);
    await options.trainer.load(state.values);
    let result: LocalResult;
    try {
      // the texts of an audit are public
      const data = audit ? (textsOf(audit) as Data) : options.data;
      result = await options.trainer.train(data, {
        round: Number(task.round),
        seed: Number(task.seed),
        config,
        kept: await keptOf(state, run),
        signal,
        onStep: (step, steps, loss) => this.progress(task, "train", step, steps, loss),
      });
    } catch (e) {
      throw signal.aborted ? new Aborted("the deadline has passed") : e;
    }
    const kept = audit || !result.kept ? undefined : await keep(run, result.kept);
    return { schema, changes: difference(schema, result.values, state.values), result, kept };
  }

  private async train(task: Message, key: string, signal: AbortSignal): Promise<void> {
    const { state } = this;
    const { schema, changes, result, kept } = await this.changes(task, signal);
    // what was rounded away comes from this client's data: an audit's update is without it
    const before: Values = task.audit ? new Map() : state.left;
    const most = clip_of(task);
    const clipped = most < Infinity;
    const whole = clipped ? clip(changes, before, most) : changes;
    const fields = { base: String(task.base), run: String(task.run), round: String(task.round) };
    const left: Values = clipped ? new Map() : before;
    const packed = await pack(whole, schema, task.codec as Codec, fields, left);
    state.finished = {
      key,
      data: packed.data,
      sha256: await sha256(packed.data),
      norm: normOf(packed.decoded),
      examples: result.examples,
      steps: result.steps,
      metrics: result.metrics,
      left: task.audit ? state.left : packed.left,
      kept,
    };
    await this.store.write(state);
  }

  /** Shows the page what a server is about to see. */
  private async tell(task: Message, { data, sha256, norm }: Finished): Promise<void> {
    const { onSend } = this.options;
    if (!onSend) return;
    const [run, round, codec] = [String(task.run), Number(task.round), String(task.codec)];
    const masked = Boolean(task.secure);
    const schema = await this.schema.part(task.part);
    const change = masked ? undefined : await unpack(data, schema, codec as Codec, {});
    onSend({ run, round, codec, data, sha256, norm, base: this.state.values, change });
  }

  private async send(
    connection: Connection,
    task: Message,
    finished: Finished,
    end: AbortSignal,
    more: Partial<LedgerEntry> = { epsilon: epsilonOf(task) },
  ): Promise<void> {
    const { url, store, options } = this;
    const most = options.terms?.maxBytesPerDay ?? Infinity;
    const other = (message: Message): Promise<void> => this.other(message);
    const progress = (sent: number, bytes: number): void =>
      this.progress(task, "send", sent, bytes);
    await this.tell(task, finished);
    await upload({ connection, url, store, most, other, progress }, task, finished, end, more);
  }
}
