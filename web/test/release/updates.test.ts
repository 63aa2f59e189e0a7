// Releases in a page: the shared vectors, and installations that end at any moment.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { decode } from "../../src/extras/release/codec.ts";
import { ReleaseError } from "../../src/extras/release/errors.ts";
import { Installed } from "../../src/extras/release/installed.ts";
import { digest } from "../../src/extras/release/keys.ts";
import {
  type DeltaCodec,
  parseManifest,
  type ReleaseManifest,
} from "../../src/extras/release/manifest.ts";
import { ModelUpdates, selected, type UpdatesOptions } from "../../src/extras/release/updates.ts";
import { openFolder } from "../../src/shared/files/folders.ts";
import { changingLinks, removeUnused } from "../../src/shared/files/kept.ts";
import { Downloads } from "../../src/worker/files/downloads.ts";
import { Storage } from "../common/storage.ts";
import { vectors } from "../common/vectors.ts";

type Bytes = Uint8Array<ArrayBuffer>;
interface Mutation {
  path: string;
  value: unknown;
  what: string;
}
const shared = vectors("releases/versions") as unknown as {
  codec: { codec: DeltaCodec; base: string; new: string; delta: string }[];
  manifest: object;
  manifests: Mutation[];
  rollout: { device: string; fraction: number; selected: boolean }[];
  repository: { root: string; states: Record<string, string>[]; contents: string[] };
};
const { codec, manifest, manifests, rollout, repository } = shared;
const bytes = (base64: string): Bytes => new Uint8Array(Buffer.from(base64, "base64"));
const encode = (value: unknown): Bytes => new TextEncoder().encode(JSON.stringify(value));
const base64 = async (blob: Blob) => Buffer.from(await blob.arrayBuffer()).toString("base64");

test("deltas give the numbers that Python gave", async () => {
  for (const v of codec) {
    const found = await decode(v.codec, bytes(v.base), bytes(v.delta), "it");
    assert.deepEqual(Buffer.from(found).toString("base64"), v.new, v.codec);
  }
});

test("damaged deltas and bombs are refused", async () => {
  const deflate = async (data: Bytes) => {
    const stream = new Blob([data]).stream().pipeThrough(new CompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const { base, delta } = codec.find((v) => v.codec === "float16")!;
  const bad = new Uint8Array(208).fill(255);
  const [head, rest] = [bytes(delta).slice(0, 12), bytes(delta).slice(12)];
  const table = new DataView(rest.buffer).getUint32(0, true);
  const other = async (size: number, ...first: number[]) => {
    const packed = await deflate(new Uint8Array(size));
    const length = new Uint8Array(Uint32Array.of(packed.length).buffer);
    const all = [Uint8Array.from(first), head.slice(first.length), length, packed];
    return new Uint8Array(await new Blob([...all, rest.slice(4 + table)]).arrayBuffer());
  };
  for (const [name, old, data] of [
    ["float16", bytes(base), bytes(delta).slice(0, -3)],
    ["float16", bytes(base), bytes(delta).slice(0, -4)],
    ["float16", bytes(base), bytes(delta).slice(0, 9)],
    ["float16", bytes(base), await other(1 << 24)],
    ["float16", bytes(base), await other(1024)], // frequencies of 0
    ["float16", bytes(base), await other(1024, 32, 10, 0, 0, 1)], // a product that is too large
    ["float16", bytes(base), await other(1024, 0, 3)],
    ["float16", bytes(base), new Uint8Array(0)],
    ["float16", bytes(base).slice(1), bytes(delta)],
    ["float16", new Uint8Array((1 << 20) + 2), bytes(delta)],
    ["float32-q4", new Uint8Array(800), await deflate(bad)],
  ] as const)
    await assert.rejects(decode(name, old, data, "it"), ReleaseError);
});

test("manifests are refused in Python's words", () => {
  assert.equal(parseManifest(encode(manifest), "it").chunks.length, 2);
  for (const { path, value, what } of manifests) {
    const root = { root: structuredClone(manifest) };
    const keys = ["root", ...(path ? path.split(".") : [])];
    const last = keys.pop()!;
    // biome-ignore lint/suspicious/noExplicitAny: any JSON
    const at = keys.reduce((x: any, key) => x[key], root);
    at[last] = value;
    assert.throws(
      () => parseManifest(encode(root.root), "it"),
      (e: ReleaseError) => e instanceof ReleaseError && e.what === what,
      `${path}: ${what}`,
    );
  }
  for (const text of ["{", "\xff", "[]"])
    assert.throws(() => parseManifest(new TextEncoder().encode(text), "it"), ReleaseError);
});

test("the same devices take part in a rollout", async () => {
  for (const { device, fraction, selected: wanted } of rollout)
    assert.equal(await selected(device, { name: "letters", version: 7, fraction }), wanted);
});

/** Servers of the repository. */
class Server {
  readonly files = new Map<string, Bytes>();
  /** Paths that were asked for, by origin. */
  asked: string[] = [];
  /** Bytes of objects until connections break. */
  left = Infinity;
  /** Bytes of objects that were sent. */
  sent = 0;
  ranges = true;

  state(...numbers: number[]): this {
    for (const n of numbers)
      for (const [path, data] of Object.entries(repository.states[n]!))
        this.files.set(path, bytes(data));
    return this;
  }

  readonly fetch: typeof fetch = async (url, init) => {
    const { host, pathname } = new URL(String(url));
    const path = pathname.slice("/models/".length);
    this.asked.push(`${host} ${path}`);
    let data = this.files.get(path);
    if (host === "down") throw new TypeError("connection refused");
    if (!data) return new Response(null, { status: 404 });
    if (host === "evil" && !path.startsWith("metadata")) data = data.map((x) => x ^ 1);
    if (host === "long" && !path.startsWith("metadata")) data = new Uint8Array([...data, ...data]);
    if (host === "page" && !path.startsWith("metadata"))
      data = new TextEncoder().encode("<html>There is no such page here.</html>");
    const range = /^bytes=(\d+)-$/.exec(new Headers(init?.headers).get("Range") ?? "");
    const from = range && this.ranges ? Number(range[1]) : 0;
    const object = !path.startsWith("metadata");
    const rest = data.subarray(from);
    const body = new ReadableStream<Bytes>({
      start: (controller) => {
        for (let at = 0; at < rest.length; at += 100) {
          let piece = rest.slice(at, at + 100);
          if (object && piece.length > this.left) {
            piece = piece.slice(0, this.left);
            this.left = 0;
            if (piece.length) controller.enqueue(piece);
            this.sent += piece.length;
            return controller.close();
          }
          if (object) this.left -= piece.length;
          if (object) this.sent += piece.length;
          controller.enqueue(piece);
        }
        controller.close();
      },
    });
    const headers = { "Content-Range": `bytes ${from}-${data.length - 1}/${data.length}` };
    return range && this.ranges
      ? new Response(body, { status: 206, headers })
      : new Response(body, { status: 200 });
  };
}

let server: Server;
let storage: Storage;

beforeEach(() => {
  storage = new Storage().install();
  server = new Server();
  globalThis.fetch = server.fetch;
});

const open = (more: Partial<UpdatesOptions> = {}, host = "one") =>
  ModelUpdates.open(`https://${host}/models`, {
    name: "letters",
    root: repository.root,
    ...more,
  });

/** The installed files, one after the other. */
const installed = async (updates: ModelUpdates) => base64(new Blob(await updates.files()));
const objects = () => server.asked.filter((path) => path.includes("chunks/"));

test("versions are installed, and only what changed is fetched", async () => {
  server.state(0);
  const updates = await open();
  assert.equal(await updates.current(), undefined);
  assert.equal((await updates.update())!.version, 1);
  assert.equal(await installed(updates), repository.contents[0]);
  assert.deepEqual(
    (await updates.files()).map((f) => f.name),
    ["adapter_config.json", "adapter_model.safetensors"],
  );
  server.state(1);
  const { version, download } = (await updates.check())!;
  assert.equal(version, 2);
  const before = server.sent;
  let progress = { loaded: 0, total: 0 };
  const result = await updates.update({ onProgress: (p) => (progress = p) });
  assert.equal(result!.version, 2);
  assert.equal(await installed(updates), repository.contents[1]);
  assert.equal(progress.total, download);
  assert.ok(server.sent - before < 6500, "manifest and deltas, without the tensor that stays");
  assert.equal(await updates.check(), undefined);
  server.asked = [];
  await updates.update();
  assert.deepEqual(objects(), []);
});

test("devices outside of a rollout have the version before", async () => {
  server.state(0, 1, 2); // version 3 is for nobody
  const updates = await open();
  assert.equal((await updates.update())!.version, 2);
  assert.equal(await installed(updates), repository.contents[1]);
  assert.equal(await updates.check(), undefined);
});

test("a version can be reverted until it has been loaded", async () => {
  server.state(0);
  const updates = await open();
  await updates.update();
  server.state(1);
  await updates.update();
  assert.equal((await updates.revert())!.version, 1);
  assert.equal(await installed(updates), repository.contents[0]);
  assert.equal(await updates.check(), undefined, "it is not installed again");
  await assert.rejects(updates.revert(), /no version before is kept/);
  const cached = [...storage.files.keys()].filter((path) => path.includes("/files/"));
  for (const path of cached) storage.files.delete(path); // as clearCache does
  assert.equal((await (await open()).update())!.version, 2, "any version is better than none");
});

/** A pipeline of this page has a model open. Returns what closes it. */
function openModel(): () => void {
  let used = true;
  const request = async (name: string, ...rest: unknown[]) => {
    const work = rest.pop() as (lock: unknown) => unknown;
    const { ifAvailable } = (rest[0] ?? {}) as LockOptions;
    return await work(ifAvailable && used && name.startsWith("edgewise model") ? null : {});
  };
  Object.defineProperty(navigator, "locks", { value: { request }, configurable: true });
  return () => (used = false);
}

test("versions that a pipeline may have open are kept, however many follow", async () => {
  for (const revert of [false, true]) {
    storage = new Storage().install();
    const close = openModel();
    const versions = await Installed.open("https://one/letters.edge", "https://one/");
    for (const version of [1, 2, 3, 4]) {
      const text = encode(version);
      const about = { name: "letters", version, bytes: text.length, sha256: await digest(text) };
      await versions.install(about as ReleaseManifest, text, new Blob([text]));
    }
    if (revert) await versions.revert();
    const contents = () => [...storage.files.keys()].filter((path) => path.endsWith(".data"));
    await changingLinks(async () => removeUnused(await openFolder("files"))); // as other models do
    assert.equal(contents().length, 4);
    close();
    await versions.free();
    assert.equal(contents().length, revert ? 1 : 2);
  }
});

test("pipelines open the installed version; loading it frees the one before", async () => {
  Object.defineProperty(globalThis, "location", {
    configurable: true,
    value: new URL("https://one/page.html"),
  });
  server.state(0);
  const updates = await open();
  await updates.update();
  server.state(1);
  await updates.update();
  const contents = () => [...storage.files.keys()].filter((path) => path.endsWith(".data"));
  assert.equal(contents().length, 2);
  server.asked = [];
  const { signal } = new AbortController();
  const found = new Downloads(updates.model, { keep: "auto", signal, warn: () => undefined });
  await found.begin(() => []);
  const parts: Bytes[] = [];
  for await (const chunk of found.source(updates.model).stream()) parts.push(chunk.slice());
  assert.equal(await base64(new Blob(parts)), repository.contents[1]);
  assert.deepEqual(server.asked, []);
  await new Promise((resolve) => setTimeout(resolve, 2));
  await found.loaded("", false);
  await open();
  assert.equal(contents().length, 2, "the next visit can revert it");
  const release = openModel();
  await updates.check();
  assert.equal(contents().length, 2);
  release();
  await open(); // of the next visit
  assert.equal(contents().length, 1);
  assert.equal(await installed(updates), repository.contents[1]);
});

test("a chunk is fetched as a whole where its delta does not lead to it", async () => {
  server.state(0);
  const updates = await open();
  await updates.update();
  server.state(1);
  const { download } = (await updates.check())!;
  const { DecompressionStream: Stream } = globalThis;
  let asked = 0; // the first ones are deltas'
  class Wrong extends Stream {
    constructor() {
      if (++asked === 1) throw new Error("this browser cannot");
      super("deflate");
      const flipped = asked === 2 ? 1 : 0;
      const transform = (data: Bytes, to: TransformStreamDefaultController<Bytes>) =>
        to.enqueue(data.map((x) => x ^ flipped));
      const value = super.readable.pipeThrough(new TransformStream({ transform }));
      Object.defineProperty(this, "readable", { value });
    }
  }
  globalThis.DecompressionStream = Wrong;
  try {
    const before = server.sent;
    assert.equal((await updates.update())!.version, 2);
    assert.ok(asked > 2 && server.sent - before > download);
  } finally {
    globalThis.DecompressionStream = Stream;
  }
  assert.equal(await installed(updates), repository.contents[1]);
});

test("a package that was downloaded as a whole is the base of deltas", async () => {
  server.state(0).files.set("letters.edge", bytes(repository.contents[0]!));
  const updates = await open();
  const options = { keep: true, signal: new AbortController().signal, warn: () => undefined };
  const found = new Downloads(updates.model, options);
  await found.begin(() => []);
  for await (const _ of found.source(updates.model).stream());
  server.state(1);
  const before = server.sent;
  assert.equal((await updates.update())!.version, 2);
  assert.equal(await installed(updates), repository.contents[1]);
  assert.ok(server.sent - before < 10_000);
});

for (const ranges of [true, false])
  test(`interrupted at any byte it goes on (ranges: ${ranges})`, async () => {
    server.state(0);
    await (await open()).update();
    server.state(1);
    server.ranges = ranges;
    let failures = 0;
    for (let left = 0; ; left += ranges ? 397 : 641) {
      server.left = left;
      const updates = await open();
      const found = await updates.update().catch((e: unknown) => {
        assert.ok(e instanceof ReleaseError && e.code === "download", String(e));
      });
      if (found) break;
      failures++;
      server.left = 0;
      assert.equal(await installed(updates), repository.contents[0]);
    }
    assert.ok(failures > 5);
    assert.equal(await installed(await open()), repository.contents[1]);
  });

for (const inPlace of [false, true])
  test(`a tab may end at any write (in place: ${inPlace})`, async () => {
    storage = new Storage(inPlace).install();
    server.state(0);
    await (await open()).update();
    server.state(1);
    const first = new Map(storage.files);
    for (let left = inPlace ? 1 : 0; ; left += 2) {
      storage.files.clear();
      for (const [path, data] of first) storage.files.set(path, data);
      storage.left = left;
      const done = await open()
        .then((updates) => updates.update())
        .then(
          () => true,
          () => false,
        );
      storage.left = Infinity;
      const updates = await open();
      const { version } = (await updates.current()) ?? { version: 0 };
      assert.equal(await installed(updates), repository.contents[version - 1]);
      assert.equal((await updates.update())!.version, 2);
      assert.equal(await installed(updates), repository.contents[1]);
      if (done) break;
      assert.ok(left < 500);
    }
  });

test("another origin is asked where one is down or sends other bytes", async () => {
  for (const host of ["down", "evil", "long", "page"]) {
    storage = new Storage().install();
    server.files.clear();
    const updates = await open({ origins: ["https://two/models/"] }, host);
    server.state(0);
    assert.equal((await updates.update())!.version, 1);
    assert.equal(await installed(updates), repository.contents[0]);
    server.state(1);
    assert.equal((await updates.update())!.version, 2);
    assert.equal(await installed(updates), repository.contents[1]);
  }
  for (const host of ["evil", "long"]) {
    storage.files.clear();
    const updates = await open({}, host);
    await assert.rejects(updates.update(), (e: ReleaseError) => e.code === "mismatch");
  }
});

test("targets of delegated roles are refused in words", async () => {
  const cases = vectors("releases/metadata") as unknown as {
    name: string;
    root: string;
    steps: { files: Record<string, string> }[];
  }[];
  const { root, steps } = cases.find(({ name }) => name === "targets are delegated")!;
  for (const [name, text] of Object.entries(steps[0]!.files))
    server.files.set(`metadata/${name}`, new TextEncoder().encode(text));
  await assert.rejects((await open({ root })).check(), (e: ReleaseError) => {
    return e.code === "unsupported" && /delegated roles are not followed/.test(e.message);
  });
});

test("what no version needs is removed, unless another tab installs", async () => {
  server.state(0);
  const updates = await open();
  const stored = (pattern: RegExp) => [...storage.files.keys()].filter((p) => pattern.test(p));
  const manifests = () => stored(/\/releases\/[0-9a-f]{64}\.json$/).length;
  await updates.update();
  storage.files.set("edgewise/releases/".concat("ab".repeat(32), ".json"), bytes("e30="));
  server.state(1);
  server.left = 4200;
  await assert.rejects(updates.update(), { code: "download" });
  const arrived = stored(/\.(chunk|part)$/);
  assert.ok(arrived.length > 0);
  server.left = Infinity;
  await updates.check();
  assert.equal(manifests(), 1);
  assert.deepEqual(stored(/\.(chunk|part)$/), arrived, "the update goes on with them");
  server.state(2); // takes version 2 back, for devices outside of a rollout
  const stray = arrived[0]!.replace(/-[0-9a-f]{64}/, `-${"cd".repeat(32)}`);
  storage.files.set(stray, bytes("eA=="));
  let others = 1;
  const request = async (_: string, options: LockOptions, work: (lock: unknown) => unknown) => {
    return await work(options.ifAvailable && others ? null : {});
  };
  Object.defineProperty(navigator, "locks", { value: { request }, configurable: true });
  await updates.check();
  assert.ok(storage.files.has(stray));
  others = 0;
  await updates.check();
  assert.ok(!storage.files.has(stray));
  await updates.update();
  assert.deepEqual([stored(/\.(chunk|part)$/), manifests()], [[], 2]);
});

test("an installation leaves the chunks of others", async () => {
  server.state(0);
  const other = await open({ model: "https://one/other.edge" });
  server.left = 5000;
  await assert.rejects(other.update(), { code: "download" });
  const chunks = [...storage.files.keys()].filter((path) => /\.(chunk|part)$/.test(path));
  assert.ok(chunks.length > 0);
  server.left = Infinity;
  await (await open()).update();
  for (const path of chunks) assert.ok(storage.files.has(path));
  await other.update();
  assert.equal(await installed(other), repository.contents[0]);
  assert.ok(![...storage.files.keys()].some((path) => /\.(chunk|part)$/.test(path)));
});

test("a damaged base is replaced", async () => {
  server.state(0);
  await (await open()).update();
  const path = [...storage.files.keys()].find((p) => p.endsWith(".data"))!;
  storage.files.set(
    path,
    storage.files.get(path)!.map((x, i) => (i % 50 ? x : x ^ 1)),
  );
  server.state(1);
  const updates = await open();
  assert.equal((await updates.update())!.version, 2);
  assert.equal(await installed(updates), repository.contents[1]);
});

test("what cannot be opened is refused in words", async () => {
  await assert.rejects(open({ name: "../x" }), /cannot be the name of a release/);
  await assert.rejects(open({ root: "" }), /there is no root/);
  await assert.rejects(open({ model: "https://" }), /is no address/);
  await assert.rejects(open({ model: "https://hub/a/b/resolve/main/x.edge" }), /none of a hub/);
  const updates = await open();
  await assert.rejects(updates.files(), /nothing is installed/);
  await assert.rejects(updates.check(), (e: ReleaseError) => e.code === "missing");
  server.state(0);
  await assert.rejects((await open({ name: "other" })).check(), /there is no release 'other'/);
  const stopped = AbortSignal.abort();
  await assert.rejects(updates.update({ signal: stopped }), { name: "Aborted" });
});
