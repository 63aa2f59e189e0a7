// Folders in IndexedDB. A file is a record with its name and size, and pieces of bytes under the
// record's id. Bytes rather than Blobs, which private windows of Safari refuse to store.

import { type Folder, notFound, type OpenFile, stored } from "./stored.ts";

const DATABASE = "edgewise";
const FILES = "files";
const PIECES = "pieces";
const PIECE = 4 << 20; // bytes

interface FileRecord {
  folder: string;
  name: string;
  /** First part of the keys of its pieces. */
  id: string;
  size: number;
  /** Time of the last change, in milliseconds since 1970. */
  modified: number;
}

let database: Promise<IDBDatabase> | undefined;

/** Opens the database, once. Rejects with the browser's error if the page may not use it. */
export function openDatabase(): Promise<IDBDatabase> {
  if (database) return database;
  const opening = new Promise<IDBDatabase>((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore(FILES, { keyPath: ["folder", "name"] });
      request.result.createObjectStore(PIECES); // key: [id, number]
    };
    request.onsuccess = () => {
      const db = request.result;
      // deleted in another tab, or by the browser: it is opened again by the next operation
      const forget = (): void => {
        if (database === opening) database = undefined;
      };
      db.onclose = forget;
      db.onversionchange = () => {
        db.close();
        forget();
      };
      resolve(db);
    };
    request.onerror = () => reject(request.error);
  });
  database = opening;
  opening.catch(() => {
    if (database === opening) database = undefined;
  });
  return stored(() => opening, DATABASE);
}

type Work<T> = (files: IDBObjectStore, pieces: IDBObjectStore) => IDBRequest<T> | undefined;

/** Runs a transaction; returns the result of the request that `work` returns. */
async function transact<T>(mode: IDBTransactionMode, work: Work<T>): Promise<T> {
  const run = (db: IDBDatabase): Promise<T> =>
    new Promise((resolve, reject) => {
      const transaction = db.transaction([FILES, PIECES], mode);
      const request = work(transaction.objectStore(FILES), transaction.objectStore(PIECES));
      transaction.oncomplete = () => resolve(request?.result as T);
      transaction.onabort = () => reject(transaction.error);
    });
  const db = await openDatabase();
  return stored(
    () =>
      run(db).catch(async (e: unknown) => {
        if (!(e instanceof DOMException && e.name === "InvalidStateError")) throw e;
        database = undefined; // its connection has been closed
        return run(await openDatabase());
      }),
    DATABASE,
  );
}

const within = (...key: string[]): IDBKeyRange => IDBKeyRange.bound(key, [...key, []]);
const newId = (): string => `${Date.now()}-${Math.random()}`;

/** Deletes folders with their files. */
export async function removeIndexed(names: readonly string[]): Promise<void> {
  for (const name of names) {
    const folder = new IndexedFolder(name);
    for (const file of await folder.list()) await folder.remove(file.name);
  }
}

/** A folder in IndexedDB; it exists as soon as it has a file. */
export class IndexedFolder implements Folder {
  constructor(private readonly folder: string) {}

  async read(name: string): Promise<File> {
    const record = await this.find(name);
    if (!record) throw notFound(name);
    const { id, size, modified } = record;
    const parts: Blob[] = [];
    for (let at = 0; at < size; at += PIECE) {
      const bytes = await readPiece(id, at / PIECE);
      // a tab that was closed, or that replaced the file meanwhile
      if (bytes?.byteLength !== Math.min(PIECE, size - at)) throw notFound(name);
      parts.push(new Blob([bytes])); // the browser may move it out of this thread's memory
    }
    return new File(parts, name, { lastModified: modified });
  }

  list(): Promise<FileRecord[]> {
    return transact("readonly", (files) => files.getAll(within(this.folder)));
  }

  async remove(name: string): Promise<void> {
    const record = await this.find(name);
    if (!record) throw notFound(name);
    await transact("readwrite", (files, pieces) => {
      files.delete([this.folder, name]);
      pieces.delete(within(record.id));
      return undefined;
    });
  }

  async write(name: string, data: Blob): Promise<void> {
    const release = await this.lock(name, false);
    // an unfinished file of a tab that was closed is replaced
    const temporary = `${name}~`;
    try {
      await this.remove(temporary).catch(() => undefined);
      const file = this.record(temporary);
      for (let at = 0; at < data.size; at += PIECE) {
        const piece = data.slice(at, at + PIECE);
        const bytes = await stored(() => piece.arrayBuffer(), name);
        file.size = at + bytes.byteLength;
        await savePiece(file, at / PIECE, bytes);
      }
      const before = await this.find(name);
      await transact("readwrite", (files, pieces) => {
        if (before) pieces.delete(within(before.id));
        files.delete([this.folder, temporary]);
        files.put({ ...file, name });
        return undefined;
      });
    } catch (e) {
      await this.remove(temporary).catch(() => undefined);
      throw e;
    } finally {
      release();
    }
  }

  async open(name: string): Promise<OpenFile> {
    const release = await this.lock(name, true);
    try {
      return new PieceFile((await this.find(name)) ?? this.record(name), release);
    } catch (e) {
      release();
      throw e;
    }
  }

  private find(name: string): Promise<FileRecord | undefined> {
    return transact("readonly", (files) => files.get([this.folder, name]));
  }

  private record(name: string): FileRecord {
    return { folder: this.folder, name, id: newId(), size: 0, modified: Date.now() };
  }

  /**
   * Keeps other tabs and workers from writing a file; without effect in pages that have no locks.
   * @param atOnce reject, as OPFS does, instead of waiting
   * @returns ends it
   */
  private lock(name: string, atOnce: boolean): Promise<() => void> {
    const { locks } = globalThis.navigator ?? {};
    if (!locks) return Promise.resolve(() => undefined);
    return new Promise((resolve, reject) => {
      locks
        .request(`edgewise file ${this.folder}/${name}`, { ifAvailable: atOnce }, (lock) => {
          if (lock) return new Promise<void>((release) => resolve(release));
          reject(new DOMException(`${name} is open`, "NoModificationAllowedError"));
          return undefined;
        })
        .catch(reject);
    });
  }
}

function readPiece(id: string, index: number): Promise<ArrayBuffer | undefined> {
  return transact("readonly", (_, pieces) => pieces.get([id, index]));
}

/** Writes a piece and the file's record. */
async function savePiece(file: FileRecord, index: number, bytes: ArrayBuffer): Promise<void> {
  await transact("readwrite", (files, pieces) => {
    pieces.put(bytes, [file.id, index]);
    files.put({ ...file, modified: Date.now() });
    return undefined;
  });
}

/** An open file: one piece of it is in memory, and written when another one is needed. */
class PieceFile implements OpenFile {
  private index = -1;
  private readonly piece = new Uint8Array(PIECE);
  private changed = false;
  private closed = false;

  constructor(
    private readonly file: FileRecord,
    private readonly release: () => void,
  ) {}

  get size(): number {
    return this.file.size;
  }

  async read(data: Uint8Array, at: number): Promise<number> {
    const end = Math.min(at + data.length, this.size);
    for (let from = at; from < end; ) {
      const part = await this.part(from, end);
      data.set(part, from - at);
      from += part.length;
    }
    return Math.max(0, end - at);
  }

  async write(data: Uint8Array, at: number): Promise<void> {
    while (this.size < at) await this.extend(at);
    for (let done = 0; done < data.length; ) {
      const part = await this.part(at + done, at + data.length);
      part.set(data.subarray(done, done + part.length));
      done += part.length;
      this.wrote(at + done);
    }
  }

  async truncate(size: number): Promise<void> {
    if (size % PIECE) (await this.part(size)).fill(0);
    else if (this.index * PIECE >= size) [this.index, this.changed] = [-1, false];
    this.file.size = size;
    const { id } = this.file;
    const first = Math.ceil(size / PIECE);
    await transact("readwrite", (files, pieces) => {
      pieces.delete(IDBKeyRange.bound([id, first], [id, []]));
      files.put({ ...this.file, modified: Date.now() });
      return undefined;
    });
    if (size % PIECE) this.changed = true;
  }

  async flush(): Promise<void> {
    if (!this.changed) return;
    this.changed = false; // even if it fails: the caller learns it now, not once more by `close`
    const used = Math.min(PIECE, this.size - this.index * PIECE);
    await savePiece(this.file, this.index, this.piece.slice(0, used).buffer);
  }

  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    try {
      await this.flush();
    } finally {
      this.release();
    }
  }

  /** Appends zeros, at most up to `end` and to the end of a piece. */
  private async extend(end: number): Promise<void> {
    const part = await this.part(this.size, end);
    this.wrote(this.size + part.length);
  }

  private wrote(end: number): void {
    this.changed = true;
    this.file.size = Math.max(this.size, end);
  }

  /** The bytes from `from` on, at most up to `end` and to the end of their piece. */
  private async part(from: number, end = Infinity): Promise<Uint8Array> {
    const index = Math.floor(from / PIECE);
    if (index !== this.index) {
      await this.flush();
      const bytes = index * PIECE < this.size ? await readPiece(this.file.id, index) : undefined;
      this.piece.fill(0);
      if (bytes) this.piece.set(new Uint8Array(bytes));
      this.index = index;
    }
    const begin = index * PIECE;
    return this.piece.subarray(from - begin, Math.min(PIECE, end - begin));
  }
}
