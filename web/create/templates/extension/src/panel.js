import { client } from "./edgewise/extension.js";

const { call } = client(); // opens the offscreen document if it is not open
const form = document.querySelector("form");
const status = document.querySelector("[role=status]");
const messages = [];

function show(role, content) {
  const line = document.createElement("p");
  line.className = role;
  line.textContent = content;
  document.querySelector("main").append(line);
  return line;
}

form.onsubmit = async (event) => {
  event.preventDefault();
  const content = form.elements.text.value;
  form.reset();
  form.elements[1].disabled = true;
  messages.push({ role: "user", content });
  show("user", content);
  const line = show("assistant", "");
  status.textContent = "";
  try {
    await call("answer", messages, { onEvent: (piece) => (line.textContent += piece) });
    messages.push({ role: "assistant", content: line.textContent });
  } catch (e) {
    status.textContent = e.message;
  }
  form.elements[1].disabled = false;
};
