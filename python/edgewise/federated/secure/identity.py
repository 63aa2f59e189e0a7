"""Public names of extras/federated/secure/identity.py."""

from ...extras.federated.secure.identity import (
    DAY,
    MOST_DAYS,
    MOST_SUBJECT,
    Authority,
    Certificate,
    Identity,
    decoded,
    encoded,
)

__all__ = [
    "Authority",
    "Certificate",
    "DAY",
    "Identity",
    "MOST_DAYS",
    "MOST_SUBJECT",
    "decoded",
    "encoded",
]
