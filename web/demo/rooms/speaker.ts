// Teaches a model of speech one speaker's words, from recordings with what was said in them. Some
// recordings are held out: their word error rate is measured before and after.

import {
  Aborted,
  fineTune,
  InputError,
  type SpeechRecognitionPipeline,
  type StepEvent,
  wordErrorRate,
} from "edgewise";
import { lossChart } from "../chart.ts";
import { $, input, number, seconds, swap } from "../page.ts";
import { spelled } from "./morse.ts";
import { chosen, count, download, hideError, pressed, showError } from "./room.ts";
import { type Clip, copyOf, wavOf } from "./sounds.ts";

const NAME = "speaker"; // of the adapters, with a number after it
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
  /** Ends the present part of a lesson. */
  private stop: AbortController | undefined;
  /** The adapter of the last lesson that taught something. */
  private learned: string | undefined;
  private runs = 0;

  constructor(private readonly room: Room) {
    pressed("spoken-sample", () => this.sample());
    pressed("spoken-last", () => this.addLast());
    pressed("spoken-teach", () => this.teach());
    pressed("spoken-stop", () => this.stop?.abort());
    pressed("spoken-save", async () => {
      for (const file of await this.asr!.saveAdapter(this.learned!)) download(file, file.name);
    });
    chosen("spoken-files", (files) => {
      for (const file of files) this.add(file, file.name.replace(/\.[^.]*$/, ""));
    });
    input("spoken-use").addEventListener("change", () => {
      if (!this.stop) this.use().catch(showError); // else at the end of the lesson
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
    this.asr = this.learned = undefined;
    $("spoken-result").hidden = $("spoken-learned").hidden = true;
    for (const id of ["spoken-before", "spoken-after"]) $(id).textContent = "–";
    $("spoken-table").hidden = true;
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
  private async heard(
    asr: SpeechRecognitionPipeline,
    lessons: Lesson[],
    signal: AbortSignal,
  ): Promise<string[]> {
    const found: string[] = [];
    for (const { sound } of lessons)
      found.push((await asr(copyOf(sound), { ...this.options, signal })).text.trim());
    return found;
  }

  /** Uses the model with what it learned, or without, as the checkbox says. */
  private async use(): Promise<void> {
    const { asr, learned } = this;
    try {
      await asr?.setAdapter(learned && input("spoken-use").checked ? learned : null);
    } catch (e) {
      if (asr === this.asr) throw e; // else another model is in use
    }
  }

  private async teach(): Promise<void> {
    if (this.stop) return;
    const held = this.lessons.filter((lesson) => lesson.held.checked);
    const learned = this.lessons.filter((lesson) => !lesson.held.checked);
    if (!learned.length)
      throw new InputError("all recordings are held out", "", "Leave some to be learned.");
    hideError();
    this.room.quiet();
    const { signal } = (this.stop = new AbortController());
    swap("spoken-stop", "spoken-teach");
    try {
      const asr = await this.room.learning();
      if (!asr) return; // the room has said why
      this.asr = asr;
      $("spoken-result").hidden = false;
      await this.lesson(asr, held, learned, signal);
    } finally {
      this.stop = undefined;
      swap("spoken-teach", "spoken-stop");
    }
  }

  /**
   * Listens, learns and listens again. What was learned before stays until something new is
   * learned.
   */
  private async lesson(
    asr: SpeechRecognitionPipeline,
    held: Lesson[],
    learned: Lesson[],
    signal: AbortSignal,
  ): Promise<void> {
    const name = `${NAME}-${++this.runs}`;
    try {
      $("spoken-note").textContent = "Listening to the recordings that are held out";
      await asr.setAdapter(null);
      const before = await this.heard(asr, held, signal);
      const taught = await this.run(asr, name, learned, signal);
      if (this.asr !== asr) return;
      await this.take(asr, name);
      if (this.asr !== asr) return;
      const after = await this.again(asr, held);
      if (this.asr !== asr) return;
      this.show(held, before, after, taught);
      count("taught");
    } catch (e) {
      if (this.asr !== asr) return; // another model was chosen meanwhile
      const aborted = e instanceof Aborted;
      const more = this.learned ? " new" : "";
      $("spoken-note").textContent = aborted
        ? `Stopped before it had learned anything${more}.`
        : `It learned nothing${more}.`;
      if (!aborted) throw e;
    } finally {
      if (this.asr === asr) await this.tidy(asr);
    }
  }

  /** Takes what was learned in the place of what was learned before. */
  private async take(asr: SpeechRecognitionPipeline, name: string): Promise<void> {
    await asr.setAdapter(name);
    if (this.asr !== asr) return;
    this.learned = name;
    input("spoken-use").checked = true;
    $("spoken-learned").hidden = false;
  }

  /** What it hears after the lesson; undefined if that was stopped, or failed. */
  private async again(
    asr: SpeechRecognitionPipeline,
    held: Lesson[],
  ): Promise<string[] | undefined> {
    const { signal } = (this.stop = new AbortController()); // the one before may have ended the run
    $("spoken-note").textContent = "Listening again to the recordings that are held out";
    try {
      return await this.heard(asr, held, signal);
    } catch (e) {
      if (this.asr === asr && !(e instanceof Aborted)) showError(e);
      return undefined;
    }
  }

  /** Removes adapters of lessons that are not in use, and uses the one that is. */
  private async tidy(asr: SpeechRecognitionPipeline): Promise<void> {
    try {
      for (const { name } of [...asr.adapters])
        if (name.startsWith(`${NAME}-`) && name !== this.learned) await asr.removeAdapter(name);
    } catch (e) {
      if (this.asr === asr) throw e;
    }
    await this.use();
  }

  /**
   * @returns what was done, in words
   * @throws Aborted if it was stopped before the first step
   */
  private async run(
    asr: SpeechRecognitionPipeline,
    name: string,
    learned: Lesson[],
    signal: AbortSignal,
  ): Promise<string> {
    const steps = Number(input("spoken-steps").value) || STEPS;
    const pairs = learned.map(({ sound, words }) => ({
      audio: copyOf(sound),
      text: words.value,
    }));
    const began = performance.now();
    let step = 0;
    const { language } = this.options;
    try {
      await fineTune(asr, pairs, {
        name,
        max_steps: steps,
        ...(language ? { call_options: { language } } : {}),
        signal,
        onStep: (event: StepEvent) => {
          if (!step) this.chart.begin(steps, []);
          step = event.step;
          this.chart.add(event.loss);
          $("spoken-note").textContent = `Learning: step ${event.step} of ${event.total}`;
        },
      });
    } catch (e) {
      if (!(e instanceof Aborted && step)) throw e;
    }
    return `${step} steps in ${seconds(performance.now() - began)}`;
  }

  private show(
    held: Lesson[],
    before: string[],
    after: string[] | undefined,
    taught: string,
  ): void {
    const said = held.map(({ words }) => plain(words.value));
    const rate = (texts: string[]): string =>
      said.some(Boolean) ? percent(wordErrorRate(said, texts.map(plain))) : "–";
    $("spoken-before").textContent = rate(before);
    $("spoken-after").textContent = after ? rate(after) : "–";
    const more = !held.length
      ? "Hold recordings out to see what it is good for."
      : after
        ? "So many words were wrong in the recordings that are held out:"
        : "It has not heard all recordings again.";
    $("spoken-note").textContent = `Learned in ${taught}. ${more}`;
    $("spoken-rows").replaceChildren(
      ...held.map(({ words }, i) => {
        const row = document.createElement("tr");
        row.append(
          ...[words.value, before[i]!, after?.[i] ?? ""].map((text, k) => {
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
  }
}
