import { Component, signal } from "@angular/core";
import { bootstrapApplication } from "@angular/platform-browser";
import { everything } from "../everything.js";

@Component({ selector: "app-root", template: "<output>{{ text() }}</output>" })
class App {
  readonly text = signal("");

  constructor() {
    everything().then(
      (text: string) => this.text.set(text),
      (e: Error) => this.text.set(`failed: ${e.message}`),
    );
  }
}

bootstrapApplication(App);
