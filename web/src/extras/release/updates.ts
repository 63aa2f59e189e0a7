// ModelUpdates: finds, installs and reverts versions of a model that a repository has signed.

import { throwIfAborted } from "../../shared/abort.ts";
import { InputError } from "../../shared/errors.ts";
import { storageError } from "../../shared/files/cached.ts";
import { ReleaseError } from "./errors.ts";
import { inflate } from "./inflate.ts";
import { digestOf, Installed, type StoredVersion } from "./installed.ts";
import { digest, fromHex } from "./keys.ts";
import {
  type Chunk,
  checkName,
  MAX_BYTES,
  objectPath,
  parseManifest,
  type ReleaseManifest,
} from "./manifest.ts";
import { Origins } from "./origins.ts";
import { Refresh } from "./tuf.ts";

type Bytes = Uint8Array<ArrayBuffer>;
const PARALLEL = 4;

/** Options of {@link ModelUpdates.open}. */
export interface UpdatesOptions {
  /** Name of the release. */
  name: string;
  /**
   * The repository's `metadata/1.root.json`, or a later root, which the app brings: its text or its
   * value. Whom it names, this page trusts.
   */
  root: string | object;
  /**
   * Address under which pipelines open the model, such as `pipeline("text-generation",
   * updates.model)`. Default: NAME.edge beside the repository's folders; nothing needs to be there.
   */
  model?: string | URL;
  /** More addresses of the same repository, which are asked if the first one fails. */
  origins?: readonly (string | URL)[];
  /** Options of all requests, such as headers. */
  fetch_options?: RequestInit;
}

/** Options of {@link ModelUpdates.check} and {@link ModelUpdates.update}. */
export interface UpdateOptions {
  signal?: AbortSignal;
  /** Called with the bytes that have arrived, and those that will arrive in all. */
  onProgress?: (progress: { loaded: number; total: number }) => void;
}

/** A version of a release. */
export interface ReleaseVersion {
  version: number;
  kind: "package" | "adapter" | "model";
  /** Bytes of its content. */
  bytes: number;
}

/** A version that can be installed. */
export interface AvailableVersion extends ReleaseVersion {
  /** Bytes that will be downloaded. */
  download: number;
}

/** Where the bytes of a chunk come from. */
interface Plan {
  chunk: Chunk;
  /** Stored bytes of the same chunk. */
  have: Blob | undefined;
  /** Stored bytes that a delta changes. */
  base: Blob | undefined;
  /** What is downloaded; undefined if nothing is. */
  from: Chunk["deltas"][number] | Chunk["file"] | undefined;
}

interface Found {
  manifest: ReleaseManifest;
  /** The JSON that the repository has signed, or whose digest such a JSON has. */
  text: Bytes;
}

/** The versions of one model that a repository has signed. */
export class ModelUpdates {
  private readonly origins: readonly string[];

  private constructor(
    /** Address under which pipelines open the installed version. */
    readonly model: string,
    private readonly installed: Installed,
    private readonly root: Bytes,
    private readonly options: UpdatesOptions,
    addresses: string[],
  ) {
    this.origins = addresses;
  }

  /**
   * Opens what is installed of a release. Asks no server.
   * @param repository address of the repository's folder
   * @throws InputError, StorageError
   */
  static async open(repository: string | URL, options: UpdatesOptions): Promise<ModelUpdates> {
    checkName(options.name);
    const addresses = [repository, ...(options.origins ?? [])].map((one) => {
      const full = absolute(one);
      return full.endsWith("/") ? full : `${full}/`;
    });
    if (!options.root)
      throw new InputError(
        "there is no root",
        "options.root",
        "Give the repository's 1.root.json.",
      );
    const text = typeof options.root === "string" ? options.root : JSON.stringify(options.root);
    const model = absolute(options.model ?? `${addresses[0]}${options.name}.edge`);
    if (/\/resolve\/[^/]+\//.test(model) || /\.onnx$/.test(new URL(model).pathname))
      throw new InputError(
        "releases are installed under the address of a package",
        "options.model",
        "Give an address that ends in .edge and is none of a hub.",
      );
    const installed = await Installed.open(model, addresses[0]!);
    await installed.repair();
    // here, since later calls mostly find that a pipeline of this page has the model open
    await installed.whenFree(() => installed.free());
    const root = new TextEncoder().encode(text);
    return new ModelUpdates(model, installed, root, options, addresses);
  }

  private from(signal: AbortSignal | undefined): Origins {
    const { fetch_options: fetchOptions } = this.options;
    const fetcher: typeof fetch = (...args) => globalThis.fetch(...args);
    return new Origins(this.origins, this.installed.files, {
      fetch: fetcher,
      prefix: this.installed.chunks,
      fetchOptions,
      signal,
    });
  }

  /** What is installed; undefined if nothing is. */
  async current(): Promise<ReleaseVersion | undefined> {
    const manifest = await this.manifestOf(await this.installed.current());
    return manifest && described(manifest);
  }

  /**
   * The installed files: a package, those of a model's folder for `pipeline`, with names such as
   * `onnx/model.onnx`, or an adapter's for `loadAdapter`.
   * @throws ReleaseError if nothing is installed
   */
  async files(): Promise<File[]> {
    const found = await this.installed.current();
    const manifest = await this.manifestOf(found);
    if (!found || !manifest)
      throw new ReleaseError("missing", "nothing is installed", this.model, "Call update().");
    let at = 0;
    return manifest.files.map(({ name, bytes }) => {
      at += bytes;
      return new File([found.content.slice(at - bytes, at)], name);
    });
  }

  private manifestOf(found: StoredVersion | undefined): Promise<ReleaseManifest | undefined> {
    const { name, manifest } = found?.release ?? {};
    return manifest && name === this.options.name
      ? this.installed.manifest(manifest)
      : Promise.resolve(undefined);
  }

  /**
   * Asks the repository whether there is a version for this device.
   * @returns undefined if what is installed is the latest, or if none is for this device yet
   * @throws ReleaseError if what the repository says cannot be trusted, or it does not answer; what
   *   is installed stays
   * @throws Aborted
   */
  async check({ signal }: UpdateOptions = {}): Promise<AvailableVersion | undefined> {
    const origins = this.from(signal);
    const found = await this.wanted(origins);
    const plans = found ? await this.plan(found.manifest, origins) : [];
    await this.installed.whenFree(() => this.installed.clean(needed(plans)));
    return found && { ...described(found.manifest), download: bytesOf(plans) };
  }

  /**
   * Installs the latest version for this device beside the installed one, and switches to it at
   * once. If it is interrupted, the next call goes on. Pipelines that are open keep the version
   * that they have.
   * @returns what is installed
   * @throws ReleaseError, StorageError, Aborted: the installed content stays
   */
  update(options: UpdateOptions = {}): Promise<ReleaseVersion | undefined> {
    const { signal, onProgress } = options;
    return this.installed.exclusive(signal, async () => {
      const origins = this.from(signal);
      const found = await this.wanted(origins);
      const plans = found ? await this.plan(found.manifest, origins) : [];
      await this.installed.clean(needed(plans));
      if (!found) return this.current();
      const content = await this.fetchAll(plans, origins, onProgress);
      throwIfAborted(signal);
      await this.installed.install(found.manifest, found.text, content);
      await this.installed.removeChunks();
      return described(found.manifest);
    });
  }

  /**
   * Goes back to the version before, until a later one than the current one is published. It is
   * kept until the current one has been loaded, and a `check` or `update` follows.
   * @throws StorageError if it is not kept
   */
  async revert(): Promise<ReleaseVersion | undefined> {
    return this.installed.exclusive(undefined, async () => {
      const current = await this.manifestOf(await this.installed.current());
      const before = await this.installed.previous();
      if (current && before) await this.installed.refuse(this.options.name, current.version);
      await this.installed.revert();
      const manifest = await this.manifestOf(before);
      return manifest && described(manifest);
    });
  }

  /** The manifest that the repository has signed, from the first origin that has a valid one. */
  private async latest(origins: Origins): Promise<Found> {
    const [{ name }, { signal }] = [this.options, origins];
    let problem: unknown;
    for (const origin of origins.addresses) {
      try {
        const fetch = (path: string, most: number) => origins.metadata(origin, path, most);
        const refresh = new Refresh(fetch, this.installed.trusted, Date.now(), origin);
        const run = () => refresh.run(this.root);
        const { files, signed } = await this.installed.trusting(signal, run);
        const info = files.get(`${name}.json`);
        if (!info?.sha256 || !info.length) throw noRelease(name, origin, !!signed.delegations);
        return await this.named(origins, { sha256: info.sha256, bytes: info.length });
      } catch (e) {
        problem ??= e;
        if (!(e instanceof ReleaseError)) throw e;
      }
    }
    throw problem;
  }

  private async named(origins: Origins, stored: { sha256: string; bytes: number }): Promise<Found> {
    const { name } = this.options;
    if (stored.bytes > MAX_BYTES)
      throw new ReleaseError("format", `its manifest has ${stored.bytes} bytes`, name);
    const text = await origins.object(stored, `targets/${stored.sha256}.${name}.json`);
    const manifest = parseManifest(text, `the manifest of ${name}`);
    if (manifest.name !== name)
      throw new ReleaseError("mismatch", `it is the manifest of '${manifest.name}'`, name);
    return { manifest, text };
  }

  /** The version to install. */
  private async wanted(origins: Origins): Promise<Found | undefined> {
    let found = await this.latest(origins);
    if (!(await selected(await this.installed.device(), found.manifest))) {
      const { earlier, fallback } = found.manifest;
      const before = earlier.find((e) => e.version === fallback);
      if (!before) return undefined;
      found = await this.named(origins, before.manifest);
    }
    const { name, version } = found.manifest;
    const have = await this.installed.current();
    const known = have?.release?.name === name ? have.release.version : 0;
    const refused = have ? await this.installed.refused(name) : 0; // any is better than none
    return version <= Math.max(known, refused) ? undefined : found;
  }

  /** Where the chunks come from, given what is stored. */
  private async plan(manifest: ReleaseManifest, origins: Origins): Promise<Plan[]> {
    const have = await this.installed.current();
    const base = have && (await this.baseOf(have, manifest, origins));
    const stored = new Map<string, Blob>();
    if (have && base?.bytes === have.content.size) {
      let at = 0;
      for (const { sha256, bytes } of base.chunks) {
        stored.set(sha256, have.content.slice(at, at + bytes));
        at += bytes;
      }
    }
    const arrived = new Set((await this.installed.files.list()).map(({ name }) => name));
    return Promise.all(
      manifest.chunks.map(async (chunk): Promise<Plan> => {
        const file = `${this.installed.chunks}${chunk.sha256}.chunk`;
        const whole = arrived.has(file) ? await this.installed.files.read(file) : undefined;
        const same = stored.get(chunk.sha256) ?? whole;
        if (same) return { chunk, have: same, base: undefined, from: undefined };
        const delta = chunk.deltas
          .filter(({ from }) => stored.get(from)?.size === chunk.bytes)
          .sort((a, b) => a.bytes - b.bytes)[0];
        return {
          chunk,
          have: undefined,
          base: delta && stored.get(delta.from),
          from: delta ?? chunk.file,
        };
      }),
    );
  }

  /** The manifest of what is stored, also of a package that was downloaded as a whole. */
  private async baseOf(
    { release, content }: StoredVersion,
    { earlier }: ReleaseManifest,
    origins: Origins,
  ): Promise<ReleaseManifest | undefined> {
    if (release?.name === this.options.name) return this.installed.manifest(release.manifest);
    if (release || !earlier.length) return undefined;
    const sha256 = await digestOf(content);
    const known = earlier.find((e) => e.sha256 === sha256);
    return known && (await this.named(origins, known.manifest)).manifest;
  }

  /** Fetches what is missing, and keeps each chunk as it arrives. */
  private async fetchAll(
    plans: readonly Plan[],
    origins: Origins,
    onProgress: UpdateOptions["onProgress"],
  ): Promise<Blob> {
    const [total, before] = [bytesOf(plans), origins.received];
    const parts = new Map<string, Blob>();
    const queue = [...new Map(plans.map((plan) => [plan.chunk.sha256, plan])).values()];
    let failed = false;
    const work = async (): Promise<void> => {
      for (let plan = queue.shift(); plan && !failed; plan = queue.shift()) {
        try {
          parts.set(plan.chunk.sha256, await this.chunk(plan, origins));
        } catch (e) {
          failed = true;
          throw e;
        }
        onProgress?.({ loaded: Math.min(total, origins.received - before), total });
      }
    };
    const results = await Promise.allSettled(Array.from({ length: PARALLEL }, work));
    for (const result of results) if (result.status === "rejected") throw result.reason;
    return new Blob(plans.map(({ chunk }) => parts.get(chunk.sha256)!));
  }

  /** One chunk, stored. What is stored and damaged is replaced. */
  private async chunk({ chunk, have, base, from }: Plan, origins: Origins): Promise<Blob> {
    let data: Bytes | undefined;
    const right = async () => data && (await digest(data)) === chunk.sha256;
    if (have && (await digest(await bytesIn(have))) === chunk.sha256) return have;
    if (from && "from" in from && base) {
      const old = await bytesIn(base);
      if ((await digest(old)) === from.from) {
        const delta = await origins.object(from, objectPath(from));
        const { decode } = await import("./codec.ts");
        // one that does not lead to the chunk must not keep this page from updates
        data = await decode(from.codec, old, delta, objectPath(from)).catch(() => undefined);
      }
    }
    const { file } = chunk;
    if (!(await right())) {
      const whole = await origins.object(file, objectPath(file));
      const packed = file.sha256 !== chunk.sha256;
      data = packed ? await inflate(whole, chunk.bytes, objectPath(file)) : whole;
      if (!(await right()))
        throw new ReleaseError("mismatch", "a chunk does not match its SHA-256", this.options.name);
    }
    const name = `${this.installed.chunks}${chunk.sha256}.chunk`;
    try {
      await this.installed.files.write(name, new Blob([data!]));
      return await this.installed.files.read(name);
    } catch (e) {
      throw storageError(e, this.model, chunk.bytes, "The version that was installed stays.");
    }
  }
}

/** An address as a whole. @throws InputError if it is none */
function absolute(url: string | URL): string {
  try {
    return new URL(url, globalThis.location?.href).href;
  } catch {
    throw new InputError(`'${String(url).slice(0, 200)}' is no address`, "ModelUpdates.open");
  }
}

/** The bytes of a stored file; none if it has gone. */
async function bytesIn(file: Blob): Promise<Bytes> {
  return new Uint8Array(await file.arrayBuffer().catch(() => new ArrayBuffer(0)));
}

function described({ version, kind, bytes }: ReleaseManifest): ReleaseVersion {
  return { version, kind, bytes };
}

function noRelease(name: string, where: string, delegated: boolean): ReleaseError {
  if (!delegated) return new ReleaseError("missing", `there is no release '${name}'`, where);
  const what = `'${name}' is no top-level target, and delegated roles are not followed`;
  return new ReleaseError("unsupported", what, where, "Sign it with the keys of targets itself.");
}

/** Digests of the objects that plans ask for. */
function needed(plans: readonly Plan[]): Set<string> {
  return new Set(
    plans.flatMap(({ chunk: c, from }) => [c.sha256, c.file.sha256, from?.sha256 ?? ""]),
  );
}

/** Bytes to download; equal chunks are downloaded once. */
function bytesOf(plans: readonly Plan[]): number {
  const sizes = new Map(plans.map(({ chunk, from }) => [chunk.sha256, from?.bytes ?? 0]));
  return [...sizes.values()].reduce((n, bytes) => n + bytes, 0);
}

/** As `selected` of python/edgewise/extras/release/manifest.py. */
export async function selected(
  device: string,
  { name, version, fraction }: Pick<ReleaseManifest, "name" | "version" | "fraction">,
): Promise<boolean> {
  const hash = fromHex(await digest(new TextEncoder().encode(`${device}/${name}/${version}`)))!;
  return new DataView(hash.buffer).getUint32(0) < Math.floor(fraction * 2 ** 32);
}
