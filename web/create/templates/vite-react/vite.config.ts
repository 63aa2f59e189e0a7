import { defineConfig } from "vite";

// With these headers the engine computes with threads; the host of the site has to send them, too.
const headers = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "credentialless",
};

export default defineConfig({ server: { headers }, preview: { headers } });
