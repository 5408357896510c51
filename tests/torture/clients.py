"""Clients that create, read and cancel tasks as fast as they can, and write down what they see."""

import hashlib
import http.client
import json
import random
import threading
import time

from history import Event
from server import create_path, task_path

# Of 100 requests, how many are what.
MIX = [("create", 45), ("status", 25), ("result", 20), ("cancel", 5), ("delete", 5)]

# A third of the inputs makes bodies and answers that are too long for a task's row: some are kept beside
# it, some in files (torture.py sets from when on).
SHORT, LONG = (1, 8), (60, 400)
SHARE_OF_LONG = 1 / 3
SHARE_OF_KEYED = 1 / 4
SHARE_OF_REPEATED = 1 / 10
SHARE_OF_LONG_POLLS = 1 / 50

# Elements are whole numbers that float32 has exactly.
EXACT = 1 << 24


class Load:
    """What the clients have in common."""

    def __init__(self, server, service, seed):
        self.server, self.service, self.seed = server, service, seed
        self.lock = threading.Lock()
        self.events = []
        self.seeds = {}  # of known tasks, by id
        self.tasks = []  # known tasks, the newest last
        self.count = 0
        self.life = 0
        self.stopped = threading.Event()

    def next_seed(self):
        with self.lock:
            self.count += 1
            return self.count

    def record(self, event):
        with self.lock:
            self.events.append(event)
            if event.do == "create" and event.code == 200 and event.task is not None:
                if event.task not in self.seeds:
                    self.tasks.append(event.task)
                self.seeds.setdefault(event.task, event.seed)

    def some_task(self, chance):
        """A known task of anybody, rather a new one."""
        with self.lock:
            newest = len(self.tasks)
            if not newest:
                return None
            first = max(0, newest - 50) if chance.random() < 0.7 else 0
            return self.tasks[chance.randrange(first, newest)]


class Client(threading.Thread):
    def __init__(self, load, number):
        super().__init__(name=f"client {number}", daemon=True)
        self.load, self.number = load, number
        self.chance = random.Random(f"{load.seed} {number}")
        self.connection = None
        self.repeat = None  # a keyed create that is to be sent again: (seed, key)
        self.problem = None

    def run(self):
        kinds, weights = zip(*MIX)
        try:
            while not self.load.stopped.is_set():
                self.act(self.chance.choices(kinds, weights)[0])
            # A keyed create whose reply was lost becomes known by asking again.
            while self.repeat and self.repeat[2]:
                self.create()
        except Exception as error:  # The run has no meaning if a client ends early.
            self.problem = error
            raise

    def act(self, do):
        task = None if do == "create" or self.repeat else self.load.some_task(self.chance)
        if task is None:
            self.create()
        elif do == "status":
            self.status(task, self.chance.random() < SHARE_OF_LONG_POLLS)
        elif do == "result":
            self.result(task)
        elif do == "cancel":
            self.cancel(task)
        else:
            self.delete(task)

    # ---- The five requests ----

    def create(self):
        if self.repeat:
            seed, key, _ = self.repeat
        else:
            seed = self.load.next_seed()
            keyed = self.chance.random() < SHARE_OF_KEYED
            key = f"key-{self.load.seed}-{seed}" if keyed else None
        event = self.begin("create", seed=seed, key=key)
        headers = {"Idempotency-Key": key} if key else {}
        body = json.dumps({"inputs": [{"data": values(seed)}]})
        answer = self.send(event, "POST", create_path(self.load.service), body, headers)
        if answer is REFUSED:
            return
        if event.code == 200:
            event.task = as_text(answer, event)
        # Sent again: always if the reply was lost, sometimes if not.
        again = event.code is None or (
            self.repeat is None and self.chance.random() < SHARE_OF_REPEATED
        )
        self.repeat = (seed, key, event.code is None) if key and again else None
        self.load.record(event)

    def status(self, task, long_poll=False):
        event = self.begin("status", task=task)
        path = task_path(task) + ("?wait=1" if long_poll else "")
        answer = self.send(event, "GET", path)
        if answer is REFUSED:
            return None
        if event.code == 200:
            try:
                found = json.loads(answer)
                event.state = found["status"]
                event.created, event.completed = found["createdAt"], found["completedAt"]
                if found["taskId"] != task or event.state not in STATES or not event.created:
                    event.note = f"not this task's state: {answer[:300]!r}"
                    event.state = None
            except (ValueError, KeyError, TypeError):
                event.note = f"no state: {answer[:300]!r}"
        self.load.record(event)
        return event

    def result(self, task):
        event = self.begin("result", task=task)
        answer = self.send(event, "GET", task_path(task, "/response"))
        if answer is REFUSED:
            return None
        if event.code == 200:
            event.digest = hashlib.sha256(answer).hexdigest()
            event.right = is_right(answer, self.load.seeds[task])
            if not event.right:
                event.note = f"seed {self.load.seeds[task]}: {answer[:300]!r}"
        self.load.record(event)
        return event

    def cancel(self, task):
        event = self.begin("cancel", task=task)
        if self.send(event, "POST", task_path(task, "/cancel"), "") is not REFUSED:
            self.load.record(event)

    def delete(self, task):
        event = self.begin("delete", task=task)
        if self.send(event, "DELETE", task_path(task)) is not REFUSED:
            self.load.record(event)

    # ---- HTTP ----

    def begin(self, do, **fields):
        return Event(do, 0.0, 0.0, 0, self.number, **fields)

    def send(self, event, method, path, body=None, headers=None):
        """The body of the reply, None if that was lost, REFUSED if the request was never sent."""
        if self.connection is None:
            self.connection = self.load.server.connect()
            try:
                self.connection.connect()
            except OSError:
                self.disconnect()
                time.sleep(0.005)
                return REFUSED
            # Lives are counted between a death and the next start. If that was just now, this
            # connection is dead already, and gives no reply that the number could be wrong for.
            self.connection_life = self.load.life
        event.life = self.connection_life
        event.wall = time.time()
        event.begin = time.monotonic()
        answer = None
        try:
            headers = {**self.load.server.headers, **(headers or {})}
            self.connection.request(method, path, body, headers)
            reply = self.connection.getresponse()
            answer = reply.read()
            event.code = reply.status
        except (OSError, http.client.HTTPException):
            self.disconnect()
        event.end = time.monotonic()
        if event.code is not None and event.code >= 400:
            event.error, event.note = error_of(answer)
        return answer

    def disconnect(self):
        self.connection.close()
        self.connection = None


REFUSED = object()
STATES = ("QUEUED", "PROCESSING", "COMPLETED", "CANCELED")


def values(seed):
    """The input that a seed stands for: no two have the same first element."""
    chance = random.Random(seed)
    length = chance.randint(*(LONG if chance.random() < SHARE_OF_LONG else SHORT))
    rest = [float(chance.randrange(-EXACT, EXACT)) for _ in range(length - 1)]
    return [float(seed % EXACT), *rest]


def is_right(answer, seed):
    expected = [-value for value in values(seed)]
    try:
        (output,) = json.loads(answer)["outputs"]
        return (
            output["data"] == expected
            and output["shape"] == [len(expected)]
            and output["dtype"] == "float32"
        )
    except (ValueError, KeyError, TypeError):
        return False


def as_text(answer, event):
    try:
        text = json.loads(answer)
    except ValueError:
        text = None
    if isinstance(text, str) and text:
        return text
    event.note = f"no task id: {answer[:300]!r}"
    return None


def error_of(answer):
    """An error's code and its words."""
    try:
        error = json.loads(answer)["error"]
        return error["code"], None if error["code"] in EXPECTED else error["message"]
    except (ValueError, KeyError, TypeError):
        return None, repr(answer[:300])


EXPECTED = ("ASYNC_TASK_CANCELED", "ASYNC_TASK_IS_NOT_FINISHED", "ENTITY_NOT_FOUND_BY_ID")
