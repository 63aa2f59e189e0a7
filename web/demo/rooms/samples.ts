// Sounds and pictures to press, for visitors without a microphone or a camera. They are computed
// here, and are the same each time.

import type { Clip } from "./sounds.ts";

const RATE = 16_000; // Hz

/** Numbers from 0 to 1 that look random (mulberry32). */
export function randoms(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// Voices

interface Throat {
  name: string;
  /** Hz */
  pitch: number;
  /** How long the vocal tract is, beside an average one. */
  tract: number;
}

const VOICES: readonly Throat[] = [
  { name: "Anna", pitch: 215, tract: 0.84 },
  { name: "Ben", pitch: 112, tract: 1.06 },
];
const STRANGER: Throat = { name: "a stranger", pitch: 290, tract: 0.7 };
const TAKES = 3; // that are learned; one more is to be tried
// Formants of vowels, in Hz
const VOWELS = [
  [730, 1090, 2440],
  [270, 2290, 3010],
  [530, 1840, 2480],
  [570, 840, 2410],
  [300, 870, 2240],
] as const;

/** Vowels of a voice: pulses through resonances. `take`: each one says others. */
function spoken({ pitch, tract }: Throat, take: number): Clip {
  const next = randoms(1000 * pitch + take);
  const sound = new Float32Array(2 * RATE);
  const filters = [0, 1, 2].map(() => ({ a: 0, b: 0, y1: 0, y2: 0 }));
  let phase = 0;
  let level = 0;
  for (let i = 0; i < sound.length; i++) {
    const time = i / RATE;
    if (i % 4000 === 0) {
      const vowel = VOWELS[Math.floor(next() * VOWELS.length)]!;
      filters.forEach((f, k) => {
        const radius = Math.exp((-Math.PI * (70 + 30 * k)) / RATE);
        f.a = 2 * radius * Math.cos((2 * Math.PI * vowel[k]!) / tract / RATE);
        f.b = -radius * radius;
      });
    }
    const tone = pitch * (1 + 0.05 * Math.sin(2 * Math.PI * 1.7 * time + take));
    phase += tone / RATE;
    let x = 0.002 * (next() - 0.5);
    if (phase >= 1) {
      phase -= 1;
      x += 1;
    }
    for (const f of filters) {
      const y = x * (1 + f.b) + f.a * f.y1 + f.b * f.y2;
      [f.y2, f.y1, x] = [f.y1, y, y];
    }
    const wanted = i % 4000 < 3200 ? 1 : 0; // syllables
    level += (wanted - level) / 300;
    sound[i] = x * level + 0.0005 * (next() - 0.5);
  }
  const peak = sound.reduce((most, v) => Math.max(most, Math.abs(v)), 1e-6);
  return { array: sound.map((v) => (0.4 * v) / peak), sampling_rate: RATE };
}

/** Voices with their recordings. */
export function sampleVoices(): { name: string; clips: Clip[] }[] {
  return VOICES.map((voice) => ({
    name: voice.name,
    clips: Array.from({ length: TAKES }, (_, take) => spoken(voice, take)),
  }));
}

/** Recordings that are in none of `sampleVoices`, by whose voice they are. */
export function newRecordings(): { name: string; clip: Clip }[] {
  return [...VOICES, STRANGER].map((voice) => ({
    name: voice.name,
    clip: spoken(voice, TAKES),
  }));
}

// Pictures

type Drawing = (c: CanvasRenderingContext2D, next: () => number) => void;

const SIDE = 224; // pixels
const EACH = 5; // pictures of a thing that are learned; one more is to be tried

/** [name of a thing, its drawing around the middle of a square of -1 to 1] */
const THINGS: readonly [name: string, draw: Drawing][] = [
  [
    "a cup",
    (c, next) => {
      c.fillStyle = `hsl(${200 + 30 * next()} 60% 50%)`;
      c.strokeStyle = c.fillStyle;
      c.lineWidth = 0.11;
      c.beginPath();
      c.arc(0.5, 0.05, 0.24, -1.4, 1.4);
      c.stroke();
      c.fillRect(-0.5, -0.4, 1, 0.85);
      c.fillStyle = "#fff";
      c.beginPath();
      c.ellipse(0, -0.4, 0.5, 0.12, 0, 0, 7);
      c.fill();
    },
  ],
  [
    "a key",
    (c, next) => {
      c.strokeStyle = `hsl(${42 + 12 * next()} 75% 45%)`;
      c.lineWidth = 0.13;
      c.beginPath();
      c.arc(-0.45, 0, 0.25, 0, 7);
      c.moveTo(-0.2, 0);
      c.lineTo(0.75, 0);
      c.moveTo(0.5, 0);
      c.lineTo(0.5, 0.25);
      c.moveTo(0.7, 0);
      c.lineTo(0.7, 0.3);
      c.stroke();
    },
  ],
  [
    "a leaf",
    (c, next) => {
      c.fillStyle = `hsl(${100 + 35 * next()} 55% 36%)`;
      c.beginPath();
      c.moveTo(-0.75, 0);
      c.quadraticCurveTo(0, -0.75, 0.75, 0);
      c.quadraticCurveTo(0, 0.75, -0.75, 0);
      c.fill();
      c.strokeStyle = "#e5f2dc";
      c.lineWidth = 0.035;
      c.beginPath();
      c.moveTo(-0.9, 0);
      for (let x = -0.5; x < 0.6; x += 0.25) {
        c.moveTo(x, 0);
        c.lineTo(x + 0.14, -0.2);
        c.moveTo(x, 0);
        c.lineTo(x + 0.14, 0.2);
      }
      c.moveTo(-0.9, 0);
      c.lineTo(0.75, 0);
      c.stroke();
    },
  ],
];

/** A picture of a thing on a table. `take`: each one is from another side. */
function drawn(draw: Drawing, seed: number): HTMLCanvasElement {
  const next = randoms(seed);
  const canvas = Object.assign(document.createElement("canvas"), { width: SIDE, height: SIDE });
  const c = canvas.getContext("2d")!;
  c.fillStyle = `hsl(${30 + 15 * next()} 20% ${80 + 10 * next()}%)`;
  c.fillRect(0, 0, SIDE, SIDE);
  const size = 80 + 20 * next();
  c.translate(SIDE / 2 + 24 * (next() - 0.5), SIDE / 2 + 24 * (next() - 0.5));
  c.rotate(1.2 * (next() - 0.5));
  c.scale(size, size);
  c.lineCap = "round";
  draw(c, next);
  return canvas;
}

/** Things with their pictures. */
export function samplePictures(): { name: string; pictures: HTMLCanvasElement[] }[] {
  return THINGS.map(([name, draw], i) => ({
    name,
    pictures: Array.from({ length: EACH }, (_, take) => drawn(draw, 100 * i + take + 1)),
  }));
}

/** Pictures that are in none of `samplePictures`, by what they show. */
export function newPictures(): { name: string; picture: HTMLCanvasElement }[] {
  return THINGS.map(([name, draw], i) => ({ name, picture: drawn(draw, 100 * i + EACH + 1) }));
}
