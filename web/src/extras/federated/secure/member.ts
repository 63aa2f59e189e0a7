// A client's part of secure aggregation: as python/edgewise/extras/federated/secure/member.py.

import { check_signed, ring_bits } from "../../../logic/federated/plan.ts";
import { SEALED } from "../../../logic/federated/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Message } from "../connection.ts";
import {
  agree,
  type Bytes,
  decoded,
  derive,
  digest,
  encoded,
  isSigned,
  joined,
  publicKey,
  SEED,
  SIGNATURE,
  seal,
  sign,
  split,
  stream,
  unseal,
  utf8,
} from "./crypto.ts";
import { discreteGaussian } from "./noise.ts";
import { type Certificate, type Entry, type Plan, Roster, statement } from "./plan.ts";

const LATE = "It may lie about who takes part: do not answer it.";

/** The key of a client. */
export interface Identity {
  /** Private Ed25519 key; it need not be extractable. */ key: CryptoKey;
  /** The public key, base64url. */ public: string;
  certificate?: Certificate | undefined;
}

/** What a member knows and demands. */
export interface MemberOptions {
  /** 32 random bytes, of this group alone. */ seed: Bytes;
  /** The update. */ numbers: Int16Array;
  /** Maximum norm of the numbers. */ bound: number;
  /** Digests of the messages that were answered, by stage. */ agreed: Record<string, string>;
  /** Public key of who certifies members. */ authority?: Bytes | undefined;
  /** Fewest members. */ least: number;
  /** Called before an answer is given, when `agreed` has changed. */ onAgreed: () => Promise<void>;
}

/** A client in a group. */
export class Member {
  private secrets!: Record<"channel" | "mask" | "self" | "shares" | "noise", Bytes>;
  /** How it introduces itself. */ entry!: Entry;
  /** The group, once it is known. */ roster: Roster | undefined;
  private index = -1;
  private senders: number[] = [];
  private survivors: number[] = [];
  /** Shares of others, for this member. */ private readonly held = new Map<number, Bytes>();

  private constructor(
    private readonly plan: Plan,
    private readonly identity: Identity,
    private readonly options: MemberOptions,
  ) {}

  /** A member with its keys of the round. */
  static async of(plan: Plan, identity: Identity, options: MemberOptions): Promise<Member> {
    const made = new Member(plan, identity, options);
    const names = ["channel", "mask", "self", "shares", "noise"] as const;
    const secrets = names.map((name) => derive(options.seed, plan.context, utf8(name)));
    const [channel, mask, self, shares, noise] = (await Promise.all(secrets)) as [
      Bytes,
      Bytes,
      Bytes,
      Bytes,
      Bytes,
    ];
    made.secrets = { channel, mask, self, shares, noise };
    const keys = [
      await publicKey(channel),
      await publicKey(mask),
      await digest("commitment", self),
    ];
    const signature = encoded(await sign(identity.key, await statement(plan, ...keys)));
    const { subject, expires, signature: certified } = identity.certificate ?? {};
    made.entry = {
      identity: identity.public,
      channel: encoded(keys[0]!),
      mask: encoded(keys[1]!),
      commitment: encoded(keys[2]!),
      signature,
      ...(certified && {
        certificate: { subject: subject!, expires: expires!, signature: certified },
      }),
    };
    return made;
  }

  /** @throws InputError if another message of this stage was answered */
  private async agree(stage: string, content: string): Promise<void> {
    const { agreed, onAgreed } = this.options;
    agreed[stage] ??= content;
    if (agreed[stage] !== content)
      throw new InputError(`the hub sends another message '${stage}'`, "secure", LATE);
    await onAgreed();
  }

  private get known(): Roster {
    if (!this.roster) throw new InputError("a message came before the roster", "secure");
    return this.roster;
  }

  /** The answer to `roster`: sealed shares of this member's secrets, one for each member. */
  async shares({ members }: Message): Promise<{ sealed: string[] }> {
    const { authority, least } = this.options;
    const roster = await Roster.of(members, this.plan);
    const same = (e: Entry): boolean =>
      (["identity", "channel", "mask", "commitment"] as const).every((k) => e[k] === this.entry[k]);
    const index = roster.entries.findIndex(same);
    if (index < 0) throw new InputError("this member is not in it", "roster");
    const count = roster.entries.length;
    if (count < least)
      throw new InputError(
        `the group has ${count} members, this client takes part from ${least} on`,
        "terms",
      );
    if (authority) await roster.certified(authority);
    await this.agree("roster", encoded(roster.digest));
    Object.assign(this, { roster, index });
    return { sealed: await this.sealed(roster) };
  }

  private async sealed(roster: Roster): Promise<string[]> {
    const [t, n] = [roster.threshold, roster.entries.length];
    const size = SEED * (t - 1);
    const random = await stream(this.secrets.shares, 2 * size);
    const mask = split(this.secrets.mask, random.slice(0, size), t, n);
    const own = split(this.secrets.self, random.slice(size), t, n);
    this.held.set(this.index, joined(mask[this.index]!, own[this.index]!));
    const out: string[] = [];
    for (let j = 0; j < n; j++) {
      const plain = joined(mask[j]!, own[j]!);
      out.push(j === this.index ? "" : encoded(await seal(await this.key(this.index, j), plain)));
    }
    return out;
  }

  /** The key of the sealed shares between this member and another. */
  private async key(sender: number, receiver: number): Promise<Bytes> {
    const other = this.known.key(receiver === this.index ? sender : receiver, "channel");
    const info = joined(utf8("share"), Uint8Array.from([sender, receiver]));
    return derive(await agree(this.secrets.channel, other), this.known.digest, info);
  }

  /** The answer to `sealed`: the masked update. */
  async masked(message: Message): Promise<Bytes> {
    const senders = this.known.indices(message.senders, this.options.least, "sealed");
    const texts = message.sealed;
    const mine = senders.includes(this.index);
    if (!mine || !Array.isArray(texts) || texts.length !== senders.length)
      throw new InputError("it is not for this member", "sealed");
    await this.agree("sealed", senders.join());
    this.senders = senders;
    for (const [k, i] of senders.entries()) {
      if (i === this.index) continue;
      const raw = await unseal(await this.key(i, this.index), decoded(texts[k], SEALED, "sealed"));
      if (raw) this.held.set(i, raw); // else this member cannot help to open that one's secrets
    }
    return this.sum();
  }

  /** The update with its noise, plus all masks. */
  private async sum(): Promise<Bytes> {
    const { plan, known, secrets } = this;
    const { numbers, bound } = this.options;
    const Ring = ring_bits(plan, known.entries.length) === 8 ? Uint8Array : Uint16Array;
    const total = new Ring(numbers.length); // assignments are modulo 2^bits
    total.set(numbers);
    if (plan.noise) {
      const share = (plan.noise * bound) / Math.sqrt(known.threshold);
      const noise = await discreteGaussian(total.length, share, secrets.noise);
      for (let i = 0; i < total.length; i++) total[i]! += noise[i]!;
    }
    const add = async (key: Bytes, sign: number): Promise<void> => {
      const mask = new Ring((await stream(key, total.byteLength)).buffer);
      for (let i = 0; i < total.length; i++) total[i]! += sign * mask[i]!;
    };
    await add(await derive(secrets.self, known.digest, utf8("self")), 1);
    for (const j of this.senders) {
      if (j === this.index) continue;
      const common = await agree(secrets.mask, known.key(j, "mask"));
      await add(await derive(common, known.digest, utf8("mask")), this.index < j ? 1 : -1);
    }
    return new Uint8Array(total.buffer);
  }

  /** The answer to `survivors`: a signature of the list. */
  async consent({ survivors }: Message): Promise<{ signature: string }> {
    const alive = this.known.indices(survivors, this.options.least, "survivors");
    if (!alive.includes(this.index) || !alive.every((i) => this.senders.includes(i)))
      throw new InputError("it cannot be the list of this group's survivors", "survivors");
    await this.agree("survivors", alive.join());
    this.survivors = alive;
    const text = await this.known.consent(this.senders, alive);
    return { signature: encoded(await sign(this.identity.key, text)) };
  }

  /**
   * The answer to `consents`: of each sender one share, that of its own mask if its update has
   * arrived, else that of its mask key. Never both: there is one list of survivors.
   */
  async unmask({ consents }: Message): Promise<{ shares: Record<string, string> }> {
    const { known, senders, survivors } = this;
    if (!survivors.length || typeof consents !== "object" || !consents)
      throw new InputError("it came before the survivors", "consents");
    const given = consents as Record<string, unknown>;
    const text = await known.consent(senders, survivors);
    let signed = 0;
    for (const i of survivors) {
      if (given[i] === undefined) continue;
      const raw = decoded(given[i], SIGNATURE, "consents");
      if (!(await isSigned(known.key(i, "identity"), raw, text)))
        throw new InputError(`member ${i} has signed something else`, "consents", LATE);
      signed++;
    }
    check_signed(signed, known.entries.length, this.options.least);
    const shares: Record<string, string> = {};
    for (const i of senders) {
      const share = this.held.get(i);
      if (share)
        shares[i] = encoded(survivors.includes(i) ? share.slice(SEED) : share.slice(0, SEED));
    }
    return { shares };
  }
}
