"""Public names of compiler/task_package/__init__.py."""

from .compiler.task_package import (
    BUILDERS,
    TASK_FILES,
    TASKS,
    Request,
    Task,
    compile_task,
    page_task,
    task_name,
    task_texts,
)
from .logic.tasks.names import ALIASES

__all__ = [
    "ALIASES",
    "BUILDERS",
    "Request",
    "TASKS",
    "TASK_FILES",
    "Task",
    "compile_task",
    "page_task",
    "task_name",
    "task_texts",
]
