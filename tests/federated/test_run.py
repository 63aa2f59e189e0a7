"""`edgewise federate simulate`: Flower's SuperLink, the app, the hub and clients with the native
engine, each in its own process.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from edgewise.cli import main, parse
from edgewise.extras.commands import federate

from .environment import FOLDER

ROOT = Path(__file__).parents[2]
PYTHON = FOLDER / "bin/python"
TEXT = "The old clock stopped at noon, and the whole town stopped with it. " * 60


@pytest.mark.skipif(
    not (PYTHON.exists() and (PYTHON.parent / "flwr").exists()),
    reason="make .build/stamp/venv-federated",
)
def test_simulated_rounds_learn(tmp_path):
    from edgewise.extras.federated.launch import free_port

    (tmp_path / "text.txt").write_text(TEXT)
    command = ["simulate", ROOT / "web/demo/model", tmp_path / "text.txt"]
    options = f"""--tabs 2 --rounds 2 --steps 2 --codec int4 --lora-r 4 --sequence-length 32
        --batch-size 2 --deadline 240 --port {free_port()}""".split()
    folder = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [PYTHON, "-m", "edgewise.cli", "federate", *command, *options, "--folder", folder],
        env=environment,
        capture_output=True,
        text=True,
        timeout=550,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (json.loads(line) for line in (folder / "rounds.jsonl").open())
    assert (first["participants"], second["participants"]) == (2, 2)
    assert second["loss"] < first["loss"]
    config = json.loads((folder / "adapter/adapter_config.json").read_text())
    assert config["r"] == 4 and (folder / "adapter/adapter_model.safetensors").exists()


def test_the_command_takes_what_settings_take():
    pytest.importorskip("cryptography")
    from edgewise.extras.federated import settings

    assert set(federate.STRATEGIES) == set(settings.STRATEGIES)
    assert (set(federate.SCHEDULES), set(federate.CODECS)) == (
        set(settings.SCHEDULES),
        set(settings.CODECS),
    )
    options = "--strategy multi-krum --malicious 1 --min 5 --max-examples 100 --lora-r 8"
    made = federate._settings(
        parse(["federate", "serve", "m", *options.split()]), settings.Settings
    )
    assert (made.strategy, made.malicious, made.examples) == ("multi-krum", 1, 100)


@pytest.mark.parametrize(
    "options, match",
    [
        ("--audit short.txt", "no text has 200 characters"),
        ("--audit short.txt --audit-tolerance 1", "audit-tolerance"),
    ],
)
def test_what_cannot_be_served_is_refused_before_it_begins(
    tmp_path, monkeypatch, capsys, options, match
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *given: None)  # this process is the test's
    (tmp_path / "short.txt").write_text("too short")
    given = ["federate", "serve", str(ROOT / "web/demo/model"), "--folder", "run"]
    assert main([*given, *options.split()]) != 0
    assert match in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_error_of_a_log_is_shown(tmp_path):
    """Flower adds lines of its own to it."""
    pytest.importorskip("cryptography")
    from edgewise.extras.federated import launch

    log = tmp_path / "run.log"
    text = "Traceback:\n  ...\nedgewise.errors.InputError: 127.0.0.1:80: in use. Choose another.\n"
    for more in ("", "\n\x1b[91mERROR\x1b[0m: Exit Code: 201\n\nVisit: <https://flower.ai>\n"):
        log.write_text(text + more)
        assert launch._last_line(log) == "InputError: 127.0.0.1:80: in use. Choose another."
    log.write_text("one\ntwo\n")
    assert launch._last_line(log) == "two"
