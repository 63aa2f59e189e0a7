"""Secure aggregation: the hub learns the sum of a group's updates, and no update of one client.

The protocol is that of Bonawitz et al. (Practical Secure Aggregation for Privacy-Preserving Machine
Learning, CCS 2017) against servers that lie, with signed keys and consents. Nobody has audited this
implementation. docs/architecture/secure-aggregation.md describes it.

    crypto: X25519, HKDF, AES streams, Shamir's shares, signatures
    identity: members' keys and the certificates of an authority
    quantize: updates as integers of a bounded norm
    plan: plans, entries and rosters for the hub
    group: the hub's part

A client's part is in edgewise.logic.federated (group, members), which pages print.
tests/conformance/federated/secure.json has vectors of both.
"""

from ....logic.federated.plan import VERSION

__all__ = ["VERSION"]
