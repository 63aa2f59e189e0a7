// The part of the worker for codecs: the graphs of logic/speech/codecs.py.

import {
  books_of,
  type Codec,
  check_codes,
  codec_of,
  decoded,
  encoded,
  NAMES,
  role_of,
  streams_of,
} from "../../../logic/speech/codecs.ts";
import type { Signature } from "../../../logic/speech/graphs.ts";
import type { GraphsCall } from "../../../protocol/graphs.ts";
import type { TaskSound, TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { checkSeed } from "../../../shared/seeds.ts";
import { findGraphs, GraphHost, Graphs, numbersOf } from "../../graphs/index.ts";
import type { GraphModel, OpenGraphs } from "../../graphs/kinds.ts";
import { parseConfig } from "../../text/tokenizer.ts";
import { readSound } from "../sounds/read.ts";
import { Speaking } from "./tokens.ts";

const TEXTS = ["config.json", "preprocessor_config.json"];
const VERBS = { encoder: "encode", decoder: "decode" } as const;
type Role = keyof typeof VERBS;

/** Opens a codec. */
export const open: OpenGraphs = async (request, ended, progress) => {
  const found = await findGraphs(request, NAMES, TEXTS, ended, progress);
  const graphs = await Graphs.of(request, found, ended, progress);
  try {
    const [config, processor] = TEXTS.map((name) => parseConfig(found.texts.get(name), name));
    const codec = codec_of(config!, processor!, request.sampling_rate ?? null);
    const roles = new Map<Role, string>();
    for (const name of graphs.names) {
      const role = role_of(await graphs.signature(name));
      if (role && !roles.has(role)) roles.set(role, name);
    }
    return await CodecModel.of(graphs, codec, roles);
  } catch (e) {
    graphs.close();
    throw e;
  }
};

class CodecModel implements GraphModel {
  private speaking: Speaking | undefined;

  private constructor(
    private readonly graphs: Graphs,
    private readonly codec: Codec,
    private readonly roles: ReadonlyMap<Role, string>,
    readonly info: GraphModel["info"],
  ) {}

  static async of(
    graphs: Graphs,
    codec: Codec,
    roles: ReadonlyMap<Role, string>,
  ): Promise<CodecModel> {
    const decoder = roles.get("decoder");
    const about = {
      sampling_rate: codec.sampling_rate,
      channels: codec.channels,
      codebook_size: codec.codebook_size,
      num_codebooks: books_of(codec, decoder ? await graphs.signature(decoder) : null),
    };
    return new CodecModel(graphs, codec, roles, await graphs.info(about));
  }

  async call({ method, given }: GraphsCall, signal: AbortSignal): Promise<Record<string, unknown>> {
    if (method === "encode") return this.encode(given, signal);
    if (method === "decode") return this.decode(given, signal);
    const decode = async (codes: TaskTensor[], seed: unknown) =>
      (await this.decode({ codes, seed }, signal)).audio as TaskTensor;
    const { num_codebooks: books, codebook_size: size } = this.info.about as Record<string, number>;
    const streams = streams_of(await this.signature("decoder"));
    this.speaking ??= new Speaking({ streams, books: books!, size: size! });
    if (method === "probes") return this.speaking.probes();
    if (method === "choose") return this.speaking.choose(given);
    if (method === "start") return this.speaking.start(given);
    return this.speaking.take(given, decode);
  }

  private async signature(role: Role): Promise<Signature> {
    const name = this.roles.get(role);
    if (name) return this.graphs.signature(name);
    throw new InputError(
      `it has no ${role}, so it cannot ${VERBS[role]}`,
      this.graphs.found.where,
      `Put ${role}_model.onnx into its folder.`,
    );
  }

  private host(signal: AbortSignal, seed?: bigint): GraphHost {
    return new GraphHost(this.graphs, signal, seed, (role) => this.roles.get(role as Role)!);
  }

  private async encode(
    { sounds }: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<Record<string, unknown>> {
    const signature = await this.signature("encoder");
    const device = await this.graphs.opened();
    const channels: Float32Array[] = [];
    for (const sound of sounds as TaskSound[])
      channels.push(await readSound(device, sound, this.codec.sampling_rate, signal));
    const count = channels[0]!.length;
    const samples = new Float32Array(count * channels.length);
    for (const [i, of] of channels.entries()) samples.set(of, i * count);
    const host = this.host(signal);
    const dims = [1, channels.length, count];
    host.put("samples", { type: "float32", dims, data: new Uint8Array(samples.buffer) });
    const made = await host.drive(encoded(this.codec, signature, channels.length, count));
    const name = (i: number) => (i ? `audio_codes.${i}` : "audio_codes");
    const { length, padding, scales } = made;
    return {
      codes: Array.from({ length: made.streams }, (_, i) => host.result(name(i))),
      scales: scales ? host.result("audio_scales") : undefined,
      length,
      padding,
    };
  }

  private async decode(
    { codes, scales, length, padding, seed }: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<Record<string, unknown>> {
    const signature = await this.signature("decoder");
    const host = this.host(signal, checkSeed(seed, "options.seed"));
    const tensors = codes as TaskTensor[];
    const streams = streams_of(signature);
    if (tensors.length !== streams && streams > 1)
      throw new InputError(
        `the model takes ${streams} tensors of codes`,
        "audio_codes",
        "Give a list of them, one for each codebook.",
      );
    for (const [i, value] of tensors.entries()) {
      const name = i ? `audio_codes.${i}` : "audio_codes";
      if (!/^u?int/.test(value.type) || !value.dims.length)
        throw new InputError("they are no integers", "audio_codes", "Give int64 of codes.");
      check_codes(this.codec, numbersOf(value).data, "audio_codes");
      host.put(name, value);
    }
    const dims = tensors.map((of) => of.dims);
    const factors = scales ? numbersOf(scales as TaskTensor).data : [];
    const left = typeof length === "number" ? length : null;
    const lacks = typeof padding === "number" ? padding : 0;
    await host.drive(decoded(this.codec, signature, dims, factors, left, lacks));
    return { audio: host.result("audio_values") };
  }

  close(): void {
    this.graphs.close();
  }
}
