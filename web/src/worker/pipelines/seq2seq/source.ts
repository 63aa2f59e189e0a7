// An encoded input, as the generation loop sees it.

import type { Buffer, Device, Host, Picker } from "../../../device/device.ts";
import { SPEECH_FIELDS } from "../../../gen/speech_fields.ts";
import { check_length } from "../../../logic/generation/chunks.ts";
import type { Choosing, Decoder, Logits } from "../../generation/index.ts";

export type Caches = Map<string, Buffer>;

/** A sequence of the decoder. */
export interface Sequence {
  /** Number of tokens in its caches. */
  past: number;
  caches: Caches;
  /** Tokens that were chosen and, but for the last one, run before they were asked for. */
  ahead: number[];
}

/** What a source needs of its model. */
interface Model {
  readonly device: Device;
  readonly info: { readonly vocabSize: number };
  readonly picker: Picker | undefined;
  readonly max_length: number;
  readonly config: Record<string, unknown>;
  readonly generation_config: Record<string, unknown>;
  open(): Sequence;
  close(sequence: Sequence): void;
  closeSource(source: EncodedSource): void;
  forward(source: EncodedSource, sequence: Sequence, ids: ArrayLike<number>): Promise<number>;
  forwardBest(
    source: EncodedSource,
    sequence: Sequence,
    ids: readonly number[],
    by: Choosing,
    room: number,
  ): Promise<Logits>;
}

/** An input of the encoder: a decoder whose sequences share its keys and values. */
export class EncodedSource implements Decoder<Sequence> {
  readonly vocab_size: number;
  readonly max_length: number;
  readonly config: Record<string, unknown>;
  readonly generation_config: Record<string, unknown>;
  /** See {@link Decoder.scored}. */
  scored: Decoder["scored"];

  constructor(
    private readonly model: Model,
    readonly caches: Caches,
    /** Positions of the encoder's output, without padding. */
    readonly positions: number,
    readonly encoder_input_ids: readonly number[] | null,
  ) {
    this.vocab_size = model.info.vocabSize;
    this.max_length = model.max_length;
    this.config = model.config;
    this.generation_config = Object.fromEntries(
      Object.entries(model.generation_config).filter(([name]) => !SPEECH_FIELDS.includes(name)),
    );
  }

  get engine(): Host {
    return this.model.device.host;
  }

  open(): Sequence {
    return this.model.open();
  }

  /** Frees a sequence, or (without one) the source, whose sequences must be closed. */
  close(sequence?: Sequence): void {
    if (sequence) this.model.close(sequence);
    else this.model.closeSource(this);
  }

  copy(source: Sequence, target: Sequence): void {
    for (const [name, buffer] of source.caches)
      this.model.device.copy(buffer, target.caches.get(name)!);
    target.past = source.past;
    target.ahead = source.ahead.slice();
  }

  truncate(sequence: Sequence, n: number): void {
    check_length(n, sequence.past);
    sequence.past = n;
    sequence.ahead = [];
  }

  /** See {@link Decoder.choosing}. */
  choosing(members: Choosing["members"], work: number): Choosing | undefined {
    const { picker } = this.model;
    const chooser = picker?.begin(members, work);
    return chooser && { members, work, picker, chooser };
  }

  /** See {@link Decoder.forwardBest}. */
  forwardBest(sequence: Sequence, ids: number[], by: Choosing, room: number): Promise<Logits> {
    return this.model.forwardBest(this, sequence, ids, by, room);
  }

  forward(sequence: Sequence, ids: ArrayLike<number>): Promise<number> {
    return this.model.forward(this, sequence, ids);
  }
}
