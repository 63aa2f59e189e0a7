// Progress of the files of a model, as events of a call.

import type { ProgressEvent } from "../../protocol/loading.ts";
import type { Warn } from "../../shared/files/cached.ts";
import type { OnBytes } from "../../shared/files/stream.ts";

export type Progress = (event: ProgressEvent) => void;

/** Sends the warnings of a session. */
export const sessionWarnings =
  (progress: Progress): Warn =>
  (message) =>
    progress({ status: "warning", name: "InferenceSession", message });

/** Reports the files of one model. */
export class Reports {
  /** Bytes of the files, for the total progress. */
  private readonly files: Record<string, { loaded: number; total: number }> = {};

  /** @param model its name in the events */
  constructor(
    private readonly model: string,
    private readonly progress: Progress,
  ) {}

  /** A file of this size will be read. */
  expect(file: string, total: number): void {
    this.files[file] = { loaded: 0, total };
  }

  /** A callback that reports progress of a file, at most every 50 ms. */
  of(file: string): OnBytes {
    let last = 0;
    let begun = false;
    this.progress({ status: "initiate", name: this.model, file });
    return (loaded, total) => {
      const now = performance.now();
      if (!begun) this.progress({ status: "download", name: this.model, file });
      begun = true;
      const end = loaded === total;
      if (!end && now - last < 50) return;
      last = now;
      // what was downloaded may be read once more
      const most = Math.max(loaded, this.files[file]?.loaded ?? 0);
      this.files[file] = { loaded: most, total: total ?? 0 };
      this.progress(this.total());
      this.progress({
        status: "progress",
        name: this.model,
        file,
        progress: total ? (100 * loaded) / total : 0,
        loaded,
        total: total ?? 0,
      });
      if (end) this.progress({ status: "done", name: this.model, file });
    };
  }

  /** Progress of all files. */
  private total(): ProgressEvent {
    const { files } = this;
    let [loaded, total] = [0, 0];
    for (const file of Object.values(files)) {
      loaded += file.loaded;
      total += file.total;
    }
    const progress = total ? (100 * loaded) / total : 0;
    return { status: "progress_total", name: this.model, progress, loaded, total, files };
  }
}
