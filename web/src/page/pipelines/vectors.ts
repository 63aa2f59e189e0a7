// Search in vectors, and in texts by their embeddings.

import { check_top_k } from "../../logic/post/classification.ts";
import { check_same, need_texts } from "../../logic/search/vectors.ts";
import type { Matches, Rows, VectorsInfo } from "../../protocol/vectors.ts";
import { InputError } from "../../shared/errors.ts";
import { blobOf, checkList, optionsOf } from "../../shared/inputs.ts";
import type { DeviceInfo, Flavour } from "../../shared/platform.ts";
import type { Priority } from "../../shared/priority.ts";
import { type Client, startClient } from "../client.ts";
import { env, urls } from "../env.ts";
import { isTensor, type Tensor } from "../tensor.ts";
import type { CallOptions } from "./base-types.ts";

/** Vectors: a tensor [count, size], or lists of numbers. */
export type VectorsInput = Tensor | readonly (readonly number[] | Float32Array)[];

/** How an index keeps vectors. */
export type IndexPrecision = "float32" | "int8";

/** Options of an index. */
export interface VectorIndexOptions extends CallOptions {
  /** `int8`: a quarter of the memory, scores to about 0.001. Default: `float32` */
  precision?: IndexPrecision;
  /** Build of the engine. Default: `env.flavour` */
  flavour?: Flavour | "auto";
  /** Compute threads. Default: `env.threads` */
  threads?: number;
  /**
   * How soon its calls get processors where other pipelines and sessions of the page compute, too.
   * Default: "user-visible".
   */
  priority?: Priority;
}

/** A vector that was found. */
export interface VectorMatch {
  /** Index of the vector, in the order in which they were added. */
  corpus_id: number;
  /** Dot product with the query: for vectors of length 1 the cosine. */
  score: number;
}

/** A text that was found. */
export interface TextMatch extends VectorMatch {
  text: string;
}

/** Options of {@link VectorIndex.search}. */
export interface SearchOptions extends CallOptions {
  /** How many results. Default: 10 */
  top_k?: number;
}

/**
 * Vectors that are compared with a query by their dot products, all of them, in an engine of their
 * own. Mirrors `edgewise.pipelines.VectorIndex` of the Python package, which reads the same files.
 */
export class VectorIndex {
  private constructor(
    private readonly client: Client,
    private info: VectorsInfo,
  ) {}

  /**
   * Makes an index.
   * @param vectors the first vectors
   * @throws InputError if they are no matrix of finite numbers, or an option is not valid
   */
  static async create(
    vectors: VectorsInput = [],
    options: VectorIndexOptions = {},
  ): Promise<VectorIndex> {
    const { index } = await opened(undefined, options);
    try {
      await index.add(vectors, options);
    } catch (e) {
      await index.dispose();
      throw e;
    }
    return index;
  }

  /**
   * Reads an index that `save` wrote, here or in Python.
   * @throws ModelError if the file is damaged
   */
  static async load(file: IndexSource, options: VectorIndexOptions = {}): Promise<VectorIndex> {
    return (await opened(file, options)).index;
  }

  /** @internal */
  static made(client: Client, info: VectorsInfo): VectorIndex {
    return new VectorIndex(client, info);
  }

  /** Number of vectors. */
  get length(): number {
    return this.info.count;
  }
  /** Numbers of a vector; 0: there are none. */
  get size(): number {
    return this.info.size;
  }
  /** How vectors are kept. */
  get precision(): IndexPrecision {
    return this.info.precision as IndexPrecision;
  }
  /** The device in use. */
  get device(): DeviceInfo {
    return { ...this.info.device };
  }

  /**
   * Adds vectors.
   * @throws InputError if they have another size, or a number is not finite: none is added then
   */
  async add(vectors: VectorsInput, options: CallOptions = {}): Promise<void> {
    const { signal } = optionsOf(options);
    const rows = rowsOf(vectors, "vectors");
    this.info = await this.client.call("vectors_add", rows, {
      signal,
      transfer: [rows.data.buffer],
    });
  }

  /**
   * The vectors with the greatest dot products with each query, the best first.
   * @throws InputError if a query has another size, or a number is not finite
   */
  async search(queries: VectorsInput, options: SearchOptions = {}): Promise<VectorMatch[][]> {
    const { top_k = 10, signal } = optionsOf(options);
    check_top_k(top_k, false);
    const rows = rowsOf(queries, "queries");
    const request = { queries: rows, top_k };
    const found = await this.client.call("vectors_search", request, {
      signal,
      transfer: [rows.data.buffer],
    });
    return found.map(matchesOf);
  }

  /**
   * The score of the first vector.
   * @internal
   */
  async firstScore(query: VectorsInput): Promise<number> {
    const request = { queries: rowsOf(query, "queries"), top_k: 1, within: 1 };
    const [found] = await this.client.call("vectors_search", request, {});
    return found!.scores[0]!;
  }

  /**
   * A safetensors file.
   * @param texts of the vectors
   * @throws InputError if there are more or fewer texts than vectors
   */
  async save(texts?: readonly string[], options: CallOptions = {}): Promise<Blob> {
    const { signal } = optionsOf(options);
    if (texts !== undefined) checkList(texts, "texts");
    return this.client.call("vectors_save", { texts: texts && [...texts] }, { signal });
  }

  /** Ends its worker and frees all memory. */
  async dispose(): Promise<void> {
    this.client.end();
  }
}

/** A file of an index. */
export type IndexSource = Blob | ArrayBuffer | Uint8Array<ArrayBuffer>;

/** Embeds texts: one row each. */
export type Embed = (texts: string[], options: Record<string, unknown>) => Promise<Tensor>;

/** Options of an index of texts: those of {@link VectorIndex}, and of the embedding of texts. */
export interface TextIndexOptions extends VectorIndexOptions {
  /** Any option of feature-extraction that makes one vector of a text. */
  [option: string]: unknown;
}

/** Texts with their embeddings. */
export class TextIndex {
  /** @internal */
  constructor(
    private readonly embed: Embed,
    /** The vectors. */
    readonly vectors: VectorIndex,
    /** All texts, in the order in which they were added. */
    readonly texts: string[],
    private readonly options: Record<string, unknown>,
  ) {}

  /** Number of texts. */
  get length(): number {
    return this.texts.length;
  }

  /** Adds a text or several. */
  async add(texts: string | readonly string[], options: CallOptions = {}): Promise<void> {
    const { signal } = optionsOf(options);
    const more = listOfTexts(texts, "texts");
    if (!more.length) return;
    const vectors = await embedded(this.embed, more, { ...this.options, signal });
    await this.vectors.add(vectors, { signal }); // calls end in the order in which they began
    for (const text of more) this.texts.push(text);
  }

  /**
   * The most similar texts, the best first.
   * @param query a text or several
   * @param options `top_k`, and options of the embedding of the query, such as `prompt_name`
   * @returns a list; for several queries a list for each
   */
  search(query: string, options?: SearchOptions & TextIndexOptions): Promise<TextMatch[]>;
  search(
    query: readonly string[],
    options?: SearchOptions & TextIndexOptions,
  ): Promise<TextMatch[][]>;
  async search(
    query: string | readonly string[],
    options: SearchOptions & TextIndexOptions = {},
  ): Promise<TextMatch[] | TextMatch[][]> {
    const { top_k, signal, ...rest } = optionsOf(options);
    const queries = listOfTexts(query, "query");
    const given = { ...this.options, ...rest, signal };
    const rows = queries.length ? await embedded(this.embed, queries, given) : [];
    const found = await this.vectors.search(rows, { top_k, signal });
    const results = found.map((matches) =>
      matches.map((match) => ({ ...match, text: this.texts[match.corpus_id]! })),
    );
    return typeof query === "string" ? results[0]! : results;
  }

  /** A safetensors file of texts and vectors, which `loadIndex` reads, and Python as well. */
  save(options: CallOptions = {}): Promise<Blob> {
    return this.vectors.save(this.texts, options);
  }

  /** Ends its worker and frees all memory. The pipeline stays. */
  dispose(): Promise<void> {
    return this.vectors.dispose();
  }
}

/** The methods of feature-extraction that make indices. */
export interface IndexMethods {
  /**
   * Makes an index of texts to search in.
   * @param options of the index, and of the embedding of its texts, such as `prompt_name`
   * @throws InputError if an option is not valid
   */
  index(texts?: string | readonly string[], options?: TextIndexOptions): Promise<TextIndex>;
  /**
   * Reads an index that `save` wrote, here or in Python.
   * @param options of the embedding that were given to `index`
   * @throws ModelError if the file is damaged
   * @throws InputError if it was made with another model or other options
   */
  loadIndex(file: IndexSource, options?: TextIndexOptions): Promise<TextIndex>;
}

/** The methods of a pipeline that embeds. */
export function indexMethods(embed: Embed): IndexMethods {
  return {
    async index(texts = [], options = {}) {
      const { own, rest } = divided(options);
      const index = new TextIndex(embed, await VectorIndex.create([], own), [], rest);
      try {
        await index.add(texts, own);
      } catch (e) {
        await index.dispose();
        throw e;
      }
      return index;
    },
    async loadIndex(file, options = {}) {
      const { own, rest } = divided(options);
      const { index: vectors, texts } = await opened(file, own);
      try {
        const found = need_texts(texts ?? null, vectors.length);
        if (found.length) {
          const first = await embedded(embed, found.slice(0, 1), rest);
          check_same(await vectors.firstScore(first));
        }
        return new TextIndex(embed, vectors, found, rest);
      } catch (e) {
        await vectors.dispose();
        throw e;
      }
    },
  };
}

function listOfTexts(texts: string | readonly string[], where: string): string[] {
  if (typeof texts === "string") return [texts];
  checkList(texts, where);
  return [...texts];
}

function divided(options: TextIndexOptions): {
  own: VectorIndexOptions;
  rest: Record<string, unknown>;
} {
  const { precision, flavour, threads, priority, signal, ...rest } = optionsOf(options);
  return { own: { precision, flavour, threads, priority, signal }, rest };
}

/** Vectors of length 1. */
async function embedded(
  embed: Embed,
  texts: string[],
  options: Record<string, unknown>,
): Promise<Float32Array[]> {
  for (const name of ["quantize", "return_tensors"])
    if (name in options)
      throw new InputError(`an index sets ${name} itself`, `options.${name}`, "Leave it out.");
  const { dims, data } = await embed(texts, options);
  if (dims.length !== 2)
    throw new InputError(
      "an index needs one vector of each text",
      "options.pooling",
      "Set pooling.",
    );
  const size = dims[1]!;
  return texts.map((_, i) => normalized((data as Float32Array).subarray(i * size, (i + 1) * size)));
}

function normalized(vector: Float32Array): Float32Array {
  const length = Math.sqrt(vector.reduce((sum, x) => sum + x * x, 0));
  return length ? vector.map((x) => x / length) : vector;
}

async function opened(
  source: IndexSource | undefined,
  options: VectorIndexOptions,
): Promise<{ index: VectorIndex; texts: string[] | undefined }> {
  const { precision, flavour, threads, priority, signal } = optionsOf(options);
  const file = source === undefined ? undefined : blobOf(source, "file");
  const client = await startClient(priority);
  try {
    const { info, texts } = await client.call(
      "vectors_open",
      {
        precision,
        file,
        urls: await urls(),
        flavour: flavour ?? env.flavour,
        threads: threads ?? env.threads,
      },
      { signal },
    );
    client.info = info;
    return { index: VectorIndex.made(client, info), texts };
  } catch (e) {
    client.end();
    throw e;
  }
}

function matchesOf({ scores, indices }: Matches): VectorMatch[] {
  return Array.from(scores, (score, i) => ({ corpus_id: indices[i]!, score }));
}

/** A copy of vectors. @throws InputError */
function rowsOf(vectors: VectorsInput, where: string): Rows {
  if (isTensor(vectors)) {
    const { dims, type, data } = vectors;
    if (type !== "float32" || dims.length !== 2)
      throw new InputError(
        `it is a tensor of ${type} [${dims.join(", ")}]`,
        where,
        "Give float32 [count, size].",
      );
    return { count: dims[0]!, size: dims[1]!, data: Float32Array.from(data as Float32Array) };
  }
  const lists: readonly ArrayLike<number>[] = vectors;
  const isList = (x: unknown) => Array.isArray(x) || x instanceof Float32Array;
  if (!Array.isArray(lists) || !lists.every(isList))
    throw new InputError("it is no list of vectors", where, "Give lists of numbers, or a tensor.");
  const size = lists[0]?.length ?? 0;
  const data = new Float32Array(lists.length * size);
  for (const [i, list] of lists.entries()) {
    if (list.length !== size)
      throw new InputError(
        `vector ${i} has ${list.length} numbers, the first one ${size}`,
        where,
        "Give vectors of one size.",
      );
    data.set(list, i * size);
  }
  return { count: lists.length, size, data };
}
