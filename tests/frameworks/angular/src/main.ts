import { Component, signal } from "@angular/core";
import { bootstrapApplication } from "@angular/platform-browser";
import { pipeline } from "edgewise";

async function write(): Promise<string> {
  const generate = await pipeline("text-generation", "/model.edge");
  const answer = await generate("Once", { max_new_tokens: 8, do_sample: false });
  const [{ generated_text }] = answer as [{ generated_text: string }];
  return generated_text;
}

@Component({ selector: "app-root", template: "<output>{{ text() }}</output>" })
class App {
  readonly text = signal("");

  constructor() {
    write().then(
      (text) => this.text.set(text),
      (e: Error) => this.text.set(`failed: ${e.message}`),
    );
  }
}

bootstrapApplication(App);
