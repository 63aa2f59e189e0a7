// A download over several connections, for servers and networks that limit the rate of each. The
// bytes are delivered in their order; memory is bounded by the parts between the one that is being
// delivered and the newest one.

import type { Connection } from "./connection.ts";
import { type ChunkReader, readerOf } from "./stream.ts";

/** Bytes of a part. */
export const PART = 4 << 20;
/** Connections at a time, over all downloads: browsers open six to an HTTP/1.1 server. */
const CONNECTIONS = 4;
/** Parts of a download that are in memory. */
const WINDOW = 6;

/** A response to a range request that does not continue what has arrived. */
export class NoContinuation extends Error {}

/** What a download of parts needs from its source. */
export interface Ranges {
  /** Requests the bytes [from, to). */
  request(from: number, to: number): Promise<Connection>;
  /** Waits before the next attempt, or throws. Returns the number of failures so far. */
  retry(error: unknown, failures: number, from: number): Promise<number>;
  /** Receives the number of bytes of the file that have arrived. */
  onBytes(received: number): void;
}

/** Parts that are being received, of all downloads. */
let receiving = 0;

/** A part of the file. */
class Part {
  private filled = 0;
  private error: unknown;
  private stopped = false;
  private connection: Connection | undefined;
  private wake = (): void => undefined;

  /**
   * @param start offset in the file
   * @param bytes destination, of the part's size
   * @param first an open connection for the part
   */
  constructor(
    private readonly start: number,
    readonly bytes: Uint8Array<ArrayBuffer>,
    private first: Connection | undefined,
  ) {}

  /** Receives the part. Errors are thrown by `chunks`. */
  async receive(source: Ranges, onChunk: (bytes: number) => void): Promise<void> {
    receiving++;
    try {
      for (let failures = 0; this.filled < this.bytes.length && !this.stopped; ) {
        const before = this.filled;
        try {
          await this.attempt(source, onChunk);
        } catch (e) {
          if (this.stopped) return;
          if (e instanceof NoContinuation) throw e; // it concerns the whole file
          const at = this.start + this.filled;
          failures = await source.retry(e, this.filled > before ? 0 : failures, at);
        }
      }
    } catch (e) {
      this.error = e;
    } finally {
      receiving--;
      this.wake();
    }
  }

  private async attempt(source: Ranges, onChunk: (bytes: number) => void): Promise<void> {
    const { bytes, start } = this;
    const { first } = this;
    this.first = undefined;
    const connection = first ?? (await source.request(start + this.filled, start + bytes.length));
    this.connection = connection;
    let reader: ChunkReader | undefined;
    try {
      if (connection.response.status !== 206)
        throw new NoContinuation("the server has stopped sending ranges of the file");
      reader = readerOf(connection.response.body!);
      while (!this.stopped) {
        const { done, value } = await connection.wait(reader.read());
        if (done) break;
        if (this.filled + value!.length > bytes.length)
          throw new NoContinuation("the server sent more than the range that was requested");
        bytes.set(value!, this.filled);
        this.filled += value!.length;
        onChunk(value!.length);
        this.wake();
      }
      if (this.filled < bytes.length) throw new Error("the connection ended");
    } finally {
      void reader?.cancel().catch(() => undefined);
      connection.close();
    }
  }

  /** The part's bytes as they arrive. */
  async *chunks(): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    for (let read = 0; read < this.bytes.length; ) {
      if (this.filled > read) {
        const chunk = this.bytes.subarray(read, this.filled);
        read += chunk.length;
        yield chunk;
      } else if (this.error !== undefined) throw this.error;
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  /** Closes the connection. */
  stop(): void {
    this.stopped = true;
    this.connection?.close();
  }
}

/**
 * Streams the bytes [from, size) of a file.
 * @param first an open connection for the first part
 * @throws NoContinuation if the server does not send the requested ranges; what `source.retry`
 *   throws
 */
export async function* inOrder(
  from: number,
  size: number,
  first: Connection,
  source: Ranges,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const parts: Part[] = [];
  const buffers: ArrayBuffer[] = []; // of parts that have been delivered
  let next = from;
  let received = from;
  let mine = 0;
  let ended = false;
  const begin = (connection?: Connection): void => {
    const bytes = new Uint8Array(
      buffers.pop() ?? new ArrayBuffer(PART),
      0,
      Math.min(PART, size - next),
    );
    const part = new Part(next, bytes, connection);
    parts.push(part);
    next += bytes.length;
    mine++;
    const arrived = (n: number): void => source.onBytes((received += n));
    void part.receive(source, arrived).then(() => {
      mine--;
      more();
    });
  };
  const more = (): void => {
    while (!ended && next < size && parts.length < WINDOW && (!mine || receiving < CONNECTIONS))
      begin();
  };
  try {
    begin(first);
    more();
    for (;;) {
      // connections may still be ending after their parts were delivered
      if (!parts.length && next < size) begin();
      const part = parts[0];
      if (!part) return;
      yield* part.chunks();
      parts.shift();
      buffers.push(part.bytes.buffer);
      more();
    }
  } finally {
    ended = true;
    for (const part of parts) part.stop();
  }
}
