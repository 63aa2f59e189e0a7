// What a client keeps in IndexedDB: its state, and the ledger of all that ever left.

import type { Finished as Made, State as Told } from "../../logic/federated/requests.ts";
import { InputError, StorageError } from "../../shared/errors.ts";
import { sha256, type Values } from "./codec.ts";

/** What left this machine for a round. */
export interface LedgerEntry {
  /** Address of the server. */ url: string;
  /** Time of sending, the last one if it was sent again, in milliseconds since 1970. */
  time: number;
  run: string;
  round: number;
  /** Size of the update in bytes. */ bytes: number;
  /** Bytes of it that left: fewer if a connection was lost, more if they were sent again. */
  sent: number;
  /** SHA-256 of the update. */ sha256: string;
  codec: string;
  /** L2 norm of the difference. */ norm: number;
  /** Number of examples that the server was told. */ examples: number;
  /** Number of steps that the server was told. */ steps: number;
  /** Numbers that the server was told, such as the loss. */ metrics: Record<string, number>;
  /** With secure aggregation: name of the group. */ group?: string;
  /** With secure aggregation: members of the group whose keys were seen. */ members?: number;
  /** Standard deviation of the noise of the group's sum, in units of the clip. */ noise?: number;
  /**
   * ε after this round: with noise of the clients computed here, for δ = 1e-6, over all groups of
   * this ledger; with the server's noise what the server says.
   */
  epsilon?: number;
}

/** What training has kept for the next round of a run. */
export interface Kept {
  run: string;
  data: Uint8Array<ArrayBuffer>;
  sha256: string;
}

/** An update that was made for a round. */
export interface Finished extends Made {
  data: Uint8Array<ArrayBuffer>;
  norm: number;
  /** What this update has rounded away, if it counts. */ left: Values;
  /** What training keeps, if it counts. */ kept?: Kept | undefined;
}

/** The state of a client. */
export interface State extends Told {
  schema: string;
  values: Values;
  left: Values;
  /** After the last update that counted. */ kept?: Kept | undefined;
}

/** The finished update counts. */
export function counted(state: State): void {
  const { left, kept } = state.finished as Finished;
  state.left = left;
  state.kept = kept ?? state.kept;
}

/** What training has returned for the next round of a run. */
export async function keep(run: string, data: Uint8Array<ArrayBuffer>): Promise<Kept> {
  return { run, data, sha256: await sha256(data) };
}

/** What was kept of a run, if it is there and whole. */
export async function keptOf({ kept }: State, run: string): Promise<Kept["data"] | undefined> {
  if (kept?.run !== run) return undefined;
  if ((await sha256(kept.data)) === kept.sha256) return kept.data;
  console.warn("edgewise: the stored optimizer is damaged; training begins with a new one");
  return undefined;
}

const DATABASE = "edgewise-federated";
const DAY = 24 * 3600_000;

/** The result of a request when its transaction is on the disk. */
function request<T>(work: () => IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const made = work();
    const transaction = made.transaction!;
    transaction.oncomplete = () => resolve(made.result);
    transaction.onabort = () => reject(transaction.error ?? made.error);
  });
}

/** Bytes that left within 24 hours. Entries of older versions do not have `sent`. */
function sentToday(entries: LedgerEntry[], except?: string): number {
  const since = Date.now() - DAY;
  const of = (e: LedgerEntry) => (e.time > since && e.sha256 !== except ? (e.sent ?? e.bytes) : 0);
  return entries.reduce((n, e) => n + of(e), 0);
}

/** Takes a lock of this origin. Returns the function that releases it. */
export async function locked(name: string): Promise<() => void> {
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

/** The storage of one client. */
export class Store {
  private constructor(
    private readonly database: IDBDatabase,
    private readonly key: string,
  ) {}

  /** @throws StorageError if the page may not store anything */
  static async open(key: string): Promise<Store> {
    try {
      const opening = indexedDB.open(DATABASE, 1);
      opening.onupgradeneeded = () => {
        opening.result.createObjectStore("clients");
        opening.result.createObjectStore("ledger", { autoIncrement: true });
      };
      const database = await new Promise<IDBDatabase>((resolve, reject) => {
        opening.onsuccess = () => resolve(opening.result);
        opening.onerror = () => reject(opening.error);
      });
      return new Store(database, key);
    } catch (e) {
      throw new StorageError(
        `the browser refuses to store the state of a client (${String(e)})`,
        DATABASE,
        "Allow this site to store data, or leave the private window.",
      );
    }
  }

  private objects(name: "clients" | "ledger", mode: IDBTransactionMode): IDBObjectStore {
    return this.database.transaction(name, mode).objectStore(name);
  }

  /** The state, if it is of this schema. */
  async read(schema: string): Promise<State> {
    const found = (await request(() => this.objects("clients", "readonly").get(this.key))) as
      | State
      | undefined;
    const whole: Partial<State> = found?.schema === schema ? found : {};
    // those of older versions do not have all of it
    const { token = null, have = null, finished = null, summed = {} } = whole;
    const { values = new Map(), left = new Map(), kept } = whole;
    if (finished) finished.secure ??= null;
    return { schema, token, have, finished, summed, values, left, kept };
  }

  /** @throws StorageError if there is not enough space */
  async write(state: State): Promise<void> {
    await request(() => this.objects("clients", "readwrite").put(state, this.key)).catch((e) => {
      throw new StorageError(
        `the state of the client cannot be stored (${String(e)})`,
        DATABASE,
        "Free some space.",
      );
    });
  }

  /** The key of this client; `value` replaces it. */
  async identity<T>(value?: T): Promise<T | undefined> {
    const key = `identity ${this.key}`;
    if (value !== undefined)
      await request(() => this.objects("clients", "readwrite").put(value, key));
    return (await request(() => this.objects("clients", "readonly").get(key))) as T | undefined;
  }

  /** Deletes the state, but not the ledger. */
  async remove(): Promise<void> {
    await request(() => this.objects("clients", "readwrite").delete(this.key));
  }

  /**
   * Adds to the ledger, before anything leaves; nothing if this update is there already for this
   * server.
   */
  async record(entry: Omit<LedgerEntry, "time" | "sent">): Promise<void> {
    const known = await this.ledger();
    if (known.some((e) => e.sha256 === entry.sha256 && e.url === entry.url)) return;
    const added = { ...entry, time: Date.now(), sent: 0 };
    await request(() => this.objects("ledger", "readwrite").add(added));
  }

  /** Bytes that left within 24 hours, but for one update. */
  async sent(except: string | undefined): Promise<number> {
    return sentToday(await this.ledger(), except);
  }

  /**
   * Counts bytes of an update, before they leave. One transaction: other tabs count, too.
   * @param url of the server that gets them
   * @param needed bytes that will have to leave in all from now on
   * @param most bytes within 24 hours
   * @returns false if there are not so many left; nothing is counted then
   */
  spend(
    url: string,
    sha256: string,
    bytes: number,
    needed: number,
    most: number,
  ): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const ledger = this.objects("ledger", "readwrite");
      let enough = false;
      ledger.transaction.oncomplete = () => resolve(enough);
      ledger.transaction.onabort = () => reject(ledger.transaction.error);
      const [all, keys] = [ledger.getAll(), ledger.getAllKeys()];
      keys.onsuccess = () => {
        const entries = all.result as LedgerEntry[];
        enough = sentToday(entries) + needed <= most;
        const at = entries.findIndex((e) => e.sha256 === sha256 && e.url === url);
        if (!enough || at < 0) return;
        const entry = entries[at]!;
        const sent = (entry.sent ?? entry.bytes) + bytes;
        ledger.put({ ...entry, sent, time: Date.now() }, keys.result[at]!);
      };
    });
  }

  /** The ledger of all clients of this origin, oldest first. */
  ledger(): Promise<LedgerEntry[]> {
    return request(() => this.objects("ledger", "readonly").getAll());
  }

  /** Closes the database. */
  close(): void {
    this.database.close();
  }
}
