// The heads of a personal pipeline. Their rules are logic/personal.

import { measured } from "../../../logic/personal/measures.ts";
import {
  check_labels,
  check_teaching,
  checked_seed,
  type HeadFields,
  head_fields,
  is_lora,
  SHARE,
} from "../../../logic/personal/options.ts";
import {
  by_label,
  type CallOptions,
  call_options,
  check_known,
  label_of,
  results,
  VOICES,
} from "../../../logic/personal/results.ts";
import type {
  HeadAnswer,
  HeadCall,
  HeadInfo,
  HeadRequest,
  LoraReport,
  Measures,
} from "../../../protocol/heads.ts";
import type { TaskInput } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Adapters, Feeds, Held } from "../adapters/lora.ts";
import type { Ending, TaskHost } from "../host.ts";
import { Options } from "../options.ts";
import { Examples } from "./examples.ts";
import { featuresInfo, featuresOf } from "./features.ts";
import { readHead, type Saved, writeHead } from "./files.ts";
import { fit, type Head, logitsOf, type Sizes } from "./fit.ts";
import { nearest } from "./nearest.ts";

/** Tasks of personal pipelines, where they are not the pipeline's. */
const TASKS: Readonly<Record<string, string>> = {
  "feature-extraction": "text-classification",
  "image-feature-extraction": "image-classification",
};
/** The part for models with adapters. */
const adapting = () => import("../adapters/index.ts");
/** Personal pipelines by their numbers. */
const personal = new Map<number, Heads>();

/**
 * Executes a request of a personal pipeline. "begin" makes it.
 * @throws InputError, ModelError, Aborted
 */
export async function runHead(
  host: TaskHost,
  { personal: number, request }: HeadCall,
  ending: Ending,
): Promise<HeadAnswer> {
  if (request.do === "begin") personal.set(number, new Heads(host, request));
  const heads = personal.get(number);
  if (!heads) throw new InputError("it was disposed of", "personalize", "Make a new one.");
  if (request.do === "end") personal.delete(number);
  const answer = await heads.answer(request, ending);
  return { ...answer, info: heads.info };
}

type Taught = readonly (readonly [label: string, inputs: readonly TaskInput[]])[];
const WHERE = "options.";

class Heads {
  private readonly heads = new Map<string, Saved>();
  private name = "";
  private validation: Measures | null = null;
  private lora: LoraReport | null = null;
  private readonly reports = new WeakMap<Saved, [Measures | null, LoraReport | null]>();
  private readonly ms = { features: 0, training: 0 };
  private readonly model: string;
  private readonly task: string;
  private fields: HeadFields;
  /** Of a head that begins with `add`. */
  private readonly firstName: string;

  constructor(
    private readonly host: TaskHost,
    { fields, name, validation_split, seed }: Extract<HeadRequest, { do: "begin" }>,
  ) {
    this.fields = head_fields(fields, WHERE);
    check_teaching(name, validation_split, WHERE);
    checked_seed(seed, WHERE);
    this.firstName = name as string;
    this.model = featuresInfo(host).model;
    this.task = TASKS[host.task] ?? host.task;
  }

  get info(): HeadInfo {
    const saved = this.heads.get(this.name);
    const counts = saved?.examples.counts() ?? [];
    const labels = saved?.examples.labels.map((label, i): [string, number] => [label, counts[i]!]);
    return {
      name: this.name,
      heads: [...this.heads.keys()],
      labels: Object.fromEntries(labels ?? []),
      losses: saved?.head?.losses ?? [],
      ms: { ...this.ms },
      validation: this.validation,
      lora: this.lora,
    };
  }

  async answer(request: HeadRequest, ending: Ending): Promise<Omit<HeadAnswer, "info">> {
    switch (request.do) {
      case "begin":
      case "end":
        return {};
      case "teach":
        await this.teach(request, ending);
        return {};
      case "add": {
        const before = this.heads.get(this.name);
        const examples = before?.examples.copy() ?? new Examples();
        const rows = await this.features(request.inputs, ending, before?.adapters);
        examples.add(request.label, rows);
        await this.fit(this.name || this.firstName, examples, ending, before?.adapters);
        return {};
      }
      case "remove": {
        const { current } = this;
        const examples = current.examples.copy();
        examples.remove(request.label);
        await this.fit(this.name, examples, ending, current.adapters);
        return {};
      }
      case "use":
        this.current = this.named(request.name);
        return {};
      case "call":
        return { results: await this.call(request.inputs, request.options, ending) };
      case "evaluate":
        return { measures: await this.evaluate(request.examples, ending) };
      case "save": {
        const { name } = request;
        return { file: await writeHead(name === undefined ? this.current : this.named(name)) };
      }
      case "export": {
        const { exported } = await import("./export.ts");
        return { file: await exported(this.host, this.current, request.format, ending) };
      }
      case "load":
        await this.load(request.file, request.name);
        return {};
    }
  }

  private get current(): Saved {
    const found = this.heads.get(this.name);
    if (!found) throw new InputError("there is no head", "personalize", "Give examples.");
    return found;
  }

  private set current(saved: Saved) {
    this.heads.set(saved.name, saved);
    this.name = saved.name;
    [this.validation, this.lora] = this.reports.get(saved) ?? [null, null];
    this.fields = saved.fields; // how it is trained again
  }

  private named(name: string): Saved {
    const found = this.heads.get(name);
    if (found) return found;
    const all = [...this.heads.keys()].join(", ");
    throw new InputError(`there is no head '${name}'`, "personalize", `There are: ${all}.`);
  }

  private async features(
    inputs: readonly TaskInput[],
    ending: Ending,
    adapters?: Adapters,
    seen?: (feeds: Feeds) => void,
  ): Promise<Float32Array[]> {
    const began = performance.now();
    const rows: Float32Array[] = [];
    const { host: own } = this;
    const host = adapters || seen ? (await adapting()).changed(own, adapters, seen) : own;
    for (const [i, input] of inputs.entries()) {
      try {
        rows.push(await featuresOf(host, input, ending));
      } catch (e) {
        if (!(e instanceof InputError) || inputs.length === 1) throw e;
        throw new InputError(e.what, e.where ? `input ${i}, ${e.where}` : `input ${i}`, e.remedy);
      }
    }
    this.ms.features = performance.now() - began;
    return rows;
  }

  private async teach(
    request: Extract<HeadRequest, { do: "teach" }>,
    ending: Ending,
  ): Promise<void> {
    const { name, validation_split } = request;
    check_teaching(name, validation_split, WHERE);
    const [own, share] = [name as string, validation_split as number];
    const seed = checked_seed(request.seed, WHERE);
    const part = is_lora(request.lora, this.fields.method) ? await adapting() : undefined;
    const options = part?.loraOptions(request.lora, this.host);
    const labels = request.examples.map(([label]) => label);
    if (!this.heads.size) check_labels(this.fields, labels); // later ones may be of others
    const examples = new Examples();
    const feeds: Feeds[] = [];
    const seen = part && ((one: Feeds) => feeds.push(one));
    let features = 0;
    for (const [label, inputs] of request.examples) {
      examples.add(label, await this.features(inputs, ending, undefined, seen));
      features += this.ms.features;
    }
    this.ms.features = features;
    const split = examples.split(share || (part ? SHARE : 0), seed);
    const train = async (some: Examples) => (await this.trained(some, ending))!;
    const score = (some: Examples) => this.held(some, split, ending);
    const { class_weight } = this.fields;
    const job = { examples, feeds, split, class_weight, seed, train, score };
    const found = await part?.adapt(this.host, job, options!, ending);
    const validation =
      found || !share ? null : measured(examples.labels, ...(await score(examples)));
    await this.fit(own, found?.examples ?? examples, ending, found?.adapters);
    const report = found?.report ?? null;
    this.report(report ? (report.after ?? report.before) : validation, report);
  }

  private report(validation: Measures | null, lora: LoraReport | null): void {
    [this.validation, this.lora] = [validation, lora];
    this.reports.set(this.current, [validation, lora]);
  }

  /** What a head that does not know the held-out examples says of them. */
  private async held(
    examples: Examples,
    [known, held]: readonly [number[], number[]],
    ending: Ending,
  ): Promise<Held> {
    const some = examples.chosen(known);
    const head = await this.trained(some, ending);
    const { labels, classes, rows } = examples;
    const scores = held.map((i) =>
      by_label(labels, this.values(some, head, rows[i]!), head !== undefined),
    );
    return [held.map((i) => labels[classes[i]!]!), scores];
  }

  private async fit(
    name: string,
    examples: Examples,
    ending: Ending,
    adapters?: Adapters,
  ): Promise<void> {
    const { fields, model, task } = this;
    const began = performance.now();
    // Examples may come one by one: a first label alone cannot be told from anything.
    const head = examples.trainable() ? await this.trained(examples, ending) : undefined;
    this.ms.training = performance.now() - began;
    this.current = { name, task, model, fields, examples, head, adapters };
  }

  private async trained(examples: Examples, ending: Ending): Promise<Head | undefined> {
    if (this.fields.method === "knn") return undefined;
    const { host, fields } = this;
    return fit(examples, fields, this.sizes(), (feeds) => host.run("head", feeds, ending));
  }

  /** Numbers of examples and classes that the package has steps for. */
  private sizes(): Sizes {
    const shapes = this.host
      .graph("head")
      .plans.map(({ inputs }) => inputs.get("targets")!.shape as readonly number[]);
    const sorted = (axis: number) =>
      [...new Set(shapes.map((shape) => shape[axis]!))].sort((a, b) => a - b);
    return { rows: sorted(0), classes: sorted(1) };
  }

  /** Logits of the labels, or with "knn" their shares. */
  private values(examples: Examples, head: Head | undefined, features: Float32Array): number[] {
    return head ? logitsOf(head, features) : nearest(examples, features, this.fields.neighbors);
  }

  private async call(
    inputs: readonly TaskInput[],
    given: Record<string, unknown>,
    ending: Ending,
  ): Promise<unknown[]> {
    const { head, examples, fields, adapters } = this.current;
    const { labels } = examples;
    const trained = head !== undefined;
    const names = this.task === VOICES ? ["threshold", "name"] : ["top_k", "function_to_apply"];
    new Options(given, names); // refuses others
    const options: CallOptions = call_options(given, this.task, fields.method, WHERE);
    check_known(labels, trained, fields.method);
    return (await this.features(inputs, ending, adapters)).map((row) =>
      results(options, this.task, labels, this.values(examples, head, row), trained),
    );
  }

  private async evaluate(given: Taught, ending: Ending): Promise<Measures> {
    const { head, examples, adapters, fields } = this.current;
    const { labels } = examples;
    check_known(labels, head !== undefined, fields.method);
    const truth: string[] = [];
    const scores: Readonly<Record<string, number>>[] = [];
    for (const [label, inputs] of given)
      for (const row of await this.features(inputs, ending, adapters)) {
        truth.push(label_of(label, labels));
        const values = this.values(examples, head, row);
        scores.push(by_label(labels, values, head !== undefined));
      }
    return measured(labels, truth, scores);
  }

  private async load(file: Blob, name: string | undefined): Promise<void> {
    const saved = await readHead(file, name ?? "head");
    if (saved.model !== this.model || saved.task !== this.task)
      throw new InputError(
        `the head '${saved.name}' was made with another model or task`,
        "personalize",
        "Load it with the model that it was made with, or teach it again.",
      );
    if (saved.adapters) (await adapting()).checkAdapters(this.host, saved.adapters);
    if (saved.examples.size !== featuresInfo(this.host).size)
      throw new InputError("its features have another size", "personalize", "Teach it again.");
    this.current = { ...saved, name: name || saved.name || "default" };
  }
}
