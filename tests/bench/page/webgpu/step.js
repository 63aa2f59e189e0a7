// The plan of a training step (training/plans.py) on any device of web/src.
import { batch } from "../batch.js";

/**
 * Loads it with its weights, states and the batch.
 * @param device of web/src
 * @param url of the plan and its description, without extension
 * @returns a function that runs a step and returns the loss
 */
export async function openStep(device, url) {
  const info = await (await fetch(`${url}.json`)).json();
  const read = async (at, size) =>
    new Uint8Array(
      await (
        await fetch(`${url}.plan`, { headers: { Range: `bytes=${at}-${at + size - 1}` } })
      ).arrayBuffer(),
    );
  const kinds = info.slots.map(({ kind }) => kind);
  const plan = device.loadPlan(await read(...info.plan), url, url, undefined, kinds);
  const given = batch(info);
  const int64 = (x) => BigInt64Array.from(x, BigInt);
  const inputs = {
    [info.input.name]: info.input.vocab ? int64(given.numbers) : Float32Array.from(given.numbers),
    labels: int64(given.labels),
    learning_rate: new Float32Array([1e-3]),
  };
  let loss;
  for (const [slot, { name, kind, bytes, at }] of info.slots.entries()) {
    if (kind === "temp") continue; // the device's own
    const buffer = device.allocate(bytes, name, ["weight", "state"].includes(kind) && kind);
    if (at !== undefined) device.write(buffer, await read(at, bytes));
    if (kind === "input") device.write(buffer, new Uint8Array(inputs[name].buffer));
    if (name === "loss" && kind === "output") loss = buffer;
    device.bind(plan, slot, buffer, name);
  }
  device.init(plan, url);
  await device.ready();
  return async () => {
    device.run(plan, "a training step");
    const { buffer, byteOffset } = await device.read(loss, 0, 4);
    return new DataView(buffer, byteOffset).getFloat32(0, true);
  };
}
