// The manifest of a release: python/edgewise/extras/release/manifest.py describes it, and checks
// the same.

import { ReleaseError } from "./errors.ts";

export const FORMAT = "edgewise.release.1";
const KINDS = ["package", "adapter", "model"];
/** Most bytes of a chunk. */
export const CHUNK = 1 << 20;
const CODECS = ["float32", "float16", "int8", "int4", "float32-q4"] as const;
export type DeltaCodec = (typeof CODECS)[number];
const MAX_CHUNKS = 1 << 16;
const WHOLE = MAX_CHUNKS * CHUNK;
const MAX = 16; // files, earlier versions, deltas of a chunk
/** Most bytes of a manifest. */
export const MAX_BYTES = 1 << 24;
const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/;
const FILE = /^([A-Za-z0-9][A-Za-z0-9._-]{0,99}\/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;
const DIGEST = /^[0-9a-f]{64}$/;

/** An object of a repository. */
export interface StoredObject {
  bytes: number;
  sha256: string;
}
/** A delta from the chunk with the digest `from`. */
export interface Delta extends StoredObject {
  from: string;
  codec: DeltaCodec;
}
/** A part of the content. */
export interface Chunk extends StoredObject {
  file: StoredObject;
  deltas: Delta[];
}
/** An earlier version; `sha256` is that of its content. */
export interface Earlier {
  version: number;
  sha256: string;
  manifest: StoredObject;
}
/** A release. */
export interface ReleaseManifest {
  name: string;
  version: number;
  kind: "package" | "adapter" | "model";
  fraction: number;
  bytes: number;
  sha256: string;
  files: { name: string; bytes: number }[];
  chunks: Chunk[];
  earlier: Earlier[];
  fallback: number;
}

type Fields = Record<string, unknown>;

/** Path of an object in a repository. */
export const objectPath = ({ sha256 }: StoredObject): string =>
  `chunks/${sha256.slice(0, 2)}/${sha256.slice(2)}`;

/**
 * Checks the name of a release.
 * @throws ReleaseError
 */
export function checkName(name: string): string {
  if (typeof name === "string" && NAME.test(name)) return name;
  throw new ReleaseError(
    "format",
    `'${String(name).slice(0, 100)}' cannot be the name of a release`,
    "",
    "Use lower case letters, digits, '-', '_' and '.'.",
  );
}

/** Checks of JSON values. Each throws a ReleaseError with the path of what is wrong. */
class Reader {
  constructor(private readonly where: string) {}

  fail(path: string, what: string): never {
    const remedy = "The release is damaged or of a newer version.";
    throw new ReleaseError("format", `${path} ${what}`, this.where, remedy);
  }
  object(value: unknown, path: string): Fields {
    if (typeof value === "object" && value !== null && !Array.isArray(value))
      return value as Fields;
    return this.fail(path, "is not an object");
  }
  list<T>(value: unknown, path: string, most: number, read: (v: unknown, at: string) => T): T[] {
    if (!Array.isArray(value) || value.length > most)
      return this.fail(path, `is not a list of at most ${most}`);
    return value.map((v, i) => read(v, `${path}[${i}]`));
  }
  integer(value: unknown, path: string, least: number, most: number): number {
    if (Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most)
      return value as number;
    return this.fail(path, `is not an integer from ${least} to ${most}`);
  }
  version(value: unknown, path: string, least = 1): number {
    return this.integer(value, path, least, Number.MAX_SAFE_INTEGER);
  }
  match(value: unknown, path: string, pattern: RegExp): string {
    if (typeof value === "string" && pattern.test(value)) return value;
    return this.fail(path, pattern === DIGEST ? "is not a SHA-256" : "is not a name");
  }
  stored(value: unknown, path: string, most: number): StoredObject {
    const fields = this.object(value, path);
    const bytes = this.integer(fields.bytes, `${path}.bytes`, 1, most);
    return { bytes, sha256: this.match(fields.sha256, `${path}.sha256`, DIGEST) };
  }
  chunk(value: unknown, path: string): Chunk {
    const fields = this.object(value, path);
    const bytes = this.integer(fields.bytes, `${path}.bytes`, 1, CHUNK);
    const most = 2 * bytes + 1024; // deflated noise is a little longer than noise
    const sha256 = this.match(fields.sha256, `${path}.sha256`, DIGEST);
    const file = this.stored(fields.file, `${path}.file`, most);
    if (file.sha256 === sha256 && file.bytes !== bytes)
      this.fail(`${path}.file`, "has another length than the chunk that it is");
    const delta = (value: unknown, at: string): Delta => {
      const { from, codec } = this.object(value, at);
      if (!CODECS.includes(codec as DeltaCodec))
        this.fail(`${at}.codec`, `is not one of ${CODECS.join(", ")}`);
      const base = this.match(from, `${at}.from`, DIGEST);
      return { ...this.stored(value, at, most), from: base, codec: codec as DeltaCodec };
    };
    return {
      bytes,
      sha256,
      file,
      deltas: this.list(
        fields.deltas === undefined ? [] : fields.deltas,
        `${path}.deltas`,
        MAX,
        delta,
      ),
    };
  }
  file(value: unknown, path: string): { name: string; bytes: number } {
    const { name, bytes } = this.object(value, path);
    return {
      name: this.match(name, `${path}.name`, FILE),
      bytes: this.integer(bytes, `${path}.bytes`, 1, WHOLE),
    };
  }
  earlier(value: unknown, path: string): Earlier {
    const fields = this.object(value, path);
    return {
      version: this.version(fields.version, `${path}.version`),
      sha256: this.match(fields.sha256, `${path}.sha256`, DIGEST),
      manifest: this.stored(fields.manifest, `${path}.manifest`, MAX_BYTES),
    };
  }
}

function parseJson(data: Uint8Array, r: Reader): Fields {
  if (data.length > MAX_BYTES) r.fail("it", `has ${data.length} bytes`);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data);
    return r.object(JSON.parse(text), "it");
  } catch (e) {
    if (e instanceof ReleaseError) throw e;
    return r.fail("it", "is not JSON");
  }
}

/**
 * Checks and reads a manifest.
 * @throws ReleaseError with the path of what is wrong
 */
export function parseManifest(data: Uint8Array, where: string): ReleaseManifest {
  const r = new Reader(where);
  const root = parseJson(data, r);
  if (root.format !== FORMAT) r.fail("format", `is not ${FORMAT}`);
  if (!KINDS.includes(root.kind as string)) r.fail("kind", `is not one of ${KINDS.join(", ")}`);
  const { fraction } = root;
  if (!(typeof fraction === "number" && fraction >= 0 && fraction <= 1))
    return r.fail("fraction", "is not a number from 0 to 1");
  const manifest: ReleaseManifest = {
    name: r.match(root.name, "name", NAME),
    version: r.version(root.version, "version"),
    kind: root.kind as ReleaseManifest["kind"],
    fraction,
    bytes: r.integer(root.bytes, "bytes", 1, WHOLE),
    sha256: r.match(root.sha256, "sha256", DIGEST),
    files: r.list(root.files, "files", MAX, (v, at) => r.file(v, at)),
    chunks: r.list(root.chunks, "chunks", MAX_CHUNKS, (v, at) => r.chunk(v, at)),
    earlier: r.list(root.earlier, "earlier", MAX, (v, at) => r.earlier(v, at)),
    fallback: r.version(root.fallback, "fallback", 0),
  };
  checkWhole(manifest, (path, what) => r.fail(path, what));
  return manifest;
}

/** What the parts of a manifest must be together. */
function checkWhole(
  { version, bytes, files, chunks, earlier, fallback }: ReleaseManifest,
  fail: (path: string, what: string) => never,
): void {
  for (const [what, parts] of Object.entries({ files, chunks })) {
    const sum = parts.reduce((n, part) => n + part.bytes, 0);
    if (sum !== bytes) fail(what, `have ${sum} bytes, the content ${bytes}`);
  }
  if (new Set(files.map((f) => f.name)).size < files.length) fail("files", "have a name twice");
  const versions = new Set(earlier.map((e) => e.version));
  if (versions.size < earlier.length || [...versions].some((v) => v >= version))
    fail("earlier", "has versions that are not earlier, or one twice");
  if (fallback && !versions.has(fallback)) fail("fallback", "is not one of the earlier versions");
}
