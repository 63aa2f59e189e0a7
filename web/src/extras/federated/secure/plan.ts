// What all members of a group must agree on, and who they are: the rules are in
// python/edgewise/logic/federated/plan.py, digests and signatures here.

import {
  check_keys,
  check_members,
  check_subjects,
  context_of,
  type GroupPlan,
  indices_of,
  KEYS,
  plan_of,
  threshold,
} from "../../../logic/federated/plan.ts";
import { InputError } from "../../../shared/errors.ts";
import { hex } from "../../../shared/python/bytes.ts";
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

/** An authority's word for a key. */
export interface Certificate {
  /** Ed25519 public key of a member, base64url. */ identity: string;
  /** Who it is: one name for each user. */ subject: string;
  /** Seconds since 1970. */ expires: number;
  /** The authority's signature, base64url. */ signature: string;
}

const number64 = (x: bigint): Bytes => {
  const out = new Uint8Array(8);
  new DataView(out.buffer).setBigUint64(0, x);
  return out;
};

/** Whether the authority has signed a certificate. */
async function isCertified(given: Certificate, authority: Bytes): Promise<boolean> {
  const text = await digest(
    "certificate",
    decoded(given.identity, SEED, "certificate.identity"),
    number64(BigInt(given.expires)),
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

/** A group's task. */
export interface Plan extends GroupPlan {
  /** The digest of all fields, which every key and signature of the round depends on. */
  context: Bytes;
}

/** The plan of a task. @throws InputError if it cannot be one */
export async function planOf(task: Message): Promise<Plan> {
  const plan = plan_of(task);
  return { ...plan, context: await digest("context", context_of(plan)) };
}

type Key = "identity" | "channel" | "mask" | "commitment";

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
    const entries = (Array.isArray(members) ? members : []) as Entry[];
    check_members(entries.length, plan);
    const keys: Bytes[][] = [];
    for (const [i, e] of entries.entries()) {
      const where = `roster, member ${i}`;
      const own = KEYS.map((name) => decoded(e?.[name as Key], SEED, `${where}.${name}`));
      const [identity, channel, mask, commitment] = own as [Bytes, Bytes, Bytes, Bytes];
      const signature = decoded(e.signature, SIGNATURE, where);
      const text = await statement(plan, channel, mask, commitment);
      if (!(await isSigned(identity, signature, text)))
        throw new InputError("its keys are not signed by its identity, for this round", where);
      if (!(await isUsable(channel)) || !(await isUsable(mask)))
        throw new InputError("a key of X25519 is not canonical, or gives no secret", where);
      keys.push(own);
    }
    check_keys(keys.map((own) => own.map(hex)));
    return new Roster(entries, await digest("roster", plan.context, joined(...keys.flat())));
  }

  /** Members without which there is no sum. */
  get threshold(): number {
    return threshold(this.entries.length);
  }

  /** A key of a member. */
  key(index: number, name: Key): Bytes {
    return decoded(this.entries[index]![name], SEED, "roster");
  }

  /** @throws InputError unless the authority knows all members, each as another user */
  async certified(authority: Bytes): Promise<void> {
    for (const { identity, certificate } of this.entries)
      if (certificate) await checkCertificate({ ...certificate, identity }, authority);
    check_subjects(this.entries.map((e) => e.certificate?.subject ?? null));
  }

  /** What members sign before they give shares away. */
  consent(senders: readonly number[], survivors: readonly number[]): Promise<Bytes> {
    return digest("survivors", this.digest, Uint8Array.from([...senders, 255, ...survivors]));
  }

  /** Checks a list of members. @throws InputError if it is none, or of too few */
  indices(found: unknown, least: number, where: string): number[] {
    return indices_of(found, this.entries.length, least, where);
  }
}
