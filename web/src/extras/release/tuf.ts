// The client of The Update Framework: which targets are the latest that a repository has signed.
// The order of the checks is that of python-tuf's ngclient, whose vectors the tests share.

import { ReleaseError } from "./errors.ts";
import { digest } from "./keys.ts";
import { checkFile, checkSigned, type Metadata, parse, type Role } from "./metadata.ts";

type Bytes = Uint8Array<ArrayBuffer>;

/** What a client keeps: the last metadata of each role that was valid. */
export interface TrustedFiles {
  read(name: string): Promise<Bytes | undefined>;
  write(name: string, data: Bytes): Promise<void>;
}

/**
 * Fetches a file of the repository.
 * @returns undefined if it does not exist
 * @throws ReleaseError (download), also if it is longer than `most` bytes
 */
export type FetchFile = (path: string, most: number) => Promise<Bytes | undefined>;

const MAX_ROOTS = 256;
const MAX: Record<Role, number> = {
  root: 512_000,
  timestamp: 16_384,
  snapshot: 2_000_000,
  targets: 5_000_000,
};

/** A refresh of the trusted metadata. */
export class Refresh {
  private root!: Metadata;

  /**
   * @param fetch reads `metadata/...` of the repository
   * @param files what is trusted since the last time
   * @param now milliseconds since 1970
   * @param where the repository, for errors
   */
  constructor(
    private readonly fetch: FetchFile,
    private readonly files: TrustedFiles,
    private readonly now: number,
    private readonly where: string,
  ) {}

  /**
   * Brings what is trusted up to date. What is valid on the way stays trusted even if a later check
   * fails, so that nobody can go back behind it.
   * @param initial a root.json that the app brings
   * @returns targets, whose files are the releases; delegated roles are not followed
   * @throws ReleaseError
   */
  async run(initial: Bytes): Promise<Metadata> {
    await this.updateRoot(initial);
    const timestamp = await this.updateTimestamp();
    const snapshot = await this.updateSnapshot(timestamp);
    return this.updateTargets(snapshot);
  }

  private name(role: Role): string {
    return `${role}.json of ${this.where}`;
  }

  private fail(code: "version" | "expired" | "missing", role: Role, what: string) {
    const remedy =
      code === "version"
        ? "Somebody serves an old state of the repository."
        : code === "expired"
          ? "Nothing newer is served: the repository is not kept up to date, or somebody holds it" +
            " back. Is this device's clock right?"
          : "";
    return new ReleaseError(code, what, this.name(role), remedy);
  }

  private checkFresh(metadata: Metadata): void {
    if (metadata.expires <= this.now)
      throw this.fail(
        "expired",
        metadata.role,
        `it has expired on ${new Date(metadata.expires).toISOString().slice(0, 10)}`,
      );
  }

  /** Reads what is stored, if it is still valid for the current root. */
  private async trusted(role: Role): Promise<Metadata | undefined> {
    const data = await this.files.read(`${role}.json`);
    if (!data) return undefined;
    try {
      const metadata = parse(data, role, this.name(role));
      await checkSigned(this.root, metadata, this.name(role));
      return metadata;
    } catch (e) {
      if (e instanceof ReleaseError && e.code !== "unsupported") return undefined;
      throw e;
    }
  }

  private async selfSigned(data: Bytes): Promise<Metadata> {
    const metadata = parse(data, "root", this.name("root"));
    await checkSigned(metadata, metadata, this.name("root"));
    return metadata;
  }

  private async load(role: Role, data: Bytes): Promise<Metadata> {
    const metadata = parse(data, role, this.name(role));
    await checkSigned(this.root, metadata, this.name(role));
    return metadata;
  }

  private async get(role: Role, file: string, most = MAX[role]): Promise<Bytes> {
    if (most > MAX[role])
      throw new ReleaseError("format", `it would have ${most} bytes`, this.name(role));
    const data = await this.fetch(`metadata/${file}`, most);
    if (data) return data;
    throw this.fail("missing", role, `the repository has no ${file}`);
  }

  private async updateRoot(initial: Bytes): Promise<void> {
    // what was trusted since leads on from this root; one of those on the way must not lead back to
    // keys that were replaced; an unknown one begins anew
    const given = await this.selfSigned(initial);
    const first = await digest(given.payload);
    const known = await this.files.read("roots");
    const seen = known ? new TextDecoder().decode(known).split("\n") : [];
    const stored = seen.includes(first) ? await this.files.read("root.json") : undefined;
    const trusted = stored && (await this.selfSigned(stored).catch(() => undefined));
    this.root = trusted ?? given;
    if (!trusted) {
      await this.files.write("root.json", initial);
      seen.splice(0, seen.length, first);
      await this.files.write("roots", new TextEncoder().encode(first));
    }
    for (let n = 0; n < MAX_ROOTS; n++) {
      const version = this.root.version + 1;
      const data = await this.fetch(`metadata/${version}.root.json`, MAX.root);
      if (!data) break;
      const next = await this.load("root", data);
      if (next.version !== version)
        throw this.fail("version", "root", `it is version ${next.version}, not ${version}`);
      await checkSigned(next, next, this.name("root"));
      this.root = next;
      await this.files.write("root.json", data);
      seen.push(await digest(next.payload));
      await this.files.write("roots", new TextEncoder().encode(seen.join("\n")));
    }
    this.checkFresh(this.root);
  }

  private async updateTimestamp(): Promise<Metadata> {
    const old = await this.trusted("timestamp");
    const data = await this.get("timestamp", "timestamp.json");
    let found = await this.load("timestamp", data);
    if (old) {
      const [before, after] = [old, found].map((t) => t.files.get("snapshot.json")!.version);
      if (found.version < old.version)
        throw this.fail("version", "timestamp", `version ${found.version} < ${old.version}`);
      if (after! < before!)
        throw this.fail("version", "timestamp", `its snapshot is ${after}, it was ${before}`);
      if (found.version === old.version) found = old;
    }
    if (found !== old) await this.files.write("timestamp.json", data);
    this.checkFresh(found);
    return found;
  }

  private numbered(role: Role, version: number): string {
    return this.root.signed.consistent_snapshot ? `${version}.${role}.json` : `${role}.json`;
  }

  private async updateSnapshot(timestamp: Metadata): Promise<Metadata> {
    const info = timestamp.files.get("snapshot.json")!;
    const old = await this.trusted("snapshot");
    if (old && old.version === info.version && old.expires > this.now) return old;
    const file = this.numbered("snapshot", info.version);
    const data = await this.get("snapshot", file, info.length);
    await checkFile(data, info, this.name("snapshot"));
    const found = await this.load("snapshot", data);
    for (const [name, { version }] of old?.files ?? []) {
      const now = found.files.get(name)?.version ?? 0;
      if (now < version)
        throw this.fail("version", "snapshot", `${name.slice(0, 100)} is ${now} < ${version}`);
    }
    if (found.version !== info.version)
      throw this.fail("version", "snapshot", `it is ${found.version}, not ${info.version}`);
    await this.files.write("snapshot.json", data);
    this.checkFresh(found);
    return found;
  }

  private async updateTargets(snapshot: Metadata): Promise<Metadata> {
    const info = snapshot.files.get("targets.json")!;
    const stored = await this.files.read("targets.json");
    if (stored) {
      const old = await this.trusted("targets");
      const same = await checkFile(stored, info, "").then(
        () => true,
        () => false,
      );
      if (old && same && old.version === info.version && old.expires > this.now) return old;
    }
    const file = this.numbered("targets", info.version);
    const data = await this.get("targets", file, info.length);
    await checkFile(data, info, this.name("targets"));
    const found = await this.load("targets", data);
    if (found.version !== info.version)
      throw this.fail("version", "targets", `it is ${found.version}, not ${info.version}`);
    this.checkFresh(found);
    await this.files.write("targets.json", data);
    return found;
  }
}
