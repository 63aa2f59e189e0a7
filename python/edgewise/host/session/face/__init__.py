"""What onnxruntime's API has around runs: options, values, bindings, providers, profiles."""
