"""Tests of pipelines in a page on a GPU instead of WebAssembly, unchanged:

EDGEWISE_PAGE_DEVICE=webgpu python -m pytest tests/browser/pipelines/test_hearing.py

Packages that they build are for a GPU, and each pipeline has to run there:
webgpu/test_families.py does that.
"""

import os

from edgewise import cli

WANTED = os.environ.get("EDGEWISE_PAGE_DEVICE") == "webgpu"
# In a page: pipelines of `ew` are on the GPU, unless a test says where.
PIPELINES = """() => {
    const { pipeline } = ew;
    const onGpu = async (task, model, options) => {
      const p = await pipeline(task, model, { device: "webgpu", ...options });
      const { device } = p.info;
      if (device.name !== (options?.device ?? "webgpu")) throw Error(`on ${device.name}`);
      return p;
    };
    window.ew = { ...ew, pipeline: onGpu };
}"""

if WANTED:
    build = cli.main

    def for_gpu(argv):
        made = argv[:1] == ["build"] and "--target" not in argv
        return build([*argv, "--target", "webgpu"] if made else argv)

    cli.main = for_gpu
