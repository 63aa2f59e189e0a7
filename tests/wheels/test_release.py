"""The files of `make release`: the manifest, the inventory, what is inside, and that the same
commit gives the same bytes.
"""

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytest.importorskip("cyclonedx", reason="make release has it")
from cyclonedx.schema import SchemaVersion  # noqa: E402
from cyclonedx.validation.json import JsonStrictValidator  # noqa: E402

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "python/wheels"))
import release  # noqa: E402
from build import build_sdist  # noqa: E402
from version import npm_form  # noqa: E402

RELEASE = release.RELEASE
pytestmark = pytest.mark.skipif(not RELEASE.exists(), reason="make release makes it")

# Files of tests, of tools, and with settings or secrets of a machine.
STRAY = re.compile(
    r"(^|/)(tests?|cases|node_modules|__pycache__|\.git\w*|\.env\w*|\.npmrc|\.pypirc|id_\w+)(/|$)"
    r"|\.(map|pem|key|p12|pyc|orig|tgz)$"
)
SECRET = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY|\bnpm_[A-Za-z0-9]{36}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    rb"|\bpypi-AgE[\w-]{50}|\bAKIA[0-9A-Z]{16}\b"
)
ARCHIVES = (".tgz", ".tar.gz", ".whl")


def contents(path):
    """The files of an archive: [(name, content)]."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as z:
            return [(i.filename, z.read(i)) for i in z.infolist() if not i.is_dir()]
    with tarfile.open(path) as t:
        return [(m.name.split("/", 1)[1], t.extractfile(m).read()) for m in t if m.isfile()]


def archives():
    return [p for p in sorted(RELEASE.rglob("*")) if p.name.endswith(ARCHIVES)]


def test_manifest():
    """sha256sum finds every hash right, and every file is listed."""
    done = subprocess.run(["sha256sum", "--check", "--strict", release.SUMS], cwd=RELEASE)
    assert done.returncode == 0
    listed = {line.split("  ")[1] for line in (RELEASE / release.SUMS).read_text().splitlines()}
    found = {p.relative_to(RELEASE).as_posix() for p in RELEASE.rglob("*") if p.is_file()}
    assert listed == found - {release.SUMS}
    assert {p.parent.name for p in archives()} == {"npm", "wheels"}


def test_inventory():
    """It is valid, has every archive with its hash, and every package of the scripts with its
    licence.
    """
    text = (RELEASE / release.SBOM).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = json.loads(text)
    assert bom["metadata"]["component"]["version"] == release.version()
    parts = {part["name"]: part for part in bom["components"]}
    for path in archives():
        [found] = parts[path.relative_to(RELEASE).as_posix()]["hashes"]
        assert found == {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
    names = {(part.get("group"), part["name"]) for part in bom["components"]}
    purls = {part.get("purl", "").rpartition("@")[0] for part in bom["components"]}
    scripts = (ROOT / "web/dist").glob("*.js.map")
    sources = "\n".join(s for p in scripts for s in json.loads(p.read_text())["sources"])
    for name in set(re.findall(r"node_modules/((?:@[^/\n]+/)?[^/\n]+)", sources)):
        assert f"pkg:npm/{name.replace('@', '%40')}" in purls, (name, purls)
    assert {(None, name) for name in ("cpython", "musl", "pyodide")} <= names
    for part in bom["components"]:
        assert part["type"] == "file" or part["licenses"]


def test_versions():
    for path in archives():
        files = dict(contents(path))
        if path.parent.name == "npm":
            package = json.loads(files["package.json"])
            assert package["version"] == npm_form(release.version())
            peers = package.get("peerDependencies", {})
            assert set(peers.values()) <= {package["version"]}
            assert {"LICENSE", "README.md"} <= set(files)
        else:
            [described] = [n for n in files if re.search(r"^PKG-INFO$|dist-info/METADATA$", n)]
            assert Parser().parsestr(files[described].decode())["Version"] == release.version()


def test_nothing_else_is_inside():
    for path in archives():
        found = contents(path)
        assert found and not [name for name, _ in found if STRAY.search(name)], path
        for name, content in found:
            inner = content if not name.endswith(".whl") else b""
            assert not SECRET.search(inner), (path, name)
            if not inner:
                with zipfile.ZipFile(io.BytesIO(content)) as z:
                    assert not [n for n in z.namelist() if SECRET.search(z.read(n))], name


def test_a_secret_is_found():
    """The two patterns find what they are for."""
    key = b"-----BEGIN OPENSSH " + b"PRIVATE KEY-----"
    for secret in (key, b"npm_" + b"a" * 36, b"ghp_" + b"B" * 36):
        assert SECRET.search(b"x = '" + secret + b"'")
    for name in ("tests/a.py", "core/.env", ".npmrc", "a/b.pem", "dist/a.js.map"):
        assert STRAY.search(name), name
    assert not STRAY.search("dist/edgewise.js")


def test_the_same_bytes_again(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(release.epoch()))
    release.pack_npm(tmp_path / "npm")
    (tmp_path / "wheels").mkdir()
    build_sdist(tmp_path / "wheels")
    for path in (RELEASE / "wheels").glob("*.whl"):
        shutil.copy(path, tmp_path / "wheels")
    release.write_sbom(tmp_path)
    release.write_sums(tmp_path)
    assert (tmp_path / release.SUMS).read_text() == (RELEASE / release.SUMS).read_text()


def test_pypi_takes_it():
    """twine judges names and descriptions as PyPI does."""
    files = [p for p in archives() if p.parent.name == "wheels"]
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == len(files)
