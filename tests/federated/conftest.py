from . import environment  # noqa: F401
