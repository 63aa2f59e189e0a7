"""Runs onnxruntime in a separate process, since models of unusual types and shapes can crash it."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from references import reference_of

SECONDS = 240


def _run(model, feeds):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"]).run(None, feeds)


class Elsewhere:
    def __init__(self):
        self.pool = None

    def __call__(self, model, feeds):
        """Returns onnxruntime's outputs, or raises its exception."""
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            return self.pool.submit(_run, reference_of(model), feeds).result(SECONDS)
        except (BrokenProcessPool, TimeoutError):
            self.end()
            raise

    def end(self):
        if self.pool is not None:
            for process in list((self.pool._processes or {}).values()):
                process.kill()
            self.pool.shutdown()
            self.pool = None
