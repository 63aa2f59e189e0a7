// An HTTP server with faults, which counts what it sends.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** Faults of a {@link FileServer}; change them at any time. */
export interface Faults {
  /** No ranges: each response has the whole file. */
  rangeless?: boolean;
  /** From this request on (counted from 0) ranges are ignored. */
  rangelessFrom?: number;
  /** Number of responses that still break off, and the bytes after which they do. */
  cuts?: number;
  cutAfter?: number;
  /** Bytes per second and connection. */
  rate?: number;
  /** Milliseconds until the headers. */
  latency?: number;
  etag?: string;
  /** Milliseconds until the end of a response whose bytes are sent; it has no length. */
  slowEnd?: number;
}

/** Serves one file at every path. */
export class FileServer {
  /** Bytes sent in bodies. */
  sent = 0;
  /** `Range` headers of the requests, "" without one. */
  readonly ranges: string[] = [];
  /** Requests being answered, and the most at a time. */
  open = 0;
  most = 0;
  url = "";
  private readonly server = createServer((q, r) => void this.answer(q, r));

  constructor(
    private readonly body: Uint8Array,
    readonly faults: Faults = {},
  ) {}

  async start(): Promise<this> {
    await new Promise<void>((done) => this.server.listen(0, "localhost", done));
    this.url = `http://localhost:${(this.server.address() as AddressInfo).port}/model.onnx`;
    return this;
  }

  close(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { faults, body } = this;
    const number = this.ranges.length;
    this.ranges.push(request.headers.range ?? "");
    this.most = Math.max(this.most, ++this.open);
    const closed = new Promise<void>((done) => response.once("close", done));
    void closed.then(() => this.open--);
    if (faults.latency) await new Promise((done) => setTimeout(done, faults.latency));
    const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
    const partial = range && !faults.rangeless && number < (faults.rangelessFrom ?? Infinity);
    const from = partial ? Number(range[1]) : 0;
    const to = partial && range[2] ? Math.min(Number(range[2]) + 1, body.length) : body.length;
    if (from >= body.length) {
      response.writeHead(416, { "Content-Range": `bytes */${body.length}` }).end();
      return;
    }
    response.writeHead(partial ? 206 : 200, {
      ETag: faults.etag ?? '"one"',
      ...(faults.slowEnd ? {} : { "Content-Length": to - from }),
      ...(partial ? { "Content-Range": `bytes ${from}-${to - 1}/${body.length}` } : {}),
    });
    const cut = faults.cuts && to - from > faults.cutAfter! ? from + faults.cutAfter! : undefined;
    if (cut !== undefined) faults.cuts!--;
    const piece = faults.rate ? Math.max(1, Math.round(faults.rate / 50)) : 1 << 20;
    for (let at = from; at < (cut ?? to) && !response.destroyed; at += piece) {
      const end = Math.min(at + piece, cut ?? to);
      this.sent += end - at;
      if (!response.write(body.subarray(at, end)))
        await Promise.race([closed, new Promise((done) => response.once("drain", done))]);
      if (faults.rate) await new Promise((done) => setTimeout(done, 20));
    }
    if (faults.slowEnd) await new Promise((done) => setTimeout(done, faults.slowEnd));
    if (cut === undefined) {
      response.end();
      return;
    }
    // When the client has read what was sent: it reads in turns of the same event loop, of which
    // a busy machine makes fewer in a time.
    for (let turn = 0; turn < 100; turn++) await new Promise((done) => setTimeout(done, 2));
    response.destroy();
  }
}
