"""Post-processing of tasks: pure functions on small lists of numbers. Each has a twin in
web/src/worker/pipelines/, and both run the vectors of tests/conformance.
"""
