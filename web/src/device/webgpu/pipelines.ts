// Compiled programs, shared by all plans of a device.

import { RECORD_BYTES } from "../../logic/gpu/link.ts";
import { FIRST_BINDING, type Program } from "../../logic/gpu/wgsl.ts";
import { type EdgewiseError, EngineError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";
import { COMPUTE_STAGE, type Gpu } from "./gpu.ts";
import { inSubgroups } from "./subgroups.ts";

/** Programs that are known at once: plans come and go with the shapes of their inputs. */
export const MAX_PROGRAMS = 2048;

/** A program that is being compiled, or has been. */
export interface Pipeline {
  layout: GPUBindGroupLayout;
  /** Undefined until `made` resolves. */
  pipeline: GPUComputePipeline | undefined;
  made: Promise<void>;
}

/** Pipelines by the text of their program. */
export class Pipelines {
  private readonly known = new Map<string, Pipeline>();

  constructor(private readonly gpu: Gpu) {}

  /** Number of programs. */
  get size(): number {
    return this.known.size;
  }

  /**
   * The pipeline of a program, which begins to be compiled.
   * @param where the step, for errors
   */
  get(program: Program, where: string): Pipeline {
    let found = this.known.get(program.text);
    if (!found) {
      if (this.known.size === MAX_PROGRAMS) this.known.clear(); // plans hold those that they run
      found = this.make(program, where);
      this.known.set(program.text, found);
    }
    return found;
  }

  private make(program: Program, where: string): Pipeline {
    const { device, subgroups } = this.gpu;
    const code = subgroups ? inSubgroups(program.text) : program.text;
    const layout = device.createBindGroupLayout({ entries: entriesOf(program) });
    const pipeline: Pipeline = { layout, pipeline: undefined, made: Promise.resolve() };
    pipeline.made = device
      .createComputePipelineAsync({
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: {
          module: device.createShaderModule({ code }),
          entryPoint: "main",
        },
      })
      .then(
        (made) => {
          pipeline.pipeline = made;
        },
        (e: unknown) => {
          throw refused(this.gpu, e, where);
        },
      );
    pipeline.made.catch(() => undefined); // whoever uses it hears of it
    return pipeline;
  }
}

/** Why a program could not be compiled. */
export function refused(gpu: Gpu, e: unknown, where: string): EdgewiseError {
  return (
    gpu.lost ??
    new EngineError(
      `a shader is refused (${message(e)})`,
      where,
      "Report this; the device 'wasm' runs the model.",
    )
  );
}

function entriesOf(program: Program): GPUBindGroupLayoutEntry[] {
  const entry = (
    binding: number,
    type: GPUBufferBindingType,
    minBindingSize = 0,
  ): GPUBindGroupLayoutEntry => ({
    binding,
    visibility: COMPUTE_STAGE,
    buffer: { type, minBindingSize },
  });
  const storage = (written: boolean): GPUBufferBindingType =>
    written ? "storage" : "read-only-storage";
  const entries = [entry(0, "uniform", RECORD_BYTES * program.records)];
  if (program.registers) entries.push(entry(1, "uniform"));
  if (program.fails || program.guarded) entries.push(entry(2, storage(program.fails)));
  for (const [i, { written }] of [...program.bindings].entries()) {
    entries.push(entry(FIRST_BINDING + i, storage(written)));
  }
  return entries;
}
