"""Schedulers of diffusion models, and what pipelines of them share."""
