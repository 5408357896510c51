"""What clients saw of their tasks, and whether it can be true."""

import json
import threading
from dataclasses import dataclass, field

FINAL = {"COMPLETED", "CANCELED"}


@dataclass
class Task:
    """A task that the server accepted."""

    sent: list
    cancel_sent: bool = False
    # (round, status, createdAt, completedAt), in the order in which its one client saw them.
    states: list = field(default_factory=list)
    # (HTTP status, body) of each result that was no 204.
    results: list = field(default_factory=list)


class History:
    """Everything that was seen. Each task belongs to one client thread until the end."""

    def __init__(self):
        self.lock = threading.Lock()
        self.tasks = {}
        self.twice = []
        self.unknown = 0

    def created(self, task, sent):
        with self.lock:
            if task in self.tasks:
                self.twice.append(task)
            self.tasks[task] = Task(sent)

    def lost_reply(self):
        """A create whose reply never came: it may have been accepted or not."""
        with self.lock:
            self.unknown += 1

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            for task, seen in self.tasks.items():
                file.write(json.dumps({"task": task, **vars(seen)}, default=repr) + "\n")

    def violations(self):
        """What cannot be true, a line for each."""
        found = [f"{task}: given to two requests" for task in self.twice]
        for task, seen in self.tasks.items():
            found += [f"{task}: {fault}" for fault in faults(seen)]
        return found

    def count(self, status):
        return sum(seen.states[-1][1] == status for seen in self.tasks.values() if seen.states)


def faults(task):
    """What is wrong with the history of one task."""
    if not task.states or task.states[-1][1] not in FINAL:
        yield f"lost: last seen as {task.states[-1:]}"
        return
    for before, after in zip(task.states, task.states[1:]):
        yield from step(before, after)
    completed = task.states[-1][1] == "COMPLETED"
    if not completed and not task.cancel_sent:
        yield f"canceled by nobody: {task.results[-1:]}"
    if len({body for _, body in task.results}) > 1 and completed:
        yield f"several answers: {task.results}"
    for status, body in task.results:
        if completed and (status != 200 or not right(task.sent, body)):
            yield f"wrong answer: {status} {body[:200]!r} to {task.sent[:5]}"
        if not completed and status != 404:
            yield f"canceled, but its result is {status} {body[:200]!r}"
    if not task.results:
        yield "its result was never read"


def step(before, after):
    (round_before, was, created, completed), (round_after, now, created_now, completed_now) = (
        before,
        after,
    )
    if created != created_now:
        yield f"createdAt changed: {before} {after}"
    if was in FINAL and (now != was or completed != completed_now):
        yield f"a final state changed: {before} {after}"
    # A process that dies gives its running tasks back.
    if was == "PROCESSING" and now == "QUEUED" and round_before == round_after:
        yield f"backwards without a crash: {before} {after}"


def right(sent, body):
    try:
        answer = json.loads(body)["outputs"][0]
    except (ValueError, KeyError, IndexError, TypeError):
        return False
    return answer["data"] == [-value for value in sent]
