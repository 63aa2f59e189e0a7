// What all members of a group must agree on, and who they are: as plan.py and identity.py in
// python/edgewise/extras/federated/secure.

import { InputError } from "../../../shared/errors.ts";
import type { Schema } from "../codec.ts";
import type { Message } from "../connection.ts";
import {
  type Bytes,
  decoded,
  digest,
  isSigned,
  isUsable,
  joined,
  SEED,
  SIGNATURE,
  utf8,
} from "./crypto.ts";
import { type IntegerCodec, Lattice, levelsOf } from "./quantize.ts";

const MAX_MEMBERS = 64;
const MIN_MEMBERS = 3;
const [MIN, MAX] = [1e-3, 1e3]; // of noise, in units of the clip
const LARGEST_CLIP = 1e30;
const KEYS = ["identity", "channel", "mask", "commitment"] as const;

/** An authority's word for a key. */
export interface Certificate {
  /** Ed25519 public key of a member, base64url. */ identity: string;
  /** Who it is: one name for each user. */ subject: string;
  /** Seconds since 1970. */ expires: number;
  /** The authority's signature, base64url. */ signature: string;
}

/** Members of a group without which there is no sum: more than two thirds. */
export const thresholdOf = (members: number): number => Math.floor((2 * members) / 3) + 1;

const number64 = (write: (view: DataView) => void): Bytes => {
  const out = new Uint8Array(8);
  write(new DataView(out.buffer));
  return out;
};
const double = (x: number): Bytes => number64((view) => view.setFloat64(0, x));

/** Whether the authority has signed a certificate. */
async function isCertified(given: Certificate, authority: Bytes): Promise<boolean> {
  const text = await digest(
    "certificate",
    decoded(given.identity, SEED, "certificate.identity"),
    number64((view) => view.setBigUint64(0, BigInt(given.expires))),
    utf8(given.subject),
  );
  return isSigned(authority, decoded(given.signature, SIGNATURE, "certificate"), text);
}

/** @throws InputError unless the authority has signed a certificate and it is not expired */
export async function checkCertificate(
  given: Certificate,
  authority: Bytes,
  now = Date.now(),
): Promise<void> {
  const { subject, expires } = given;
  if (typeof subject !== "string" || !/^[\w.:/-]{1,64}$/.test(subject))
    throw new InputError("its subject cannot be used", "certificate");
  if (!(Number.isSafeInteger(expires) && expires >= 0) || !(await isCertified(given, authority)))
    throw new InputError("the authority has not signed it", `certificate of ${subject}`);
  if (expires * 1000 <= now) throw new InputError("it has expired", `certificate of ${subject}`);
}

/**
 * The settings of training, as lines of the context. All members must train with the same ones.
 * Otherwise a server could give all but one a learning rate of 0 and read that one's update from
 * the sum.
 * @throws InputError if they cannot be those of a sum: an audit's texts are known to the server
 */
function settingsOf({ config, seed, part, audit }: Message): string {
  const given = Object.entries((config ?? {}) as object);
  const right = given.every(([name, x]) => /^[\w.:/-]{1,200}$/.test(name) && Math.abs(x) <= 1e300);
  const numbers = given.every(([, x]) => typeof x === "number");
  if (audit || !right || !numbers || (seed !== undefined && !Number.isSafeInteger(seed)))
    throw new InputError("its settings cannot be those of a secure sum", "task");
  const hex = (x: number): string =>
    Array.from(double(x), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const lines = given.map(([name, x]) => `config ${name} ${hex(x as number)}\n`).sort();
  for (const [name, x] of Object.entries({ seed, part }))
    if (x !== undefined && x !== null) lines.push(`${name} ${x}\n`);
  return lines.join("");
}

/** A group's task. */
export class Plan {
  private constructor(
    readonly run: string,
    readonly number: number,
    readonly base: string,
    readonly codec: IntegerCodec,
    /** Name of the group. */ readonly group: string,
    /** Clients that got the task. */ readonly size: number,
    readonly clip: number,
    /** Of the sum, in units of `clip`; the members add it together. */ readonly noise: number,
    /** Seconds of each stage. */ readonly stage: number,
    /** The digest of all fields. */ readonly context: Bytes,
  ) {}

  /** The plan of a task. @throws InputError if it cannot be one */
  static async of(task: Message): Promise<Plan> {
    const given = (task.secure ?? {}) as Record<string, unknown>;
    const { version, group, size, clip, noise = 0, stage } = given;
    const codec = task.codec as IntegerCodec;
    const right =
      version === 1 &&
      (codec === "int8" || codec === "int4") &&
      typeof group === "string" &&
      /^[0-9a-f]{32}$/.test(group) &&
      Number.isInteger(size) &&
      [clip, noise, stage].every((x) => typeof x === "number" && Number.isFinite(x) && x >= 0) &&
      (clip as number) >= 1 / LARGEST_CLIP &&
      (clip as number) <= LARGEST_CLIP &&
      (noise === 0 || ((noise as number) >= MIN && (noise as number) <= MAX));
    const n = size as number;
    if (!right || n < MIN_MEMBERS || n > MAX_MEMBERS)
      throw new InputError("its plan of secure aggregation cannot be used", "task");
    const words = [task.run, task.round, task.base, codec, group, size];
    const text = words.map((word) => `${word}\n`).join("") + settingsOf(task);
    const [c, z] = [clip as number, noise as number];
    const context = await digest("context", double(c), double(z), utf8(text));
    const [run, round, base] = [String(task.run), Number(task.round), String(task.base)];
    return new Plan(run, round, base, codec, group as string, n, c, z, stage as number, context);
  }

  /** How updates become integers. */
  lattice(schema: Schema): Lattice {
    const noise = this.noise * Math.sqrt(this.size / thresholdOf(this.size));
    return new Lattice(schema.count, this.codec, this.clip, this.context, this.size, noise);
  }

  /** Bits of the ring in which updates are summed. */
  bits(members: number): 8 | 16 {
    return members * levelsOf(this.codec) < 1 << 7 && !this.noise ? 8 : 16;
  }
}

/** A member, as it introduces itself in a message. */
export interface Entry {
  identity: string;
  channel: string;
  mask: string;
  commitment: string;
  signature: string;
  certificate?: Omit<Certificate, "identity"> | undefined;
}

/** What a member signs with its keys. */
export const statement = (plan: Plan, ...keys: Bytes[]): Promise<Bytes> =>
  digest("keys", plan.context, ...keys);

/** The members of a group, by identity; a member's index is its place. */
export class Roster {
  private constructor(
    readonly entries: readonly Entry[],
    /** Of the context and all keys. */ readonly digest: Bytes,
  ) {}

  /**
   * Reads a roster.
   * @throws InputError if a signature is wrong, if members are there twice or in another order, or
   *   if there are too few or too many
   */
  static async of(members: unknown, plan: Plan): Promise<Roster> {
    const count = Array.isArray(members) ? members.length : 0;
    if (count < MIN_MEMBERS || count > plan.size)
      throw new InputError(
        `it has ${count} members, ${MIN_MEMBERS} to ${plan.size} are possible`,
        "roster",
      );
    const entries = members as Entry[];
    const keys = entries.map((e, i) =>
      KEYS.map((name) => decoded(e?.[name], SEED, `roster, member ${i}.${name}`)),
    );
    for (const [i, [identity, ...own]] of keys.entries()) {
      const signature = decoded(entries[i]!.signature, SIGNATURE, `roster, member ${i}`);
      if (!(await isSigned(identity!, signature, await statement(plan, ...own))))
        throw new InputError(
          "its keys are not signed by its identity, for this round",
          `roster, member ${i}`,
        );
      if (!(await isUsable(own[0]!)) || !(await isUsable(own[1]!)))
        throw new InputError(
          "a key of X25519 is not canonical, or gives no secret",
          `roster, member ${i}`,
        );
    }
    KEYS.forEach((name, k) => {
      if (new Set(entries.map((e) => e[name])).size < count)
        throw new InputError(`two members have the same ${name}`, "roster");
      if (k === 0 && keys.some(([id], i) => i && !isBelow(keys[i - 1]![0]!, id!)))
        throw new InputError("its members are not in order", "roster");
    });
    return new Roster(entries, await digest("roster", plan.context, joined(...keys.flat())));
  }

  /** Members without which there is no sum. */
  get threshold(): number {
    return thresholdOf(this.entries.length);
  }

  /** A key of a member. */
  key(index: number, name: (typeof KEYS)[number]): Bytes {
    return decoded(this.entries[index]![name], SEED, "roster");
  }

  /** @throws InputError unless the authority knows all members, each as another user */
  async certified(authority: Bytes): Promise<void> {
    const subjects = new Set<string>();
    for (const { identity, certificate } of this.entries) {
      if (!certificate) throw new InputError("a member has no certificate", "roster");
      await checkCertificate({ ...certificate, identity }, authority);
      subjects.add(certificate.subject);
    }
    if (subjects.size < this.entries.length)
      throw new InputError("a user is two of its members", "roster");
  }

  /** What members sign before they give shares away. */
  consent(senders: readonly number[], survivors: readonly number[]): Promise<Bytes> {
    return digest("survivors", this.digest, Uint8Array.from([...senders, 255, ...survivors]));
  }

  /** Checks a list of members. @throws InputError if it is none, or of too few */
  indices(found: unknown, least: number, where: string): number[] {
    const n = this.entries.length;
    if (!Array.isArray(found) || !found.every((i) => Number.isInteger(i) && i >= 0 && i < n))
      throw new InputError("it is not a list of members", where);
    const list = found as number[];
    if (list.some((i, k) => k && i <= list[k - 1]!))
      throw new InputError("its members are not in order", where);
    const needed = Math.max(least, this.threshold);
    if (list.length < needed)
      throw new InputError(`it has ${list.length} members, ${needed} are needed`, where);
    return list;
  }
}

function isBelow(a: Bytes, b: Bytes): boolean {
  const at = a.findIndex((x, i) => x !== b[i]);
  return at >= 0 && a[at]! < b[at]!;
}
