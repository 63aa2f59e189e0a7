// A snapshot of Pyodide's memory, on its way: wasm/pyodide/snapshot.mjs describes its format.

/** Content of a snapshot's head that is not Pyodide's. */
interface Layout {
  /** Pyodide's head, which Pyodide takes for a snapshot without memory. */
  pyodide: Uint8Array<ArrayBuffer>;
  /** Size of the memory in bytes. */
  size: number;
  /** Runs end here that a memory has before it is restored. */
  end: number;
  /** Sum of the runs that are left out, as numbers of 32 bits. */
  sum: number;
  /** (first page, pages, 1 if left out) of each run. */
  runs: Uint32Array;
  /** Bytes before the content of the first run. */
  bytes: number;
}

const PAGE = 1024;
const NUMBERS = 6;

/** Reads a snapshot while it arrives. */
export class Snapshot {
  private readonly chunks: Uint8Array[] = [];
  private received = 0;
  private readonly reader: ReadableStreamDefaultReader<Uint8Array>;
  private readonly all: Promise<void>;
  private parsed: (layout: Layout) => void = () => undefined;
  private failed: (e: unknown) => void = () => undefined;
  private readonly layout = new Promise<Layout>((resolve, reject) => {
    this.parsed = resolve;
    this.failed = reject;
  });

  /** @param memory the snapshot, decompressed */
  constructor(memory: ReadableStream<Uint8Array>) {
    this.reader = memory.getReader();
    this.all = this.receive();
    for (const part of [this.all, this.layout]) part.catch(() => undefined);
  }

  /** Pyodide's head: what it takes for a snapshot. */
  async head(): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.layout).pyodide;
  }

  /** Size of the memory in bytes. */
  async size(): Promise<number> {
    return (await this.layout).size;
  }

  /** Ends the download. */
  cancel(): void {
    void this.reader.cancel().catch(() => undefined);
  }

  /**
   * Restores a memory that has the size.
   * @throws Error if the snapshot is damaged, or the memory is that of another Pyodide
   */
  async restore(memory: Uint8Array): Promise<void> {
    const { runs, end, sum, bytes } = await this.layout;
    await this.all;
    let total = 0;
    let after = 0; // the end of the last run
    const content = this.content(bytes);
    for (let i = 0; i < runs.length; i += 3) {
      const at = runs[i]! * PAGE;
      const length = runs[i + 1]! * PAGE;
      if (after < Math.min(at, end)) memory.fill(0, after, Math.min(at, end));
      after = at + length;
      if (runs[i + 2]) {
        const known = new Int32Array(memory.buffer, memory.byteOffset + at, length / 4);
        for (let j = 0; j < known.length; j++) total = (total + known[j]!) | 0;
      } else content(memory.subarray(at, after));
    }
    if (after < end) memory.fill(0, after, end);
    if (total >>> 0 !== sum) throw new Error("the memory is that of another Pyodide");
  }

  /** A function that fills the next bytes. */
  private content(offset: number): (target: Uint8Array) => void {
    const { chunks } = this;
    let [chunk, at] = [0, offset];
    return (target) => {
      for (let done = 0; done < target.length; ) {
        const here = chunks[chunk];
        if (!here) throw new Error("the snapshot ends early");
        if (at >= here.length) {
          at -= here.length;
          chunk++;
          continue;
        }
        const part = here.subarray(at, at + target.length - done);
        target.set(part, done);
        at += part.length;
        done += part.length;
      }
    };
  }

  private async receive(): Promise<void> {
    let known = false;
    try {
      for (;;) {
        const { done, value } = await this.reader.read();
        if (done) break;
        this.chunks.push(value);
        this.received += value.length;
        known ||= this.parse();
      }
      if (!known) throw new Error("the snapshot ends early");
    } catch (e) {
      this.failed(e);
      throw e;
    }
  }

  /** Parses the head, once it is there. */
  private parse(): boolean {
    if (this.received < 4 * NUMBERS) return false;
    const start = new Uint32Array(this.first(4 * NUMBERS).buffer);
    const [length, headBytes, size, end, sum, count] = start as unknown as number[];
    if (length !== 4 * (NUMBERS + 3 * count!) || headBytes! > size! || end! > size!)
      throw new Error("it is not a snapshot");
    const bytes = length + headBytes!;
    if (this.received < bytes) return false;
    const head = this.first(bytes);
    this.parsed({
      ...{ size: size!, end: end!, sum: sum!, bytes },
      runs: new Uint32Array(head.buffer, 4 * NUMBERS, 3 * count!),
      pyodide: head.slice(length),
    });
    return true;
  }

  /** The first bytes, which are there. */
  private first(bytes: number): Uint8Array<ArrayBuffer> {
    const all = new Uint8Array(bytes);
    this.content(0)(all);
    return all;
  }
}
