// Storage of the plans that sessions compiled: one package per model, whose weights stay in the
// model's own files. On the next visit all of them are available without Python. Damaged or
// outdated packages are ignored.

import type { Device } from "../../device/device.ts";
import { targetOf } from "../../device/open.ts";
import { MAX_INFERENCE_PLANS, MAX_VALUES } from "../../gen/manifest.ts";
import type { Weight } from "../../gen/schema.ts";
import { Checker } from "../../logic/manifest/checker.ts";
import type { ModelInfo } from "../../protocol/inference.ts";
import type { Warn } from "../../shared/files/cached.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import { joined } from "../../shared/ranges.ts";
import { message } from "../../shared/words.ts";
import {
  digestReads,
  findCompiled,
  forgetCompiled,
  keepCompiled,
  type Reads,
} from "../files/compiled.ts";
import { compiledKey } from "../files/compiled-key.ts";
import type { Json } from "../package/container.ts";
import { NOTES } from "../package/container.ts";
import { makePackage, type OpenPackage, openPackage } from "../package/package.ts";
import type { ModelFiles } from "./files.ts";
import { CONSTANTS, type InferencePlan, modelJson, planJson } from "./manifest.ts";
import { MAX_PLANS } from "./part.ts";
import { type GraphProgram, parseProgram } from "./program.ts";
import { toHex } from "./values.ts";

/** Name of the part with a plan's notes for profiles; each plan has its own. */
export const notesFile = (file: string): string => `${NOTES}/${file}`;

/** A newly compiled plan. */
export interface Made {
  plan: InferencePlan;
  /** Its bytes; undefined if there is nothing to execute. */
  data: Uint8Array<ArrayBuffer> | undefined;
  notes: Uint8Array<ArrayBuffer> | undefined;
  /** Reads a weight that is stored in `CONSTANTS`. */
  constant(name: string): Promise<Uint8Array<ArrayBuffer>>;
}

/** Result of `find`: a package, and sources of the model files that contain its weights. */
export interface FoundPlans {
  opened: OpenPackage;
  sources: Map<string, ByteSource>;
}

/** The stored plans of a model. */
export class KeptPlans {
  private constructor(
    private readonly key: string,
    private readonly tableHash: number,
    private readonly files: ModelFiles,
    private readonly target: { target?: "webgpu" },
  ) {}

  /** @throws ModelError if the model does not exist */
  static async of(device: Device, files: ModelFiles): Promise<KeptPlans> {
    const { tableHash } = device;
    const target = targetOf(device) === "webgpu" ? { target: "webgpu" as const } : {};
    return new KeptPlans(
      compiledKey(tableHash, { session: await files.identity(), ...target }, files.key),
      tableHash,
      files,
      target,
    );
  }

  /** Finds the plans of earlier visits, if the model is unchanged. */
  async find(): Promise<FoundPlans | undefined> {
    try {
      return await this.fitting();
    } catch {
      // a file is missing: loading the model reports what is wrong
      return undefined;
    }
  }

  private async fitting(): Promise<FoundPlans | undefined> {
    const opened = await this.open();
    if (!opened) return undefined;
    const { manifest } = opened;
    const { marks } = manifest.cache as { marks?: unknown };
    if (typeof marks !== "object" || marks === null) return undefined;
    for (const [file, mark] of Object.entries(marks))
      if ((await this.files.mark(file)) !== mark) return undefined;
    const beside = [...manifest.weights.values()].filter(({ file }) => !manifest.files.has(file));
    for (const { file, offset, bytes } of beside)
      if (file === CONSTANTS || offset + bytes > ((await this.files.size(file)) ?? -1))
        return undefined;
    const sources: FoundPlans["sources"] = new Map();
    for (const file of new Set(beside.map((w) => w.file)))
      sources.set(file, (await this.files.stream(file))!);
    return { opened, sources };
  }

  /**
   * Stores plans, replacing those for the same shapes. Beyond the limits, per part and in total,
   * the oldest plans are dropped. Without space: calls `warn` and returns false.
   * @param info describes the model
   * @param programs descriptions of all programs, parents before children
   * @param where sources of weights by name, including those of plans and programs
   * @param made the new plans
   * @param reads ranges of the model's files that the compiler has read
   */
  async add(
    info: ModelInfo,
    programs: readonly Record<string, Json>[],
    where: ReadonlyMap<string, Weight>,
    made: readonly Made[],
    reads: Reads["ranges"],
    warn: Warn,
  ): Promise<boolean> {
    try {
      return await keepCompiled(
        this.key,
        await this.join(info, programs, where, made, reads),
        warn,
      );
    } catch (e) {
      // the stored package is damaged, which was noticed only now
      warn(`The plan was not kept for the next visit (${message(e)}). Nothing is lost.`);
      await this.forget();
      return false;
    }
  }

  private async join(
    info: ModelInfo,
    mine: readonly Record<string, Json>[],
    where: ReadonlyMap<string, Weight>,
    made: readonly Made[],
    reads: Reads["ranges"],
  ): Promise<Blob> {
    const before = await this.open();
    await before?.finish(new Map());
    const described = joinedPrograms(before, mine);
    const programs = Array.from(described.values(), (json) =>
      parseProgram(new Checker(this.files.name), json, "a program"),
    );
    const plans = joinedPlans(before, programs, made);
    const { files, weights } = await collect(plans, before, made, where);
    for (const { constants } of programs)
      for (const c of constants.values()) {
        const weight =
          "weight" in c
            ? (where.get(c.weight) ?? before?.manifest.weights.get(c.weight))
            : undefined;
        if (weight && !weights.has(weight.name)) weights.set(weight.name, weight);
      }
    return makePackage(
      {
        table_hash: this.tableHash,
        task: "inference",
        ...this.target,
        weights: [...weights.values()],
        inference: {
          ...modelJson(info),
          plans: plans.map(planJson),
          programs: [...described.values()],
        },
        cache: await this.identification(before, reads),
      },
      files,
    );
  }

  /** What must be unchanged for the package to be valid: ranges of files, and their versions. */
  private async identification(
    before: OpenPackage | undefined,
    reads: Reads["ranges"],
  ): Promise<Reads & { marks: Readonly<Record<string, string>> }> {
    const unmarked = this.files.unmarked();
    const read = (before?.manifest.cache as Reads | undefined)?.ranges ?? {};
    const ranges = Object.fromEntries(
      Array.from(unmarked.keys(), (name): [string, [number, number][]] => [
        name,
        joined([...(read[name] ?? []), ...(reads[name] ?? [])]),
      ]),
    );
    return {
      ranges,
      sha256: (await digestReads(ranges, unmarked)) ?? "",
      marks: this.files.marked,
    };
  }

  /** Removes the stored plans. */
  forget(): Promise<void> {
    return forgetCompiled(this.key);
  }

  private async open(): Promise<OpenPackage | undefined> {
    const source = await findCompiled(this.key, this.files.unmarked());
    const opened = source && (await openPackage(source, true));
    return opened?.manifest.inference?.programs.length ? opened : undefined;
  }
}

/** Descriptions of the stored programs and of `mine`, by name. */
function joinedPrograms(
  before: OpenPackage | undefined,
  mine: readonly Record<string, Json>[],
): Map<string, Record<string, Json>> {
  // Two tabs may have made plans with equal names and the same programs: the later ones win.
  const described = new Map(
    (before?.manifest.inference?.programs ?? []).map((p) => [p.name, p.json]),
  );
  for (const json of mine) described.set(String(json.program), json);
  limitPrograms(described);
  return described;
}

/** The stored plans and the new ones, without replaced ones and within the limits. */
function joinedPlans(
  before: OpenPackage | undefined,
  programs: readonly GraphProgram[],
  made: readonly Made[],
): InferencePlan[] {
  const parts = new Set(
    programs.flatMap((p) => p.units.flatMap((u) => (u.kind === "part" ? [u.part] : []))),
  );
  const replaced = new Set(made.flatMap(({ plan }) => [shapesKey(plan), plan.file]));
  const others = (before?.manifest.inference?.plans ?? []).filter(
    (p) => !replaced.has(shapesKey(p)) && !(p.file && replaced.has(p.file)),
  );
  const counts = new Map<string, number>();
  return [...others, ...made.map(({ plan }) => plan)]
    .filter((p) => parts.has(p.part))
    .reverse()
    .filter(({ part }) => {
      counts.set(part, (counts.get(part) ?? 0) + 1);
      return counts.get(part)! <= MAX_PLANS;
    })
    .slice(0, MAX_INFERENCE_PLANS)
    .reverse();
}

/** The parts of the package with these plans, and the weights that they read. */
async function collect(
  plans: readonly InferencePlan[],
  before: OpenPackage | undefined,
  made: readonly Made[],
  where: ReadonlyMap<string, Weight>,
): Promise<{ files: Map<string, Uint8Array<ArrayBuffer>>; weights: Map<string, Weight> }> {
  const fresh = new Map(made.map((m) => [m.plan, m]));
  const files = new Map<string, Uint8Array<ArrayBuffer>>();
  const weights = new Map<string, Weight>();
  const constants: Uint8Array<ArrayBuffer>[] = [];
  let end = 0;
  for (const plan of plans) {
    const one = fresh.get(plan);
    const kept = one ? undefined : before;
    const notes = kept ? kept.files.get(notesFile(plan.file)) : one!.notes;
    const data = kept ? kept.files.get(plan.file) : one!.data;
    if (plan.file && data) files.set(plan.file, data);
    if (plan.file && notes) files.set(notesFile(plan.file), notes);
    for (const { name, kind } of plan.slots) {
      if (kind !== "weight" || weights.has(name)) continue;
      const weight = (kept ? kept.manifest.weights : where).get(name)!;
      if (weight.file !== CONSTANTS) {
        weights.set(name, weight);
        continue;
      }
      const bytes = kept
        ? kept.files.get(CONSTANTS)!.subarray(weight.offset, weight.offset + weight.bytes)
        : await one!.constant(name);
      weights.set(name, { ...weight, offset: end });
      constants.push(bytes);
      end += bytes.length;
    }
  }
  if (end) files.set(CONSTANTS, new Uint8Array(await new Blob(constants).arrayBuffer()));
  return { files, weights };
}

/** Drops the oldest programs beyond the manifest's limit. A program needs its parents. */
function limitPrograms(programs: Map<string, Record<string, Json>>): void {
  if (programs.size <= MAX_VALUES) return;
  const kept = new Set<string>();
  for (const newest of [...programs.keys()].reverse()) {
    const family: string[] = [];
    for (let name: string | undefined = newest; name !== undefined && !kept.has(name); ) {
      family.push(name);
      const origin = programs.get(name)?.origin as
        | { parent?: Json; op?: { like?: Json[] } }
        | undefined;
      const parent: Json | undefined = origin?.parent ?? origin?.op?.like?.[0];
      name =
        typeof parent === "string" && programs.has(parent) && !family.includes(parent)
          ? parent
          : undefined;
    }
    if (kept.size + family.length <= MAX_VALUES) for (const name of family) kept.add(name);
  }
  for (const name of [...programs.keys()]) if (!kept.has(name)) programs.delete(name);
}

/** Plans with equal keys serve the same runs. */
function shapesKey({ part, inputs, known, beyond }: InferencePlan): string {
  return JSON.stringify([
    part,
    [...inputs].sort(([a], [b]) => (a < b ? -1 : 1)),
    Array.from(known, ([name, bytes]) => [name, toHex(bytes)]).sort(),
    beyond,
  ]);
}
