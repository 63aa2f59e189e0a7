// A page's part in federated rounds: protocol 1 as python/edgewise/federated/client.py.

import { Aborted, InputError } from "../shared/errors.ts";
import { message as textOf } from "../shared/words.ts";
import { CODECS, type Codec, normOf, pack, Schema, sha256, unpack, type Values } from "./codec.ts";
import { CHUNK, Connection, ConnectionLost, type Message } from "./connection.ts";
import { type Finished, type LedgerEntry, type State, Store } from "./store.ts";
import { isTime, objection, type Terms, type When } from "./terms.ts";
import type { LocalTrainer } from "./trainers.ts";

const WINDOW = 4; // chunks on their way
const DAY = 24 * 3600_000;
const CHECK_MS = 10_000; // between looks at the conditions of `when`
const LAST_PAUSE_MS = 10_000;

/** The result of a round. */
export interface RoundResult {
  run: string;
  round: number;
  /** Updates that count. */ participants: number;
  /** Clients without an update that counts. */ refused: number;
  /** Mean loss that they reported, or null. */ loss: number | null;
  /** Whether this client's update counts. */ counted: boolean;
}

/** Progress within a round. */
export interface RoundProgress {
  run: string;
  round: number;
  phase: "fetch" | "train" | "send";
  /** Updates (`train`) or bytes so far. */ done: number;
  /** Updates or bytes in all. */ total: number;
  /** Loss of the last update. */ loss?: number;
}

/** Options of {@link FederatedClient.join}. */
export interface FederatedOptions<Data> {
  /** What is trained: {@link textTrainer}, {@link sessionTrainer}, or an object of one's own. */
  trainer: LocalTrainer<Data>;
  /** What it is trained on; it never leaves. */
  data: Data;
  /** Name of this client in the browser's storage. Default: `client`. */
  name?: string;
  /** Name that the server's log shows. Default: none. */
  label?: string;
  /** A ticket, for servers that need one. */
  ticket?: string;
  /** What is demanded of rounds. */
  terms?: Terms;
  /** When the client takes part. Default: always. */
  when?: When;
  /** Called after each round. */
  onRound?: (result: RoundResult) => void;
  /** Called while a round's task is worked on. */
  onProgress?: (progress: RoundProgress) => void;
  /** Called when a task is declined, with the reason. */
  onDecline?: (reason: string) => void;
}

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
  private offered: Record<string, unknown> = {};
  private paused = false;
  private available = true;
  private left = false;
  private readonly ending = new AbortController();
  private timer: ReturnType<typeof setInterval> | undefined;
  private partial: { sha256: string; chunks: Uint8Array<ArrayBuffer>[]; size: number } | undefined;

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
   */
  static async join<Data>(
    url: string,
    options: FederatedOptions<Data>,
  ): Promise<FederatedClient<Data>> {
    const key = `${url} ${options.name ?? "client"}`;
    const unlock = await locked(`edgewise-federated ${key}`);
    let store: Store | undefined;
    try {
      const schema = await Schema.of(await options.trainer.shapes(options.data));
      store = await Store.open(key);
      const state = await store.read(schema.sha256);
      const first = await Connection.open(url);
      const client = new FederatedClient(url, options, schema, store, state, unlock, first);
      await client.greeted;
      return client;
    } catch (e) {
      unlock();
      store?.close();
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
    return this.store.ledger();
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
    this.ending.abort(new Aborted("the client has left"));
    try {
      this.connection?.send("bye");
    } catch {
      // the connection is lost already
    }
    this.connection?.close();
    await this.done.catch(() => undefined);
    const store = await Store.open(`${this.url} ${this.options.name ?? "client"}`);
    await store.remove();
    store.close();
  }

  private end(): void {
    clearInterval(this.timer);
    this.connection?.close();
    this.unlock();
  }

  /** Tells the server whether this client takes tasks now. */
  private async look(): Promise<void> {
    const now = !this.paused && (await isTime(this.options.when ?? {}));
    if (now === this.available) return;
    this.available = now;
    try {
      this.connection?.send("state", { available: now });
    } catch {
      // said again when the connection is back
    }
  }

  private async run(first: Connection): Promise<void> {
    await Promise.resolve(); // the constructor ends first
    this.timer = setInterval(() => void this.look(), CHECK_MS);
    let connection: Connection | undefined = first;
    for (let failures = 0; !this.left; ) {
      try {
        connection ??= await Connection.open(this.url);
        this.connection = connection;
        await this.greet(connection);
        failures = 0;
        this.welcomed();
        if (await this.serve(connection)) return;
      } catch (e) {
        connection?.close();
        if (!(e instanceof ConnectionLost)) {
          this.turnedAway(e);
          throw e;
        }
      }
      connection = undefined;
      if (this.left) return;
      const pause = Math.min(LAST_PAUSE_MS, 100 * 2 ** failures++) * (0.5 + Math.random() / 2);
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
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
    });
    const answer = await connection.message();
    if (answer.kind === "refused")
      throw new InputError(String(answer.reason), this.url, `The server says: ${answer.code}.`);
    state.token = String(answer.token);
    await this.store.write(state);
    this.offered = (answer.terms ?? {}) as Record<string, unknown>;
    options.trainer.welcome?.(this.offered);
  }

  /** Handles messages. Returns true after the server's bye. */
  private async serve(connection: Connection): Promise<boolean> {
    for (;;) {
      const message = await connection.message();
      if (message.kind === "bye") return true;
      if (message.kind === "result") this.options.onRound?.(message as unknown as RoundResult);
      if (message.kind !== "task") continue;
      try {
        await this.task(connection, message);
      } catch (e) {
        if (e instanceof ConnectionLost) throw e;
        if (this.left) return true;
        if (e instanceof Aborted) continue; // the deadline has passed: the server knows
        const reason = textOf(e).slice(0, 200);
        connection.send("decline", { run: message.run, round: message.round, reason });
        this.options.onDecline?.(reason);
      }
    }
  }

  /** Bytes of updates that left within 24 hours. */
  private async sent(): Promise<number> {
    const since = Date.now() - DAY;
    return (await this.store.ledger()).reduce((n, e) => n + (e.time > since ? e.bytes : 0), 0);
  }

  /** @throws InputError if a task does not meet the terms */
  private async agree(task: Message, bytes: number): Promise<void> {
    const sent = this.options.terms?.maxBytesPerDay === undefined ? 0 : await this.sent();
    const reason = objection(this.options.terms ?? {}, task, this.offered, sent, bytes);
    if (reason) throw new InputError(reason, "terms");
    if (!this.available) throw new InputError("the client takes no tasks now", "when");
  }

  private async task(connection: Connection, task: Message): Promise<void> {
    const end = AbortSignal.timeout(Number(task.deadline) * 1000);
    await this.agree(task, 0);
    const key = `${task.run} ${task.round} ${task.base}`;
    await this.fetch(connection, task);
    if (this.state.finished?.key !== key) await this.train(task, key, end);
    await this.agree(task, this.state.finished!.data.length);
    await this.send(connection, task, this.state.finished!);
  }

  /** Fetches the weights of a task, from where an earlier connection has ended. */
  private async fetch(connection: Connection, task: Message): Promise<void> {
    const { state, schema } = this;
    if (state.have === task.base) return;
    const file = task.file as { kind: string; codec: Codec; bytes: number; sha256: string };
    if (this.partial?.sha256 !== file.sha256)
      this.partial = { sha256: file.sha256, chunks: [], size: 0 };
    const { partial } = this;
    if (partial.size < file.bytes)
      connection.send("fetch", { run: task.run, round: task.round, offset: partial.size });
    const later: Message[] = [];
    while (partial.size < file.bytes) {
      const frame = await connection.next();
      if (frame instanceof Uint8Array) {
        partial.chunks.push(frame);
        partial.size += frame.length;
        this.progress(task, "fetch", partial.size, file.bytes);
      } else later.push(frame);
    }
    for (const message of later.reverse()) connection.unread(message);
    this.partial = undefined;
    const data = new Uint8Array(await new Blob(partial.chunks).arrayBuffer());
    if (data.length !== file.bytes || (await sha256(data)) !== file.sha256)
      throw new InputError("the weights do not match their SHA-256", "task");
    const weights = file.kind === "weights";
    const values = await unpack(data, schema, weights ? "float32" : file.codec, {
      kind: weights ? "weights" : "delta",
      base: weights ? String(task.base) : (state.have ?? ""),
    });
    if (!weights)
      for (const [name, x] of values) {
        const before = state.values.get(name)!;
        values.set(
          name,
          x.map((v, i) => before[i]! + v),
        );
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
    this.options.onProgress?.({
      run,
      round,
      phase,
      done,
      total,
      ...(loss !== undefined && { loss }),
    });
  }

  private async train(task: Message, key: string, end: AbortSignal): Promise<void> {
    const { state, schema, options } = this;
    const signal = AbortSignal.any([end, this.ending.signal]);
    await options.trainer.load(state.values);
    let result: Awaited<ReturnType<LocalTrainer<Data>["train"]>>;
    try {
      result = await options.trainer.train(options.data, {
        round: Number(task.round),
        seed: Number(task.seed),
        config: (task.config ?? {}) as Record<string, unknown>,
        signal,
        onStep: (step, steps, loss) => this.progress(task, "train", step, steps, loss),
      });
    } catch (e) {
      throw signal.aborted ? new Aborted("the deadline has passed") : e;
    }
    const changes: Values = new Map();
    for (const name of schema.shapes.keys()) {
      const before = state.values.get(name)!;
      changes.set(
        name,
        result.values.get(name)!.map((v, i) => v - before[i]!),
      );
    }
    const fields = { base: String(task.base), run: String(task.run), round: String(task.round) };
    const packed = await pack(changes, schema, task.codec as Codec, fields, state.left);
    state.finished = {
      key,
      data: packed.data,
      sha256: await sha256(packed.data),
      norm: normOf(packed.decoded),
      examples: result.examples,
      steps: result.steps,
      metrics: result.metrics,
      left: packed.left,
    };
    await this.store.write(state);
  }

  private async send(connection: Connection, task: Message, finished: Finished): Promise<void> {
    const { data, examples, steps, metrics, norm } = finished;
    const [run, round, codec] = [String(task.run), Number(task.round), String(task.codec)];
    const told = { run, round, sha256: finished.sha256, bytes: data.length, codec, examples };
    const known = await this.store.ledger();
    if (!known.some((e) => e.sha256 === finished.sha256))
      await this.store.record({ url: this.url, time: Date.now(), ...told, norm, metrics });
    connection.send("update", { ...told, steps, metrics });
    let sent = -1;
    for (;;) {
      const answer = await connection.message();
      if (answer.kind === "bye" || answer.kind === "task") return connection.unread(answer);
      if (answer.kind === "refused") throw new InputError(String(answer.reason), this.url);
      if (answer.kind === "result") this.options.onRound?.(answer as unknown as RoundResult);
      if (answer.sha256 !== finished.sha256) continue;
      if (answer.kind === "accepted") {
        this.state.left = finished.left;
        await this.store.write(this.state);
      }
      if (answer.kind !== "ack") return;
      const offset = Number(answer.offset);
      if (sent < 0) sent = offset;
      for (; sent < Math.min(data.length, offset + WINDOW * CHUNK); sent += CHUNK)
        connection.sendBytes(data.slice(sent, sent + CHUNK));
      this.progress(task, "send", offset, data.length);
    }
  }
}

/** Takes a lock of this origin. Returns the function that releases it. */
async function locked(name: string): Promise<() => void> {
  if (!globalThis.navigator?.locks) return () => undefined;
  return new Promise((resolve, reject) => {
    navigator.locks
      .request(name, { ifAvailable: true }, (lock) => {
        if (lock) return new Promise<void>((release) => resolve(release));
        reject(
          new InputError(
            "another tab takes part under this name",
            "FederatedClient.join",
            "Close it, or give another name.",
          ),
        );
        return undefined;
      })
      .catch(reject);
  });
}
