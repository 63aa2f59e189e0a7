// The pages of the demo: what all of them have, around the <main> of each one's file. In a file
// "<!-- error -->" stands for the message of an error.
import { readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * The pages by name. A page with a name in the list of rooms has a header, with these words in it,
 * and a footer, unless its file has one.
 */
const PAGES = {
  index: {
    file: "index.html",
    script: "demo.js",
    room: "Write and teach",
    title: "Edgewise",
    description:
      "A small language model that writes stories and learns yours, computed in this page",
    words: "A language model that runs in this page. Nothing you write leaves your device.",
    links: [
      '<link rel="apple-touch-icon" href="icon-192.png">',
      '<link rel="manifest" href="app.webmanifest">',
      '<link rel="stylesheet" href="demo.css">',
    ],
  },
  chat: {
    room: "Chat",
    description: "A chat model in this page, with documents, a tool and a form",
    words: "Answers, draws and fills forms. Nothing you write leaves your device.",
  },
  see: {
    room: "See",
    description: "Teach a page to know your things, by camera or pictures; computed in this page",
    words: "Teach it your things in ten seconds. No picture leaves your device.",
  },
  listen: {
    room: "Listen",
    description: "Speech recognition in this page, by microphone or file",
    words: "Hears, and writes down what it hears. No sound leaves your device.",
  },
  speak: {
    room: "Speak",
    description: "Text to speech in this page",
    words: "Reads your words aloud. Nothing you write leaves your device.",
  },
  who: {
    room: "Who speaks",
    description: "Speaker verification in this page, by microphone or files",
    words: "Tells voices apart after a few seconds of each. No sound leaves your device.",
  },
  draw: {
    room: "Draw",
    description: "Text to image in this page",
    words: "Makes pictures of your words, step by step. Nothing you write leaves your device.",
  },
  together: {
    room: "Together",
    title: "Teach it together · Edgewise",
    description: "Three pages teach one model, each with a text that stays with it",
    words: "Three pages teach one model, each with a text that stays with it.",
  },
  participant: {
    title: "Participant · Edgewise",
    description: "A participant of federated rounds, in this page",
  },
  "gpu-report": {
    room: "GPU",
    title: "GPU report · Edgewise",
    description: "Tests and measures the GPU of this browser",
    words: "Tests and measures the GPU of this browser. No result leaves your device.",
  },
};
const STYLES = [
  '<link rel="stylesheet" href="demo.css">',
  '<link rel="stylesheet" href="rooms.css">',
];
const ERROR = `<div class="error" id="error" role="alert" hidden>
        <strong id="error-what"></strong>
        <span id="error-where"></span>
        <p id="error-remedy"></p>
        <button type="button" id="error-close" aria-label="Close this message">Close</button>
      </div>`;
const FOOTER = `
  <footer>
    <p id="status" role="status">Starting</p>
    <p><a href="gpu-report.html">A report on your GPU</a></p>
  </footer>
`;

/** The names of the pages beside the first one, whose scripts are in rooms/. */
export const ROOMS = Object.keys(PAGES).filter((name) => name !== "index");

/** The header of a page: its words, and links to all rooms. */
function header(name, { words }) {
  const links = Object.entries(PAGES)
    .filter(([, { room }]) => room)
    .map(([other, { room }]) => {
      const here = other === name ? ' aria-current="page"' : "";
      return `      <a href="${other}.html"${here}>${room}</a>`;
    });
  return `<body>
  <header>
    <h1>Edgewise</h1>
    <p>${words}</p>
    <nav class="rooms" aria-label="Rooms">
${links.join("\n")}
    </nav>
  </header>

`;
}

/**
 * The HTML of a page.
 * @param folder of the demo's sources
 * @param name of PAGES
 */
export function pageOf(folder, name) {
  const page = PAGES[name];
  const { room, title = `${room} · Edgewise`, links = STYLES } = page;
  const main = readFileSync(join(folder, page.file ?? `rooms/${name}.html`), "utf8");
  const begin = room ? header(name, page) : `<body class="${name}">\n`;
  const end = room && !main.includes("<footer>") ? FOOTER : "";
  return `<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <meta name="description" content="${page.description}">
  <title>${title}</title>
  <meta name="theme-color" content="#1d6b5e">
  <link rel="icon" href="icon.svg" type="image/svg+xml">
${links.map((link) => `  ${link}\n`).join("")}  <link rel="modulepreload" href="../edgewise.js">
  <script type="module" src="${page.script ?? `${name}.js`}"></script>
</head>
${begin}${main.replace("<!-- error -->", ERROR)}${end}</body>
</html>
`;
}
