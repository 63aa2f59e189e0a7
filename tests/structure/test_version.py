"""One version: of the Python package, the npm package, the recipe and the release notes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT, tracked

sys.path.insert(0, str(ROOT / "python/wheels"))
import version  # noqa: E402


def test_all_files_state_the_version() -> None:
    assert version.different() == {}


def test_a_new_version_reaches_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate, and the release after it; npm takes the candidate as it is written."""
    for file in version.PLACES:
        copy = tmp_path / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / file).read_bytes())
    monkeypatch.setattr(version, "ROOT", tmp_path)
    version.write("7.8.9rc1")
    assert version.different() == {}
    found = version.versions()
    for name in ("web/package.json", "web/create/package.json"):
        assert found.pop(name) == ["7.8.9-rc.1"]
    for name in ("web/package-lock.json", "web/compiler/package.json"):
        assert found.pop(name) == ["7.8.9-rc.1"] * 2
    assert set(sum(found.values(), [])) == {"7.8.9rc1"}
    npm = ["npm", "pack", "--dry-run", "--json"]
    [packed] = json.loads(subprocess.check_output(npm, cwd=tmp_path / "web", text=True))
    assert packed["version"] == "7.8.9-rc.1"
    version.write("7.8.9")
    assert version.different() == {}
    assert set(sum(version.versions().values(), [])) == {"7.8.9"}
    monkeypatch.undo()
    assert version.versions()["pyproject.toml"] != ["7.8.9"]


def test_a_file_in_the_form_of_others_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in version.PLACES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    monkeypatch.setattr(version, "ROOT", tmp_path)
    version.write("7.8.9rc1")
    package = tmp_path / "web/package.json"
    package.write_text(package.read_text().replace("7.8.9-rc.1", "7.8.9rc1"))
    assert list(version.different()) == ["web/package.json"]


@pytest.mark.parametrize("name", ["0.2.0", "0.2.0a1", "0.2.0b2", "0.2.0rc10"])
def test_a_page_finds_the_wheel_of_a_candidate(name: str) -> None:
    """Wheels are named by Python's form of the version, the npm package by npm's."""
    script = 'import("./bundle.mjs").then((m) => console.log(m.wheelName(process.argv[1])))'
    command = ["node", "-e", script, version.npm_form(name)]
    found = subprocess.check_output(command, cwd=ROOT / "web", text=True).strip()
    assert found == f"edgewise-{name}-py3-none-any.whl"


def test_release_notes() -> None:
    """CHANGELOG.md has the version's section, or one of what is not released yet."""
    [current] = version.versions()["pyproject.toml"]
    sections = re.findall(r"(?m)^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text())
    assert sections[0] in ("Unreleased", current)


def test_no_other_file_knows_it() -> None:
    """Names of wheels are built from the version, or have a wildcard."""
    name = re.compile(r"edgewise-\d+\.\d+\.\d+")
    files = [
        *tracked("*.py", "*.mjs", "*.ts", "*.md", "*.toml", "*.yml", "*.html"),
        ROOT / "Makefile",
    ]
    found = [
        str(path.relative_to(ROOT))
        for path in files
        if name.search(path.read_text("utf-8")) and path.name != "CHANGELOG.md"
    ]
    assert not found


def test_actions_are_pinned() -> None:
    """Every action of a workflow is named by the hash of its commit, with its version as a comment,
    and only the publishing jobs may ask for an identity.
    """
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        text = path.read_text()
        used = re.findall(r"uses: (.*)", text)
        assert used and all(
            re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v[\d.]+", u) for u in used
        )
        assert not re.search(r"secrets\.|NODE_AUTH_TOKEN|password:", text)
        assert re.search(r"(?m)^permissions:\n  contents: read\n", text)


def test_only_wheels_with_a_native_engine_go_to_pypi() -> None:
    """`make wheels` writes those; the workflow adds none to their folder."""
    text = (ROOT / ".github/workflows/publish.yml").read_text()
    assert "none-any" not in text and "packages-dir: packages/wheels" in text
    assert not re.search(r"\b(cp|mv)\b", text)
