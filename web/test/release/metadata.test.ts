// The shared vectors of metadata: repositories under attack, whose outcomes are python-tuf's.

import assert from "node:assert/strict";
import test from "node:test";
import { canonical } from "../../src/extras/release/canonical.ts";
import { ReleaseError } from "../../src/extras/release/errors.ts";
import { toHex } from "../../src/extras/release/keys.ts";
import { Refresh, type TrustedFiles } from "../../src/extras/release/tuf.ts";
import { vectors } from "../common/vectors.ts";

interface Case {
  name: string;
  root: string;
  steps: { files: Record<string, string | null>; outcome: string }[];
}
const cases = vectors("releases/metadata") as unknown as Case[];
const encode = (text: string) => new TextEncoder().encode(text);

function trusted(): TrustedFiles & { files: Map<string, Uint8Array<ArrayBuffer>> } {
  const files = new Map<string, Uint8Array<ArrayBuffer>>();
  return {
    files,
    read: async (name) => files.get(name),
    write: async (name, data) => void files.set(name, data),
  };
}

/** A client of a server with the given files. */
function refresh(served: Map<string, string | null>, store: TrustedFiles, now = Date.now()) {
  const fetch = async (path: string, most: number) => {
    const text = served.get(path.replace("metadata/", ""));
    if (text === undefined || text === null) return undefined;
    if (text.length > most) throw new ReleaseError("mismatch", "too long", path);
    return encode(text);
  };
  return new Refresh(fetch, store, now, "here");
}

const outcomeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "ok",
    (e: unknown) => {
      assert.ok(e instanceof ReleaseError, String(e));
      assert.ok(e.message.length > 10 && e.where);
      return e.code;
    },
  );

for (const { name, root, steps } of cases)
  test(name, async () => {
    const served = new Map<string, string | null>();
    const store = trusted();
    for (const { files, outcome } of steps) {
      for (const [file, text] of Object.entries(files)) served.set(file, text);
      const run = refresh(served, store).run(encode(root));
      assert.equal(await outcomeOf(run), outcome);
    }
  });

const sound = cases.find((c) => c.name === "two versions")!;
const state = (...steps: number[]) =>
  new Map(steps.flatMap((n) => Object.entries(sound.steps[n]!.files)));

test("a browser without Ed25519 says so", async () => {
  const { subtle } = crypto;
  const importKey = subtle.importKey.bind(subtle);
  subtle.importKey = (async (
    format: "raw",
    ...rest: [BufferSource, string, boolean, KeyUsage[]]
  ) => {
    if (rest[1] === "Ed25519") throw new DOMException("no", "NotSupportedError");
    return importKey(format, ...rest);
  }) as typeof subtle.importKey;
  try {
    const run = refresh(state(0), trusted()).run(encode(sound.root));
    await assert.rejects(run, /cannot check signatures of the scheme ed25519.*--scheme ecdsa/);
  } finally {
    subtle.importKey = importKey as typeof subtle.importKey;
  }
});

test("damage of what is stored does not keep a client from going on", async () => {
  const store = trusted();
  await refresh(state(0), store).run(encode(sound.root));
  for (const name of store.files.keys()) {
    const before = store.files.get(name)!;
    store.files.set(name, encode("{"));
    await refresh(state(0, 1), store).run(encode(sound.root));
    assert.notDeepEqual(store.files.get(name), encode("{"), name);
    store.files.set(name, before);
  }
});

test("one key under two names counts once", async () => {
  const pair = (await crypto.subtle.generateKey("Ed25519", true, ["sign"])) as CryptoKeyPair;
  const raw = toHex(await crypto.subtle.exportKey("raw", pair.publicKey));
  const key = { keytype: "ed25519", scheme: "ed25519", keyval: { public: raw } };
  for (const [threshold, outcome] of [
    [2, "signature"],
    [1, "missing"], // root is valid, and there is no timestamp
  ] as const) {
    const signed = structuredClone(JSON.parse(sound.root).signed);
    signed.keys = { a: key, b: key };
    for (const role of Object.keys(signed.roles))
      signed.roles[role] = { keyids: ["a", "b"], threshold };
    const sig = toHex(await crypto.subtle.sign("Ed25519", pair.privateKey, canonical(signed, "")));
    const signatures = ["a", "b"].map((keyid) => ({ keyid, sig }));
    const run = refresh(new Map(), trusted()).run(encode(JSON.stringify({ signed, signatures })));
    assert.equal(await outcomeOf(run), outcome);
  }
});

test("metadata that cannot be encoded is refused in words", async () => {
  const deep = "[".repeat(7000) + "]".repeat(7000);
  for (const [value, words] of [
    [deep, /nested too deeply/],
    ['"\\ud800"', /not Unicode/],
    ["1.5", /the number 1.5/],
  ] as const) {
    const served = new Map(state(0));
    const stamp = served.get("timestamp.json")!;
    served.set("timestamp.json", stamp.replace('"signed":{', `"signed":{"x":${value},`));
    const run = refresh(served, trusted()).run(encode(sound.root));
    await assert.rejects(run, (e) => e instanceof ReleaseError && words.test(e.what));
  }
});

test("an app with an earlier root does not bring replaced keys back", async () => {
  const { root, steps } = cases.find((c) => c.name === "root is rotated twice")!;
  const served = new Map(steps.flatMap(({ files }) => Object.entries(files)));
  const store = trusted();
  await refresh(served, store).run(encode(root));
  const version = () =>
    JSON.parse(new TextDecoder().decode(store.files.get("root.json"))).signed.version;
  assert.equal(version(), 3);
  const second = encode(served.get("2.root.json")!);
  served.delete("3.root.json"); // as somebody does who has the keys of the second root
  await refresh(served, store).run(second);
  assert.equal(version(), 3);
});
