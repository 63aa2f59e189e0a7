"""The snapshot from which pages start Python, restored in Node."""

import json
import subprocess
from pathlib import Path


def test_restored_snapshot(pyodide_folder, wheel):
    """Further modules are imported from the standard library and the wheel, each downloaded once;
    an import of an unknown module downloads nothing; random numbers differ from those of the
    snapshot.
    """
    snapshot = wheel.parents[1] / "web" / "dist" / f"{wheel.stem}.snapshot"
    script = Path(__file__).with_name("snapshot.mjs")

    def restored():
        printed = subprocess.run(
            ["node", script, pyodide_folder, wheel, snapshot],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            text=True,
        ).stdout
        return json.loads(printed.rsplit("\n@", 1)[1])

    first, second = restored(), restored()
    assert [a["value"] for a in first[2:]] == [True, "csv", "wave"]
    assert first[0]["value"] == "run"
    assert [a["downloads"] for a in first] == [0, 0, 0, 2, 2]
    assert first[1]["value"] != second[1]["value"]
