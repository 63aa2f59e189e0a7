// Secure aggregation in pages: the vectors that Python shares, and servers that lie.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Schema, type Values } from "../../src/extras/federated/codec.ts";
import {
  answers,
  type Bytes,
  made,
  sign,
  signingKey,
} from "../../src/extras/federated/secure/crypto.ts";
import {
  type Certificate,
  type Host,
  masked,
  takePart,
} from "../../src/extras/federated/secure/index.ts";
import { discreteGaussian } from "../../src/extras/federated/secure/noise.ts";
import { Lattice, quantize } from "../../src/extras/federated/secure/quantize.ts";
import type { State } from "../../src/extras/federated/store.ts";
import { read } from "../../src/extras/federated/terms.ts";
import { Client } from "../../src/logic/federated/client.ts";
import { decoded, digest, is_usable } from "../../src/logic/federated/crypto.ts";
import { certificate_of, Member, statement_of } from "../../src/logic/federated/members.ts";
import {
  context_of,
  type GroupPlan,
  grid_of_plan,
  plan_of,
} from "../../src/logic/federated/plan.ts";
import type { Request } from "../../src/logic/federated/requests.ts";
import { drive } from "../../src/shared/drive.ts";
import { base64url } from "../../src/shared/native.ts";
import { vectors } from "../common/vectors.ts";

type Texts = Record<string, string>;
type Shapes = [string, number[]][];
/** A member of a roster, as messages have it. */
interface Entry {
  identity: string;
  mask: string;
  signature: string;
  certificate?: Omit<Certificate, "identity">;
}
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
const taskOf = ({ plan }: Group) => ({ ...plan, secure: { version: 1, stage: 30, ...plan } });
async function planIn(group: Group): Promise<[GroupPlan, Bytes]> {
  const plan = plan_of(taskOf(group));
  return [plan, (await made(digest("context", [context_of(plan)]))) as Bytes];
}

/** A member, driven with WebCrypto. */
async function memberOf(group: Group, i: number) {
  const { identity, seed, numbers } = group.members[i]!;
  const entry = group.roster.members[i]!;
  const certificate = certificate_of(
    { identity: entry.identity, ...entry.certificate! },
    "certificate",
  );
  const key = await signingKey(hex(identity));
  const secrets = { seed: hex(seed), agreed: {} };
  const data = new Uint8Array(Int16Array.from(numbers).buffer);
  const state = { token: null, have: null, finished: null, summed: {} };
  const authority = decoded(group.authority, 32, "");
  const own = { public: decoded(entry.identity, 32, ""), certificate };
  const [plan, context] = await planIn(group);
  const member = new Member(plan, context, own, secrets, data, 1, authority, 1, state);
  // biome-ignore lint/suspicious/noExplicitAny: by the kind of a request
  const all: Record<string, (r: any) => unknown> = {
    ...answers,
    sign: ({ text }) => sign(key, text),
    store: () => undefined,
    sum: masked,
  };
  // biome-ignore lint/suspicious/noExplicitAny: as logic has them
  const run = <T>(steps: Generator<any, T, any>) => drive(steps, (r) => all[r.kind]!(r));
  const entered = await run(member.keys());
  return {
    entry: entered,
    shares: (message: object) => run(member.shares(message as never)),
    masked: (message: object) => run(member.masked(message as never)),
    consent: (message: object) => run(member.consent(message as never)),
    unmask: (message: object) => run(member.unmask(message as never)),
  };
}

/** The shares for member i. */
const sealedFor = (group: Group, i: number) => ({
  senders: group.members.map((_, k) => k),
  sealed: group.shares.map((s) => s[i]),
});

for (const [k, group] of v.groups.entries())
  test(`group ${k}: members say what another implementation does`, async () => {
    assert.equal(Buffer.from((await planIn(group))[1]).toString("hex"), group.context);
    for (const i of group.members.keys()) {
      const member = await memberOf(group, i);
      assert.deepEqual(member.entry, group.roster.members[i]);
      const { sealed } = await member.shares(group.roster);
      assert.deepEqual(sealed, group.shares[i]);
      assert.equal(base64(await member.masked(sealedFor(group, i))), group.masked[i]);
      if (!group.survivors.includes(i)) continue;
      const { signature } = await member.consent({ survivors: group.survivors });
      assert.equal(signature, group.consents[i]);
      const { shares } = await member.unmask({ consents: group.consents });
      assert.deepEqual(shares, group.unmask[i]);
    }
  });

for (const q of v.quantized)
  test(`updates as integers: ${q.codec}, noise ${q.noise}, norm ${q.norm}`, async () => {
    const schema = await Schema.of(Object.entries(v.shapes));
    const secure = { version: 1, group: "0".repeat(32), size: 9, clip: 1.5, noise: q.noise };
    const fields = { run: "letters", round: 3, base: "b".repeat(64), codec: q.codec };
    const group = { ...v.groups[0]!, plan: { ...fields, ...secure, stage: 1 } };
    const [plan, context] = await planIn(group);
    const lattice = new Lattice(grid_of_plan(plan, schema.count), context);
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
  return { members: change(members) ?? members };
};
/** A number of 32 bytes, little-endian. */
const number = (n: bigint): Uint8Array<ArrayBuffer> =>
  Uint8Array.from({ length: 32 }, (_, i) => Number((n >> BigInt(8 * i)) & 255n));
test("a key just below the prime can be used", async () => {
  assert.ok(await made(is_usable(number((1n << 255n) - 21n))));
});
/** A roster whose second member has signed another key, such as one of low order. */
async function withKey(mask: Uint8Array<ArrayBuffer>): Promise<object> {
  const members = structuredClone(group.roster.members);
  const bad: Entry = { ...members[1]!, mask: base64url(mask) };
  const keys = ["channel", "mask", "commitment"].map((n) =>
    decoded((bad as unknown as Texts)[n], 32, ""),
  );
  const key = await signingKey(hex(group.members[1]!.identity));
  const [, context] = await planIn(group);
  const text = await made(statement_of(context, keys[0]!, keys[1]!, keys[2]!));
  bad.signature = base64url(await sign(key, text as Bytes));
  return { members: members.with(1, bad) };
}
const ROSTERS: [string, object, RegExp][] = [
  ["a key of low order", await withKey(number(1n)), /gives no secret/],
  ["a key with bit 255", await withKey(number(9n + (1n << 255n))), /is not canonical/],
  ["a key above the prime", await withKey(number((1n << 255n) - 10n)), /is not canonical/],
  ["the prime as a key", await withKey(number((1n << 255n) - 19n)), /is not canonical/],
  ["a changed key", changed((m) => void (m[1]!.mask = m[2]!.mask)), /not signed by its identity/],
  [
    "another's certificate",
    changed((m) => void (m[1]!.certificate = m[2]!.certificate)),
    /authority has not signed/,
  ],
];
for (const [what, roster, match] of ROSTERS)
  test(`a roster with ${what} is refused`, async () => {
    await assert.rejects((await memberOf(group, 0)).shares(roster), match);
  });

/** Takes part until the first message is sent. */
async function begun(host: object, plan: object, store: object): Promise<void> {
  const terms = read({ maxEpsilon: 8 });
  const { schema, state } = host as { schema: Schema; state: State };
  const options = { url: "", schema: schema.sha256, shapes: [...schema.shapes] as Shapes };
  const client = new Client(state, { ...options, settings: [], terms, answer: 1 });
  const task = { config: {}, seed: 1, ...taskOf({ ...group, plan: { ...group.plan, ...plan } }) };
  const answer = (request: Request) => {
    if (request.kind === "train") return (host as { train: () => unknown }).train();
    if (request.kind === "receive") throw new Error("enough");
    return undefined;
  };
  const given = { ...host, store, answer, kept: () => undefined } as unknown as Host;
  const request = { kind: "take_part", task, end: 1, last: 1 } as const;
  await assert.rejects(takePart(given, client, request), /enough/);
}

test("what a server calls a group does not hide what is spent", async () => {
  const schema = await Schema.of([["w", [4]]]);
  const key = group.roster.members[0]!.identity;
  const own = { key: await signingKey(hex(group.members[0]!.identity)), public: key };
  const ledger: object[] = [];
  const state = { left: new Map(), finished: null, summed: {} };
  let trained = 0;
  const train = () => {
    trained++;
    return { examples: 1, steps: 1, metrics: {} };
  };
  const changes = () => new Map([["w", new Float32Array(4)]]);
  const store = { ledger: async () => ledger, identity: async () => own, write: async () => {} };
  const host = { schema, state, train, changes };
  const plan = { noise: 1, codec: "int8", part: null };
  await begun(host, plan, store);
  await begun(host, plan, store); // after a kill: the same update
  assert.equal(trained, 1);
  await begun(host, { ...plan, codec: "int4" }, store); // one of other integers is another
  assert.equal(trained, 2);
  const group0 = { group: group.plan.group, noise: 1 };
  ledger.push(...["a", "b", "c", "d"].map((sha256) => ({ ...group0, sha256 })));
  await assert.rejects(begun(host, plan, store), /would spend epsilon/);
});
