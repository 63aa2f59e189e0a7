"""Public names of host/engine/browser.py."""

from ..host.engine.browser import (
    FILE,
    INITIAL_PAGES,
    MAX,
    PAGE,
    STEP,
    WIDE,
    BrowserEngine,
    BrowserPlan,
    load_module,
    use_module,
    wheel_module,
)

__all__ = [
    "BrowserEngine",
    "BrowserPlan",
    "FILE",
    "INITIAL_PAGES",
    "MAX",
    "PAGE",
    "STEP",
    "WIDE",
    "load_module",
    "use_module",
    "wheel_module",
]
