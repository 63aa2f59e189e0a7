// The background: context menus. It runs no model and holds no state, so the browser may end it at
// any time.

import { ensureOffscreen } from "./edgewise/extension.js";

const api = globalThis.browser ?? chrome;

api.runtime.onInstalled.addListener(() => {
  api.contextMenus.create({
    id: "write-on",
    title: "Write on from here",
    contexts: ["editable", "selection"],
  });
  api.contextMenus.create({
    id: "learn",
    title: "Learn my style from this page",
    contexts: ["page", "selection"],
  });
});

// Chrome has a side panel, Firefox a sidebar.
api.sidePanel?.setPanelBehavior({ openPanelOnActionClick: true });
api.action.onClicked.addListener(() => void api.sidebarAction?.toggle());

api.contextMenus.onClicked.addListener((info, tab) => {
  if (info.menuItemId === "write-on" && info.editable) {
    writeInPage(info, tab).catch(leaveError);
    return;
  }
  // The browser opens the panel only here, before anything is awaited.
  openPanel(tab).catch((e) =>
    console.warn(`Open the panel by the extension's button: ${e.message}`),
  );
  handOver(info, tab).catch(leaveError);
});

function openPanel(tab) {
  return api.sidebarAction ? api.sidebarAction.open() : api.sidePanel.open({ tabId: tab.id });
}

/** The panel shows it: the browser's own pages and its store forbid scripts. */
function leaveError(e) {
  return api.storage.session.set({ task: { error: `The page cannot be used: ${e.message}` } });
}

/** Lets a script in the page continue the text before its caret. */
async function writeInPage({ frameId }, tab) {
  await ensureOffscreen();
  await api.scripting.executeScript({
    target: { tabId: tab.id, frameIds: [frameId ?? 0] },
    files: ["write-on.js"],
  });
}

/** Leaves a task for the panel: what to do, and with which text. */
async function handOver({ menuItemId, selectionText }, tab) {
  let text = selectionText;
  if (!text) {
    const [{ result }] = await api.scripting.executeScript({
      target: { tabId: tab.id },
      // biome-ignore lint/performance/useDomNodeTextContent: the text that a reader sees
      func: () => (document.querySelector("article, main") ?? document.body).innerText,
    });
    text = result;
  }
  await api.storage.session.set({ task: { menuItemId, text, title: tab.title ?? "this page" } });
}
