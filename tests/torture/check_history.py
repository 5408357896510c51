#!/usr/bin/env python3
"""Shows that the checker of histories finds what it has to find: python3 tests/torture/check_history.py

Each case is the history of a server that keeps its promises with one thing changed in it.
"""

import sys
import unittest
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from history import Backup, Event, History  # noqa: E402


def good():
    """One task that was running when the server died, one that was canceled, one unknown create."""
    return {
        "create a": Event("create", 0, 1, 0, 0, task="a", code=200, seed=1),
        "create b": Event("create", 1, 2, 0, 0, task="b", code=200, seed=2, key="k"),
        "repeat b": Event("create", 2, 3, 0, 0, task="b", code=200, seed=2, key="k"),
        "running": state(3, 0, "a", "PROCESSING"),
        "cancel": Event("cancel", 4, 5, 0, 0, task="b", code=200),
        "nothing yet": Event("result", 5, 6, 0, 0, task="a", code=204),
        "unknown": Event("create", 6, 7, 0, 0, seed=3),
        "back": state(8, 1, "a", "QUEUED"),
        "end of a": state(10, 1, "a", "COMPLETED", 99),
        "end of b": state(11, 1, "b", "CANCELED", 98),
        "answer": answer(12),
        "answer again": answer(14),
        "no answer": Event(
            "result", 16, 17, 1, 0, task="b", code=404, error="ASYNC_TASK_CANCELED"
        ),
    }


def state(at, life, task, name, completed=None):
    return Event(
        "status", at, at + 1, life, 0, task=task, code=200, state=name, created=7, completed=completed
    )


def answer(at):
    return Event("result", at, at + 1, 1, 0, task="a", code=200, digest="d", right=True)


LISTED = {"a": "COMPLETED", "b": "CANCELED", "c": "COMPLETED"}


class Checker(unittest.TestCase):
    def found(self, changes=None, extra=(), without=(), listed=None, keep=None, backups=()):
        events = good()
        for name, fields in (changes or {}).items():
            events[name] = replace(events[name], **fields)
        for name in without:
            del events[name]
        history = History([*events.values(), *extra], keep, backups)
        history.check(LISTED if listed is None else listed)
        return {violation["violation"] for violation in history.violations}

    def test_a_good_history_is_good(self):
        self.assertEqual(self.found(), set())

    def test_what_is_overlapped_has_no_order(self):
        late = replace(state(9.5, 1, "a", "PROCESSING"), end=20)
        self.assertEqual(self.found(extra=[late]), set())

    def test_a_lost_task(self):
        gone = {"code": 404, "error": "ENTITY_NOT_FOUND_BY_ID", "state": None, "completed": None}
        self.assertIn("lost", self.found({"end of b": gone}))
        self.assertIn("lost", self.found(listed={"a": "COMPLETED"}))

    def test_a_task_that_was_deleted(self):
        listed = {name: state for name, state in LISTED.items() if name != "a"}
        gone = {"code": 404, "error": "ENTITY_NOT_FOUND_BY_ID"}
        for code in (200, None):
            delete = Event("delete", 30, 31, 2, 0, task="a", code=code)
            after = Event("status", 32, 33, 2, 0, task="a", **gone)
            self.assertEqual(self.found(extra=[delete, after], listed=listed), set())
            # Too early, and not before the delete began.
            early = replace(after, begin=28, end=29)
            self.assertIn("lost", self.found(extra=[delete, early], listed=listed))
        again = state(34, 2, "a", "COMPLETED", 99)
        delete = replace(delete, code=200)
        self.assertIn("backwards", self.found(extra=[delete, again], listed=listed))
        self.assertIn("backwards", self.found(extra=[delete]))
        refused = Event(
            "delete", 20, 21, 2, 0, task="a", code=409, error="ASYNC_TASK_IS_NOT_FINISHED"
        )
        self.assertIn("backwards", self.found(extra=[refused]))
        refused = replace(refused, begin=5, end=6)
        self.assertEqual(self.found(extra=[refused]), set())

    def test_a_key_of_a_task_that_was_deleted(self):
        delete = Event("delete", 30, 31, 2, 0, task="b", code=200)
        other = Event("create", 32, 33, 2, 0, task="d", code=200, seed=2, key="k")
        listed = {"a": "COMPLETED", "c": "COMPLETED", "d": "CANCELED"}
        cancel = Event("cancel", 34, 35, 2, 0, task="d", code=200)
        self.assertEqual(self.found(extra=[delete, other, cancel], listed=listed), set())
        early = replace(other, begin=20, end=21)
        self.assertIn("twice", self.found(extra=[delete, early, cancel], listed=listed))

    def test_a_task_that_was_kept_long_enough(self):
        listed = {name: state for name, state in LISTED.items() if name != "a"}
        times = {"end of a": {"completed": 1_000_000}, "create a": {"wall": 990.0}}
        gone = Event(
            "status", 30, 31, 2, 0, task="a", code=404, error="ENTITY_NOT_FOUND_BY_ID", wall=1009.5
        )
        self.assertEqual(self.found(times, [gone], listed=listed, keep=10), set())
        self.assertIn("lost", self.found(times, [gone], listed=listed, keep=11))
        self.assertIn("lost", self.found(times, [gone], listed=listed))

    def test_a_backup_without_a_task(self):
        backup = Backup("backup-1", 20, 21, 1000.0, {"a", "b", "c"})
        self.assertEqual(self.found(backups=[backup]), set())
        lacking = replace(backup, tasks={"b", "c"})
        self.assertIn("lost", self.found(backups=[lacking]))
        # It was made before the task was answered for.
        self.assertEqual(self.found(backups=[replace(lacking, begin=0.5)]), set())
        delete = Event("delete", 20.5, 31, 2, 0, task="a", code=None)
        listed = {name: state for name, state in LISTED.items() if name != "a"}
        self.assertEqual(self.found(extra=[delete], listed=listed, backups=[lacking]), set())

    def test_an_id_given_twice(self):
        self.assertIn("twice", self.found({"create b": {"task": "a"}}))
        self.assertIn("twice", self.found({"repeat b": {"key": None}}))
        self.assertIn("twice", self.found({"repeat b": {"task": "a"}}))

    def test_a_task_that_nobody_made(self):
        self.assertIn("twice", self.found(listed={**LISTED, "d": "COMPLETED"}))

    def test_a_key_that_made_two_tasks(self):
        other = Event("create", 2, 3, 0, 0, task="c", code=200, seed=2, key="k")
        self.assertIn("twice", self.found(extra=[other]))

    def test_states_that_go_back(self):
        self.assertIn("backwards", self.found({"back": {"life": 0}}))
        for name in ("QUEUED", "PROCESSING"):
            for task in ("a", "b"):
                self.assertIn("backwards", self.found(extra=[state(20, 2, task, name)]))
        self.assertIn("backwards", self.found(extra=[state(5.5, 0, "b", "QUEUED")]))
        self.assertIn("backwards", self.found(extra=[state(20, 2, "a", "CANCELED", 99)]))
        nothing = Event("result", 20, 21, 2, 0, task="a", code=204)
        self.assertIn("backwards", self.found(extra=[nothing]))

    def test_times_that_change(self):
        self.assertIn("wrong", self.found({"back": {"created": 8}}))
        self.assertIn("wrong", self.found(extra=[state(20, 2, "a", "COMPLETED", 100)]))
        self.assertIn("wrong", self.found({"running": {"completed": 5}}))
        self.assertIn("wrong", self.found({"end of a": {"completed": None}}))

    def test_answers_that_are_wrong_or_change(self):
        self.assertIn("wrong", self.found({"answer": {"right": False}}))
        self.assertIn("wrong", self.found({"answer again": {"digest": "e"}}))
        failed = {"code": 503, "error": "mlp-action.common.service-unavailable"}
        self.assertIn("wrong", self.found({"answer": failed}))

    def test_a_task_that_ended_canceled_by_nobody(self):
        self.assertIn("wrong", self.found(without=["cancel"]))

    def test_a_task_without_an_end(self):
        listed = {**LISTED, "a": "PROCESSING"}
        ends = ["end of a", "answer", "answer again"]
        self.assertIn("unfinished", self.found(without=ends, listed=listed))
        self.assertIn("unfinished", self.found(without=["answer"]))


if __name__ == "__main__":
    unittest.main()
