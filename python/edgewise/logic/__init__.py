"""Logic that CPython and pages share."""
