import pytest

from . import environment  # noqa: F401


@pytest.fixture
def hub():
    from edgewise.extras.federated.hub import Hub, HubOptions

    from .toys import SCHEMA

    with Hub(SCHEMA, "float32", HubOptions(port=0)) as hub:
        hub.url = f"ws://127.0.0.1:{hub.port}"
        yield hub


@pytest.fixture
def big(request):
    """A hub of a larger model. Its parameter: options; short times are for tests that wait for
    their end.
    """
    from edgewise.extras.federated.hub import Hub, HubOptions

    from .toys import BIG, PATIENCE

    options = {"grace": PATIENCE, "stall": PATIENCE, **getattr(request, "param", {})}
    with Hub(BIG, "float32", HubOptions(port=0, **options)) as hub:
        hub.url = f"ws://127.0.0.1:{hub.port}"
        yield hub
