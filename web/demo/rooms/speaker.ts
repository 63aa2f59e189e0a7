// Teaches a model of speech one speaker's words, from recordings with what was said in them. Some
// recordings are held out: their word error rate is measured before and after.

import {
  fineTune,
  InputError,
  type SpeechRecognitionPipeline,
  type StepEvent,
  wordErrorRate,
} from "edgewise";
import { lossChart } from "../chart.ts";
import { $, input, number, seconds, swap } from "../page.ts";
import { spelled } from "./morse.ts";
import { chosen, count, download, hideError, pressed } from "./room.ts";
import { type Clip, copyOf, wavOf } from "./sounds.ts";

const NAME = "speaker"; // of the adapter
const STEPS = 60;
const EVERY = 3; // of the recordings of a visitor, one is held out
// Abbreviations of telegraphists, and what they mean
const SAMPLE = {
  TNX: "thanks",
  73: "best wishes",
  QTH: "i live in",
  WX: "the weather",
  OM: "my friend",
  FB: "very good",
  CQ: "hello all",
  HELLO: "hello",
};

/** What a room has to do with it. */
export interface Room {
  /** The model in use, if it learns; else one that does, if there is one. */
  learning(): Promise<SpeechRecognitionPipeline | undefined>;
  /** What was heard last. */
  heard(): { sound: Blob | Clip; text: string } | undefined;
  /** Ends what else is going on. */
  quiet(): void;
}

interface Lesson {
  sound: Blob | Clip;
  item: HTMLElement;
  words: HTMLInputElement;
  held: HTMLInputElement;
}

/** Text as it is compared: without capitals and punctuation. */
const plain = (text: string): string =>
  text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}'\s]/gu, " ")
    .trim();

const percent = (part: number): string => `${number(100 * part)} %`;

/** The part of the room that teaches. */
export class Speaker {
  private readonly lessons: Lesson[] = [];
  private readonly chart = lossChart($("spoken-chart"));
  private readonly audio = new Audio();
  private asr: SpeechRecognitionPipeline | undefined;
  private stop: AbortController | undefined;

  constructor(private readonly room: Room) {
    pressed("spoken-sample", () => this.sample());
    pressed("spoken-last", () => this.addLast());
    pressed("spoken-teach", () => this.teach());
    pressed("spoken-stop", () => this.stop?.abort());
    pressed("spoken-save", async () => {
      for (const file of await this.asr!.saveAdapter(NAME)) download(file, file.name);
    });
    chosen("spoken-files", (files) => {
      for (const file of files) this.add(file, file.name.replace(/\.[^.]*$/, ""));
    });
    input("spoken-use").addEventListener("change", ({ target }) => {
      const { checked } = target as HTMLInputElement;
      void this.asr?.setAdapter(checked ? NAME : null);
    });
    this.update();
  }

  /** The language that is told to models for several ones. */
  get options(): { language?: string } {
    const language = input("spoken-language").value.trim();
    return language ? { language } : {};
  }

  /** Forgets what the model before has learned. */
  changed(): void {
    if (this.asr) this.stop?.abort();
    this.asr = undefined;
    $("spoken-result").hidden = true;
  }

  /** Something was heard that may be learned. */
  update(): void {
    input("spoken-last").disabled = !this.room.heard();
    input("spoken-teach").disabled = this.lessons.length < 2;
    const held = this.lessons.filter((lesson) => lesson.held.checked).length;
    $("spoken-words").textContent = this.lessons.length
      ? `${this.lessons.length} recordings, ${held} held out`
      : "";
  }

  private add(sound: Blob | Clip, text: string, held?: boolean): void {
    const item = document.createElement("li");
    item.innerHTML =
      '<button type="button" class="play">Play</button><input type="text" maxlength="300">' +
      '<label><input type="checkbox"> held out</label>' +
      '<button type="button" class="plain">Remove</button>';
    const words = item.querySelector<HTMLInputElement>("input[type=text]")!;
    const check = item.querySelector<HTMLInputElement>("input[type=checkbox]")!;
    const lesson = { sound, item, words, held: check };
    words.value = text;
    words.setAttribute("aria-label", `What is said in recording ${this.lessons.length + 1}`);
    check.checked = held ?? this.lessons.length % EVERY === EVERY - 1;
    check.addEventListener("change", () => this.update());
    pressed(item.querySelector<HTMLElement>(".play")!, () => this.play(sound));
    pressed(item.querySelector<HTMLElement>(".plain")!, () => {
      const at = this.lessons.indexOf(lesson);
      this.lessons.splice(at, 1);
      item.remove();
      (this.lessons[at]?.words ?? $("spoken-sample")).focus();
      this.update();
    });
    this.lessons.push(lesson);
    $("spoken-list").append(item);
    this.update();
  }

  private async play(sound: Blob | Clip): Promise<void> {
    URL.revokeObjectURL(this.audio.src);
    this.audio.src = URL.createObjectURL(sound instanceof Blob ? sound : wavOf(sound));
    await this.audio.play();
  }

  private addLast(): void {
    const last = this.room.heard();
    if (!last) return;
    this.add(last.sound, last.text);
    this.lessons.at(-1)!.words.select();
  }

  /** Beeps of a telegraphist: of each word one to learn, and another to check it. */
  private sample(): void {
    for (const held of [false, true])
      Object.entries(SAMPLE).forEach(([sign, words], i) => {
        const unit = held ? 0.085 - 0.002 * i : 0.08;
        const { sound } = spelled(sign, { unit, pitch: held ? 700 : 600, noise: 0.02 });
        this.add({ array: sound!, sampling_rate: 16_000 }, words, held);
      });
  }

  /** Transcripts of recordings. */
  private async heard(asr: SpeechRecognitionPipeline, lessons: Lesson[]): Promise<string[]> {
    const found: string[] = [];
    for (const { sound } of lessons)
      found.push((await asr(copyOf(sound), this.options)).text.trim());
    return found;
  }

  private async teach(): Promise<void> {
    if (this.stop) return;
    const held = this.lessons.filter((lesson) => lesson.held.checked);
    const learned = this.lessons.filter((lesson) => !lesson.held.checked);
    if (!learned.length)
      throw new InputError("all recordings are held out", "", "Leave some to be learned.");
    hideError();
    this.room.quiet();
    const own = (this.stop = new AbortController());
    swap("spoken-stop", "spoken-teach");
    try {
      const asr = await this.room.learning();
      if (!asr) return; // the room has said why
      this.asr = asr;
      $("spoken-result").hidden = false;
      $("spoken-note").textContent = "Listening to the recordings that are held out";
      await asr.setAdapter(null);
      const before = await this.heard(asr, held);
      const taught = await this.run(asr, learned, own.signal);
      if (taught) {
        await asr.setAdapter(NAME);
        this.show(held, before, await this.heard(asr, held), taught);
        count("taught");
      }
    } finally {
      if (this.stop === own) this.stop = undefined;
      swap("spoken-teach", "spoken-stop");
    }
  }

  /** @returns what was done, in words; undefined if it was stopped before the first step */
  private async run(
    asr: SpeechRecognitionPipeline,
    learned: Lesson[],
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const steps = Number(input("spoken-steps").value) || STEPS;
    const pairs = learned.map(({ sound, words }) => ({
      audio: copyOf(sound),
      text: words.value,
    }));
    const began = performance.now();
    let step = 0;
    this.chart.begin(steps, []);
    const { language } = this.options;
    try {
      await fineTune(asr, pairs, {
        name: NAME,
        max_steps: steps,
        ...(language ? { call_options: { language } } : {}),
        signal,
        onStep: (event: StepEvent) => {
          step = event.step;
          this.chart.add(event.loss);
          $("spoken-note").textContent = `Learning: step ${event.step} of ${event.total}`;
        },
      });
    } catch (e) {
      if ((e as Error).name !== "Aborted") throw e;
      if (!step) {
        $("spoken-note").textContent = "Stopped before it had learned anything.";
        return undefined;
      }
    }
    return `${step} steps in ${seconds(performance.now() - began)}`;
  }

  private show(held: Lesson[], before: string[], after: string[], taught: string): void {
    const said = held.map(({ words }) => plain(words.value));
    const rate = (texts: string[]): string =>
      said.some(Boolean) ? percent(wordErrorRate(said, texts.map(plain))) : "–";
    $("spoken-before").textContent = rate(before);
    $("spoken-after").textContent = rate(after);
    $("spoken-note").textContent = held.length
      ? `Learned in ${taught}. So many words were wrong in the recordings that are held out:`
      : `Learned in ${taught}. Hold recordings out to see what it is good for.`;
    $("spoken-rows").replaceChildren(
      ...held.map(({ words }, i) => {
        const row = document.createElement("tr");
        row.append(
          ...[words.value, before[i]!, after[i]!].map((text, k) => {
            const cell = document.createElement(k ? "td" : "th");
            if (!k) cell.scope = "row";
            cell.textContent = text || "–";
            if (k) cell.classList.toggle("right", plain(text) === said[i]);
            return cell;
          }),
        );
        return row;
      }),
    );
    $("spoken-table").hidden = !held.length;
    input("spoken-use").checked = true;
  }
}
