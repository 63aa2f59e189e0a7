// A line between a page that is cross-origin isolated and its worker: memory that they share. After
// an answer the worker waits there for the next call for a moment, without looking for messages; a
// call that comes meanwhile takes a third of the time of a message each way.
//
// Calls and messages stay in their order: the page counts the messages that it has sent, and the
// worker those that it has. The worker waits, and the page calls, only if the two are equal, and
// each message ends the wait.

/** Cells of the memory; the first ones are also where both sides wait. */
const STATE = 0;
const ANSWERS = 1;
const SENT = 2;
const ID = 3;
const AT = 4;
const LENGTH = 5;
const RECEIVED = 6;

/** States: the worker does other things; it waits; there is a call for it. */
const AWAY = 0;
const WAITING = 1;
const CALLED = 2;

const HEAD = 64;
const BYTES = 1 << 16;
/** How long the worker looks before it sleeps, from which it wakes more slowly. */
const SPIN_MS = 0.05;
/** How long the worker waits. Ports and timers of its own wait meanwhile. */
const PATIENCE_MS = 2;

const waits = Atomics as unknown as {
  waitAsync?(cells: Int32Array, at: number, value: number): { value: unknown };
};

/** Whether this page can have a line. */
export const hasLines = (): boolean =>
  globalThis.crossOriginIsolated === true && waits.waitAsync !== undefined;

/** One end of a line. */
export class Line {
  private readonly cells: Int32Array;
  private readonly bytes: Uint8Array;
  /** Of the page: a call is on its way. */
  private busy = false;

  constructor(readonly memory = new SharedArrayBuffer(BYTES)) {
    this.cells = new Int32Array(memory, 0, HEAD / 4);
    this.bytes = new Uint8Array(memory);
  }

  /** The page is about to send a message. */
  sending(): void {
    Atomics.add(this.cells, SENT, 1);
    if (Atomics.compareExchange(this.cells, STATE, WAITING, AWAY) === WAITING)
      Atomics.notify(this.cells, STATE);
  }

  /** The worker has got a message. */
  received(): void {
    Atomics.add(this.cells, RECEIVED, 1);
  }

  /** Whether no message is on its way. */
  private get clear(): boolean {
    return Atomics.load(this.cells, SENT) === Atomics.load(this.cells, RECEIVED);
  }

  /**
   * The page calls the worker, if that waits and has all messages.
   * @returns its answer, which is undefined where a message has it; undefined instead of a promise:
   *   send a message
   */
  call(id: number, request: unknown): Promise<unknown> | undefined {
    const { cells } = this;
    if (this.busy || !this.clear || Atomics.load(cells, STATE) !== WAITING) return undefined;
    if (!this.write(request)) return undefined;
    const answers = Atomics.load(cells, ANSWERS);
    Atomics.store(cells, ID, id);
    if (Atomics.compareExchange(cells, STATE, WAITING, CALLED) !== WAITING) return undefined;
    Atomics.notify(cells, STATE);
    this.busy = true;
    return this.answered(answers);
  }

  /** The answer that follows so many others. */
  private async answered(others: number): Promise<unknown> {
    const { cells } = this;
    // A wait may end early: the worker counts an answer before it wakes who waits for it, and the
    // page may have seen it, and called again, in between.
    while (Atomics.load(cells, ANSWERS) === others)
      await waits.waitAsync!(cells, ANSWERS, others).value;
    this.busy = false;
    return Atomics.load(cells, LENGTH) ? this.read() : undefined;
  }

  /** Ends what waits for an answer, since none comes. */
  end(): void {
    Atomics.store(this.cells, LENGTH, 0);
    Atomics.add(this.cells, ANSWERS, 1);
    Atomics.notify(this.cells, ANSWERS);
  }

  /**
   * The worker waits for a call.
   * @returns undefined if none comes, or a message does
   */
  next(): { id: number; request: unknown } | undefined {
    const { cells } = this;
    Atomics.compareExchange(cells, STATE, AWAY, WAITING);
    if (this.clear) {
      const until = performance.now() + SPIN_MS;
      while (Atomics.load(cells, STATE) === WAITING && performance.now() < until);
      // ends early where the page wakes it for a call that it has seen by itself
      while (Atomics.wait(cells, STATE, WAITING, PATIENCE_MS) === "ok")
        if (Atomics.load(cells, STATE) !== WAITING) break;
    }
    if (Atomics.exchange(cells, STATE, AWAY) !== CALLED) return undefined;
    return { id: Atomics.load(cells, ID), request: this.read() };
  }

  /**
   * The worker answers.
   * @param stays it calls `next` after this; the page may call before it does, unless a message is
   *   on its way
   * @returns false if the answer must be sent as a message
   */
  answer(value: unknown, stays: boolean): boolean {
    const written = value !== undefined && this.write(value);
    if (!written) Atomics.store(this.cells, LENGTH, 0);
    if (stays && this.clear) Atomics.compareExchange(this.cells, STATE, AWAY, WAITING);
    Atomics.add(this.cells, ANSWERS, 1);
    Atomics.notify(this.cells, ANSWERS);
    return written;
  }

  /** Writes a plain object of few bytes. @returns false if it is not, or there is no room */
  private write(value: unknown): boolean {
    const { bytes, cells } = this;
    let at = HEAD;
    const placed = (_: string, v: unknown): unknown => {
      if (typeof v !== "object" || v === null) return v;
      if (v instanceof Uint8Array) {
        const from = at;
        at += Math.ceil(v.length / 16) * 16;
        bytes.set(v, from);
        return [from, v.length];
      }
      if (Array.isArray(v) || Object.getPrototypeOf(v) === Object.prototype) return v;
      throw new TypeError("not plain");
    };
    try {
      const text = encoder.encode(JSON.stringify(value, placed));
      bytes.set(text, at);
      Atomics.store(cells, AT, at);
      Atomics.store(cells, LENGTH, text.length);
      return true;
    } catch {
      return false; // no room, integers of 64 bits, maps
    }
  }

  /** Reads it. Its bytes are parts of one copy. */
  private read(): unknown {
    const { bytes, cells } = this;
    const at = Atomics.load(cells, AT);
    const copy = new Uint8Array(at + Atomics.load(cells, LENGTH));
    copy.set(bytes.subarray(HEAD, copy.length), HEAD);
    return restored(JSON.parse(decoder.decode(copy.subarray(at))), copy);
  }
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Puts the bytes of tensors in the place of where they are. Feeds may have any names. */
function restored(v: unknown, bytes: Uint8Array): unknown {
  if (typeof v !== "object" || v === null) return v;
  const { data, dims } = v as { data?: unknown; dims?: unknown };
  if (Array.isArray(data) && Array.isArray(dims))
    (v as { data: unknown }).data = bytes.subarray(data[0], data[0] + data[1]);
  else for (const inner of Object.values(v)) restored(inner, bytes);
  return v;
}
