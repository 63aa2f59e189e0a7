// What a client keeps in IndexedDB: its state, and the ledger of all that ever left.

import { StorageError } from "../shared/errors.ts";
import type { Values } from "./codec.ts";

/** What left this machine for a round. */
export interface LedgerEntry {
  /** Address of the server. */ url: string;
  /** Time of sending, in milliseconds since 1970. */ time: number;
  run: string;
  round: number;
  /** Size of the update in bytes. */ bytes: number;
  /** SHA-256 of the update. */ sha256: string;
  codec: string;
  /** L2 norm of the difference. */ norm: number;
  /** Number of examples that the server was told. */ examples: number;
  /** Numbers that the server was told, such as the loss. */ metrics: Record<string, number>;
}

/** An update that was made for a round. */
export interface Finished {
  /** Run, round and base. */ key: string;
  data: Uint8Array<ArrayBuffer>;
  sha256: string;
  norm: number;
  examples: number;
  steps: number;
  metrics: Record<string, number>;
  /** What this update has rounded away, if it counts. */ left: Values;
}

/** The state of a client. */
export interface State {
  /** With which it comes back. */ token: string | undefined;
  /** Identity of `values`. */ have: string | undefined;
  schema: string;
  values: Values;
  left: Values;
  finished: Finished | undefined;
}

const DATABASE = "edgewise-federated";

function request<T>(work: () => IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const made = work();
    made.onsuccess = () => resolve(made.result);
    made.onerror = () => reject(made.error);
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
      return new Store(await request(() => opening), key);
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
    const left: Values = new Map();
    return found?.schema === schema
      ? found
      : { token: undefined, have: undefined, schema, values: new Map(), left, finished: undefined };
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

  /** Deletes the state, but not the ledger. */
  async remove(): Promise<void> {
    await request(() => this.objects("clients", "readwrite").delete(this.key));
  }

  /** Adds to the ledger, before the bytes leave. */
  async record(entry: LedgerEntry): Promise<void> {
    await request(() => this.objects("ledger", "readwrite").add(entry));
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
