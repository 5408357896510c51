#!/usr/bin/env python3
"""Kills the server again and again under load, and checks that nothing that it accepted is lost.

    tests/torture/torture.py [--rounds 1000] [--clients 8] [--data-dir DIR] [--seed N]

Needs Linux or macOS, and a release build (`cargo build --release`) or --binary. Clients create tasks,
read their states and results and cancel some, while the server is killed (SIGKILL) at random moments
and started again on the same data. In the end every task that was ever accepted must have reached a
final state, with the right answer and only one, and no state may have gone backwards. Give --data-dir
a directory on the disk that is to be tested. Exit code 1 if anything is wrong; the history and the
data are kept then.
"""

import argparse
import http.client
import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import package
from history import FINAL, History
from server import Server

ROOT = Path(__file__).resolve().parents[2]
CREATE = "/api/mlpgateway/account/local/model/negate/async/predict"
TASK = "/api/mlpgateway/account/local/async/task"
# A task may be running at each of very many kills: it is not to be given up for that.
SETTINGS = """
[limits]
waiting = 1000000
running = 50
attempts = 100000
[log]
level = "warn"
"""
# Longest time for all tasks to end after the last kill, in seconds.
PATIENCE = 300


class Load:
    """Clients, and what they may do now."""

    def __init__(self, server, clients, seed):
        self.server, self.history = server, History()
        self.round = 0
        self.up = threading.Event()
        self.ending = False
        self.errors = []
        make = range(clients)
        self.threads = [
            threading.Thread(target=self.client, args=(random.Random(f"{seed}-{number}"),))
            for number in make
        ]

    def client(self, chance):
        mine, connection = [], None
        while True:
            if self.ending:
                break
            if not self.up.wait(0.1):
                continue
            try:
                if connection is None:
                    connection = self.server.connection(timeout=30)
                self.act(chance, mine, connection)
            except (OSError, http.client.HTTPException):
                if connection is not None:
                    connection.close()
                connection = None
            except Exception as error:  # noqa: BLE001 - a client must not die unseen
                self.errors.append(repr(error))
                return

    def act(self, chance, mine, connection):
        roll = chance.random()
        if not mine or roll < 0.5:
            self.create(chance, mine, connection)
            return
        # Mostly of late: older tasks are final.
        task = mine[-1 - min(len(mine) - 1, int(chance.expovariate(0.1)))]
        if roll < 0.8:
            self.read_state(task, connection)
        elif roll < 0.95:
            self.read_result(task, connection)
        else:
            self.history.tasks[task].cancel_sent = True
            self.expect(200, "POST", f"{TASK}/{task}/cancel", None, connection)

    def create(self, chance, mine, connection):
        # Short ones fit a task's record, long ones go to the blob store.
        length = chance.choice([1, 3, 5, 200])
        sent = [float(chance.randrange(1_000_000)) for _ in range(length)]
        body = json.dumps({"inputs": [{"data": sent}]})
        try:
            status, content = self.server.ask("POST", CREATE, body, connection)
        except (OSError, http.client.HTTPException):
            self.history.lost_reply()
            raise
        if status == 200:
            task = json.loads(content)
            self.history.created(task, sent)
            mine.append(task)
        elif status != 429:
            raise ValueError(f"create: {status} {content!r}")

    def read_state(self, task, connection):
        at = self.round
        content = self.expect(200, "GET", f"{TASK}/{task}", None, connection)
        state = json.loads(content)
        seen = (at, state["status"], state["createdAt"], state["completedAt"])
        self.history.tasks[task].states.append(seen)
        return state["status"]

    def read_result(self, task, connection):
        path = f"{TASK}/{task}/response"
        status, content = self.server.ask("GET", path, None, connection)
        if status != 204:
            self.history.tasks[task].results.append((status, content))

    def expect(self, wanted, method, path, body, connection):
        status, content = self.server.ask(method, path, body, connection)
        if status != wanted:
            raise ValueError(f"{method} {path}: {status} {content!r}")
        return content

    def settle(self):
        """Waits until every task is final, and reads each result twice."""
        connection = self.server.connection()
        deadline = time.monotonic() + PATIENCE
        for task, seen in self.history.tasks.items():
            while self.read_state(task, connection) not in FINAL:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.01)
            for _ in range(2):
                self.read_result(task, connection)
            if seen.states[-1][1] not in FINAL:
                break
        connection.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--round-ms", type=int, default=400, help="longest time between two kills")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/pkgtool")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    chance = random.Random(seed)
    made = options.data_dir is None
    data = Path(tempfile.mkdtemp(prefix="torture-")) if made else options.data_dir
    package.write(data / "packages")
    server = Server(options.binary, data, [data / "packages"], SETTINGS)
    server.start()
    server.tool("accounts", "set", "local", "--rps", "1000000")
    load = Load(server, options.clients, seed)
    for thread in load.threads:
        thread.start()
    begin = time.monotonic()
    try:
        for number in range(1, options.rounds + 1):
            load.round = number
            load.up.set()
            time.sleep(chance.uniform(0, options.round_ms / 1000))
            server.kill()
            load.up.clear()
            server.start()
            if load.errors:
                break
        load.round += 1
    finally:
        load.ending = True
        for thread in load.threads:
            thread.join()
    load.settle()
    server.stop()
    sys.exit(report(load, server, data, seed, time.monotonic() - begin, made))


def report(load, server, data, seed, took, made):
    history = load.history
    violations = load.errors + history.violations()
    restarts = [seconds * 1000 for seconds in server.restarts[1:]]
    print(
        f"seed {seed}: {len(restarts)} kills in {took:.0f} s; {len(history.tasks)} tasks accepted, "
        f"{history.count('COMPLETED')} completed, {history.count('CANCELED')} canceled; "
        f"{history.unknown} creates without a reply"
    )
    print(
        f"restart to ready: median {statistics.median(restarts):.0f} ms, "
        f"longest {max(restarts):.0f} ms"
    )
    if not violations:
        print("nothing lost, nothing wrong, nothing backwards")
        if made:
            shutil.rmtree(data)
        return 0
    history.write(data / "history.jsonl")
    for line in violations[:20]:
        print(line)
    print(f"{len(violations)} violations; the history and the data are in {data}")
    return 1


if __name__ == "__main__":
    main()
