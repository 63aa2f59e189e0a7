// The weights of a model in device memory, and constants computed from them.

import type { Buffer, Device, Pages, PlanHandle } from "../../device/device.ts";
import { checkedWrite } from "../../device/sums.ts";
import type { Extent } from "../../shared/files/source.ts";
import type { Manifest } from "../package/manifest.ts";
import { halved } from "./halves.ts";

interface PlanSlot {
  name: string;
  kind: string;
  bytes: number;
}
interface PlanOf {
  plan: PlanHandle;
  slots: readonly PlanSlot[];
  where: string;
}

/** Files of weights by name: each in a blob, from byte `at` on. */
export type StoredWeights = ReadonlyMap<string, { blob: Blob; at: number }>;

/** Weights of experts, of which some are in memory (experts.ts). */
export interface SomeExperts {
  /** Bytes of memory for them. */
  readonly bytes: number;
  /** The pages of a weight; undefined: all of it is in memory. */
  of(name: string): Pages | undefined;
  /** Finds the files that experts are read from. @throws OutOfMemory if it is not stored */
  open(stored: () => Promise<StoredWeights | undefined>): Promise<void>;
  /** Frees their memory. */
  free(): void;
}

/**
 * Device memory shared by all plans of a package: its weights, constants that init steps compute
 * from them, and the states of adapters.
 */
export class Weights {
  private readonly at = new Map<string, Buffer>();
  private readonly made = new Map<string, Buffer>();
  private readonly adapters = new Map<string, Buffer>();
  /** Total size of the weights in bytes. */
  bytes = 0;

  constructor(
    private readonly device: Device,
    manifest: Pick<Manifest, "weights">,
    /** Weights of which a part is in memory; undefined: none. */
    readonly experts?: SomeExperts,
  ) {
    this.bytes = experts?.bytes ?? 0;
    this.add(manifest);
  }

  /** Allocates weights: all or none. @throws OutOfMemory */
  add(manifest: Pick<Manifest, "weights">): void {
    try {
      for (const { name, bytes } of manifest.weights.values()) {
        if (this.experts?.of(name)) continue;
        this.at.set(name, this.device.allocate(bytes, `the weight '${name}'`, "weight"));
        this.bytes += bytes;
      }
    } catch (e) {
      for (const name of manifest.weights.keys()) this.drop(name);
      throw e;
    }
  }

  /** Binds a slot of a plan to a weight, which must exist. */
  bind(plan: PlanHandle, slot: number, name: string, where: string): void {
    const pages = this.experts?.of(name);
    if (pages) this.device.bindPages!(plan, slot, pages, where);
    else this.device.bind(plan, slot, this.buffer(name), where);
  }

  /** The buffer of a weight, which must exist. */
  buffer(name: string): Buffer {
    return this.at.get(name)!;
  }

  /** The weights that plans read, and the constants that were computed from them. */
  all(): [name: string, Buffer][] {
    return [...this.at, ...this.made];
  }

  /** Whether a weight exists. */
  has(name: string): boolean {
    return this.at.has(name) || !!this.experts?.of(name);
  }

  /** Whether all constants of a plan have been computed. */
  hasComputed(slots: readonly PlanSlot[]): boolean {
    return slots.every(
      ({ name, kind, bytes }) => kind !== "computed" || (this.made.get(name)?.bytes ?? -1) >= bytes,
    );
  }

  /**
   * Computes the missing constants of plans, and binds all constants.
   * @param plans the plans
   * @param release free weights that only init steps read, after these have run. `plans` must then
   *   be all plans in use; such a weight can be added again later
   * @param keep whether a weight must not be freed, since it could not be loaded again
   * @throws as Device.init; new constants are then freed
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
   * Computes the constants of a plan. A constant is allocated just before the first init step that
   * uses it, and a weight is freed after the last: constants reuse the memory of weights, and the
   * two are never all in memory at the same time.
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

  /** Frees everything. Plans that are bound to it must be freed before. */
  free(): void {
    for (const buffers of [this.at, this.made, this.adapters]) {
      for (const buffer of buffers.values()) this.device.release(buffer);
      buffers.clear();
    }
    this.experts?.free();
    this.bytes = 0;
  }

  /** Frees a weight. */
  drop(name: string): void {
    const buffer = this.at.get(name);
    if (!buffer) return;
    this.device.release(buffer);
    this.at.delete(name);
    this.bytes -= buffer.bytes;
  }

  /** Frees the constants of a plan, which has been freed, that no other plan reads. */
  dropComputed(slots: readonly PlanSlot[], others: readonly Pick<PlanOf, "slots">[]): void {
    const used = new Set(others.flatMap((one) => one.slots.map(({ name }) => name)));
    for (const { name, kind } of slots) {
      if (kind !== "computed" || used.has(name)) continue;
      this.device.release(this.made.get(name));
      this.made.delete(name);
    }
  }

  /**
   * The buffer of a constant, and whether it must still be computed. The name of a constant
   * identifies what it is computed from, so plans share it.
   */
  private computed(name: string, bytes: number): [buffer: Buffer, fresh: boolean] {
    const known = this.made.get(name);
    if (known && known.bytes >= bytes) return [known, false];
    const buffer = this.device.allocate(bytes, `the constant '${name}'`);
    this.made.set(name, buffer);
    return [buffer, true];
  }

  /** The buffer of an adapter state: zeros, which have no effect, until it is loaded or trained. */
  adapter(name: string, bytes: number): Buffer {
    let buffer = this.adapters.get(name);
    if (!buffer) {
      buffer = this.device.allocate(bytes, `the adapter '${name}'`, "state");
      this.adapters.set(name, buffer);
    }
    return buffer;
  }

  /**
   * Destinations of the weights' bytes, by file. A weight with checksums is verified when all of
   * its bytes have been written: `write` then throws PackageError.
   * @param where name of the package, for errors
   */
  extents(manifest: Pick<Manifest, "weights">, where = ""): Map<string, Extent[]> {
    const files = new Map<string, Extent[]>();
    for (const { name, file, offset, bytes, sums, power } of manifest.weights.values()) {
      if (this.experts?.of(name)) continue;
      const buffer = this.at.get(name)!;
      const write = sums
        ? checkedWrite(this.device, buffer, sums, { name, where: where || file })
        : (chunk: Uint8Array, at: number) => this.device.write(buffer, chunk, at);
      if (!files.has(file)) files.set(file, []);
      files
        .get(file)!
        .push(
          power === undefined
            ? { start: offset, bytes, write }
            : { start: offset, bytes: 2 * bytes, write: halved(write, power, file) },
        );
    }
    return files;
  }
}
