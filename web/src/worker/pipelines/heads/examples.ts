// Labelled features, which a head is trained on again whenever they change. Mirrors
// python/edgewise/compiler/heads/examples.py.

import { InputError } from "../../../shared/errors.ts";
import { round } from "../../../shared/python.ts";
import { seedOfRun } from "../../../shared/seeds.ts";

/** The features of examples, by label. */
export class Examples {
  /** In the order in which they were added. */
  labels: string[] = [];
  /** The index of each example's label. */
  classes: number[] = [];
  rows: Float32Array[] = [];

  get length(): number {
    return this.classes.length;
  }

  /** Numbers of an example's features; 0: there are no examples. */
  get size(): number {
    return this.rows[0]?.length ?? 0;
  }

  /** Adds examples of a label. */
  add(label: string, rows: readonly Float32Array[]): void {
    if (!this.labels.includes(label)) this.labels.push(label);
    const index = this.labels.indexOf(label);
    for (const row of rows) {
      this.rows.push(row);
      this.classes.push(index);
    }
  }

  /**
   * Removes a label with its examples.
   * @throws InputError if there is none
   */
  remove(label: string): void {
    const gone = this.labels.indexOf(label);
    if (gone < 0)
      throw new InputError(
        `there is no label '${label}'`,
        "remove",
        `There are: ${this.labels.join(", ")}.`,
      );
    const kept = this.classes.flatMap((c, i) => (c === gone ? [] : [i]));
    this.rows = kept.map((i) => this.rows[i]!);
    this.classes = kept.map((i) => this.classes[i]! - (this.classes[i]! > gone ? 1 : 0));
    this.labels.splice(gone, 1);
  }

  /** Some of the examples, with all labels. */
  chosen(indices: readonly number[]): Examples {
    const made = new Examples();
    made.labels = [...this.labels];
    made.rows = indices.map((i) => this.rows[i]!);
    made.classes = indices.map((i) => this.classes[i]!);
    return made;
  }

  copy(): Examples {
    return this.chosen(this.rows.map((_, i) => i));
  }

  /** The number of examples of each label. */
  counts(): number[] {
    const found = this.labels.map(() => 0);
    for (const c of this.classes) found[c]!++;
    return found;
  }

  /**
   * The weight of each example.
   * @param classWeight "balanced": all labels count the same. Weights of labels that are gone have
   *   no effect.
   */
  weights(classWeight: "balanced" | Readonly<Record<string, number>> | null): number[] {
    let of = this.labels.map(() => 1);
    if (classWeight === "balanced") {
      const counts = this.counts();
      const present = counts.filter(Boolean).length;
      of = counts.map((n) => (n ? this.length / (present * n) : 0));
    } else if (classWeight !== null) {
      of = this.labels.map((label) =>
        Object.hasOwn(classWeight, label) ? classWeight[label]! : 1,
      );
    }
    return this.classes.map((c) => of[c]!);
  }

  /**
   * Indices of the examples to train on, and of the held-out ones.
   * @param share of each label's examples that is held out, at least one and at most all but one
   */
  split(share: number, seed: number): [known: number[], held: number[]] {
    const ofLabel = this.labels.map((): number[] => []);
    this.classes.forEach((c, i) => {
      ofLabel[c]!.push(i);
    });
    const held: number[] = [];
    for (const own of ofLabel) {
      if (own.length < 2) continue;
      const count = Math.min(Math.max(1, round(share * own.length)), own.length - 1);
      const order = own
        .map((i, k): [bigint, number] => [seedOfRun(BigInt(seed), k), i])
        .sort(([a], [b]) => (a < b ? -1 : 1));
      held.push(...order.slice(0, count).map(([, i]) => i));
    }
    const isHeld = new Set(held);
    return [this.rows.flatMap((_, i) => (isHeld.has(i) ? [] : [i])), held.sort((a, b) => a - b)];
  }
}
