// Files of training data, and the reference pass of preferences.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Unit } from "../../src/logic/training/preferences.ts";
import { readData } from "../../src/page/training/data.ts";
import { refer } from "../../src/worker/training/preferences.ts";
import type { Data } from "../../src/worker/training/read-data.ts";
import type { RunSettings } from "../../src/worker/training/run-options.ts";
import type { Session } from "../../src/worker/training/session.ts";

test("files that are not UTF-8 are refused, and formats that there are not", async () => {
  const bytes = new TextEncoder().encode("prompt,completion\né,b\n");
  assert.deepEqual(await readData(new File([bytes], "a.csv")), [{ prompt: "é", completion: "b" }]);
  const latin1 = Uint8Array.from("prompt,completion\né,b\n", (c) => c.charCodeAt(0));
  await assert.rejects(readData(new File([latin1], "a.csv")), {
    name: "InputError",
    message: /a\.csv: it is not UTF-8 text/,
  });
  await assert.rejects(readData("a", { format: "xml" as "csv" }), {
    name: "InputError",
    message: /options\.format: there is no format "xml"/,
  });
});

test("an abort stops the reference pass", async () => {
  const row: [number[], number[]] = [
    [1, 2],
    [-100, 2],
  ];
  const units = Array.from(
    { length: 9 },
    (): Unit => ({ rows: [row, row], ends: [2, 2], label: true, reference: [] }),
  );
  const controller = new AbortController();
  let runs = 0;
  const session = {
    program: { batch: 2, sequence: 2 },
    score: async () => {
      // as a message that arrives meanwhile
      if (++runs === 2) setTimeout(() => controller.abort());
      await new Promise((resolve) => setTimeout(resolve, 5));
      return new Float32Array(4);
    },
  } as unknown as Session;
  const preference = { loss: "dpo", beta: 0.1 } as RunSettings["preference"];
  const data = { units, pad: 0 } as unknown as Data;
  const made = refer(session, { preference } as RunSettings, data, controller.signal);
  await assert.rejects(made, { name: "Aborted" });
  assert.equal(runs, 2);
});
