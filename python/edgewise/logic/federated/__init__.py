"""Rules of federated rounds: see docs/architecture/federated.md."""
