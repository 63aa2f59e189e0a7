"""Coroutines in tests. A process that has started Playwright has a running event loop, in which
asyncio.run is refused: they run in a thread.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor


def run(coroutine, seconds=240):
    """The result of a coroutine; raises TimeoutError after so many seconds."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asyncio.wait_for(coroutine, seconds)).result()
