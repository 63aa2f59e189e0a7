"""Chromium as all tests start it."""

from __future__ import annotations

import os

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")  # path of another build, for comparisons

# The last --disable-features of a command line counts, so this repeats Playwright's. With the rest,
# a new page costs a third of the processor time: without them Chromium starts a process for the
# pages of its own address bar in each window, and one for a site that may be visited next.
FEATURES = (
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,PaintHolding,"
    "ThirdPartyStoragePartitioning,AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,"
    "NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch,"
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,SpareRendererForSitePerProcess"
)
QUIET = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FLAGS = [
    *QUIET,
    f"--disable-features={FEATURES}",
    "--host-resolver-rules=MAP insecure.test 127.0.0.1",
]
