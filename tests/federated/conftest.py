import pytest

from . import environment  # noqa: F401


@pytest.fixture
def hub():
    from edgewise.federated.hub import Hub, HubOptions

    from .toys import SCHEMA

    with Hub(SCHEMA, "float32", HubOptions(port=0)) as hub:
        hub.url = f"ws://127.0.0.1:{hub.port}"
        yield hub


@pytest.fixture
def big(request):
    """A hub of a larger model. Its parameter: seconds of grace and stall; short ones are for tests
    that wait for their end.
    """
    from edgewise.federated.hub import Hub, HubOptions

    from .toys import BIG

    seconds = getattr(request, "param", 1.0)
    with Hub(BIG, "float32", HubOptions(port=0, grace=seconds, stall=seconds)) as hub:
        hub.url = f"ws://127.0.0.1:{hub.port}"
        yield hub
