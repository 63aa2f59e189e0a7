// Which words of a growing recording are certain: LocalAgreement-2 of Macháček, Dabre and Bojar
// (2023). Mirrors python/edgewise/logic/speech/agreement.py.

/** A word with its times, in seconds from the beginning of the stream. */
export type Word = readonly [start: number, end: number, text: string];

const NEAR = 0.1; // words that begin earlier before the last committed one's end are old
const AGAIN = 1; // seconds around it in which words may be a repetition of committed ones
const REPEATED = 5; // words of such a repetition

/** Commits what two successive transcripts of the recording begin with. */
export class Agreement {
  /** What the latest transcript has behind the committed words. */
  partial: Word[] = [];
  /** Committed words, without those that `forget` was told to leave out. */
  committed: Word[] = [];
  /** End of the last committed word. */
  last = 0;

  /** Takes the words of a transcript. Returns those that it commits. */
  add(words: readonly Word[]): Word[] {
    const found = this.unknown(words.filter(([start]) => start > this.last - NEAR));
    const differs = found.findIndex(([, , text], i) => text !== this.partial[i]?.[2]);
    const agreed = differs < 0 ? found.length : differs;
    this.partial = found.slice(agreed);
    return this.commit(found.slice(0, agreed));
  }

  /** Commits what is left: nothing will confirm it. Returns it. */
  end(): Word[] {
    return this.commit(this.partial.splice(0));
  }

  /** Leaves out committed words that end at or before a time. */
  forget(time: number): void {
    this.committed = this.committed.filter(([, end]) => end > time);
  }

  private commit(words: Word[]): Word[] {
    this.last = words.at(-1)?.[1] ?? this.last;
    this.committed.push(...words);
    return words;
  }

  /** Without words at the beginning that repeat the last committed ones. */
  private unknown(words: Word[]): Word[] {
    if (!words.length || Math.abs(words[0]![0] - this.last) >= AGAIN) return words;
    const { committed } = this;
    for (let n = 1; n <= Math.min(words.length, committed.length, REPEATED); n++)
      if (words.slice(0, n).every((word, i) => word[2] === committed.at(i - n)![2]))
        return words.slice(n);
    return words;
  }
}
