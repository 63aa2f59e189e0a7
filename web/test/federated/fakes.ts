// A browser's IndexedDB and WebSocket, as far as the client of federated rounds uses them.

type Handler = (() => void) | null;

class FakeRequest {
  result: unknown;
  onsuccess: Handler = null;
  constructor(readonly transaction: FakeTransaction | null) {}
}

class FakeTransaction {
  oncomplete: Handler = null;
  onabort: Handler = null;
  error = null;
  private waiting = 0;
  constructor(private readonly tables: Map<string, Map<unknown, unknown>>) {}

  objectStore(name: string) {
    const table = this.tables.get(name)!;
    const soon = (work: () => unknown) => {
      const made = new FakeRequest(this);
      this.waiting++;
      queueMicrotask(() => {
        made.result = structuredClone(work());
        made.onsuccess?.();
        if (!--this.waiting) setTimeout(() => this.oncomplete?.());
      });
      return made;
    };
    const put = (value: unknown, key: unknown) => table.set(key, structuredClone(value));
    return {
      transaction: this,
      get: (key: unknown) => soon(() => table.get(key)),
      put: (value: unknown, key: unknown) => soon(() => void put(value, key)),
      add: (value: unknown) => soon(() => void put(value, table.size + 1)),
      delete: (key: unknown) => soon(() => table.delete(key)),
      getAll: () => soon(() => [...table.values()]),
      getAllKeys: () => soon(() => [...table.keys()]),
    };
  }
}

/** A database whose tables a test can look at. */
export class FakeDatabase {
  readonly tables = new Map<string, Map<unknown, unknown>>();
  readonly open = new Set<unknown>();

  readonly factory = {
    open: () => {
      const made = new FakeRequest(null) as FakeRequest & { onupgradeneeded?: Handler };
      const first = !this.tables.size;
      made.result = {
        createObjectStore: (name: string) => this.tables.set(name, new Map()),
        transaction: () => new FakeTransaction(this.tables),
        close: () => this.open.delete(made),
      };
      setTimeout(() => {
        this.open.add(made);
        if (first) made.onupgradeneeded?.();
        made.onsuccess?.();
      });
      return made;
    },
  };

  ledger(): { sha256: string; bytes: number; sent: number; steps: number; time: number }[] {
    return [...(this.tables.get("ledger")?.values() ?? [])] as never;
  }
}

export interface Sent {
  kind: string;
  [field: string]: unknown;
}

/** A WebSocket whose other end is the test. */
export class FakeSocket {
  static readonly OPEN = 1;
  static made: FakeSocket[] = [];
  /** Whether connections are made. */ static reachable = true;
  readyState = 0;
  binaryType = "";
  onopen: Handler = null;
  onerror: Handler = null;
  onclose: Handler = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  readonly sent: (Sent | Uint8Array)[] = [];
  private read = 0;

  constructor() {
    FakeSocket.made.push(this);
    setTimeout(() => {
      if (!FakeSocket.reachable) return this.close();
      this.readyState = 1;
      this.onopen?.();
    });
  }

  send(data: string | Uint8Array): void {
    this.sent.push(typeof data === "string" ? (JSON.parse(data) as Sent) : data);
  }

  close(): void {
    this.readyState = 3;
    setTimeout(() => this.onclose?.());
  }

  /** Sends to the client. */
  say(kind: string, fields: Record<string, unknown> = {}): void {
    this.onmessage?.({ data: JSON.stringify({ kind, ...fields }) });
  }
  bytes(data: Uint8Array): void {
    this.onmessage?.({ data: data.slice().buffer });
  }

  /** The next message or chunk from the client. */
  async next(): Promise<Sent | Uint8Array> {
    await until(() => this.sent.length > this.read, "the client said nothing");
    return this.sent[this.read++]!;
  }

  /** The next message of a kind. */
  async expect(kind: string): Promise<Sent> {
    for (;;) {
      const message = await this.next();
      if (!(message instanceof Uint8Array) && message.kind === kind) return message;
    }
  }
}

/** Waits until something is true. */
export async function until(condition: () => unknown, what: string): Promise<void> {
  for (let k = 0; !condition(); k++) {
    if (k > 20_000) throw new Error(what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
