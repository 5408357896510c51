"""What clients did and saw, and whether a server that keeps its promises could have answered so.

An event is one request: when it began and ended, in which life of the server it was sent (lives are
counted by starts; between two of them lies a SIGKILL), and the reply, unless that was lost. Two events
may overlap in time; only if one ended before the other began is it the earlier one.

Promises: a taskId that was returned with 200 is never lost, and is returned for one create only (or for
repeats of one with the same idempotency key); a task that nobody canceled is completed with the right
answer; a task once COMPLETED or CANCELED stays so, with the same times and the same bytes; before that
it goes from QUEUED to PROCESSING, and back only if the server died in between; a cancel that was
answered for holds at once. A create whose reply was lost may have made one task or none, not two.

A task is gone only if somebody asked for that, or if it was kept for long enough after its end; once gone
it stays so. A backup has every task that was answered for before it began and is not gone.
"""

import bisect
import dataclasses
import json
from collections import Counter, defaultdict

FINAL = ("COMPLETED", "CANCELED")
RANK = {"QUEUED": 0, "PROCESSING": 1, "COMPLETED": 2, "CANCELED": 2}

# What a reply to `result` or `cancel` tells of the task's state.
UNFINISHED, FINISHED = "unfinished", "finished"


@dataclasses.dataclass(slots=True)
class Event:
    do: str  # create, status, result, cancel, delete
    begin: float
    end: float
    life: int
    client: int
    task: str = None
    code: int = None  # None: the reply was lost
    error: str = None  # the code in the body of an error
    state: str = None
    created: int = None
    completed: int = None
    digest: str = None  # of a result's bytes
    right: bool = None  # whether a result is the right answer
    seed: int = None  # what a create's input was made of
    key: str = None  # a create's idempotency key
    note: str = None
    wall: float = None  # when it began, by the clock that the server has too

    def as_json(self):
        fields = dataclasses.asdict(self).items()
        return json.dumps({name: value for name, value in fields if value is not None})


@dataclasses.dataclass(slots=True)
class Backup:
    """A backup that is complete: when it was made, and the ids of its tasks."""

    name: str
    begin: float
    end: float
    end_wall: float
    tasks: set


class History:
    """All events of a run, and what is wrong with them. `keep`: seconds for which tasks are kept.

    `gives_back`: a task returns to the queue in the same life when its worker leaves.
    """

    def __init__(self, events, keep=None, backups=(), gives_back=False):
        self.events, self.keep, self.backups = events, keep, backups
        self.gives_back = gives_back
        self.counts = Counter()
        self.violations = []

    def check(self, listed):
        """`listed`: the state of every task that the server has at the end, by id."""
        self.listed = listed
        self.deletes, self.ends, self.begins = defaultdict(list), {}, {}
        by_task = defaultdict(list)
        for event in self.events:
            if event.do == "delete" and event.code in (200, None):
                self.deletes[event.task].append(event)
            if event.task is None or event.code is None:
                continue
            by_task[event.task].append(event)
            if event.completed is not None:
                self.ends[event.task] = event.completed / 1000
            if event.do == "create" and event.wall is not None:
                first = self.begins.get(event.task, event.wall)
                self.begins[event.task] = min(first, event.wall)
        self.check_replies()
        self.check_creates()
        self.check_backups()
        canceled = {event.task for event in self.events if event.do == "cancel"}
        for task in self.made:
            events = sorted(by_task[task], key=lambda event: event.begin)
            self.check_gone(task, events)
            self.check_end(task, events, task in canceled)
            self.check_constants(task, events)
            self.check_order(task, events)
        return self

    def violate(self, kind, task, words):
        self.counts[kind] += 1
        self.violations.append({"violation": kind, "task": task, "words": words})

    def may_be_gone(self, task, end, wall):
        """Whether a task may be gone at a moment, which is the end of what found it so."""
        if any(delete.begin <= end for delete in self.deletes.get(task, ())):
            return True
        # It cannot have ended before it was asked for.
        ended = self.ends.get(task, self.begins.get(task))
        return None not in (self.keep, ended, wall) and wall >= ended + self.keep

    def is_gone_by(self, event):
        return self.may_be_gone(event.task, event.end, end_wall(event))

    # ---- Replies and ids ----

    def check_replies(self):
        for event in self.events:
            self.counts[f"{event.do} sent"] += 1
            if event.code is None:
                self.counts[f"{event.do} lost"] += 1
            elif event.do == "result" and (event.code, event.error) == (404, "ASYNC_TASK_CANCELED"):
                pass
            elif (event.do, event.code, event.error) == ("delete", 409, UNDELETED):
                pass
            elif event.code == 404 and event.error == "ENTITY_NOT_FOUND_BY_ID":
                if not self.is_gone_by(event):
                    self.violate("lost", event.task, f"{event.do}: there is no such task")
            elif event.code != 200 and (event.do, event.code) != ("result", 204):
                words = f"{event.do} was answered with {event.code} {event.error}: {event.note}"
                self.violate("wrong", event.task, words)
            elif event.note:
                self.violate("wrong", event.task, f"{event.do}: {event.note}")

    def check_creates(self):
        creates = [event for event in self.events if event.do == "create"]
        self.made = {}
        of_key = {}
        for event in creates:
            if event.code != 200 or event.task is None:
                continue
            name = ("key", event.key) if event.key else ("event", id(event))
            if self.made.setdefault(event.task, name) != name:
                self.violate("twice", event.task, "the same taskId for two creates")
            if event.key and of_key.setdefault(event.key, event.task) != event.task:
                first = dataclasses.replace(event, task=of_key[event.key])
                # Its key may be used again when it is gone.
                if not self.is_gone_by(first):
                    words = f"the idempotency key {event.key} made {first.task} too"
                    self.violate("twice", event.task, words)
                of_key[event.key] = event.task
        self.counts["created"] = len(self.made)
        unknown = [event for event in creates if event.code is None]
        unkeyed = sum(event.key is None for event in unknown)
        keyed = {event.key for event in unknown if event.key} - set(of_key)
        self.counts["unknown"] = unkeyed + len(keyed)
        self.counts["unknown that were made"] = len(self.listed.keys() - self.made.keys())
        if self.counts["unknown that were made"] > self.counts["unknown"]:
            more = self.counts["unknown that were made"] - self.counts["unknown"]
            self.violate("twice", None, f"{more} tasks exist that no create can have made")
        last = max((event.end for event in self.events), default=0)
        wall = max((wall for wall in map(end_wall, self.events) if wall is not None), default=None)
        for task in self.made.keys() - self.listed.keys():
            if not self.may_be_gone(task, last, wall):
                self.violate("lost", task, "it is not in the account's list")
        for task, state in self.listed.items():
            if state not in FINAL:
                self.violate("unfinished", task, f"it is {state} in the account's list at the end")

    def check_backups(self):
        """Each has what was answered for before it began, unless that was gone at its end."""
        creates = [event for event in self.events if event.do == "create" and event.code == 200]
        creates.sort(key=lambda event: event.end)
        ends = [event.end for event in creates]
        for backup in self.backups:
            # What is older was in the backups before, or is gone by age.
            first = bisect.bisect(ends, backup.begin - (self.keep or 0) - 30)
            for event in creates[first : bisect.bisect(ends, backup.begin)]:
                if event.task in backup.tasks:
                    continue
                if not self.may_be_gone(event.task, backup.end, backup.end_wall):
                    self.violate("lost", event.task, f"it is not in {backup.name}")
        self.counts["backups"] = len(self.backups)

    # ---- One task ----

    def check_gone(self, task, events):
        """What is gone stays so; from when on it is, is known by the end of what found it so."""
        gone = [event.end for event in events if is_gone(event)]
        gone += [event.end for event in self.deletes.get(task, ()) if event.code == 200]
        if not gone:
            return
        self.counts["deleted" if self.deletes.get(task) else "kept long enough"] += 1
        for event in events:
            answered = event.code in (200, 204) and event.do != "create"
            if answered and event.begin >= min(gone):
                self.violate("backwards", task, f"it was gone, and {event.do} found it again")
                return
        if task in self.listed:
            self.violate("backwards", task, "it was gone, and is in the account's list")

    def check_end(self, task, events, was_canceled):
        ends = {event.state for event in events if event.state in FINAL}
        ends |= {"COMPLETED" for event in events if event.do == "result" and event.code == 200}
        ends |= {"CANCELED" for event in events if event.error == "ASYNC_TASK_CANCELED"}
        if listed := self.listed.get(task):
            ends.add(listed)
        if len(ends) > 1:
            self.violate("backwards", task, f"it was all of {', '.join(sorted(ends))}")
            return
        end = next(iter(ends), None)
        is_there = task in self.listed
        if end not in FINAL and not is_there:
            # It ended and went without anybody looking; that it may be gone was checked.
            return
        if end not in FINAL:
            self.violate("unfinished", task, "it never reached a final state")
            return
        self.counts[end.lower()] += 1
        if end == "CANCELED" and not was_canceled:
            self.violate("wrong", task, "it is CANCELED, and nobody canceled it")
        results = [event for event in events if event.do == "result" and event.code == 200]
        if end == "COMPLETED" and is_there and len(results) < 2:
            self.violate("unfinished", task, "its result was not read twice")
        if any(event.right is False for event in results):
            self.violate("wrong", task, "its result is not the right answer")
        if len({event.digest for event in results}) > 1:
            self.violate("wrong", task, "two reads of its result differ")

    def check_constants(self, task, events):
        for name in ("created", "completed"):
            seen = {getattr(event, name) for event in events} - {None}
            if len(seen) > 1:
                self.violate("wrong", task, f"{name}At was all of {sorted(seen)}")
        for event in events:
            if event.do != "status" or event.state is None:
                continue
            if (event.completed is not None) != (event.state in FINAL):
                words = f"{event.state} with completedAt {event.completed}"
                self.violate("wrong", task, words)

    def check_order(self, task, events):
        """The latest state that was known before an event began may not be after the event's."""
        seen = [event for event in events if shown(event) is not None]
        for place, later in enumerate(seen):
            for earlier in seen[:place]:
                if earlier.end <= later.begin and not may_follow(earlier, later, self.gives_back):
                    words = f"{shown(earlier)} in life {earlier.life}, then {shown(later)} in life "
                    self.violate("backwards", task, f"{words}{later.life}")
                    return


UNDELETED = "ASYNC_TASK_IS_NOT_FINISHED"


def end_wall(event):
    """When an event ended, by the clock that the server has too."""
    return None if event.wall is None else event.wall + event.end - event.begin


def is_gone(event):
    """Whether a reply says that its task is not there."""
    return event.code == 404 and event.error == "ENTITY_NOT_FOUND_BY_ID"


def shown(event):
    """What an event tells of its task's state."""
    if event.do == "status" and event.code == 200:
        return event.state
    if event.do == "result":
        ends = {200: "COMPLETED", 204: UNFINISHED}
        return "CANCELED" if event.error == "ASYNC_TASK_CANCELED" else ends.get(event.code)
    if event.do == "delete":
        return UNFINISHED if event.error == UNDELETED else None
    return FINISHED if event.do == "cancel" and event.code == 200 else None


def may_follow(earlier, later, gives_back):
    before, after = shown(earlier), shown(later)
    if before in FINAL or before == FINISHED:
        return after in FINAL or after == FINISHED
    if before == UNFINISHED or after in (UNFINISHED, FINISHED):
        return True
    return gives_back or RANK[after] >= RANK[before] or later.life > earlier.life
