"""The snapshot that pages start Python from, restored in Node."""

import json
import subprocess
from pathlib import Path


def test_a_restored_python(pyodide_folder, wheel):
    """It imports what it lacks from the standard library and the wheel, downloaded once; asking for
    a module that neither has downloads nothing; its random numbers are not the snapshot's.
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
