// A WebSocket of protocol 1, read message by message.

/** The subprotocol of protocol 1. */
export const SUBPROTOCOL = "edgewise.federated.1";
/** Maximum bytes of a binary frame. */
export const CHUNK = 256 << 10;
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
  private readonly frames: (Message | Uint8Array<ArrayBuffer>)[] = [];
  private wake: (() => void) | undefined;
  private lost = false;

  private constructor(private readonly socket: WebSocket) {
    socket.onmessage = ({ data }) => {
      if (typeof data !== "string") this.frames.push(new Uint8Array(data as ArrayBuffer));
      else {
        const message = parsed(data);
        if (message) this.frames.push(message);
        else socket.close(4000, "not a message");
      }
      this.wake?.();
    };
    socket.onclose = () => {
      this.lost = true;
      this.wake?.();
    };
  }

  /** @throws ConnectionLost if the server cannot be reached */
  static open(url: string): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url, SUBPROTOCOL);
      socket.binaryType = "arraybuffer";
      const timer = setTimeout(() => socket.close(), CONNECTING_MS);
      socket.onopen = () => {
        clearTimeout(timer);
        resolve(new Connection(socket));
      };
      socket.onclose = socket.onerror = () => {
        clearTimeout(timer);
        reject(new ConnectionLost(`${url} cannot be reached`));
      };
    });
  }

  /**
   * The next message or chunk.
   * @throws ConnectionLost
   */
  async next(): Promise<Message | Uint8Array<ArrayBuffer>> {
    while (!this.frames.length) {
      if (this.lost) throw new ConnectionLost("the connection was lost");
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    return this.frames.shift()!;
  }

  /** The next message; chunks of a download that was given up are dropped. */
  async message(): Promise<Message> {
    for (;;) {
      const frame = await this.next();
      if (!(frame instanceof Uint8Array)) return frame;
    }
  }

  /** Puts a message back, to be read next. */
  unread(message: Message): void {
    this.frames.unshift(message);
  }

  /** Sends a message. @throws ConnectionLost */
  send(kind: string, fields: Record<string, unknown> = {}): void {
    this.write(JSON.stringify({ kind, ...fields }));
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
