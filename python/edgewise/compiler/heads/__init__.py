"""Heads: classifiers on the features of a model that stays as it is.

features: which tensor of a graph is the features of its inputs
step: a step of training as a graph
graph: models with a head in their graph
examples, fit: labelled features, and training on them
nearest: classification by the nearest examples
files: heads with their examples in safetensors files
"""
