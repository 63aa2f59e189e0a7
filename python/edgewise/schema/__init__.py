"""Contracts between the compiler, the C engine and the hosts, written once as data.

C and TypeScript are generated from these modules (`GENERATED`); Python uses them directly.
"""
