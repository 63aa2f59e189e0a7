"""Files of training artifacts: models with their metadata, and ONNX Runtime's checkpoints (odtc).

`calls` answers what a page's TrainingSession asks.
"""
