"""Releases: new versions of packages, models and adapters as content-addressed chunks and deltas,
signed with The Update Framework (https://theupdateframework.io). `edgewise release` makes them,
web/src/extras/release and `edgewise release apply` install them.
"""
