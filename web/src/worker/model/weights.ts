// The weights of a model in engine memory, and what follows from them.

import type { Engine } from "../../device/wasm/engine.ts";
import type { Extent } from "../../shared/files/source.ts";
import { checkSums } from "../../device/wasm/sums.ts";
import type { Plan } from "../../device/wasm/plan-header.ts";
import type { Manifest } from "../package/manifest.ts";

/** A stretch of engine memory. */
export interface Place {
  address: number;
  bytes: number;
}

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
 * What all plans of a package share in engine memory: its weights (and the extents that fill them
 * from the files they lie in), what init steps compute of them, and the adapters that training
 * changes. /
 */
export class Weights {
  private readonly at = new Map<string, Place>();
  private readonly made = new Map<string, Place>();
  private readonly adapters = new Map<string, Place>();
  /** Of all weights that are there. */
  bytes = 0;

  constructor(
    private readonly engine: Engine,
    manifest: Pick<Manifest, "weights">,
  ) {
    this.add(manifest);
  }

  /** Takes memory for more of them. */
  add(manifest: Pick<Manifest, "weights">): void {
    for (const { name, bytes } of manifest.weights.values()) {
      this.at.set(name, { address: this.engine.alloc(bytes, `the weight '${name}'`, true), bytes });
      this.bytes += bytes;
    }
  }

  /** Where a weight lies, which must be there. */
  address(name: string): Place {
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
   * @throws as Engine.init; what was not there before is not there then either
   * /
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
          .filter(({ kind }, slot) => kind === "weight" && this.engine.inRuns(plan, slot))
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
        this.engine.free(this.made.get(name)!.address);
        this.made.delete(name);
      }
      throw e;
    }
    for (const { plan, slots } of plans)
      slots.forEach(({ name, kind }, slot) => {
        if (kind === "weight" && spent(name)) this.engine.unbind(plan, slot);
      });
    for (const { slots } of plans)
      for (const { name, kind } of slots) if (kind === "weight" && spent(name)) this.drop(name);
  }

  /**
   * Memory for a constant is taken just before the first init step that uses it, and a weight is
   * let go of behind the last: constants come to lie where weights were, and both are never there
   * whole.
   * /
   */
  private computeOne(
    { plan, slots, where }: PlanOf,
    fresh: string[],
    spent: (name: string) => boolean,
  ): void {
    const engine = this.engine;
    const steps = this.hasComputed(slots) ? 0 : engine.describe(plan).initCount;
    const events = Array.from({ length: steps + 1 }, (): (() => void)[] => []);
    slots.forEach(({ name, kind }, slot) => {
      const [, end] = engine.initSpan(plan, slot);
      if (kind === "weight" && steps && end && spent(name))
        events[end]!.push(() => {
          engine.unbind(plan, slot);
          this.drop(name);
        });
    });
    slots.forEach(({ name, kind, bytes }, slot) => {
      if (kind === "computed")
        events[steps && engine.initSpan(plan, slot)[0]]!.push(() => {
          const place = this.computed(name, bytes);
          if (place.fresh) fresh.push(name);
          engine.bind(plan, slot, place.address, place.bytes, `${where}, slot '${name}'`);
        });
    });
    let done = 0;
    events.forEach((here, step) => {
      if (!here.length && step < steps) return;
      engine.initSteps(plan, done, step - done, where);
      done = step;
      for (const event of here) event();
    });
  }

  /** Lets go of a weight, as if it had never been there. */
  drop(name: string): void {
    const place = this.at.get(name);
    if (!place) return;
    this.engine.free(place.address);
    this.at.delete(name);
    this.bytes -= place.bytes;
  }

  /**
   * Memory of a constant that init steps compute; `fresh`: they have yet to. Its name says what it
   * is computed from, so plans share it.
   */
  private computed(name: string, bytes: number): Place & { fresh: boolean } {
    const known = this.made.get(name);
    if (known && known.bytes >= bytes) return { ...known, fresh: false };
    const place = { address: this.engine.alloc(bytes, `the constant '${name}'`), bytes };
    this.made.set(name, place);
    return { ...place, fresh: true };
  }

  /**
   * Memory of a state of adapters: zeros, which add nothing, until something is loaded or trained.
   */
  adapter(name: string, bytes: number): Place {
    let place = this.adapters.get(name);
    if (!place)
      this.adapters.set(
        name,
        (place = { address: this.engine.alloc(bytes, `the adapter '${name}'`), bytes }),
      );
    return place;
  }

  /**
   * Per file, where its ranges go. A weight that has sums is compared with them as soon as all of
   * its bytes have come: then `write` throws PackageError.
   * @param where the package's name, for errors
   * /
   */
  extents(manifest: Pick<Manifest, "weights">, where = ""): Map<string, Extent[]> {
    const files = new Map<string, Extent[]>();
    for (const { name, file, offset, bytes, sums } of manifest.weights.values()) {
      const { address } = this.at.get(name)!;
      let left = bytes;
      const write = (chunk: Uint8Array, at: number) => {
        this.engine.bytes(address + at, chunk.length).set(chunk);
        left -= chunk.length;
        if (!left && sums)
          checkSums(this.engine, address, bytes, sums, { name, where: where || file });
      };
      if (!files.has(file)) files.set(file, []);
      files.get(file)!.push({ start: offset, bytes, write });
    }
    return files;
  }
}
