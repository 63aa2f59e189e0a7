"""Checks of manifests of packages."""
