import pytest
@pytest.fixture
def engine():
    from edgewise.engine import default_engine
    return default_engine()
