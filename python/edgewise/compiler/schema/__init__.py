"""Contracts between the compiler, the C engine and the hosts, written once as data.

C and TypeScript are generated from these modules (core/generate); Python uses them directly.
"""
