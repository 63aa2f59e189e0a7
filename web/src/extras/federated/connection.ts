// A WebSocket of protocol 1, read message by message.

import { CHUNK, MAX_TEXT, SUBPROTOCOL } from "../../logic/federated/tasks.ts";
import { Aborted } from "../../shared/errors.ts";

const WAITING = 64; // messages that may wait while the client trains
const CONNECTING_MS = 15_000;

/** The connection ended, or could not be made. */
export class ConnectionLost extends Error {}

/** A message from the server; `kind` is always a text. */
export interface Message {
  kind: string;
  [field: string]: unknown;
}

/** An open connection. */
export class Connection {
  private frames: (Message | Uint8Array<ArrayBuffer>)[] = [];
  private wake: (() => void) | undefined;
  private lost = false;
  private expected = 0; // bytes of the download that are not here yet
  private asked: number | undefined; // when a question without an answer was sent

  private constructor(private readonly socket: WebSocket) {
    socket.onmessage = ({ data }) => {
      this.asked = undefined;
      if (!this.take(data as string | ArrayBuffer)) this.abandon();
      this.wake?.();
    };
    socket.onclose = () => {
      this.lost = true;
      this.wake?.();
    };
  }

  /** Takes a frame over; false: it is not one of the protocol. */
  private take(data: string | ArrayBuffer): boolean {
    if (typeof data !== "string") {
      if (!data.byteLength || data.byteLength > CHUNK) return false;
      if (!this.expected) return true; // of a download that was given up
      this.expected = Math.max(0, this.expected - data.byteLength);
      this.frames.push(new Uint8Array(data));
      return true;
    }
    const message = data.length > MAX_TEXT ? undefined : parsed(data);
    const waiting = this.frames.filter((f) => !(f instanceof Uint8Array)).length;
    if (!message || waiting >= WAITING) return false;
    this.frames.push(message);
    return true;
  }

  /** Says how many bytes of a download are still to come; others are dropped. */
  expect(bytes: number): void {
    this.frames = this.frames.filter((f) => !(f instanceof Uint8Array));
    this.expected = bytes;
  }

  /**
   * @param signal ends the attempt; an open connection is its owner's, who may have a last word
   * @throws ConnectionLost if the server cannot be reached
   */
  static open(url: string, signal?: AbortSignal): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url, SUBPROTOCOL);
      const close = (): void => socket.close();
      if (signal?.aborted) close();
      signal?.addEventListener("abort", close, { once: true });
      socket.binaryType = "arraybuffer";
      const timer = setTimeout(close, CONNECTING_MS);
      const settled = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", close);
      };
      socket.onopen = () => {
        settled();
        resolve(new Connection(socket));
      };
      socket.onclose = socket.onerror = () => {
        settled();
        reject(new ConnectionLost(`${url} cannot be reached`));
      };
    });
  }

  /**
   * The next message or chunk.
   * @param end ends the waiting
   * @throws ConnectionLost
   * @throws Aborted if `end` says so
   */
  async next(end?: AbortSignal): Promise<Message | Uint8Array<ArrayBuffer>> {
    const wake = () => this.wake?.();
    end?.addEventListener("abort", wake);
    try {
      for (;;) {
        if (end?.aborted) throw new Aborted("the time for an answer has passed");
        if (this.frames.length) return this.frames.shift()!;
        if (this.lost) throw new ConnectionLost("the connection was lost");
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      end?.removeEventListener("abort", wake);
    }
  }

  /** Sends a message; fields that are null are left out. @throws ConnectionLost */
  send(kind: string, fields: Readonly<Record<string, unknown>> = {}): void {
    const given = Object.entries(fields).filter(([, value]) => value != null);
    this.write(JSON.stringify({ kind, ...Object.fromEntries(given) }));
  }

  /** Sends a chunk. @throws ConnectionLost */
  sendBytes(chunk: Uint8Array<ArrayBuffer>): void {
    this.write(chunk);
  }

  private write(data: string | Uint8Array<ArrayBuffer>): void {
    if (this.lost || this.socket.readyState !== WebSocket.OPEN)
      throw new ConnectionLost("the connection was lost");
    this.socket.send(data);
  }

  /** Sends a message that the server answers. @throws ConnectionLost */
  ask(kind: string, fields: Record<string, unknown>): void {
    this.send(kind, fields);
    this.asked ??= Date.now();
  }

  /** Gives the connection up if a question has had no answer for `ms` milliseconds. */
  check(ms: number): void {
    if (this.asked !== undefined && Date.now() - this.asked > ms) this.abandon();
  }

  private abandon(): void {
    this.lost = true; // a dead connection takes long to close
    this.socket.close(4000);
    this.wake?.();
  }

  /** Ends the connection. */
  close(): void {
    this.socket.close(1000);
  }
}

function parsed(text: string): Message | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value && typeof (value as Message).kind === "string"
      ? (value as Message)
      : undefined;
  } catch {
    return undefined;
  }
}
