// Secure aggregation in pages: the vectors that Python shares, and servers that lie.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Schema, type Values } from "../../src/extras/federated/codec.ts";
import type { Message } from "../../src/extras/federated/connection.ts";
import {
  decoded,
  encoded,
  isUsable,
  sign,
  signingKey,
} from "../../src/extras/federated/secure/crypto.ts";
import { type Host, takePart } from "../../src/extras/federated/secure/index.ts";
import { Member } from "../../src/extras/federated/secure/member.ts";
import { discreteGaussian } from "../../src/extras/federated/secure/noise.ts";
import {
  checkCertificate,
  type Entry,
  planOf,
  statement,
} from "../../src/extras/federated/secure/plan.ts";
import { Lattice, quantize } from "../../src/extras/federated/secure/quantize.ts";
import { epsilon_of } from "../../src/logic/federated/budget.ts";
import { grid_of_plan } from "../../src/logic/federated/plan.ts";
import { vectors } from "../common/vectors.ts";

type Texts = Record<string, string>;
interface Group {
  plan: Record<string, unknown>;
  context: string;
  authority: string;
  members: { seed: string; identity: string; numbers: number[] }[];
  roster: { members: Entry[] };
  shares: string[][];
  masked: string[];
  survivors: number[];
  consents: Texts;
  unmask: Texts[];
}
interface Quantized {
  codec: string;
  noise: number;
  values: Texts;
  left: Texts;
  bound: number;
  numbers: number[];
  away: Texts;
  norm: number;
}
const v = vectors<{
  groups: Group[];
  shapes: Record<string, number[]>;
  quantized: Quantized[];
  epsilons: [number[], number][];
}>("federated/secure");

const hex = (text: string) => new Uint8Array(Buffer.from(text, "hex"));
const base64 = (x: Uint8Array | Float32Array) =>
  Buffer.from(x.buffer as ArrayBuffer, x.byteOffset, x.byteLength).toString("base64");
const say = (fields: object): Message => ({ kind: "", ...fields });
const planIn = ({ plan }: Group) =>
  planOf(say({ ...plan, secure: { version: 1, stage: 30, ...plan } }));

async function memberOf(group: Group, i: number, more: object = {}): Promise<Member> {
  const { identity, seed, numbers } = group.members[i]!;
  const entry = group.roster.members[i]!;
  const certificate = { identity: entry.identity, ...entry.certificate! };
  const own = { key: await signingKey(hex(identity)), public: entry.identity, certificate };
  return Member.of(await planIn(group), own, {
    seed: hex(seed),
    numbers: Int16Array.from(numbers),
    bound: 1,
    agreed: {},
    authority: decoded(group.authority, 32, ""),
    least: 1,
    onAgreed: async () => undefined,
    ...more,
  });
}

/** The shares for member i. */
const sealedFor = (group: Group, i: number) =>
  say({ senders: group.members.map((_, k) => k), sealed: group.shares.map((s) => s[i]) });

for (const [k, group] of v.groups.entries())
  test(`group ${k}: members say what another implementation does`, async () => {
    assert.equal(Buffer.from((await planIn(group)).context).toString("hex"), group.context);
    for (const i of group.members.keys()) {
      const member = await memberOf(group, i);
      assert.deepEqual(member.entry, group.roster.members[i]);
      const { sealed } = await member.shares(say(group.roster));
      assert.deepEqual(sealed, group.shares[i]);
      assert.equal(base64(await member.masked(sealedFor(group, i))), group.masked[i]);
      if (!group.survivors.includes(i)) continue;
      const { signature } = await member.consent(say({ survivors: group.survivors }));
      assert.equal(signature, group.consents[i]);
      const { shares } = await member.unmask(say({ consents: group.consents }));
      assert.deepEqual(shares, group.unmask[i]);
    }
  });

for (const q of v.quantized)
  test(`updates as integers: ${q.codec}, noise ${q.noise}, norm ${q.norm}`, async () => {
    const schema = await Schema.of(Object.entries(v.shapes));
    const secure = { version: 1, group: "0".repeat(32), size: 9, clip: 1.5, noise: q.noise };
    const fields = { run: "letters", round: 3, base: "b".repeat(64), codec: q.codec };
    const plan = await planOf(say({ ...fields, secure: { ...secure, stage: 1 } }));
    const lattice = new Lattice(grid_of_plan(plan, schema.count), plan.context);
    assert.equal(lattice.grid.bound, q.bound);
    const values = (texts: Texts): Values =>
      new Map(
        Object.entries(texts).map(([name, text]) => [
          name,
          new Float32Array(new Uint8Array(Buffer.from(text, "base64")).buffer),
        ]),
      );
    const made = await quantize(values(q.values), values(q.left), schema, lattice);
    assert.deepEqual([...made.numbers], q.numbers);
    assert.equal(made.norm, q.norm);
    assert.deepEqual(
      Object.fromEntries(Array.from(made.left, ([name, x]) => [name, base64(x)]).sort()),
      Object.fromEntries(Object.entries(q.away).sort()),
    );
  });

test("epsilons are Python's, whose are dp-accounting's", () => {
  for (const [noises, expected] of v.epsilons) {
    const found = epsilon_of(noises);
    assert.ok(Math.abs(found - expected) < 1e-6 * (1 + expected), `${found} ${expected}`);
  }
  assert.equal(epsilon_of([]), 0);
  assert.equal(epsilon_of([1e-3]), Infinity);
});

test("noise has its mean and variance", async () => {
  const count = 40_000;
  for (const sigma of [0.7, 40]) {
    const noise = await discreteGaussian(count, sigma, new Uint8Array(32));
    const mean = noise.reduce((a, b) => a + b, 0) / count;
    const variance = noise.reduce((a, b) => a + b * b, 0) / count;
    assert.ok(Math.abs(mean) < (6 * sigma) / Math.sqrt(count));
    assert.ok(Math.abs(variance / sigma ** 2 - 1) < 0.06);
  }
});

// ---- servers that lie ----
const group = v.groups[0]!;
const changed = (change: (members: Entry[]) => Entry[] | undefined) => {
  const members = structuredClone(group.roster.members);
  return say({ members: change(members) ?? members });
};
/** A number of 32 bytes, little-endian. */
const number = (n: bigint): Uint8Array<ArrayBuffer> =>
  Uint8Array.from({ length: 32 }, (_, i) => Number((n >> BigInt(8 * i)) & 255n));
test("a key just below the prime can be used", async () => {
  assert.ok(await isUsable(number((1n << 255n) - 21n)));
});
/** A roster whose second member has signed another key, such as one of low order. */
async function withKey(mask: Uint8Array<ArrayBuffer>): Promise<Message> {
  const members = structuredClone(group.roster.members);
  const bad = { ...members[1]!, mask: encoded(mask) };
  const keys = (["channel", "mask", "commitment"] as const).map((n) => decoded(bad[n], 32, ""));
  const key = await signingKey(hex(group.members[1]!.identity));
  bad.signature = encoded(await sign(key, await statement(await planIn(group), ...keys)));
  return say({ members: members.with(1, bad) });
}
const ROSTERS: [string, Message, RegExp][] = [
  ["a key of low order", await withKey(number(1n)), /gives no secret/],
  ["a key with bit 255", await withKey(number(9n + (1n << 255n))), /is not canonical/],
  ["a key above the prime", await withKey(number((1n << 255n) - 10n)), /is not canonical/],
  ["the prime as a key", await withKey(number((1n << 255n) - 19n)), /is not canonical/],
  ["a changed key", changed((m) => void (m[1]!.mask = m[2]!.mask)), /not signed by its identity/],
  ["no certificate", changed((m) => void delete m[1]!.certificate), /has no certificate/],
  [
    "another's certificate",
    changed((m) => void (m[1]!.certificate = m[2]!.certificate)),
    /authority has not signed/,
  ],
  ["without the client", changed((m) => m.slice(1)), /this member is not in it/],
  ["a member twice", changed((m) => [...m.slice(0, 4), m[3]!]), /the same identity/],
  ["another order", changed((m) => m.reverse()), /not in order/],
  ["too few", changed((m) => m.slice(0, 2)), /2 members, 3 to 6/],
  ["no list", say({ members: "all" }), /0 members/],
];
for (const [what, roster, match] of ROSTERS)
  test(`a roster with ${what} is refused`, async () => {
    await assert.rejects((await memberOf(group, 0)).shares(roster), match);
  });

test("plans that cannot be computed are refused", async () => {
  for (const wrong of [{ noise: 1e-200 }, { noise: 1e308 }, { clip: 1e-300 }, { size: 65 }])
    await assert.rejects(
      planIn({ ...group, plan: { ...group.plan, ...wrong } }),
      /plan of secure aggregation cannot be used/,
    );
});

test("settings of a server for one member alone are refused", async () => {
  const context = async (more: object) =>
    String((await planIn({ ...group, plan: { ...group.plan, ...more } })).context);
  const config = { "local-steps": 3, "learning-rate": 0.002 };
  const others = [{}, { config }, { config: { ...config, "learning-rate": 0 } }, { seed: 6 }];
  assert.equal(new Set(await Promise.all([...others, { part: null }].map(context))).size, 5);
  const wrong = [{ x: "1" }, { audit: { texts: [] } }, { "a b": 1 }, { x: null }];
  for (const more of [{ audit: { texts: ["public"] } }, ...wrong.map((x) => ({ config: x }))])
    await assert.rejects(context(more), /cannot be those of a secure sum/);
});

/** Takes part until the first message is sent. Returns the store's state. */
async function begun(host: object, plan: object, store: object): Promise<unknown[]> {
  const said: unknown[] = [];
  const connection = {
    send: (...message: unknown[]) => said.push(message),
    message: async () => Promise.reject(new Error("enough")),
  };
  const given = { connection, store, terms: { maxEpsilon: 8 }, ...host } as unknown as Host;
  const task = say({
    ...group.plan,
    ...plan,
    secure: { version: 1, stage: 30, ...group.plan, ...plan },
  });
  await assert.rejects(takePart(given, task), /enough/);
  return said;
}

test("what a server calls a group does not hide what is spent", async () => {
  const schema = await Schema.of([["w", [4]]]);
  const key = (await memberOf(group, 0)).entry.identity;
  const own = { key: await signingKey(hex(group.members[0]!.identity)), public: key };
  const ledger: object[] = [];
  const state: Record<string, unknown> = { left: new Map() };
  let trained = 0;
  const train = async () => {
    trained++;
    return { changes: new Map([["w", new Float32Array(4)]]) };
  };
  const store = { ledger: async () => ledger, identity: async () => own, write: async () => {} };
  const host = { schema, state, train };
  const plan = { noise: 1, codec: "int8" };
  await begun(host, plan, store);
  await begun(host, plan, store); // after a kill: the same update
  assert.equal(trained, 1);
  await begun(host, { ...plan, codec: "int4" }, store); // one of other integers is another
  assert.equal(trained, 2);
  const group0 = { group: group.plan.group, noise: 1 };
  ledger.push(...["a", "b", "c", "d"].map((sha256) => ({ ...group0, sha256 })));
  await assert.rejects(begun(host, plan, store), /would spend epsilon/);
});

test("keys of another round are refused", async () => {
  const other = { ...group, plan: { ...group.plan, round: 4 } };
  const member = await memberOf(other, 0);
  await assert.rejects(member.shares(say(group.roster)), /for this round/);
});

test("the terms count members that were seen", async () => {
  const member = await memberOf(group, 0, { least: 6 });
  await assert.rejects(
    member.shares(say(group.roster)),
    /5 members, this client takes part from 6/,
  );
});

test("both shares of a client are not given", async () => {
  const agreed = {};
  const member = await memberOf(group, 0, { agreed });
  await member.shares(say(group.roster));
  await member.masked(sealedFor(group, 0));
  await assert.rejects(member.unmask(say({ consents: group.consents })), /before the survivors/);
  await member.consent(say({ survivors: [0, 1, 2, 3, 4] }));
  const second = say({ survivors: group.survivors });
  await assert.rejects(member.consent(second), /another message 'survivors'/);
  // signatures of another list do not help
  await assert.rejects(member.unmask(say({ consents: group.consents })), /signed something else/);
  await assert.rejects(member.unmask(say({ consents: {} })), /0 members have signed/);
  // nor does a client that was killed in between
  const again = await memberOf(group, 0, { agreed: structuredClone(agreed) });
  await again.shares(say(group.roster));
  await again.masked(sealedFor(group, 0));
  await assert.rejects(again.consent(second), /another message 'survivors'/);
});

for (const [what, survivors, match] of [
  ["too few", [0, 1, 2], /3 members, 4 are needed/],
  ["without the client", [1, 2, 3, 4], /cannot be/],
  ["of strangers", [0, 1, 2, 3, 5], /not a list of members/],
  ["twice", [0, 0, 1, 2], /not in order/],
] as const)
  test(`survivors ${what} are refused`, async () => {
    const member = await memberOf(group, 0);
    await member.shares(say(group.roster));
    await member.masked(sealedFor(group, 0));
    await assert.rejects(member.consent(say({ survivors })), match);
  });

test("certificates expire", async () => {
  const entry = group.roster.members[0]!;
  const certificate = { identity: entry.identity, ...entry.certificate! };
  const authority = decoded(group.authority, 32, "");
  await checkCertificate(certificate, authority);
  const late = certificate.expires * 1000;
  await assert.rejects(checkCertificate(certificate, authority, late), /expired/);
  await assert.rejects(
    checkCertificate({ ...certificate, subject: "x" }, authority),
    /has not signed/,
  );
});

test("base64url is read in one form alone", () => {
  const text = encoded(Uint8Array.from([251, 255]));
  assert.equal(text, "-_8");
  assert.deepEqual([...decoded(text, 2, "")], [251, 255]);
  for (const wrong of ["-_9", "+/8", "-_8=", "-_", 7]) assert.throws(() => decoded(wrong, 2, "x"));
});
