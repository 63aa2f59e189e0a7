// The weights of a model in the device's memory, and what follows from them.

import type { Buffer, Device, Plan } from "../../device/device.ts";
import { checkSums } from "../../device/sums.ts";
import type { Extent } from "../../shared/files/source.ts";
import type { Manifest } from "../package/manifest.ts";

interface PlanSlot {
  name: string;
  kind: string;
  bytes: number;
}
interface PlanOf {
  plan: Plan;
  slots: readonly PlanSlot[];
  where: string;
}

/**
 * What all plans of a package share in the device's memory: its weights (and the extents that fill
 * them from the files they lie in), what init steps compute of them, and the adapters that training
 * changes.
 */
export class Weights {
  private readonly at = new Map<string, Buffer>();
  private readonly made = new Map<string, Buffer>();
  private readonly adapters = new Map<string, Buffer>();
  /** Of all weights that are there. */
  bytes = 0;

  constructor(
    private readonly device: Device,
    manifest: Pick<Manifest, "weights">,
  ) {
    this.add(manifest);
  }

  /** Takes memory for more of them. */
  add(manifest: Pick<Manifest, "weights">): void {
    for (const { name, bytes } of manifest.weights.values()) {
      this.at.set(name, this.device.allocate(bytes, `the weight '${name}'`, true));
      this.bytes += bytes;
    }
  }

  /** The memory of a weight, which must be there. */
  buffer(name: string): Buffer {
    return this.at.get(name)!;
  }

  /** Whether a weight is there. */
  has(name: string): boolean {
    return this.at.has(name);
  }

  /** Whether all constants of a plan are there. */
  hasComputed(slots: readonly PlanSlot[]): boolean {
    return slots.every(
      ({ name, kind, bytes }) => kind !== "computed" || (this.made.get(name)?.bytes ?? -1) >= bytes,
    );
  }

  /**
   * Computes the constants of these plans that are not there yet, and binds them all. With
   * `release`, weights that only init steps read are freed once these have run: these plans are
   * then all that there are, and who wants such a weight later fills it anew (`add`); those of
   * which `keep` says that this is not possible stay.
   * @throws as Device.init; what was not there before is not there then either
   */
  compute(
    plans: readonly PlanOf[],
    release: boolean,
    keep: (name: string) => boolean = () => false,
  ): void {
    const fresh: string[] = [];
    const inRuns = new Set(
      plans.flatMap(({ plan, slots }) =>
        slots
          .filter(({ kind }, slot) => kind === "weight" && this.device.inRuns(plan, slot))
          .map(({ name }) => name),
      ),
    );
    const spent = (name: string) => release && !inRuns.has(name) && !keep(name);
    try {
      plans.forEach((one, i) => {
        const here = new Set(one.slots.map(({ name }) => name));
        const last = plans
          .slice(i + 1)
          .every(({ slots }) => this.hasComputed(slots.filter(({ name }) => !here.has(name))));
        this.computeOne(one, fresh, (name) => last && spent(name));
      });
    } catch (e) {
      for (const name of fresh) {
        this.device.release(this.made.get(name));
        this.made.delete(name);
      }
      throw e;
    }
    for (const { plan, slots } of plans)
      slots.forEach(({ name, kind }, slot) => {
        if (kind === "weight" && spent(name)) this.device.unbind(plan, slot);
      });
    for (const { slots } of plans)
      for (const { name, kind } of slots) if (kind === "weight" && spent(name)) this.drop(name);
  }

  /**
   * Memory for a constant is taken just before the first init step that uses it, and a weight is
   * let go of behind the last: constants come to lie where weights were, and both are never there
   * whole.
   */
  private computeOne(
    { plan, slots, where }: PlanOf,
    fresh: string[],
    spent: (name: string) => boolean,
  ): void {
    const { device } = this;
    const steps = this.hasComputed(slots) ? 0 : device.describe(plan).initCount;
    const events = Array.from({ length: steps + 1 }, (): (() => void)[] => []);
    slots.forEach(({ name, kind }, slot) => {
      const [, end] = device.initSpan(plan, slot);
      if (kind === "weight" && steps && end && spent(name))
        events[end]!.push(() => {
          device.unbind(plan, slot);
          this.drop(name);
        });
    });
    slots.forEach(({ name, kind, bytes }, slot) => {
      if (kind === "computed")
        events[steps && device.initSpan(plan, slot)[0]]!.push(() => {
          const [buffer, isFresh] = this.computed(name, bytes);
          if (isFresh) fresh.push(name);
          device.bind(plan, slot, buffer, `${where}, slot '${name}'`);
        });
    });
    let done = 0;
    events.forEach((here, step) => {
      if (!here.length && step < steps) return;
      device.initSteps(plan, done, step - done, where);
      done = step;
      for (const event of here) event();
    });
  }

  /** Lets go of a weight, as if it had never been there. */
  drop(name: string): void {
    const buffer = this.at.get(name);
    if (!buffer) return;
    this.device.release(buffer);
    this.at.delete(name);
    this.bytes -= buffer.bytes;
  }

  /**
   * Memory of a constant that init steps compute, and whether they have yet to. Its name says what
   * it is computed from, so plans share it.
   */
  private computed(name: string, bytes: number): [buffer: Buffer, fresh: boolean] {
    const known = this.made.get(name);
    if (known && known.bytes >= bytes) return [known, false];
    const buffer = this.device.allocate(bytes, `the constant '${name}'`);
    this.made.set(name, buffer);
    return [buffer, true];
  }

  /**
   * Memory of a state of adapters: zeros, which add nothing, until something is loaded or trained.
   */
  adapter(name: string, bytes: number): Buffer {
    let buffer = this.adapters.get(name);
    if (!buffer) {
      buffer = this.device.allocate(bytes, `the adapter '${name}'`);
      this.adapters.set(name, buffer);
    }
    return buffer;
  }

  /**
   * Per file, where its ranges go. A weight that has sums is compared with them as soon as all of
   * its bytes have come: then `write` throws PackageError.
   * @param where the package's name, for errors
   */
  extents(manifest: Pick<Manifest, "weights">, where = ""): Map<string, Extent[]> {
    const files = new Map<string, Extent[]>();
    for (const { name, file, offset, bytes, sums } of manifest.weights.values()) {
      const buffer = this.at.get(name)!;
      let left = bytes;
      const write = (chunk: Uint8Array, at: number) => {
        this.device.write(buffer, chunk, at);
        left -= chunk.length;
        if (!left && sums) checkSums(this.device, buffer, sums, { name, where: where || file });
      };
      if (!files.has(file)) files.set(file, []);
      files.get(file)!.push({ start: offset, bytes, write });
    }
    return files;
  }
}
