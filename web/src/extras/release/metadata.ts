// One file of TUF's metadata: its fields, and who has signed it
// (https://theupdateframework.github.io/specification/latest/).

import { canonical } from "./canonical.ts";
import { ReleaseError } from "./errors.ts";
import { digest, type PublicKey, verify } from "./keys.ts";

/** The kinds of metadata. */
export type Role = "root" | "timestamp" | "snapshot" | "targets";
const ROLES: readonly Role[] = ["root", "timestamp", "snapshot", "targets"];

/** What is known of another file. */
export interface FileInfo {
  version: number;
  length: number | undefined;
  sha256: string | undefined;
}
type Fields = Record<string, unknown>;
type Bytes = Uint8Array<ArrayBuffer>;

/** A file whose fields have been checked, but not its signatures. */
export interface Metadata {
  role: Role;
  version: number;
  /** Milliseconds since 1970. */
  expires: number;
  signed: Fields;
  /** By id of the key. */
  signatures: Map<string, string>;
  /** The bytes that are signed. */
  payload: Bytes;
  /** Files that timestamp and snapshot name, or targets. */
  files: Map<string, FileInfo>;
}

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isCount = (value: unknown, least: number): value is number =>
  Number.isSafeInteger(value) && (value as number) >= least;

function check(condition: boolean, what: string, where: string): asserts condition {
  if (!condition) throw new ReleaseError("format", what, where, "The repository is damaged.");
}

/**
 * Reads a file of metadata.
 * @throws ReleaseError (format)
 */
export function parse(data: Bytes, role: Role, where: string): Metadata {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch {
    check(false, "it is not JSON", where);
  }
  check(isObject(json) && isObject(json.signed), "it has nothing that is signed", where);
  const { signed } = json as { signed: Fields };
  check(signed._type === role, `it is of the type '${String(signed._type)}'`, where);
  const spec = String(signed.spec_version);
  check(/^1\.\d+(\.\d+)?$/.test(spec), `it is of TUF's version '${spec.slice(0, 20)}'`, where);
  check(isCount(signed.version, 1), "its version is no number", where);
  const date = String(signed.expires);
  const expires = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(date) ? Date.parse(date) : Number.NaN;
  check(Number.isFinite(expires), `it expires '${date.slice(0, 40)}'`, where);
  const signatures = new Map<string, string>();
  check(Array.isArray(json.signatures), "it has no signatures", where);
  for (const one of json.signatures as unknown[]) {
    check(
      isObject(one) && typeof one.keyid === "string" && typeof one.sig === "string",
      "a signature has no key or no value",
      where,
    );
    check(!signatures.has(one.keyid as string), "it has two signatures of one key", where);
    signatures.set(one.keyid as string, one.sig as string);
  }
  if (role === "root") checkRoot(signed, where);
  const files = role === "root" ? new Map() : filesOf(signed, role, where);
  const payload = canonical(signed, where);
  return { role, version: signed.version, expires, signed, signatures, payload, files };
}

function checkRoot(signed: Fields, where: string): void {
  const { keys, roles } = signed;
  check(isObject(keys) && isObject(roles), "it has no keys or no roles", where);
  for (const key of Object.values(keys))
    check(
      isObject(key) &&
        typeof key.keytype === "string" &&
        typeof key.scheme === "string" &&
        isObject(key.keyval) &&
        typeof key.keyval.public === "string",
      "a key is not what a key is",
      where,
    );
  const names = Object.keys(roles).sort().join();
  check(names === [...ROLES].sort().join(), `it has the roles ${names.slice(0, 100)}`, where);
  for (const name of ROLES) {
    const role = roles[name];
    const right = isObject(role) && isCount(role.threshold, 1) && Array.isArray(role.keyids);
    check(right, `its role ${name} has no keys or no threshold`, where);
    const ids = role.keyids as unknown[];
    check(
      ids.every((id) => typeof id === "string" && Object.hasOwn(keys, id)),
      `its role ${name} has unknown keys`,
      where,
    );
    check(new Set(ids).size === ids.length, `its role ${name} has one key twice`, where);
  }
}

/** The files that metadata describes. */
function filesOf(signed: Fields, role: Role, where: string): Metadata["files"] {
  const described = role === "targets" ? signed.targets : signed.meta;
  check(isObject(described), "it describes no files", where);
  const files: Metadata["files"] = new Map();
  for (const [name, info] of Object.entries(described)) {
    const target = role === "targets";
    const right =
      isObject(info) &&
      (target ? isCount(info.length, 0) : isCount(info.version, 1)) &&
      (info.length === undefined || isCount(info.length, 0)) &&
      (info.hashes === undefined ? !target : isObject(info.hashes));
    check(right, `what it says of ${name.slice(0, 100)} is no version, length or hash`, where);
    const { sha256 } = (info.hashes ?? {}) as Fields;
    const known = typeof sha256 === "string" && /^[0-9a-f]{64}$/.test(sha256);
    check(known || info.hashes === undefined, `${name.slice(0, 100)} has no SHA-256`, where);
    files.set(name, {
      version: (info.version as number | undefined) ?? 1,
      length: info.length as number | undefined,
      sha256: sha256 as string | undefined,
    });
  }
  const only = { timestamp: "snapshot.json", snapshot: "targets.json" }[role as string];
  check(only === undefined || files.has(only), `it does not describe ${only}`, where);
  return files;
}

/**
 * Checks that enough keys of a role have signed. Keys of the same value count once.
 * @throws ReleaseError (signature; unsupported if this browser knows too few of their schemes)
 */
export async function checkSigned(by: Metadata, what: Metadata, where: string): Promise<void> {
  const keys = by.signed.keys as Record<string, PublicKey>;
  const roles = by.signed.roles as Record<Role, { keyids: string[]; threshold: number }>;
  const { keyids, threshold } = roles[what.role];
  const [valid, unknown, schemes] = [new Set<string>(), new Set<string>(), new Set<string>()];
  for (const id of keyids) {
    const signature = what.signatures.get(id);
    if (!signature) continue;
    const key = keys[id]!;
    const result = await verify(key, signature, what.payload);
    if (result) (result === true ? valid : unknown).add(key.keyval.public);
    if (result === "unsupported") schemes.add(key.scheme.slice(0, 40));
  }
  if (valid.size >= threshold) return;
  if (valid.size + unknown.size >= threshold)
    throw new ReleaseError(
      "unsupported",
      `this browser cannot check signatures of the scheme ${[...schemes].join(", ")}`,
      where,
      "Update the browser, or sign with `edgewise release init --scheme ecdsa`.",
    );
  throw new ReleaseError(
    "signature",
    `${valid.size} keys of the role ${what.role} have signed it, ${threshold} must`,
    where,
    "The repository is damaged, or somebody else serves it.",
  );
}

/** @throws ReleaseError (mismatch) if data is not the file that was described */
export async function checkFile(data: Bytes, info: FileInfo, where: string): Promise<void> {
  const length = info.length ?? data.length;
  if (data.length !== length || (info.sha256 && (await digest(data)) !== info.sha256))
    throw new ReleaseError("mismatch", "its length or SHA-256 is not the signed one", where);
}
