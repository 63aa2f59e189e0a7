"""A process that ends at any moment of an update leaves a version that can be read."""

import random
import shutil

from .test_releases import VECTORS, Server, client, content, pytest


class PowerCut(BaseException):
    """No handler of errors sees it."""


def test_a_power_cut_at_a_hundred_bytes(tmp_path):
    """The first version is there, as it was; the next update goes on."""
    server, contents = Server().state(0), VECTORS["repository"]["contents"]
    client(server, tmp_path / "first").update()
    server.state(1).sent = 0
    client(server, shutil.copytree(tmp_path / "first", tmp_path / "whole")).update()
    server.broken, sent = PowerCut, server.sent
    for n, left in enumerate(random.Random(11).sample(range(sent), 100)):
        folder = shutil.copytree(tmp_path / "first", tmp_path / str(left))
        server.left = left
        with pytest.raises(PowerCut):
            client(server, folder).update()
        assert content(folder, client(server, folder).installed()) == contents[0]
        server.left = None
        if n % 10 == 0:
            assert content(folder, client(server, folder).update()) == contents[1]
