#!/usr/bin/env python3
"""Kills `pkgtool serve` again and again under load, and checks that no promise was broken.

    cargo build && python3 tests/torture/torture.py [--rounds 100] [--seed N] [--clients 8]

Each round: the server starts on the same data directory, clients create tasks whose right answers
are known, read their states and results, cancel and delete some; at a random moment the process gets
SIGKILL. One round in ten kills it while it still starts. Tasks that ended --keep seconds ago are deleted,
by the server and by `admin purge`; `admin backup` runs all the time; some of these commands are killed,
too. Then all tasks are waited for and read, the server is killed once more, and everything that is still
kept is read again. history.py says what is promised and checks it; backups.py looks into the backups.

With `--service workers`, models run on workers that attach through a proxy, and each round has a fault of workers or
streams, too: workers.py says which. The server is killed in a fifth of these rounds.

This is the death of the process: what was written is still there, synchronised or not. The loss of
power is another matter, which this does not test.

Exit 0: no violation. 1: violations; the data is kept and the history is in HOME/history.jsonl.
2: the run could not be made.
"""

import argparse
import json
import os
import random
import shutil
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from backups import Backups  # noqa: E402
from clients import Client, Load  # noqa: E402
from history import FINAL, History  # noqa: E402
from model import write_package  # noqa: E402
from server import PREFIX, Server, ServerError, family  # noqa: E402
from upstream import Upstream  # noqa: E402
from workers import Workers  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = """\
[limits]
waiting = 1000000
running = 50
attempts = 1000

[tasks]
record_ttl_days = {days}
inline_bytes = 1500

[log]
level = "warn"
"""

SERVICE = "negate"

# Longest time after the kills in which no task ends, in seconds.
PATIENCE = 120

# Of 100 rounds with workers, how many kill the server.
SERVER_KILLS = 20

# Of 100 rounds, how many kill the server before it is ready, and within how many seconds.
EARLY, EARLY_SECONDS = 10, 0.1


def main():
    options = arguments()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    home = options.data_dir or Path(tempfile.mkdtemp(prefix="pkgtool-torture-"))
    if home.exists() and any(home.iterdir()):
        sys.exit(f"{home} is not empty: a run needs data of its own")
    home.mkdir(parents=True, exist_ok=True)
    binary = options.binary.resolve()
    if not binary.is_file():
        sys.exit(f"there is no {binary}: build it with `cargo build`, or name it with --binary")
    print(f"seed {seed}, {options.rounds} rounds, {options.clients} clients, in {home}", flush=True)
    with Upstream("negate") if options.service == "proxy" else nullcontext() as upstream:
        settings, packages = SETTINGS.format(days=options.keep_seconds / 86400), []
        workers = None
        if options.service == "workers":
            write_package(home / "packages", SERVICE)
            workers = Workers(binary, home / "packages", SERVICE, options.workers, seed)
            settings += workers.settings
        elif upstream:
            settings += f'\n[[proxies]]\nname = "{SERVICE}"\nupstream = "{upstream.url}"\n'
        else:
            write_package(home / "packages", SERVICE)
            packages = [home / "packages"]
        run = Run(Server(binary, home, settings, packages), options, seed, workers)
        try:
            run.all()
        except ServerError as error:
            print(f"the run could not go on: {error}", file=sys.stderr)
            run.write_history()
            sys.exit(2)
        finally:
            run.load.stopped.set()
            run.backups.stopped.set()
            run.server.stop()
            if workers:
                workers.stop()
    sys.exit(report(run, home, keep=options.keep or options.data_dir is not None))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, help="for the moments and the mix of requests")
    parser.add_argument("--round-ms", type=float, default=400, help="latest kill after readiness")
    parser.add_argument("--keep-seconds", type=int, default=10, help="of tasks that have ended")
    parser.add_argument("--binary", type=Path, default=ROOT / "target" / "debug" / "pkgtool")
    parser.add_argument("--data-dir", type=Path, help="empty, and kept; else a temporary one")
    parser.add_argument("--keep", action="store_true", help="keep the data of a good run too")
    parser.add_argument(
        "--service",
        choices=["model", "proxy", "workers"],
        default="model",
        help="a model on the device, a proxy to a process that does the same, or workers with the model",
    )
    parser.add_argument("--workers", type=int, default=3, help="number of workers")
    return parser.parse_args()


class Run:
    def __init__(self, server, options, seed, workers=None):
        self.server, self.options, self.workers = server, options, workers
        self.chance = random.Random(seed)
        self.load = Load(server, SERVICE, seed)
        self.clients = [Client(self.load, number) for number in range(options.clients)]
        self.backups = Backups(server, options.keep_seconds, seed)
        self.ready = []
        self.kills = 0
        self.left = set()  # processes that the killed ones had started
        self.problems = []

    def all(self):
        self.server.start()
        self.server.set_rate(1_000_000)
        if self.workers:
            self.workers.start(self.server)
        self.warm()
        for client in self.clients:
            client.start()
        self.backups.start()
        for number in range(self.options.rounds):
            self.one_round(number)
        self.load.stopped.set()
        for client in self.clients:
            client.join(PATIENCE)
            if client.is_alive() or client.problem:
                raise ServerError(f"{client.name} did not end well: {client.problem}")
        self.backups.stopped.set()
        self.backups.join(PATIENCE)
        if self.backups.is_alive():
            raise ServerError("a backup does not end")
        self.problems += self.backups.problems
        # From here on nothing goes by age: what is there is read twice.
        self.die()
        text = self.server.config.read_text()
        days = self.options.keep_seconds / 86400
        self.server.config.write_text(text.replace(f"record_ttl_days = {days}", "record_ttl_days = 0"))
        self.restart()
        self.progress("the last start; waiting until all tasks are final")
        self.wait_until_final()
        self.progress("reading all of them")
        self.read_all()
        self.progress("a last kill, reading all of them again")
        self.die()
        self.restart()
        self.read_all()
        listed = self.list()
        self.progress("checking")
        gives_back = self.workers is not None
        history = History(
            self.load.events, self.options.keep_seconds, self.backups.made, gives_back
        )
        self.history = history.check(listed)
        self.check_processes()
        self.check_purge()

    def warm(self):
        """One task to its end: a service that does not work at all needs no torture."""
        client = Client(self.load, len(self.clients))
        client.create()
        deadline = time.monotonic() + PATIENCE
        while not self.load.tasks or client.status(self.load.tasks[0]).state not in FINAL:
            if not self.load.tasks or time.monotonic() > deadline:
                raise ServerError(f"the first task did not end: {self.load.events[-1]}")
            time.sleep(0.01)
        event = client.result(self.load.tasks[0])
        if not event.right:
            raise ServerError(f"the first task's result is wrong: {event}")
        client.disconnect()

    # ---- Kills ----

    def one_round(self, number):
        if number % 10 == 0:
            self.progress(f"round {number}: {len(self.load.tasks)} tasks")
        time.sleep(self.chance.uniform(0, self.options.round_ms / 1000))
        if self.workers:
            self.workers.fault()
            if self.chance.random() * 100 >= SERVER_KILLS:
                return
        self.die()
        while self.chance.random() * 100 < EARLY:
            self.load.life += 1
            self.server.spawn()
            time.sleep(self.chance.uniform(0, EARLY_SECONDS))
            self.die()
        self.restart()

    def die(self):
        self.left |= {start_of(pid) for pid in family(self.server.pid)[1:]}
        if self.server.kill():
            self.kills += 1
        else:
            code = self.server.process.returncode
            tail = self.server.log_tail()
            self.problems.append(f"the server ended by itself, with {code}:\n{tail}")

    def restart(self):
        self.load.life += 1
        self.ready.append(self.server.start())

    def check_purge(self):
        """What has ended can be deleted wholly."""
        self.server.stop()
        self.backups.admin("purge", "--older-than", "0s", killed=0)
        with sqlite3.connect(f"file:{self.server.database}?mode=ro", uri=True) as database:
            for table in ("task", "content"):
                (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
                if count:
                    self.problems.append(f"{count} rows of `{table}` are left after a purge of all")

    def check_processes(self):
        """What a killed server had started must end too."""
        deadline = time.monotonic() + 10
        while alive := {it for it in self.left if it and start_of(it[0]) == it}:
            if time.monotonic() > deadline:
                pids = ", ".join(str(pid) for pid, _ in alive)
                self.problems.append(f"processes of killed servers still run: {pids}")
                return
            time.sleep(0.1)

    # ---- The end ----

    def wait_until_final(self):
        last, since = None, time.monotonic()
        while True:
            code, body = self.server.send("GET", "/readyz")
            if code != 200:
                raise ServerError(f"/readyz: {code} {body!r}")
            found = json.loads(body)
            left = found["waiting"] + found["running"]
            if not left:
                return
            if left != last:
                last, since = left, time.monotonic()
            if time.monotonic() - since > PATIENCE:
                # The checker names the tasks.
                self.problems.append(f"{left} tasks did not end: none did in {PATIENCE} s")
                return
            time.sleep(0.05)

    def read_all(self):
        tasks = list(self.load.tasks)
        share = [tasks[number :: len(self.clients)] for number in range(len(self.clients))]

        def read(client, tasks):
            for task in tasks:
                client.status(task)
                client.result(task)

        threads = [
            threading.Thread(target=read, args=pair) for pair in zip(self.clients, share)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def list(self):
        """The state of every task that the account has, by id."""
        found, before = {}, ""
        while True:
            code, body = self.server.send("GET", f"{PREFIX}/async/task?limit=1000{before}")
            if code != 200:
                raise ServerError(f"the list of tasks: {code} {body!r}")
            page = json.loads(body)
            if not page:
                return found
            found.update((task["taskId"], task["status"]) for task in page)
            before = f"&before={page[-1]['taskId']}"

    def progress(self, words):
        print(f"  {words}", flush=True)

    def write_history(self):
        path = self.server.home / "history.jsonl"
        with open(path, "w") as file:
            for event in sorted(self.load.events, key=lambda event: event.begin):
                file.write(event.as_json() + "\n")
        return path


def start_of(pid):
    """A process, and when it began: its number alone may be given to another."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if stat[0] == "Z" else (pid, stat[19])


def report(run, home, keep):
    counts = run.history.counts
    ready = sorted(run.ready)
    print(f"\nrounds      {run.options.rounds} ({run.kills} kills)")
    if run.workers:
        faults = [f"{count} {name}" for name, count in sorted(run.workers.faults.items())]
        print(f"faults      {', '.join(faults)}")
    for name in ("created", "completed", "canceled", "unknown"):
        print(f"{name:<12}{counts[name]}", end="")
        print(f" ({counts['unknown that were made']} were made)" if name == "unknown" else "")
    kinds = ("create", "status", "result", "cancel", "delete")
    requests = [f"{counts[f'{do} sent']} {do}" for do in kinds]
    lost = sum(counts[f"{do} lost"] for do in kinds)
    print(f"gone        {counts['deleted']} deleted, {counts['kept long enough']} by age")
    print(f"backups     {counts['backups']}, and {run.backups.cut_off} that were cut off")
    print(f"requests    {', '.join(requests)}; {lost} without a reply")
    for name in ("wrong", "lost", "twice", "backwards", "unfinished"):
        print(f"{name:<12}{counts[name]}")
    print(f"ready       median {statistics.median(ready):.3f} s, longest {ready[-1]:.3f} s")
    bad = run.history.violations
    if not bad and not run.problems:
        print("no violation")
        if not keep:
            shutil.rmtree(home)
        return 0
    path = run.write_history()
    with open(home / "violations.jsonl", "w") as file:
        for violation in bad:
            file.write(json.dumps(violation) + "\n")
    for problem in run.problems:
        print(f"VIOLATION: {problem}")
    for violation in bad[:20]:
        print(f"VIOLATION: {violation['violation']}: task {violation['task']}: {violation['words']}")
    if len(bad) > 20:
        print(f"... and {len(bad) - 20} more, in {home / 'violations.jsonl'}")
    print(f"{len(bad) + len(run.problems)} violations; the data is in {home}, the history in {path}")
    return 1


if __name__ == "__main__":
    os.environ.pop("PKGTOOL_CONFIG", None)
    main()
