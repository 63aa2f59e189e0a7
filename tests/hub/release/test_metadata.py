"""The shared vectors of metadata: python-tuf's own client gives their outcomes."""

import pytest

from tests.conformance.vectors import vectors

from . import environment  # noqa: F401

pytest.importorskip("tuf")

from tuf.api import exceptions as e
from tuf.api.serialization import DeserializationError
from tuf.ngclient import Updater
from tuf.ngclient.fetcher import FetcherInterface

OUTCOMES = {
    e.UnsignedMetadataError: "signature",
    e.BadVersionNumberError: "version",
    e.ExpiredMetadataError: "expired",
    e.LengthOrHashMismatchError: "mismatch",
    e.DownloadLengthMismatchError: "mismatch",
    e.DownloadHTTPError: "missing",
    DeserializationError: "format",
    e.RepositoryError: "format",
}


class Served(FetcherInterface):
    def __init__(self):
        self.files = {}

    def _fetch(self, url):
        name = url.rsplit("/", 1)[1]
        if self.files.get(name) is None:
            raise e.DownloadHTTPError(name, 404)
        yield self.files[name].encode()


@pytest.mark.parametrize("case", vectors("releases/metadata"), ids=lambda c: c["name"])
def test_outcomes_are_those_of_python_tuf(case, tmp_path):
    served, root = Served(), case["root"].encode()
    for step in case["steps"]:
        served.files.update(step["files"])
        updater = Updater(str(tmp_path), "http://x/metadata/", fetcher=served, bootstrap=root)
        try:
            updater.refresh()
            outcome = "ok"
        except (e.RepositoryError, e.DownloadError) as problem:
            outcome = OUTCOMES[type(problem)]
        assert outcome == step["outcome"]
