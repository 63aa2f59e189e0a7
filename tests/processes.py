"""Which process of pytest-xdist runs which tests."""

import pytest


def pytest_sessionstart(session):
    """In a process of pytest-xdist: sends of a test that passed one report instead of three, and no
    other messages. To write, send and read them takes more than two milliseconds of a test. What
    was written in a teardown is sent, since only its report has it.
    """
    option = session.config.option
    if not hasattr(session.config, "workerinput") or option.durations or option.xmlpath:
        return
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = _only_news(plugin.sendevent)


class Places(list):
    """A list of different names that finds the place of one without comparing it to all others."""

    def __init__(self, names):
        super().__init__(names)
        self.places = {name: i for i, name in enumerate(self)}

    def index(self, name):
        return self.places[name]


def _only_news(send):
    def is_news(report):
        if report["outcome"] != "passed" or report["when"] == "call":
            return True
        return report["when"] == "teardown" and any("teardown" in t for t, _ in report["sections"])

    def sendevent(name, **what):
        if name == "testreport" and not is_news(what["data"]):
            return
        if name not in ("logstart", "logfinish"):
            send(name, **what)

    return sendevent


# Folders whose files share what takes seconds to make.
TOGETHER = ("/onnx_suite/", "/structure/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One file's tests run in one process, since they share fixtures; the tests of a group
    (`pytest.mark.xdist_group`) and of a folder of TOGETHER do, too. Every op of
    tests/ops/test_ops.py is a file of its own.
    """
    from xdist.scheduler import LoadGroupScheduling

    class Files(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            group = super()._split_scope(nodeid)
            if group != nodeid:
                return group
            file, _, test = nodeid.partition("::")
            if file.endswith("ops/test_ops.py"):
                return test.partition("-")[0]
            return next((folder for folder in TOGETHER if folder in file), file)

        def remove_node(self, node):
            """The test during which a process ended failed; it is not run again in the next. Nor
            are units without tests given to it: it waits for the end of one to get another.
            """
            work = self.assigned_work.get(node, {})
            left = [
                (unit, test) for unit in work.values() for test, done in unit.items() if not done
            ]
            for unit, test in left[:1]:
                unit[test] = True
            for scope in [scope for scope, unit in work.items() if all(unit.values())]:
                del work[scope]
            super().remove_node(node)
            return left[0][1] if left else None

        def _assign_work_unit(self, node):
            """A report is read when its process may have ended since: the unit stays noted as this
            process's, and `remove_node`, which follows, gives it to another.
            """
            try:
                super()._assign_work_unit(node)
            except OSError:
                log("the process has ended", node)

        def add_node_collection(self, node, collection):
            super().add_node_collection(node, collection)
            if node in self.registered_collections:
                self.registered_collections[node] = Places(collection)

        def mark_test_complete(self, node, item_index, duration=0):
            """A unit that is done is forgotten: what is left would be counted among all tests."""
            super().mark_test_complete(node, item_index, duration)
            work = self.assigned_work[node]
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(work[scope].values()):
                del work[scope]

        def schedule(self):
            """A process begins a test when it has the next one: one that replaces another needs two
            units, as those that begin.
            """
            super().schedule()
            for node in self.nodes:
                self._reschedule(node)

    return Files(config, log)
