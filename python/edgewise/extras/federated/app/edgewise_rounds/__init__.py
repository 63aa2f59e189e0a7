"""The Flower app of federated rounds."""
