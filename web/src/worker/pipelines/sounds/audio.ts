// Segments of speech from probabilities: silero-vad's get_speech_timestamps, and its VADIterator
// for streams. Mirrors python/edgewise/logic/post/voice_activity.py.

/** How probabilities become segments. Durations are in milliseconds unless stated. */
export interface VoiceRules {
  /** Hz */
  sampling_rate: number;
  /** Samples of a probability. */
  window: number;
  /** Speech begins where a probability reaches it. */
  threshold: number;
  /** Speech may end where one is below it. */
  neg_threshold: number;
  /** Shorter segments are dropped. */
  min_speech_ms: number;
  /** Seconds; longer segments are divided, at their longest silence if possible. */
  max_speech_s: number;
  /** Shorter silences do not end a segment. */
  min_silence_ms: number;
  /** What is added at both ends. */
  pad_ms: number;
  /** Silences at which a segment that is too long may be divided. */
  min_silence_at_max_ms: number;
}

/** silero-vad's defaults at 16 kHz. */
export const VOICE_RULES: Readonly<VoiceRules> = {
  sampling_rate: 16000,
  window: 512,
  threshold: 0.5,
  neg_threshold: 0.35,
  min_speech_ms: 250,
  max_speech_s: Number.POSITIVE_INFINITY,
  min_silence_ms: 100,
  pad_ms: 30,
  min_silence_at_max_ms: 98,
};

/** Speech, in samples. */
export interface Segment {
  start: number;
  end: number;
}

const samplesOf = (rules: VoiceRules, milliseconds: number) =>
  (rules.sampling_rate * milliseconds) / 1000;

/**
 * The segments of a recording.
 * @param probabilities of each window
 * @param length samples of the recording. Default: all windows are whole
 */
export function segmentsOf(
  probabilities: ArrayLike<number>,
  rules: VoiceRules,
  length = probabilities.length * rules.window,
): Segment[] {
  return padded(found(probabilities, rules, length), rules, length);
}

/** A segment that has begun. */
interface Open {
  start: number;
  /** Where the current silence began; 0: there is none. */
  quiet: number;
  silences: { at: number; samples: number }[];
}

function found(probabilities: ArrayLike<number>, rules: VoiceRules, total: number): Segment[] {
  const least = samplesOf(rules, rules.min_speech_ms);
  const pad = samplesOf(rules, rules.pad_ms);
  const most = rules.sampling_rate * rules.max_speech_s - rules.window - 2 * pad;
  const silence = samplesOf(rules, rules.min_silence_ms);
  const divides = samplesOf(rules, rules.min_silence_at_max_ms);
  const segments: Segment[] = [];
  let open: Open | undefined;
  for (let i = 0; i < probabilities.length; i++) {
    const probability = probabilities[i]!;
    const at = rules.window * i;
    if (probability >= rules.threshold) {
      if (!open) {
        open = { start: at, quiet: 0, silences: [] };
        continue;
      }
      if (open.quiet && at - open.quiet > divides)
        open.silences.push({ at: open.quiet, samples: at - open.quiet });
      open.quiet = 0;
    }
    if (open && at - open.start > most) {
      const cut = longest(open.silences);
      segments.push({ start: open.start, end: cut?.at ?? at });
      open = cut && { start: cut.at + cut.samples, quiet: 0, silences: [] };
      if (!cut) continue;
    }
    if (open && probability < rules.neg_threshold) {
      open.quiet ||= at;
      if (at - open.quiet >= silence) {
        if (open.quiet - open.start > least) segments.push({ start: open.start, end: open.quiet });
        open = undefined;
      }
    }
  }
  if (open && total - open.start > least) segments.push({ start: open.start, end: total });
  return segments;
}

/** The first of the longest silences. */
function longest(silences: Open["silences"]): Open["silences"][number] | undefined {
  let best = silences[0];
  for (const s of silences) if (s.samples > best!.samples) best = s;
  return best;
}

/** Adds pad_ms at both ends; neighbours share a silence that is too short for it. */
function padded(segments: Segment[], rules: VoiceRules, total: number): Segment[] {
  const pad = samplesOf(rules, rules.pad_ms);
  segments.forEach((segment, i) => {
    const following = segments[i + 1];
    if (i === 0) segment.start = Math.trunc(Math.max(0, segment.start - pad));
    if (!following) {
      segment.end = Math.trunc(Math.min(total, segment.end + pad));
      return;
    }
    const silence = following.start - segment.end;
    if (silence < 2 * pad) {
      segment.end += Math.floor(silence / 2);
      following.start = Math.max(0, following.start - Math.floor(silence / 2));
    } else {
      segment.end = Math.trunc(Math.min(total, segment.end + pad));
      following.start = Math.trunc(Math.max(0, following.start - pad));
    }
  });
  return segments;
}

/** Speech begins or ends at a sample of a stream. */
export type VoiceEvent = { start: number } | { end: number };

/** Beginnings and ends of speech in a stream of probabilities. */
export class VoiceEvents {
  private at = 0;
  private quiet = 0;
  /** Whether the stream is within speech. */
  speaking = false;

  /** @param rules min_speech_ms and max_speech_s are for recordings. */
  constructor(private readonly rules: VoiceRules) {}

  /** The event of the next window, if speech begins or ends. */
  next(probability: number): VoiceEvent | undefined {
    const { rules } = this;
    const pad = samplesOf(rules, rules.pad_ms);
    this.at += rules.window;
    if (probability >= rules.threshold) {
      this.quiet = 0;
      if (!this.speaking) {
        this.speaking = true;
        return { start: Math.trunc(Math.max(0, this.at - pad - rules.window)) };
      }
    }
    if (probability < rules.neg_threshold && this.speaking) {
      this.quiet ||= this.at;
      if (this.at - this.quiet >= samplesOf(rules, rules.min_silence_ms)) {
        const end = Math.trunc(this.quiet + pad - rules.window);
        this.quiet = 0;
        this.speaking = false;
        return { end };
      }
    }
    return undefined;
  }
}
