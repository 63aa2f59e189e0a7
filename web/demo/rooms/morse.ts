// Sends Morse code: beeps of a text, and a key that the user taps.

import { randoms } from "./samples.ts";

const RATE = 16_000; // Hz
const PITCH = 600; // Hz
const UNIT = 1.2 / 15; // seconds of a short mark, at 15 words a minute
const SILENCE = 0.4; // seconds around the beeps
const RAMP = 0.005; // seconds in which a beep rises and falls
const PAUSE_MS = 1800; // after which what was tapped is complete
const MAX_S = 25;

const CODES: Readonly<Record<string, string>> = Object.fromEntries(
  (
    "A.- B-... C-.-. D-.. E. F..-. G--. H.... I.. J.--- K-.- L.-.. M-- N-. O--- P.--. Q--.- " +
    "R.-. S... T- U..- V...- W.-- X-..- Y-.-- Z--.. 0----- 1.---- 2..--- 3...-- 4....- 5..... " +
    "6-.... 7--... 8---.. 9----. ?..--.. ,--..--"
  )
    .split(" ")
    .map((one) => [one[0]!, one.slice(1)]),
);

/** How somebody sends. */
export interface Hand {
  /** Seconds of a short mark. */
  unit?: number;
  /** Hz */
  pitch?: number;
  /** Loudness of the noise around the beeps, which are 0.4. */
  noise?: number;
}

/**
 * The sound of a text.
 * @returns undefined for a text without letters; the first sign that has no code, or ""
 */
export function spelled(
  text: string,
  { unit = UNIT, pitch = PITCH, noise = 0 }: Hand = {},
): { sound: Float32Array<ArrayBuffer> | undefined; unknown: string } {
  const beeps: [number, number][] = [];
  let at = 0;
  let unknown = "";
  for (const letter of text.trim().toUpperCase()) {
    const code = letter === "." ? ".-.-.-" : CODES[letter];
    if (/\s/.test(letter))
      at += 4 * unit; // 7 with the gap of the letter before
    else if (!code) unknown ||= letter;
    for (const mark of code ?? "") {
      const length = (mark === "-" ? 3 : 1) * unit;
      beeps.push([at, at + length]);
      at += length + unit;
    }
    if (code) at += 2 * unit;
  }
  return { sound: beeps.length ? tones(beeps, pitch, noise) : undefined, unknown };
}

/** A sound with beeps at these times, in seconds. */
function tones(
  beeps: readonly (readonly [start: number, end: number])[],
  pitch = PITCH,
  noise = 0,
): Float32Array<ArrayBuffer> {
  const sound = new Float32Array(Math.ceil((beeps.at(-1)![1] + 2 * SILENCE) * RATE));
  for (const [start, end] of beeps) {
    const [first, last] = [start, end].map((s) => Math.round((s + SILENCE) * RATE)) as [
      number,
      number,
    ];
    for (let i = first; i < last; i++) {
      const edge = Math.min(1, (i - first) / (RAMP * RATE), (last - i) / (RAMP * RATE));
      sound[i] = 0.4 * edge * Math.sin((2 * Math.PI * pitch * i) / RATE);
    }
  }
  const next = randoms(beeps.length);
  if (noise) for (let i = 0; i < sound.length; i++) sound[i]! += noise * (next() - 0.5);
  return sound;
}

/** A telegraph key: beeps while it is down, and gives the sound after a pause. */
export class MorseKey {
  private beeps: [number, number][] = [];
  private down: number | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private context: AudioContext | undefined;
  private tone: GainNode | undefined;

  constructor(private readonly done: (sound: Float32Array<ArrayBuffer>) => void) {}

  /** Presses the key, or lets it go. */
  press(down: boolean): void {
    const now = performance.now();
    if (down === (this.down !== undefined)) return;
    this.sound(down);
    clearTimeout(this.timer);
    if (down) {
      this.down = now;
      return;
    }
    this.beeps.push([this.down!, now]);
    this.down = undefined;
    this.timer = setTimeout(() => this.end(), PAUSE_MS);
  }

  private end(): void {
    const begin = this.beeps[0]![0];
    const times = this.beeps.map(([start, end]): [number, number] => [
      (start - begin) / 1000,
      (end - begin) / 1000,
    ]);
    this.beeps = [];
    void this.context?.suspend();
    const short = times.filter(([, end]) => end < MAX_S);
    if (short.length) this.done(tones(short));
  }

  private sound(on: boolean): void {
    if (!this.tone) {
      this.context = new AudioContext();
      this.tone = new GainNode(this.context, { gain: 0 });
      const wave = new OscillatorNode(this.context, { frequency: PITCH });
      wave.connect(this.tone).connect(this.context.destination);
      wave.start();
    }
    void this.context!.resume();
    this.tone.gain.setTargetAtTime(on ? 0.2 : 0, this.context!.currentTime, RAMP);
  }
}
