// The browser's private files (OPFS) in memory, for tests. The tab can end at a chosen operation,
// in the middle of a write if writes are in place.

/** A complete file system. */
export class Storage {
  /** By path. */
  readonly files = new Map<string, Uint8Array<ArrayBuffer>>();
  /** Number of further modifications until the tab ends; later ones have no effect. */
  left = Infinity;
  /** Number of modifications so far. */
  operations = 0;

  /**
   * @param inPlace writes change the file immediately (createSyncAccessHandle only, as in Safari),
   *   instead of all at once when the file is closed
   */
  constructor(private readonly inPlace = false) {}

  /** Installs it as the storage of `navigator`. */
  install(): this {
    Object.defineProperty(globalThis, "navigator", {
      configurable: true,
      value: { storage: { getDirectory: async () => this.folder("") } },
    });
    return this;
  }

  private step(): void {
    this.operations++;
    if (this.left-- <= 0) throw new Error("the tab has died");
  }

  private set(path: string, data: Uint8Array<ArrayBuffer>): void {
    this.step();
    this.files.set(path, data);
  }

  private folder(path: string): unknown {
    const gone = () => new DOMException("no such file", "NotFoundError");
    return {
      getDirectoryHandle: async (name: string) => this.folder(`${path}${name}/`),
      getFileHandle: async (name: string, { create = false } = {}) => {
        const full = path + name;
        if (!this.files.has(full)) {
          if (!create) throw gone();
          this.set(full, new Uint8Array(0));
        }
        return this.file(full, name);
      },
      removeEntry: async (name: string) => {
        if (!this.files.has(path + name)) throw gone();
        this.step();
        this.files.delete(path + name);
      },
      values: () =>
        [...this.files.keys()]
          .filter((p) => p.startsWith(path) && !p.slice(path.length).includes("/"))
          .map((p) => this.file(p, p.slice(path.length)))
          [Symbol.iterator](),
    };
  }

  private file(path: string, name: string): unknown {
    const writable = async () => {
      let data = new Uint8Array(0);
      return {
        write: async (blob: Blob) => void (data = new Uint8Array(await blob.arrayBuffer())),
        close: async () => this.set(path, data),
        abort: async () => undefined,
      };
    };
    const put = (bytes: Uint8Array, at: number) => {
      const old = this.files.get(path)!;
      const data = new Uint8Array(Math.max(old.length, at + bytes.length));
      data.set(old);
      data.set(bytes, at);
      this.files.set(path, data);
    };
    const handle = async () => ({
      read: (data: Uint8Array, { at = 0 } = {}) => {
        const part = this.files.get(path)!.subarray(at, at + data.length);
        data.set(part);
        return part.length;
      },
      write: (data: Uint8Array, { at = 0 } = {}) => {
        if (this.left === 0) put(data.subarray(0, data.length >> 1), at); // half of it
        this.step();
        put(data, at);
        return data.length;
      },
      truncate: (size: number) => this.set(path, this.files.get(path)!.slice(0, size)),
      getSize: () => this.files.get(path)!.length,
      flush: () => undefined,
      close: () => undefined,
    });
    return {
      kind: "file",
      name,
      getFile: async () => new File([this.files.get(path)!], name),
      createSyncAccessHandle: handle,
      ...(this.inPlace ? {} : { createWritable: writable }),
    };
  }
}
