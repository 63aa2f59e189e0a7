"""Files that are replaced as a whole."""

import os
import secrets
import stat
import threading

import pytest
from edgewise.atomic_file import atomic_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions, links and pipes")


def write(path, data, **options):
    with atomic_file(str(path), **options) as file:
        file.write(data)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    write(tmp_path / "a", b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(str(tmp_path / "a")) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_permissions_and_links_stay(tmp_path):
    (tmp_path / "other").mkdir()
    path, link = tmp_path / "other/a", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o604)
    link.symlink_to("other/a")
    write(link, b"new")
    assert link.is_symlink() and path.read_bytes() == b"new" and mode_of(path) == 0o604
    write(path, b"secret", private=True)
    assert mode_of(path) == 0o600
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "missing/a", b"")


def test_a_pipe_is_written_to(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    thread = threading.Thread(target=write, args=(path, b"through"), daemon=True)
    thread.start()
    assert path.read_bytes() == b"through"
    thread.join()
    assert stat.S_ISFIFO(path.stat().st_mode) and os.listdir(tmp_path) == ["pipe"]


def test_a_link_that_somebody_has_laid_is_not_followed(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    monkeypatch.setattr(secrets, "randbits", lambda bits: 7)
    (tmp_path / "a.7.part").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write(tmp_path / "a", b"new")
    assert victim.read_bytes() == b"untouched" and not (tmp_path / "a").exists()


def test_files_of_several_threads_do_not_mix(tmp_path):
    path = tmp_path / "a"
    with atomic_file(str(path)) as first:
        first.write(b"first")
        write(path, b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first" and os.listdir(tmp_path) == ["a"]
