// The steps of a scheduler, and how they are applied. Mirrors
// python/edgewise/logic/diffusion/stepper.py, where the fields are explained.

/** Factors of the latents and of the model's output. */
export type Pair = readonly [number, number];
/** Ages, where 0 is the present one, and factors. */
export type Factors = readonly Pair[];
/** Float32 numbers, flat. */
export type Numbers = Float32Array<ArrayBuffer>;

/** One step. */
export interface Step {
  /** Input of the model. */
  timestep: number;
  /** The model's input is the latents times this. */
  scale: number;
  /** Their sum is kept, as "output" below. */
  convert: Pair;
  /** Of latents. */
  samples: Factors;
  /** Of kept outputs. */
  outputs: Factors;
  /** Factor of new noise; 0: none is drawn. */
  noise: number;
  /** Their sum is the picture that the model expects. */
  clean: Pair;
}

/** All steps of a call. */
export interface Schedule {
  steps: readonly Step[];
  /** Factor of the noise that latents begin with. */
  sigma: number;
  /** Factors of a picture's latents and of noise, whose sum image-to-image begins with. */
  start: Pair;
}

/** Applies the steps of a schedule to one picture's latents. */
export class Stepper {
  /** Number of the next step. */
  at = 0;
  private samples: Numbers[] = [];
  private outputs: Numbers[] = [];

  constructor(
    private readonly schedule: Schedule,
    public latents: Numbers,
  ) {}

  private get step(): Step {
    return this.schedule.steps[this.at]!;
  }

  /** The model's input. */
  scaled(): Numbers {
    return this.step.scale === 1 ? this.latents : weighted([this.latents], [this.step.scale]);
  }

  /** The picture that the model expects at this step. */
  clean(output: Numbers): Numbers {
    return weighted([this.latents, output], this.step.clean);
  }

  /**
   * Replaces the latents by the next ones.
   * @param output of the model
   * @param noise normal numbers, if the step's factor of noise is not 0
   */
  advance(output: Numbers, noise: Numbers | undefined): void {
    const { convert, samples, outputs, noise: factor } = this.step;
    const [a, b] = convert;
    const kept = a === 0 && b === 1 ? output : weighted([this.latents, output], convert);
    this.samples = [this.latents, ...this.samples.slice(0, 1)];
    this.outputs = [kept, ...this.outputs.slice(0, 4)];
    const parts: [Numbers, number][] = [
      ...samples.map(([age, f]): [Numbers, number] => [this.samples[age]!, f]),
      ...outputs.map(([age, f]): [Numbers, number] => [this.outputs[age]!, f]),
    ];
    if (factor && noise) parts.push([noise, factor]);
    this.latents = weighted(
      parts.map(([p]) => p),
      parts.map(([, f]) => f),
    );
    this.at++;
  }
}

/** The sum of vectors times factors, from the first to the last, in float64. */
export function weighted(vectors: readonly Numbers[], factors: readonly number[]): Numbers {
  return Float32Array.from(vectors[0]!, (x, i) => {
    let total = factors[0]! * x;
    for (let k = 1; k < vectors.length; k++) total += factors[k]! * vectors[k]![i]!;
    return total;
  });
}
