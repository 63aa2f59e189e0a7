import "edgewise-compiler"; // not needed for .edge packages
import { createRoot } from "react-dom/client";
import { Chat } from "./Chat";
import "./style.css";

// A hub id, a folder, or a package made by `edgewise build`.
const model =
  new URLSearchParams(location.search).get("model") ?? "HuggingFaceTB/SmolLM2-135M-Instruct";

createRoot(document.getElementById("root")!).render(<Chat model={model} />);
