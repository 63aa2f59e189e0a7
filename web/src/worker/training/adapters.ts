// What training made, by name: adapters (LoRA) and trained sets of all parameters. One is in use at
// a time: its tensors lie in the states that the decoder's plans read; the others are kept as
// copies outside of the engine, and change places with it on demand.

import type { Buffer, Device } from "../../device/device.ts";
import type { AdapterInfo } from "../../protocol/training.ts";
import {
  asFloat32,
  readSafetensors,
  safetensorsHead,
  type Place as TensorPlace,
} from "../../shared/checkpoints/safetensors.ts";
import { InputError, ModelError } from "../../shared/errors.ts";
import { BlobReader } from "../../shared/files/blobs.ts";
import type { EngineDecoder } from "../model/decoder.ts";
import type { Weights } from "../model/weights.ts";
import type { LoraInfo, Manifest, ProgramInfo, StateInfo } from "../package/manifest.ts";
import { checkName, configOf, scaling } from "./adapter-config.ts";
import { cut, padded, resultsOf, tensorsOf } from "./adapter-tensors.ts";
import { SCALE, type Session } from "./session.ts";

interface Entry {
  name: string;
  program: ProgramInfo;
  /**
   * The adapter's own; a smaller `r` than the program's leaves the rest zeros, and another scaling
   * is a factor of the scale.
   */
  lora: LoraInfo | undefined;
  scale: number;
  /** Bytes by state; undefined while only the engine has them. */
  tensors: Map<string, Uint8Array<ArrayBuffer>> | undefined;
  /** The engine's states have newer values than `tensors`. */
  session: Session | undefined;
}

/** The adapters of one model in the worker. */
export class Adapters {
  private readonly entries = new Map<string, Entry>();
  /** Whose tensors lie in the states of each program. */
  private readonly resident = new Map<ProgramInfo, Entry>();
  private active: Entry | undefined;
  /**
   * Memory of trained parameters that no session owns: of sets that were loaded, or whose session
   * has ended.
   */
  private readonly parameters = new Map<ProgramInfo, Map<string, Buffer>>();
  private decoderUses: Map<string, Buffer> | undefined;
  /** Training has changed weights since the decoder last computed what follows from them. */
  private stale = false;

  constructor(
    private readonly device: Device,
    private readonly weights: Weights,
    private readonly decoder: EngineDecoder,
    private readonly manifest: Manifest,
  ) {}

  /** All of them. */
  list(): AdapterInfo[] {
    return Array.from(this.entries.values(), (e) => this.info(e));
  }

  private info(e: Entry): AdapterInfo {
    const shapes = tensorsOf(e.program, e.lora);
    let bytes = 0;
    for (const { info } of shapes.values()) bytes += info.bytes;
    return {
      name: e.name,
      kind: e.program.lora ? "lora" : "full",
      active: this.active === e,
      scale: e.scale,
      bytes,
      ...(e.lora ? { r: e.lora.r, lora_alpha: e.lora.lora_alpha } : {}),
    };
  }

  /**
   * Whether generation can use what a program trains: its parameters must be kept in the type that
   * they are trained in.
   */
  check(program: ProgramInfo): void {
    for (const { slots } of this.decoder.info.plans)
      for (const slot of slots) {
        const state =
          slot.kind === "weight"
            ? [...program.states.values()].find(
                (s) => s.initial[0] === "constant" && s.initial[1] === slot.name,
              )
            : undefined;
        if (state && state.dtype !== slot.dtype)
          throw new InputError(
            `the model keeps '${slot.name}' as ${slot.dtype}, and it is trained as ${state.dtype}`,
            `training '${program.name}'`,
            "Train adapters (LoRA), or take the model's float32 file.",
          );
      }
  }

  /** Whether there is one of this name. */
  has(name: string): boolean {
    return this.entries.has(name);
  }

  private entry(name: string): Entry {
    const found = this.entries.get(name);
    if (!found)
      throw new InputError(
        `there is no adapter '${name}'`,
        "adapters",
        this.entries.size
          ? `There are ${[...this.entries.keys()].join(", ")}.`
          : "Train one with fineTune, or load one with loadAdapter.",
      );
    return found;
  }

  /**
   * An adapter that a session trains: its tensors are what lies in the session's states. It takes
   * the place of one of the same name.
   */
  async begin(name: string, session: Session, lora: LoraInfo | undefined): Promise<void> {
    const { program } = session;
    if (this.entries.has(name)) await this.remove(name);
    await this.park(program);
    const entry: Entry = { name, program, lora, scale: 1, tensors: undefined, session };
    this.entries.set(name, entry);
    this.resident.set(program, entry);
    if (!program.lora) this.adopt(program, session);
    await this.use(name, 1);
  }

  /** Parameters of a session stay when it ends. */
  private adopt(program: ProgramInfo, session: Session): void {
    const places = new Map<string, Buffer>();
    for (const state of session.results) places.set(state.name, session.buffer(state));
    this.parameters.set(program, places);
  }

  /** Before a session's step: what it trains lies in the states, and counts fully. */
  async train(name: string): Promise<void> {
    const entry = this.entry(name);
    if (this.active !== entry || entry.scale !== 1) await this.use(name, 1);
    entry.tensors = undefined;
    this.stale = !entry.program.lora;
  }

  /** What reads a session's states without changing them; then what was in use is in use again. */
  async during<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.active;
    const scale = before?.scale ?? 0;
    const entry = this.entry(name);
    const same = before === entry && scale === 1;
    if (!same) await this.use(name, 1);
    try {
      return await work();
    } finally {
      if (!same) await this.use(before?.name ?? null, before ? scale : 1);
    }
  }

  /** Before a generation: the decoder's own constants follow what was trained. */
  refresh(): void {
    if (this.stale && this.decoderUses) this.decoder.useWeights(this.decoderUses);
    this.stale = false;
  }

  /** Before a session takes over a program's states: what lies there is kept. */
  makeRoom(program: ProgramInfo): Promise<void> {
    return this.park(program);
  }

  /** The session that was to begin could not: what was in use is again. */
  async restore(): Promise<void> {
    const { active } = this;
    if (active) await this.use(active.name, active.scale);
  }

  /** The session goes: its states' values are copied out first. */
  async end(session: Session): Promise<void> {
    for (const entry of this.entries.values())
      if (entry.session === session) {
        await this.copyOut(entry);
        entry.session = undefined;
        if (!entry.program.lora) {
          const used = this.active === entry;
          if (used) this.base();
          this.resident.delete(entry.program);
          this.parameters.delete(entry.program);
          session.free();
          if (used) await this.use(entry.name, 1);
          return;
        }
      }
    session.free();
  }

  /** Generation uses this one from now on; null: the model as it was. */
  async use(name: string | null, scale: number): Promise<void> {
    if (!Number.isFinite(scale))
      throw new InputError(
        `the scale is ${String(scale)}`,
        `adapter '${name}'`,
        "Give a number; 1 is the adapter as it was trained.",
      );
    if (name === null) return this.base();
    const entry = this.entry(name);
    if (!entry.program.lora && scale !== 1)
      throw new InputError(
        "a set of all parameters cannot be scaled",
        `adapter '${name}'`,
        "Leave the scale at 1, or train adapters (LoRA) instead.",
      );
    const other = this.active && this.active.program !== entry.program ? this.active : undefined;
    await this.makeResident(entry);
    entry.scale = scale;
    this.active = entry;
    if (entry.program.lora) {
      this.setScale(entry.program, scale * factorOf(entry));
      if (other || this.decoderUses) this.rebind(undefined);
    } else {
      this.silence();
      this.rebind(this.placesOf(entry.program));
    }
  }

  private base(): void {
    this.silence();
    this.active = undefined;
    if (this.decoderUses) this.rebind(undefined);
  }

  private silence(): void {
    for (const program of this.manifest.training.values())
      if (program.lora) this.setScale(program, 0);
  }

  private setScale(program: ProgramInfo, scale: number): void {
    const state = program.states.get(SCALE);
    if (!state) return;
    const buffer = this.weights.adapter(SCALE, state.bytes);
    this.device.write(buffer, new Uint8Array(Float32Array.of(scale).buffer));
  }

  /**
   * The decoder's weights that training has copies of lie in those copies; or all where they always
   * were.
   */
  private rebind(places: Map<string, Buffer> | undefined): void {
    this.decoderUses = places;
    this.stale = false;
    this.decoder.useWeights(places ?? new Map());
  }

  private async makeResident(entry: Entry): Promise<void> {
    if (this.resident.get(entry.program) === entry) return;
    await this.park(entry.program);
    for (const state of resultsOf(entry.program)) {
      const bytes = entry.tensors?.get(state.name);
      if (bytes) this.device.write(this.bufferOf(entry.program, state), bytes);
    }
    this.resident.set(entry.program, entry);
  }

  /** What lies in a program's states is copied out, if it is not already. */
  private async park(program: ProgramInfo): Promise<void> {
    const entry = this.resident.get(program);
    if (entry) await this.copyOut(entry);
    this.resident.delete(program);
  }

  private async copyOut(entry: Entry): Promise<void> {
    if (entry.tensors || this.resident.get(entry.program) !== entry) return;
    const tensors = new Map<string, Uint8Array<ArrayBuffer>>();
    for (const state of resultsOf(entry.program))
      tensors.set(
        state.name,
        await this.device.read(this.bufferOf(entry.program, state), 0, state.bytes),
      );
    entry.tensors = tensors;
  }

  private bufferOf(program: ProgramInfo, state: StateInfo): Buffer {
    return program.lora
      ? this.weights.adapter(state.name, state.bytes)
      : this.memoryOf(program).get(state.name)!;
  }

  private memoryOf(program: ProgramInfo): Map<string, Buffer> {
    let places = this.parameters.get(program);
    if (!places) {
      places = new Map();
      for (const state of resultsOf(program))
        places.set(state.name, this.device.allocate(state.bytes, `the parameter '${state.name}'`));
      this.parameters.set(program, places);
    }
    return places;
  }

  /** By weight: where its trained copy lies. */
  private placesOf(program: ProgramInfo): Map<string, Buffer> {
    const memory = this.memoryOf(program);
    const places = new Map<string, Buffer>();
    for (const state of resultsOf(program))
      if (state.initial[0] === "constant") places.set(state.initial[1], memory.get(state.name)!);
    return places;
  }

  /** Forgets one. @throws InputError: there is none, or it is being trained */
  async remove(name: string): Promise<void> {
    const entry = this.entry(name);
    if (entry.session)
      throw new InputError("it is being trained", `adapter '${name}'`, "Close its trainer first.");
    if (this.active === entry) this.base();
    if (this.resident.get(entry.program) === entry) {
      this.resident.delete(entry.program);
      // What is switched off still is multiplied with 0, which numbers that are none would survive.
      if (entry.program.lora)
        for (const state of resultsOf(entry.program))
          this.device.fill(this.bufferOf(entry.program, state), 0, 0, state.bytes);
    }
    this.entries.delete(name);
  }

  /** @throws InputError: there is none, it is being trained, or the new name is taken or none */
  rename(name: string, to: string): void {
    const entry = this.entry(name);
    checkName(to);
    if (name === to) return;
    if (entry.session)
      throw new InputError("it is being trained", `adapter '${name}'`, "Close its trainer first.");
    if (this.entries.has(to))
      throw new InputError(
        `there is an adapter '${to}' already`,
        `adapter '${name}'`,
        "Choose another name.",
      );
    this.entries.delete(name);
    entry.name = to;
    this.entries.set(to, entry);
  }

  // Files

  /**
   * As PEFT lays adapters out: adapter_model.safetensors and adapter_config.json. A set of all
   * parameters is one model.safetensors under the model's own names.
   */
  async save(name: string): Promise<{ name: string; blob: Blob }[]> {
    const entry = this.entry(name);
    await this.copyOut(entry);
    const tensors = tensorsOf(entry.program, entry.lora);
    const { head, order } = safetensorsHead(
      new Map(Array.from(tensors, ([key, t]) => [key, t.info])),
      { format: "pt" },
    );
    const parts: BlobPart[] = [head];
    for (const key of order) {
      const { state, info } = tensors.get(key)!;
      parts.push(cut(entry.tensors!.get(state.name)!, state.shape, info.shape));
    }
    if (!entry.lora) return [{ name: "model.safetensors", blob: new Blob(parts) }];
    // As python/edgewise/training/peft.py writes it: "all-linear" as the names it stands for.
    const { target_modules: targets } = entry.lora;
    const modules = [
      ...new Set(
        Array.from(tensors.values(), ({ state }) =>
          state.name.replace(/\.lora_(embedding_)?[AB](\.weight)?$/, ""),
        ),
      ),
    ].sort();
    const fields: Record<string, unknown> = {
      ...entry.lora,
      target_modules: Array.isArray(targets)
        ? targets
        : typeof targets === "string" && targets.toLowerCase() !== "all-linear"
          ? targets
          : modules,
      inference_mode: true,
    };
    if (fields.exclude_modules === null) delete fields.exclude_modules;
    const config = JSON.stringify(
      Object.fromEntries(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1))),
      null,
      2,
    );
    return [
      { name: "adapter_model.safetensors", blob: new Blob(parts) },
      {
        name: "adapter_config.json",
        blob: new Blob([config + "\n"], { type: "application/json" }),
      },
    ];
  }

  /** Reads what `save` or PEFT wrote. Does not use it yet. Returns its info. */
  async load(files: { name: string; blob: Blob }[], name: string): Promise<AdapterInfo> {
    checkName(name);
    if (this.entries.get(name)?.session)
      throw new InputError(
        "it is being trained",
        `adapter '${name}'`,
        "Choose another name, or close its trainer first.",
      );
    const weights = files.find((f) => f.name.endsWith(".safetensors"));
    if (!weights)
      throw new InputError(
        "there is no .safetensors file among the files",
        files
          .map((f) => f.name)
          .join(", ")
          .slice(0, 200),
        "Give adapter_model.safetensors and adapter_config.json, as PEFT writes them.",
      );
    const json = files.find((f) => f.name.endsWith("adapter_config.json"));
    const { tensors: read } = await readSafetensors(weights.blob, weights.name);
    const given = new Map(Array.from(read, ([key, t]) => [key.replace(".default", ""), t]));
    const full = ![...given.keys()].some((key) => /lora_(A|B|embedding_[AB])/.test(key));
    const program = [...this.manifest.training.values()].find((p) => (p.lora === null) === full);
    if (!program)
      throw new InputError(
        full
          ? "it holds whole parameters, which this model cannot take"
          : "this model was compiled without room for adapters",
        weights.name,
        "Compile the model with a training program of this kind.",
      );
    if (full) this.check(program);
    const lora = full ? undefined : await configOf(program, json, weights.name);
    const wanted = tensorsOf(program, lora);
    const unknown = [...given.keys()].find((key) => !wanted.has(key));
    if (unknown !== undefined) {
      const most = [...given.keys()].filter((key) => wanted.has(key)).length;
      throw new ModelError(
        most
          ? `its tensor '${unknown}' belongs to a layer that has no room for an adapter here`
          : `none of its tensors belongs to this model ('${unknown}', ...)`,
        weights.name,
        most
          ? "Compile the model with the target_modules of the adapter's adapter_config.json."
          : "It was made for another model.",
      );
    }
    const tensors = new Map<string, Uint8Array<ArrayBuffer>>();
    const reader = new BlobReader(weights.blob, weights.name);
    const offset = (key: string): number => given.get(key)?.offset ?? 0;
    for (const [key, { state, info }] of [...wanted].sort(([a], [b]) => offset(a) - offset(b))) {
      const found: TensorPlace | undefined = given.get(key);
      if (!found) {
        if (full)
          throw new ModelError(
            `it lacks the parameter '${key}'`,
            weights.name,
            "It was made for another model, or is cut off.",
          );
        tensors.set(state.name, new Uint8Array(state.bytes)); // an adapter of fewer layers
        continue;
      }
      if (found.shape.join() !== info.shape.join())
        throw new ModelError(
          `its tensor '${key}' is [${found.shape.join(", ")}], [${info.shape.join(", ")}] is ` +
            "wanted",
          weights.name,
          "It was made for another model.",
        );
      const bytes = await reader.copy(found.offset, found.bytes);
      const numbers = asFloat32(bytes, found.dtype, `${weights.name}, ${key}`);
      if (!numbers.every(Number.isFinite))
        throw new ModelError(
          `its tensor '${key}' holds numbers that are infinite or none`,
          weights.name,
          "Its training went wrong: train it again with a lower learning rate.",
        );
      tensors.set(state.name, padded(new Uint8Array(numbers.buffer), info.shape, state.shape));
    }
    if (this.entries.has(name)) await this.remove(name);
    const entry: Entry = { name, program, lora, scale: 1, tensors, session: undefined };
    this.entries.set(name, entry);
    return this.info(entry);
  }
}

/**
 * What the scale must be so that the adapter's own scaling counts, instead of the one the plans
 * were compiled with.
 */
function factorOf({ lora, program }: Entry): number {
  return lora ? scaling(lora) / scaling(program.lora!) : 1;
}
