"""Models of the Hugging Face Hub by their id, downloaded by the `huggingface_hub` library.

That library decides where files are kept and what is asked of the server: its cache is shared with
transformers and all others that use it, and HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_TOKEN and
HF_ENDPOINT have their meaning there. Only the files that a model needs are downloaded.
"""

from __future__ import annotations

import os
import posixpath
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..compiler.onnx import read_model
from ..compiler.onnx.source import FileSource
from ..errors import InputError, ModelError, NoSuchFile, path_of

if TYPE_CHECKING:
    from ..compiler.onnx.source import Source

ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")  # as in web/src/worker/model/onnx/hub.ts
PATIENCE = 3.0  # seconds for a connection
FILE = re.compile(r".*\.(edge|onnx|ort|json|safetensors|bin)", re.IGNORECASE)


def is_model_id(model: str) -> bool:
    """Whether a text is an id such as "org/name", and no file or folder has this path."""
    return (
        ID.fullmatch(model) is not None
        and ".." not in model
        and FILE.fullmatch(model) is None
        and not os.path.exists(model)
    )


def local_path(
    model: str | os.PathLike[str],
    dtype: str | Mapping[str, str] | None = None,
    revision: str | None = None,
) -> str:
    """The path of a model on this machine. Existing files and folders take precedence over ids.

    Args:
        model: a path, or the id of a model of the hub, whose files are downloaded unless they are
            in the cache.
        dtype: which .onnx file of the model; see compile.pick_model_file.
        revision: branch, tag or commit of an id. Default: "main".

    Returns:
        `model` if it is a path; for an id the path of the .onnx file in the cache, with
        configuration and tokenizer beside it or one folder up.

    Raises:
        InputError: the hub has no such model, revision or dtype, or `huggingface_hub` is missing.
        ModelError: a download failed.
    """
    path = path_of(model, "model")
    if not is_model_id(path):
        if revision is not None:
            raise InputError(
                "only models of the hub have revisions", "revision", "Leave it out for a path."
            )
        return path
    chosen: list[str] = []

    def choose(names: list[str]) -> list[str]:
        # not needed for models in files
        from ..compiler.compile.model_file import find_embedding_file, pick_model_file

        chosen[:] = [pick_model_file(names, dtype)]
        dtypes = dtype if isinstance(dtype, Mapping) else None
        embedding = find_embedding_file(names, chosen[0], dtypes)
        if embedding is not None:
            chosen.append(embedding)
        return chosen + _texts(names)

    folder = _snapshot(path, revision, choose)
    graphs = [os.path.join(folder, *name.split("/")) for name in chosen]
    for graph in graphs:
        read_model(_Downloading(graph, path, folder))  # names the files of external data
    return graphs[0]


def task_folder(model: str, revision: str | None, choose: Callable[[list[str]], list[str]]) -> str:
    """The folder of a model of the hub in the cache, after files of it have been downloaded.

    Args:
        model: its id.
        revision: branch, tag or commit. Default: "main".
        choose: function(names of the model's files) that returns those to download; the external
            data of .onnx files among them is downloaded, too.

    Raises:
        InputError: the hub has no such model or revision, or `huggingface_hub` is missing.
        ModelError: a download failed.
    """
    chosen: list[str] = []

    def keep(names: list[str]) -> list[str]:
        chosen[:] = choose(names)
        return chosen

    folder = _snapshot(model, revision, keep)
    for name in chosen:
        if name.endswith(".onnx"):
            read_model(_Downloading(os.path.join(folder, *name.split("/")), model, folder))
    return folder


def tokenizer_path(tokenizer: str | os.PathLike[str]) -> str:
    """As `local_path`, for a tokenizer: of an id only configuration and tokenizer are downloaded,
    and the folder is returned.
    """
    path = path_of(tokenizer, "tokenizer")
    return _snapshot(path, None, _texts) if is_model_id(path) else path


def _texts(names: Iterable[str]) -> list[str]:
    from ..compiler.compile.model_file import TEXT_FILES

    return [name for name in names if posixpath.basename(name) in TEXT_FILES]


class _Downloading(FileSource):
    """A graph of the hub: external data is downloaded when the graph names it."""

    def __init__(self, path: str, model: str, folder: str) -> None:
        super().__init__(path)
        self.model, self.folder = model, folder

    def sibling(self, name: str) -> Source:
        inside = os.path.relpath(os.path.dirname(self.path), self.folder).replace(os.sep, "/")
        file = posixpath.normpath(posixpath.join(inside, name))
        if not file.startswith(("../", "/")) and file != "..":
            hub, commit = _library(self.model), os.path.basename(self.folder)
            with _translated(self.model, file):
                hub.hf_hub_download(self.model, file, revision=commit)
        return super().sibling(name)  # refuses names outside of the folder


def _snapshot(model: str, revision: str | None, choose: Callable[[list[str]], list[str]]) -> str:
    """The folder of a model in the cache, after the files that `choose` selects have been
    downloaded. Without a connection it selects from those that are in the cache.
    """
    hub = _library(model)
    with _translated(model, revision or ""):
        away = _unreachable()
        try:
            if away is not None:
                raise away
            names = hub.HfApi().list_repo_files(model, revision=revision)
        except (*_network_errors(), hub.errors.OfflineModeIsEnabled):
            # As the library does without a network: the cache, or its error.
            local = away is not None
            try:
                folder: str = hub.snapshot_download(
                    model, revision=revision, allow_patterns=[], local_files_only=local
                )
            except hub.errors.LocalEntryNotFoundError as e:
                raise e from away or e.__cause__
            names = [
                os.path.relpath(os.path.join(base, file), folder).replace(os.sep, "/")
                for base, _, files in os.walk(folder)
                for file in files
            ]
            choose(names)
            return folder
        patterns = [re.sub(r"([*?[])", r"[\1]", name) for name in choose(names)]
        return str(hub.snapshot_download(model, revision=revision, allow_patterns=patterns))


def _unreachable() -> OSError | None:
    """Why no connection to the hub can be made: the library would try for 25 seconds. None: there
    is one, a proxy, or the library is told to stay offline.
    """
    # Not at the top: http and email would be in each page's snapshot of Python's memory.
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    from huggingface_hub import constants

    place = urlsplit(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE or not place.hostname:
        return None
    port = place.port or (80 if place.scheme == "http" else 443)
    proxies = getproxies()
    proxied = place.scheme in proxies or "all" in proxies
    if proxied and not proxy_bypass(f"{place.hostname}:{port}"):
        return None
    try:
        socket.create_connection((place.hostname, port), PATIENCE).close()
    except OSError as e:
        return e
    return None


def _network_errors() -> tuple[type[Exception], ...]:
    """OSError, which all errors of requests are, and the class of httpx's, which the library uses
    since version 1.
    """
    from huggingface_hub.errors import HfHubHTTPError

    return OSError, *(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")


def _library(model: str) -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise NoSuchFile(
            "there is no such file or folder",
            model,
            "Give a model folder, an .onnx file or an .edge package. Models of the hub need"
            " another library: pip install edgewise[hub].",
        ) from None
    return huggingface_hub


@contextmanager
def _translated(model: str, where: str) -> Iterator[None]:
    """Turns errors of the library into ours."""
    from huggingface_hub import errors

    place = f"{model}: {where}" if where else model
    try:
        yield
    except errors.GatedRepoError:
        raise InputError(
            "its owner grants access on request",
            place,
            "Ask for access on its page, and set HF_TOKEN.",
        ) from None
    except errors.RepositoryNotFoundError:
        raise NoSuchFile(
            "there is no such file or folder, nor a model of the hub that can be read",
            place,
            "Check the name; private models need HF_TOKEN.",
        ) from None
    except errors.RevisionNotFoundError:
        raise InputError("the model has no such revision", place, "Check the name.") from None
    except errors.LocalEntryNotFoundError as e:
        raise ModelError(
            "there is no such file or folder; taken for the id of a model of the hub, it is not in"
            f" the cache, and the hub cannot be reached ({_reason(e)})",
            place,
            "Check the path; for the hub the connection, HF_ENDPOINT and HF_HUB_OFFLINE.",
        ) from None
    except errors.EntryNotFoundError:
        raise ModelError("the hub has no such file", place, "The model is incomplete.") from None
    except errors.HfHubHTTPError as e:
        raise ModelError(f"the hub refused it ({_reason(e)})", place, "Try again later.") from None
    except errors.HFValidationError as e:
        raise InputError(f"it is not a valid id ({_reason(e)})", place, "Give org/name.") from None
    except _network_errors() as e:
        raise ModelError(
            f"it could not be downloaded ({_reason(e)})",
            place,
            "Check the connection, HF_ENDPOINT and the space on the disk.",
        ) from None


def _reason(error: BaseException) -> str:
    """The first line of the error, or of its cause."""
    error = error.__cause__ or error
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
