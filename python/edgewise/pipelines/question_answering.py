"""Public names of host/pipelines/question_answering.py."""

from ..host.pipelines.question_answering import QuestionAnsweringPipeline

__all__ = ["QuestionAnsweringPipeline"]
