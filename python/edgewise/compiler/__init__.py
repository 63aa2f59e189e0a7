"""From a model to a package: what is decided before a model runs."""
