"""Public names of host/pipelines/files.py."""

from ..host.pipelines.files import DTYPES, SMALL, Dtype, ModelFiles, Stem, check_dtype

__all__ = ["DTYPES", "Dtype", "ModelFiles", "SMALL", "Stem", "check_dtype"]
