// Types of the pipelines that tell speakers apart, and of those from sound to sound.

import type { CallOptions, Calls, PipelineBase } from "./base-types.ts";
import type { Streams } from "./sound-streams.ts";
import type { SoundInput } from "./sounds.ts";
import type { SpeechSound } from "./speech-sound.ts";

/** A part of a transcript, or a word. */
export interface SpeechChunk {
  text: string;
  /** Seconds; null where the model gives none. */
  timestamp?: [start: number | null, end: number | null];
  language?: string | null;
}

/** Options of speaker-verification. */
export interface SpeakerOptions extends CallOptions {
  /** A voice is accepted from this cosine on. Default: 0.75. */
  threshold?: number;
  /** Compare with this voice only. */
  name?: string;
}

/** An enrolled voice beside a recording. */
export interface SpeakerScore {
  /** Name of the voice. */
  label: string;
  /** Cosine. */
  score: number;
  accepted: boolean;
}

/** Compares voices by the cosines of their vectors. Results: the best voice first. */
export interface SpeakerVerificationPipeline
  extends PipelineBase,
    Calls<SoundInput, SpeakerOptions, SpeakerScore[]> {
  /** Unit vectors of the enrolled voices by name. They may be kept, and put back. */
  voices: Record<string, number[]>;
  /**
   * Learns a voice: the mean of its recordings' vectors. Replaces one of this name.
   * @param recordings a sound, or a list of them; several of different days are better than one
   * @returns the unit vector
   */
  enrol(
    name: string,
    recordings: SoundInput | readonly SoundInput[],
    options?: CallOptions,
  ): Promise<number[]>;
  /** Whether a sound is of an enrolled voice. */
  verify(
    name: string,
    sound: SoundInput,
    options?: Omit<SpeakerOptions, "name">,
  ): Promise<SpeakerScore>;
}

/** Options of speaker-diarization. */
export interface DiarizationOptions extends CallOptions {
  /** How many speakers there are. Default: found out. */
  num_speakers?: number;
  min_speakers?: number;
  max_speakers?: number;
  /**
   * Of the distance between voices, 0 to 2; more makes fewer speakers. Default: that of pyannote's
   * pipeline 3.1.
   */
  threshold?: number;
  /** Seconds between windows. Default: half of a window. */
  step?: number;
  /** Of a transcript with timestamps; each gets its `speaker`. */
  chunks?: readonly SpeechChunk[];
}

/** Somebody speaks. `start`, `end`: seconds. */
export interface SpeakerTurn {
  start: number;
  end: number;
  /** "SPEAKER_00", ... in the order in which they begin. */
  speaker: string;
}

/** Turns, and the chunks of a transcript with their speakers. */
export interface SpokenChunks {
  segments: SpeakerTurn[];
  chunks: (SpeechChunk & { speaker: string | null })[];
}

/** Says who spoke when. Result: turns, by time; with `chunks` these, too. */
export interface SpeakerDiarizationPipeline extends PipelineBase {
  (
    sound: SoundInput,
    options: DiarizationOptions & Required<Pick<DiarizationOptions, "chunks">>,
  ): Promise<SpokenChunks>;
  (sound: SoundInput, options?: Omit<DiarizationOptions, "chunks">): Promise<SpeakerTurn[]>;
  (
    sounds: readonly SoundInput[],
    options?: Omit<DiarizationOptions, "chunks">,
  ): Promise<SpeakerTurn[][]>;
}

/** Gives sound for sound, as models do that remove noise. */
export interface AudioToAudioPipeline extends PipelineBase, Streams<CallOptions, Float32Array> {
  (sound: SoundInput, options?: CallOptions): Promise<SpeechSound>;
  (sounds: readonly SoundInput[], options?: CallOptions): Promise<SpeechSound[]>;
}
