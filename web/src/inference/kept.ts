// The plans that sessions compiled, in the browser's storage: one package for each model, whose weights stay in the model's own files.
// The next visit's session has all of its plans without Python. What is damaged or does not fit counts as not there.

import type { Weight } from "../checker.ts";
import { message, type Engine } from "../engine.ts";
import { compiledKey } from "../load.ts";
import { makePackage, openPackage, type OpenPackage } from "../package.ts";
import { joined } from "../ranges.ts";
import { NOTES } from "../recorder.ts";
import type { ByteSource } from "../source.ts";
import { digestReads, findCompiled, forgetCompiled, keepCompiled, type Reads, type Warn } from "../storage.ts";
import type { ModelFiles } from "./files.ts";
import { CONSTANTS, planJson, runKey, type InferenceInfo, type InferencePlan } from "./manifest.ts";

/** Plans that a session has at once, and that are kept of a model: those for the shapes that came lately. */
export const MAX_PLANS = 16;

/** Name of the part with what profiles say of a plan: it is made by itself, so it has notes of its own. */
export const notesOf = (file: string): string => `${NOTES}/${file}`;

/** A plan that was just compiled. */
export interface Made {
  plan: InferencePlan;
  /** Its bytes. */
  data: Uint8Array<ArrayBuffer>;
  notes: Uint8Array<ArrayBuffer> | undefined;
  /** Where weights come from, by name; among others those of the plan's slots. */
  weights: ReadonlyMap<string, Weight>;
  /** The bytes of a weight that lies in `CONSTANTS`. */
  constant(name: string): Uint8Array<ArrayBuffer>;
  /** What the compiler has read of the model's files up to now. */
  reads: Reads["ranges"];
}

/** What `find` found: a package, and streams of the model's files that its weights lie in. */
export interface Found { opened: OpenPackage; sources: Map<string, ByteSource> }

/** The kept plans of one model. */
export class KeptPlans {
  private constructor(private readonly key: string, private readonly tableHash: number, private readonly files: ModelFiles) {}

  /** @throws ModelError: the model is not there */
  static async of({ tableHash }: Engine, files: ModelFiles): Promise<KeptPlans> {
    return new KeptPlans(compiledKey(tableHash, { session: await files.identity() }), tableHash, files);
  }

  /** What earlier visits compiled, if the model is still the same. */
  async find(): Promise<Found | undefined> {
    try {
      return await this.fitting();
    } catch {
      return undefined; // a file is not there any more, or never was: reading the model anew says what is wrong with it
    }
  }

  private async fitting(): Promise<Found | undefined> {
    const opened = await this.open();
    if (!opened) return undefined;
    const { manifest } = opened;
    const { marks } = manifest.cache as { marks?: unknown };
    if (typeof marks !== "object" || marks === null) return undefined;
    for (const [file, mark] of Object.entries(marks)) if ((await this.files.mark(file)) !== mark) return undefined;
    const beside = [...manifest.weights.values()].filter(({ file }) => !manifest.files.has(file));
    for (const { file, offset, bytes } of beside) if (file === CONSTANTS || offset + bytes > ((await this.files.size(file)) ?? -1)) return undefined;
    const sources: Found["sources"] = new Map();
    for (const file of new Set(beside.map((w) => w.file))) sources.set(file, (await this.files.stream(file))!);
    return { opened, sources };
  }

  /** Puts a plan beside those that are kept, in the place of one for the same runs; the oldest go where there are too many. False, and a warning, where there is no room. */
  async add(info: Pick<InferenceInfo, "inputs" | "outputs">, made: Made, warn: Warn): Promise<boolean> {
    try {
      return await keepCompiled(this.key, await this.join(info, made), warn);
    } catch (e) {
      warn(`The plan was not kept for the next visit (${message(e)}). Nothing is lost.`); // what was there is damaged in a way that shows only now
      await this.forget();
      return false;
    }
  }

  private async join({ inputs, outputs }: Pick<InferenceInfo, "inputs" | "outputs">, made: Made): Promise<Blob> {
    const before = await this.open();
    await before?.finish(new Map());
    // Of two tabs at once each may have made a plan of this name: then the latter's stays.
    const others = (before?.manifest.inference?.plans ?? []).filter((p) => p.file !== made.plan.file && runKey(p) !== runKey(made.plan));
    const plans = [...others, made.plan].slice(-MAX_PLANS);

    const files = new Map<string, Uint8Array<ArrayBuffer>>();
    const weights = new Map<string, Weight>();
    const constants: Uint8Array<ArrayBuffer>[] = [];
    let end = 0;
    for (const plan of plans) {
      const kept = plan === made.plan ? undefined : before;
      const notes = kept ? kept.files.get(notesOf(plan.file)) : made.notes;
      files.set(plan.file, kept ? kept.files.get(plan.file)! : made.data);
      if (notes) files.set(notesOf(plan.file), notes);
      for (const { name, kind } of plan.slots) {
        if (kind !== "weight" || weights.has(name)) continue;
        const weight = (kept ? kept.manifest.weights : made.weights).get(name)!;
        if (weight.file !== CONSTANTS) {
          weights.set(name, weight);
          continue;
        }
        const bytes = kept ? kept.files.get(CONSTANTS)!.subarray(weight.offset, weight.offset + weight.bytes) : made.constant(name);
        weights.set(name, { ...weight, offset: end });
        constants.push(bytes);
        end += bytes.length;
      }
    }
    if (end) files.set(CONSTANTS, new Uint8Array(await new Blob(constants).arrayBuffer()));

    const unmarked = this.files.unmarked();
    const read = (before?.manifest.cache as Reads | undefined)?.ranges ?? {};
    const ranges = Object.fromEntries(Array.from(unmarked.keys(), (name): [string, [number, number][]] => [name, joined([...(read[name] ?? []), ...(made.reads[name] ?? [])])]));
    const cache = { ranges, sha256: (await digestReads(ranges, unmarked)) ?? "", marks: this.files.marked };
    return makePackage({ table_hash: this.tableHash, task: "inference", weights: [...weights.values()], inference: { inputs, outputs, plans: plans.map(planJson) }, cache }, files);
  }

  /** Removes them: something about them is wrong. */
  forget(): Promise<void> {
    return forgetCompiled(this.key);
  }

  private async open(): Promise<OpenPackage | undefined> {
    const source = await findCompiled(this.key, this.files.unmarked());
    const opened = source && (await openPackage(source, true));
    return opened?.manifest.inference?.plans.length ? opened : undefined;
  }
}
