"""Public names of extras/federated/secure/identity.py."""

from ...extras.federated.secure.identity import (
    DAY,
    MAX_DAYS,
    MAX_SUBJECT,
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
    "MAX_DAYS",
    "MAX_SUBJECT",
    "decoded",
    "encoded",
]
