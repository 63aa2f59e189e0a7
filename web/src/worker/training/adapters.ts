// Results of training by name: LoRA adapters and trained sets of all parameters. At most one is
// active. The tensors of one result per program are in the states that the decoder's plans read;
// the others are copies in host memory, exchanged with it on demand.

import type { Buffer, Device } from "../../device/device.ts";
import { scaling, whole_names, written_config } from "../../logic/training/adapters.ts";
import type { AdapterInfo, TrainingFields } from "../../protocol/training.ts";
import { safetensorsHead } from "../../shared/checkpoints/safetensors.ts";
import { EngineError, InputError } from "../../shared/errors.ts";
import type { Taught } from "../model/taught.ts";
import type { Weights } from "../model/weights.ts";
import type { LoraInfo, Manifest, ProgramInfo, StateInfo } from "../package/manifest.ts";
import { checkAdapterName, configOf, rescaled, scaledByModule } from "./adapter-config.ts";
import { openFile, readTensors } from "./adapter-files.ts";
import { modulesOf, resultsOf, tensorsIn, tensorsOf, toFile } from "./adapter-tensors.ts";
import { SCALE, type Session } from "./session.ts";

interface Entry {
  name: string;
  program: ProgramInfo;
  /**
   * The adapter's own configuration. With a smaller `r` than the program's, the remaining rows and
   * columns are zeros; a different scaling is applied as a factor of the scale.
   */
  lora: LoraInfo | undefined;
  scale: number;
  /** Contents by state; undefined while they are on the device only. */
  tensors: Map<string, Uint8Array<ArrayBuffer>> | undefined;
  /** The session that trains it: the states on the device are newer than `tensors`. */
  session: Session | undefined;
  /** The run that has trained it on this visit. */
  run?: RunFacts;
}

/** What a model card says of a run, with the names of Python's TrainingRun. */
export interface RunFacts {
  updates: number;
  losses: number[];
  examples: number;
  tokens: number;
  evaluation: number | null;
  options: Record<string, string | number>;
}

/** The adapters of a model. */
export class Adapters {
  private readonly entries = new Map<string, Entry>();
  /** The adapter whose tensors are in the states of each program. */
  private readonly resident = new Map<ProgramInfo, Entry>();
  private active: Entry | undefined;
  /** Buffers of trained parameters without a session: loaded ones, or those of an ended session. */
  private readonly parameters = new Map<ProgramInfo, Map<string, Buffer>>();
  private decoderUses: Map<string, Buffer> | undefined;
  /** Training has changed weights since the decoder computed constants from them. */
  private stale = false;
  /** Changes of adapters, and looks at one that is being trained. */
  private changes = 0;

  constructor(
    private device: Device,
    private weights: Weights,
    private readonly decoder: Taught,
    private readonly manifest: Pick<Manifest, "training"> & { isPart?: boolean },
  ) {
    decoder.adapter = () => {
      const { active } = this;
      if (active?.session) this.changes++; // the next step changes it
      return active ? `${this.changes}/${active.scale}/${active.name}` : "";
    };
  }

  /** Takes the device in the place of a lost GPU; `revive` must follow. */
  moved(device: Device, weights: Weights): void {
    Object.assign(this, { device, weights });
    this.resident.clear();
    this.parameters.clear();
    this.decoderUses = undefined;
  }

  /** All adapters. */
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
   * Checks that generation can use what a program trains: the element types must be equal.
   * @throws InputError
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

  /** Whether there is an adapter of this name. */
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

  /** The run that has trained an adapter on this visit. */
  ranFor(name: string): RunFacts | undefined {
    return this.entries.get(name)?.run;
  }

  /** Adds the adapter that a session trains, replacing one of the same name, and activates it. */
  async begin(name: string, session: Session, lora: LoraInfo | undefined): Promise<void> {
    const { program } = session;
    if (this.entries.has(name)) await this.remove(name);
    await this.park(program);
    const entry: Entry = { name, program, lora, scale: 1, tensors: undefined, session };
    this.changes++;
    this.entries.set(name, entry);
    this.decoder.clearCache(); // training needs the memory
    this.resident.set(program, entry);
    this.adopt(program, session);
    await this.use(name, 1);
  }

  /** Takes over the parameters of a session, so that they remain after its end. */
  private adopt(program: ProgramInfo, session: Session): void {
    const places = new Map<string, Buffer>();
    for (const state of session.results)
      if (state.kind !== "adapter") places.set(state.name, session.buffer(state));
    if (places.size) this.parameters.set(program, places);
  }

  /**
   * Prepares a training step: the trained adapter must be on the device and active with scale 1.
   */
  async train(name: string): Promise<void> {
    this.changes++;
    const entry = this.entry(name);
    if (this.active !== entry || entry.scale !== 1) await this.use(name, 1);
    entry.tensors = undefined;
    this.stale = follows(entry.program);
  }

  /** Executes `work`, which reads a session's states; then restores the active adapter. */
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

  /** Prepares a generation: recomputes the decoder's constants if training changed weights. */
  refresh(): void {
    if (this.stale && this.active) this.decoder.useWeights(this.decoderUses ?? new Map());
    this.stale = false;
  }

  /** Prepares a new session of a program: saves the contents of its states. */
  makeRoom(program: ProgramInfo): Promise<void> {
    return this.park(program);
  }

  /** The options of a run, with rank and scaling of the adapter that it starts from. */
  continued(fields: TrainingFields): TrainingFields {
    if (fields.initial === undefined) return fields;
    const { lora } = this.entry(fields.initial);
    return lora
      ? { ...fields, r: fields.r ?? lora.r, lora_alpha: fields.lora_alpha ?? lora.lora_alpha }
      : fields;
  }

  /**
   * The values of an adapter, for the states of a new session.
   * @throws InputError if the session trains something else, or with another rank or scaling
   */
  async valuesFor(
    program: ProgramInfo,
    name: string,
    lora: LoraInfo | undefined,
  ): Promise<ReadonlyMap<string, Uint8Array>> {
    const entry = this.entry(name);
    const same = entry.lora?.r === lora?.r && entry.lora?.lora_alpha === lora?.lora_alpha;
    if (lora?.use_dora && !entry.lora?.use_dora)
      throw new InputError(
        `adapter '${name}' is LoRA, and the model was compiled to train DoRA`,
        "options.initial",
        "Compile the model without use_dora.",
      );
    if (entry.program !== program || !same)
      throw new InputError(
        `adapter '${name}' has another kind, rank or scaling than the run`,
        "options.initial",
        "Leave out adapter, r and lora_alpha.",
      );
    await this.copyOut(entry);
    return entry.tensors!;
  }

  /** Restores adapters after a GPU was lost. One that is being trained goes on where it was. */
  async revive(): Promise<void> {
    const { device, weights } = this;
    for (const entry of this.entries.values()) {
      const { session, program } = entry;
      if (!session?.recovery) continue;
      this.resident.set(program, entry);
      await session.recovery.rebuild(device, weights);
      entry.tensors = undefined;
      this.adopt(program, session);
      if (program.lora) this.setScale(program, factorOf(entry));
      await session.recovery.repeat();
    }
    await this.restore();
  }

  /** What remains of an adapter whose session is on no device. */
  keepOnly(name: string, values: ReadonlyMap<string, Uint8Array<ArrayBuffer>> | undefined): void {
    this.changes++;
    const entry = this.entry(name);
    this.resident.delete(entry.program);
    entry.tensors =
      values && new Map(resultsOf(entry.program).map(({ name }) => [name, values.get(name)!]));
  }

  /** Restores the active adapter, after a new session failed to start. */
  async restore(): Promise<void> {
    const { active } = this;
    if (active) await this.use(active.name, active.scale);
  }

  /** Ends a session, after saving the contents of its states. */
  async end(session: Session, run?: RunFacts): Promise<void> {
    for (const entry of this.entries.values())
      if (entry.session === session) {
        entry.run = run;
        const lost = !entry.tensors && this.resident.get(entry.program) !== entry;
        if (!lost) await this.copyOut(entry);
        this.changes++;
        entry.session = undefined;
        if (lost) await this.remove(entry.name); // with a GPU, before its first copy
        if (this.parameters.has(entry.program)) {
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

  /**
   * Activates an adapter; null: the base model.
   * @throws InputError if there is none of this name, or it does not support the scale
   */
  async use(name: string | null, scale: number): Promise<void> {
    if (!Number.isFinite(scale))
      throw new InputError(
        `the scale is ${String(scale)}`,
        `adapter '${name}'`,
        "Give a number; 1 is the adapter as it was trained.",
      );
    if (name === null) return this.base();
    const entry = this.entry(name);
    if ((!entry.program.lora || entry.program.saved.length) && scale !== 1)
      throw new InputError(
        entry.program.lora
          ? "an adapter with whole modules cannot be scaled"
          : "a set of all parameters cannot be scaled",
        `adapter '${name}'`,
        "Leave the scale at 1, or train adapters (LoRA) instead.",
      );
    const other = this.active && this.active.program !== entry.program ? this.active : undefined;
    await this.makeResident(entry);
    entry.scale = scale;
    this.active = entry;
    if (entry.program.lora) {
      this.setScale(entry.program, scale * factorOf(entry));
      const { program } = entry;
      if (program.saved.length) this.rebind(this.placesOf(program));
      else if (other || this.decoderUses || follows(program)) this.rebind(undefined);
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

  /** Binds the decoder's weights to trained copies, or (undefined) to the original weights. */
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

  /** Saves the contents of a program's states, if they are not saved yet. */
  private async park(program: ProgramInfo): Promise<void> {
    const entry = this.resident.get(program);
    if (entry) await this.copyOut(entry);
    this.resident.delete(program);
  }

  private async copyOut(entry: Entry): Promise<void> {
    if (entry.tensors || this.resident.get(entry.program) !== entry) return;
    const { device } = this;
    const { program } = entry;
    const states = resultsOf(program);
    const places = states.map((s) => [this.bufferOf(program, s), s.bytes] as const);
    let read: Uint8Array<ArrayBuffer>[];
    try {
      read = device.readAll
        ? await device.readAll(places)
        : await Promise.all(places.map(([buffer, bytes]) => device.read(buffer, 0, bytes)));
    } catch (e) {
      if (!(await this.decoder.recover())) throw e;
      return this.copyOut(entry);
    }
    entry.tensors = new Map(states.map((state, i) => [state.name, read[i]!]));
  }

  private bufferOf(program: ProgramInfo, state: StateInfo): Buffer {
    return state.kind === "adapter"
      ? this.weights.adapter(state.name, state.bytes)
      : this.memoryOf(program).get(state.name)!;
  }

  private memoryOf(program: ProgramInfo): Map<string, Buffer> {
    let places = this.parameters.get(program);
    if (!places) {
      places = new Map();
      for (const state of resultsOf(program).filter(({ kind }) => kind !== "adapter"))
        places.set(state.name, this.device.allocate(state.bytes, `the parameter '${state.name}'`));
      this.parameters.set(program, places);
    }
    return places;
  }

  /** Buffers of trained parameters, by weight. */
  private placesOf(program: ProgramInfo): Map<string, Buffer> {
    const memory = this.memoryOf(program);
    const places = new Map<string, Buffer>();
    for (const state of resultsOf(program))
      if (state.kind !== "adapter" && state.initial[0] === "constant")
        places.set(state.initial[1], memory.get(state.name)!);
    return places;
  }

  /**
   * Removes an adapter.
   * @throws InputError if there is none of this name, or it is being trained
   */
  async remove(name: string): Promise<void> {
    const entry = this.entry(name);
    if (entry.session)
      throw new InputError("it is being trained", `adapter '${name}'`, "Close its trainer first.");
    if (this.active === entry) this.base();
    if (this.resident.get(entry.program) === entry) {
      this.resident.delete(entry.program);
      // inactive adapters are multiplied by 0, which would not remove NaN or infinity
      if (entry.program.lora)
        for (const state of resultsOf(entry.program))
          this.device.fill(this.bufferOf(entry.program, state), 0, 0, state.bytes);
    }
    this.entries.delete(name);
  }

  /**
   * Renames an adapter.
   * @throws InputError if there is none of this name, it is being trained, or `to` is taken or
   *   invalid
   */
  rename(name: string, to: string): void {
    const entry = this.entry(name);
    checkAdapterName(to);
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
    this.changes++;
    this.entries.set(to, entry);
  }

  // Files

  /**
   * Serializes an adapter in PEFT's layout: adapter_model.safetensors and adapter_config.json; a
   * set of all parameters as model.safetensors with the model's names.
   */
  async save(name: string): Promise<{ name: string; blob: Blob }[]> {
    const entry = this.entry(name);
    await this.copyOut(entry);
    if (!entry.tensors)
      throw new EngineError(
        `the adapter '${name}' was lost with the GPU`,
        "webgpu",
        "Make the next step of its trainer, which begins anew.",
      );
    const tensors = tensorsOf(entry.program, entry.lora);
    const { head, order } = safetensorsHead(
      new Map(Array.from(tensors, ([key, t]) => [key, t.info])),
      { format: "pt" },
    );
    const parts: BlobPart[] = [head];
    for (const key of order) {
      const tensor = tensors.get(key)!;
      parts.push(toFile(entry.tensors.get(tensor.state.name)!, tensor));
    }
    if (!entry.lora) return [{ name: "model.safetensors", blob: new Blob(parts) }];
    const modules = modulesOf([...tensors.values()]);
    // layers of an encoder may have names that end alike
    const lora = this.manifest.isPart ? whole_names(entry.lora, modules) : entry.lora;
    const fields = written_config(lora, modules);
    const config = JSON.stringify(fields, null, 2);
    return [
      { name: "adapter_model.safetensors", blob: new Blob(parts) },
      {
        name: "adapter_config.json",
        blob: new Blob([`${config}\n`], { type: "application/json" }),
      },
    ];
  }

  /**
   * Reads files written by `save` or PEFT. The adapter is not activated.
   * @throws InputError, ModelError, UnsupportedField
   */
  async load(files: { name: string; blob: Blob }[], name: string): Promise<AdapterInfo> {
    checkAdapterName(name);
    if (this.entries.get(name)?.session)
      throw new InputError(
        "it is being trained",
        `adapter '${name}'`,
        "Choose another name, or close its trainer first.",
      );
    const { weights, program, given } = await openFile(files, this.manifest);
    const full = !program.lora;
    if (full || program.saved.length) this.check(program);
    const json = files.find((f) => f.name.endsWith("adapter_config.json"));
    let lora = full ? undefined : await configOf(program, json, weights.name);
    const tensors = await readTensors(weights, given, program, lora);
    if (lora && scaledByModule(program, lora)) lora = this.rescale(program, lora, tensors);
    if (this.entries.has(name)) await this.remove(name);
    const entry: Entry = { name, program, lora, scale: 1, tensors, session: undefined };
    this.changes++;
    this.entries.set(name, entry);
    return this.info(entry);
  }

  /** Gives an adapter the scaling of the program, where the decoder has one for each module. */
  private rescale(
    program: ProgramInfo,
    lora: LoraInfo,
    tensors: Map<string, Uint8Array<ArrayBuffer>>,
  ): LoraInfo {
    const made = rescaled(program, lora, modulesOf(tensorsIn(program, lora)));
    for (const [module, factor] of made.factors) {
      const bytes = tensors.get(`${module}.lora_B.weight`);
      const numbers = bytes && new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
      numbers?.forEach((x, i) => (numbers[i] = x * factor));
    }
    return made.lora;
  }
}

/** Whether the decoder's constants follow from what a program trains. */
function follows(program: ProgramInfo): boolean {
  return !program.lora || program.lora.use_dora === true || program.saved.length > 0;
}

/** Factor of the scale that replaces the compiled LoRA scaling by the adapter's own. */
function factorOf({ lora, program }: Entry): number {
  const of = (x: LoraInfo) => scaling(x.lora_alpha, x.r, x.use_rslora);
  return lora && !scaledByModule(program, lora) ? of(lora) / of(program.lora!) : 1;
}
