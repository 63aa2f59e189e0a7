"""The profile that tests share (chromium.py): nothing of one test is there in the next."""

from .chromium import BLANK_PAGE, FOUND, Profile

STORE = """
    async () => {
      document.cookie = "name=value; max-age=3600";
      localStorage.name = sessionStorage.name = "value";
      await (await caches.open("name")).put("/name", new Response("value"));
      const root = await navigator.storage.getDirectory();
      const folder = await root.getDirectoryHandle("folder", { create: true });
      const file = await (await folder.getFileHandle("name", { create: true })).createWritable();
      await file.write("value");
      await file.close();
      const opened = indexedDB.open("name");
      await new Promise((resolve) => (opened.onsuccess = resolve));
      // a worker with a file that nobody else can open or remove until it has ended
      const code = `onmessage = async () => {
        const root = await navigator.storage.getDirectory();
        const file = await root.getFileHandle("held", { create: true });
        self.handle = await file.createSyncAccessHandle();
        postMessage(1);
      }`;
      window.worker = new Worker(URL.createObjectURL(new Blob([code])));
      await new Promise((resolve) => {
        worker.onmessage = resolve;
        worker.postMessage(1);
      });
      window.left = navigator.locks.request("name", () => new Promise(() => undefined));
    }
"""


def test_nothing_is_left_of_a_test(browser, server):
    profile = Profile(browser)
    try:
        context, page = profile.take(server)
        page.goto(server + BLANK_PAGE)
        profile.visited(server, BLANK_PAGE)
        page.evaluate(STORE)
        assert len(page.evaluate(FOUND)) == 6
        page.goto(page.url)  # as Visit.close does
        profile.give_back()
        assert profile.take(server) == (context, page)
        assert page.evaluate(FOUND) == [] and page.evaluate("document.cookie") == ""
        profile.left(server + "/demo/")
        profile.give_back()
        assert profile.take(server)[0] is not context, "a page may have changed more than storage"
    finally:
        profile.close()
