// A GPU that copies and computes nothing, for tests of what the host does: memory, reads, errors.

class FakeBuffer {
  readonly bytes: Uint8Array<ArrayBuffer>;
  destroyed = false;
  constructor(
    readonly size: number,
    /** Whether the GPU had no memory for it. */
    readonly failed: boolean,
    private readonly gpu: FakeGpu,
  ) {
    this.bytes = new Uint8Array(size);
  }
  async mapAsync(): Promise<void> {
    if (this.failed) throw new Error("it is invalid");
    this.gpu.maps++;
  }
  getMappedRange(offset: number, size: number): ArrayBuffer {
    return this.bytes.slice(offset, offset + size).buffer;
  }
  unmap(): void {}
  destroy(): void {
    this.destroyed = true;
  }
}

class FakeOutOfMemory extends Error {}

/** Stands for `navigator.gpu`, its adapter and its device. */
export class FakeGpu {
  readonly buffers: FakeBuffer[] = [];
  /** Maps so far, dispatches, encoders and submits. */
  maps = 0;
  dispatches = 0;
  encoders = 0;
  submits = 0;
  /** Hears of errors that no scope has. */
  onuncapturederror: (event: { error: Error }) => void = () => undefined;
  /** Buffers of this many bytes or more fail from now on. */
  most = Infinity;
  private scopes: boolean[] = [];
  readonly limits = {
    maxBufferSize: 1 << 28,
    maxStorageBufferBindingSize: 1 << 27,
    maxStorageBuffersPerShaderStage: 8,
    maxComputeWorkgroupStorageSize: 1 << 15,
  };
  info: { description: string; isFallbackAdapter?: boolean } | undefined = {
    description: "a fake",
    isFallbackAdapter: true,
  };
  /** As older browsers have it. */
  isFallbackAdapter: boolean | undefined;
  lost: Promise<object> | undefined;
  readonly features = new Set<string>();
  readonly wgslLanguageFeatures = new Set<string>();
  /** What the latest device was asked for with. */
  asked: readonly string[] = [];
  /** Texts of the programs. */
  readonly texts: string[] = [];
  /** Sizes of the sets of queries that were not destroyed. */
  readonly querySets: number[] = [];
  /** Loses the latest device. */
  lose: (why: object) => void = () => undefined;
  /** Devices that were given back. */
  destroyed = 0;
  readonly queue = {
    writeBuffer: (to: FakeBuffer, offset: number, data: ArrayBufferView | ArrayBuffer) => {
      if (data instanceof ArrayBuffer) to.bytes.set(new Uint8Array(data), offset);
      else to.bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
    },
    onSubmittedWorkDone: async () => undefined,
    submit: (all: (() => void)[][]) => {
      this.submits++;
      for (const work of all.flat()) work();
    },
  };

  /** Makes it the GPU of this process. */
  install(): void {
    const value = { gpu: this, hardwareConcurrency: 1 };
    Object.defineProperty(globalThis, "navigator", { value, configurable: true });
    Object.assign(globalThis, { GPUOutOfMemoryError: FakeOutOfMemory });
  }
  requestAdapter = async (): Promise<this> => this;
  requestDevice = async (of: { requiredFeatures: string[] }): Promise<this> => {
    this.asked = of.requiredFeatures;
    for (const one of this.features) if (!this.asked.includes(one)) this.features.delete(one);
    this.lost = new Promise((resolve) => {
      this.lose = resolve;
    });
    return this;
  };
  createBuffer({ size }: { size: number }): FakeBuffer {
    const failed = size >= this.most;
    if (failed && this.scopes.length) this.scopes[this.scopes.length - 1] = true;
    else if (failed) this.onuncapturederror({ error: new FakeOutOfMemory(`none for ${size}`) });
    const made = new FakeBuffer(size, failed, this);
    this.buffers.push(made);
    return made;
  }
  pushErrorScope(): void {
    this.scopes.push(false);
  }
  popErrorScope = async (): Promise<object | null> =>
    this.scopes.pop() ? { message: "out of memory" } : null;
  createBindGroupLayout = (): object => ({});
  createPipelineLayout = (): object => ({});
  createShaderModule = ({ code }: { code: string }): object => {
    this.texts.push(code);
    return {};
  };
  createQuerySet = ({ count }: { count: number }): object => {
    this.querySets.push(count);
    return { destroy: () => this.querySets.splice(this.querySets.indexOf(count), 1) };
  };
  createComputePipelineAsync = async (): Promise<object> => ({});
  createBindGroup = ({ entries }: { entries: { resource: { buffer: FakeBuffer } }[] }) =>
    entries.map(({ resource }) => resource.buffer);

  createCommandEncoder(): object {
    this.encoders++;
    const work: (() => void)[] = [];
    let group: FakeBuffer[] = [];
    const pass = {
      setPipeline: () => undefined,
      setBindGroup: (_: number, bound: FakeBuffer[]) => {
        group = bound;
      },
      dispatchWorkgroups: () => {
        const bound = group;
        work.push(() => {
          this.dispatches++;
          if (bound.some(({ failed, destroyed }) => failed || destroyed))
            throw new Error("a buffer that is bound has no memory");
        });
      },
      end: () => undefined,
    };
    return {
      beginComputePass: () => pass,
      copyBufferToBuffer: (a: FakeBuffer, at: number, b: FakeBuffer, to: number, n: number) =>
        work.push(() => b.bytes.set(a.bytes.subarray(at, at + n), to)),
      clearBuffer: (a: FakeBuffer, at: number, n: number) =>
        work.push(() => a.bytes.fill(0, at, at + n)),
      // query i: i² ms
      resolveQuerySet: (_: object, first: number, count: number, to: FakeBuffer) =>
        work.push(() => {
          const words = new BigUint64Array(to.bytes.buffer, 0, count);
          words.forEach((_, i) => {
            words[i] = BigInt((first + i) ** 2 * 1e6);
          });
        }),
      finish: () => work,
    };
  }
  destroy(): void {
    this.destroyed++;
  }
}
