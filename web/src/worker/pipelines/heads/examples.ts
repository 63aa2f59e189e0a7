// Labelled features, which a head is trained on again whenever they change.

import { Labels } from "../../../logic/personal/examples.ts";

/** The features of examples, by label. */
export class Examples extends Labels {
  /** Of each example. */
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
    this.rows.push(...rows);
    this.add_label(label, rows.length);
  }

  /**
   * Removes a label with its examples.
   * @throws InputError if there is none
   */
  remove(label: string): void {
    this.rows = this.remove_label(label).map((i) => this.rows[i]!);
  }

  /** Some of the examples, with all labels. */
  chosen(indices: readonly number[]): Examples {
    const made = new Examples(
      this.labels,
      indices.map((i) => this.classes[i]!),
    );
    made.rows = indices.map((i) => this.rows[i]!);
    return made;
  }

  /** The same examples, with other features if these are given. */
  copy(rows: readonly Float32Array[] = this.rows): Examples {
    const made = new Examples(this.labels, this.classes);
    made.rows = [...rows];
    return made;
  }
}
