"""The profile that SessionOptions.enable_profiling promises, as a file."""

from __future__ import annotations

import json
import time
import weakref
from typing import TYPE_CHECKING

from ....errors import StorageError

if TYPE_CHECKING:
    from ..inference import InferenceSession


class Recorder:
    """Records all runs of a session from now on.

    Attributes:
        start: nanoseconds since 1970.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.prefix = session.options.profile_file_prefix
        self.start = time.time_ns()
        self.profile = session.profile().__enter__()
        # As in ONNX Runtime, the file is written when the session goes, or the process ends.
        self._unended = weakref.finalize(session, self._write)

    def end(self) -> str:
        """Ends the recording.

        Returns:
            the path of the file, a list of Chrome trace events with one on each line

        Raises:
            StorageError: it cannot be written.
        """
        self._unended.detach()
        return self._write()

    def _write(self) -> str:
        self.profile.__exit__()
        events = [e for e in self.profile.trace()["traceEvents"] if e["ph"] == "X"]
        events.sort(key=lambda e: float(e["ts"]))
        lines = [json.dumps({"args": {}, **e}) for e in events]
        path = self.prefix + time.strftime("_%Y-%m-%d_%H-%M-%S") + f"_{self.start % 10**9:09}.json"
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write("[\n" + ",\n".join(lines) + "\n]\n")
        except OSError as e:
            raise StorageError(
                f"it cannot be written ({e.strerror or e})",
                path,
                "Set SessionOptions.profile_file_prefix to a path that can be.",
            ) from None
        return path
