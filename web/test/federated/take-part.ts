// A page's client in Node, for tests/federated/private/test_pages.py. Its arguments: URL, NAME,
// AUTHORITY, PYTHON and the authority's key file, with which edgewise certifies its key. It adds
// 0.01 to every number.

import { execFileSync } from "node:child_process";
import { FederatedClient } from "../../src/extras/federated/client.ts";
import type { Certificate } from "../../src/extras/federated/secure/index.ts";
import { FakeDatabase } from "./fakes.ts";

const [url, name, authority, python, key] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
];
Object.defineProperty(globalThis, "indexedDB", { value: new FakeDatabase().factory });
Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
const SHAPES: [string, number[]][] = [
  ["m.lora_A.weight", [4, 6]],
  ["m.lora_B.weight", [5, 4]],
  ["dense", [3, 50]],
];
let weights = new Map<string, Float32Array<ArrayBuffer>>();
const client = await FederatedClient.join(url, {
  name,
  label: name,
  data: null,
  terms: { secureAggregation: "required", minimumCohort: 4, authority, maxEpsilon: 50 },
  certify: async (publicKey): Promise<Certificate> => {
    const command = ["-m", "edgewise.cli", "federate", "certify", key, publicKey];
    return JSON.parse(execFileSync(python, [...command, "--subject", name], { encoding: "utf8" }));
  },
  trainer: {
    shapes: async () => SHAPES,
    load: async (given) => void (weights = given),
    train: async () => ({
      values: new Map(Array.from(weights, ([n, x]) => [n, x.map((v) => v + 0.01)])),
      examples: 3,
      steps: 5,
      metrics: { loss: 1 },
    }),
  },
  onDecline: (reason) => console.error(reason),
});
await client.done;
console.log(JSON.stringify(await client.ledger()));
