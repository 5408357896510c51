#!/usr/bin/env python3
"""Times the store of tasks in PostgreSQL beside pgbench and other job queues, on this machine, in one run.

    cargo build --release -p pkgtool-serve --example tasks
    python3 tests/bench/cluster.py [--seconds 5] [--rounds 3] [--peers awa,procrastinate] [--fill 10000000]
        [--returns 3] [--json FILE]

The server is a fresh cluster of Debian's PostgreSQL with `fsync` on, in a temporary directory; all sides reach it by
its socket. The queues, and how they are measured, are in `queue_peers.py`.

pgbench  its script `simple-update`, 64 clients: one UPDATE, one SELECT and one INSERT in a transaction
creates  durable creates of tasks of 1 kB for 20 accounts, by 64 callers at once
ends     fair claims of up to 64 tasks by four claimers, and the ends of the tasks; one of both for each task
reads    states of tasks, with the tasks of the run, and with --fill more that ended
return   PostgreSQL is stopped at once while 64 callers create tasks, and started two seconds later: the time from when
         it accepts connections until a slot of 250 ms has 80 % of the creates of the median slot before
"""

import argparse
import json
import os
import pwd
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from queue_peers import NAMES, Absent, installed

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(os.environ.get("PKGTOOL_TEST_POSTGRES", "/usr/lib/postgresql/15/bin"))
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROGRAM = TARGET / "release" / "examples" / "tasks"
CLIENTS = 64
# The goals: times pgbench's simple-update, times the best peer, and seconds.
OVER_PGBENCH = {"creates": 3, "ends": 2}
OVER_PEER = 2
MOST_RETURN_S = 3
FULL_RATE = 0.8
RETURN_BEFORE_S, RETURN_AWAY_S, RETURN_AFTER_S = 5, 2, 18
PATIENCE_S = 60
FILL_SQL = """
INSERT INTO task_done (id, caller, owner, service, created_at, completed_at, attempt, outcome, answer)
SELECT CAST(lpad(to_hex((clock_ms() - n / 100) * 65536 + 28672 + n %% 4096), 16, '0')
        || lpad(to_hex(n), 16, '8') AS UUID),
    1 + n %% 20, 1, 'bench', clock_ms(), clock_ms(), 1, 1, '{"answer": 1}'
FROM generate_series(1, %d) AS n
"""


class Cluster:
    """A cluster in a temporary directory."""

    def __init__(self, home):
        self.home = Path(home)
        self.ordinary = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(home, nobody.pw_uid, nobody.pw_gid)
            self.ordinary = {"user": nobody.pw_uid, "group": nobody.pw_gid}
        data = self.home / "data"
        run(self.program("initdb", "--auth=trust", "-U", "bench", "-D", data), **self.ordinary)
        self.start()

    def start(self):
        """Starts it, and waits until it accepts connections."""
        options = f"-k {self.home} -c listen_addresses= -c max_connections=200"
        data, log = self.home / "data", self.home / "log"
        run(self.program("pg_ctl", "-D", data, "-o", options, "-l", log, "-W", "start"), **self.ordinary)
        asked = self.program("pg_isready", "-q", "-h", self.home)
        until = time.time() + PATIENCE_S
        while subprocess.run(asked, check=False).returncode:
            if time.time() > until:
                raise SystemExit(log.read_text())
            time.sleep(0.02)

    def program(self, name, *arguments):
        return [str(PROGRAMS / name), *map(str, arguments)]

    def client(self, name, *arguments):
        return run(self.program(name, "-h", self.home, "-U", "bench", *arguments))

    def url(self, database):
        return f"postgres://bench@/{database}?host={self.home}&sslmode=disable"

    def plain_url(self, database):
        """The URL for clients that take a directory only as an encoded host."""
        return f"postgres://bench@{quote(str(self.home), safe='')}/{database}?sslmode=disable"

    def stop(self, how="fast"):
        run(self.program("pg_ctl", "-D", self.home / "data", "-m", how, "stop"), **self.ordinary)


def run(command, **options):
    ran = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **options)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def pgbench(cluster, seconds):
    said = cluster.client("pgbench", "-n", "-b", "simple-update", "-c", CLIENTS, "-j", 2, "-T", seconds, "peer")
    return {"per_s": float(re.search(r"tps = ([0-9.]+)", said)[1])}


def tasks(cluster, what, seconds):
    return json.loads(run([str(PROGRAM), cluster.url("tasks"), what, str(seconds)]))


def return_time(cluster):
    """The seconds from the database's return to the full rate, and the creates of each slot."""
    seconds = RETURN_BEFORE_S + RETURN_AWAY_S + RETURN_AFTER_S
    command = [str(PROGRAM), cluster.url("tasks"), "back", str(seconds)]
    creating = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/")
    try:
        time.sleep(RETURN_BEFORE_S)
        stopped = time.time()
        cluster.stop("immediate")
        time.sleep(RETURN_AWAY_S)
        cluster.start()
        accepts = time.time()
        said, _ = creating.communicate(timeout=seconds * 3)
    finally:
        creating.kill()
    if creating.returncode:
        raise SystemExit("the creates ended with an error")
    found = json.loads(said)
    began, slot = found["began"], found["slot_s"]
    slots = [(began + at * slot, count) for at, count in enumerate(found["slots"])]
    before = statistics.median(count for at, count in slots[1:] if at + slot <= stopped)
    full = [at + slot for at, count in slots if at + slot > accepts and count >= FULL_RATE * before]
    stored = [at + slot for at, count in slots if at + slot > accepts and count]
    found["before_per_s"] = before / slot
    found["first_s"] = round(stored[0] - accepts, 3) if stored else None
    found["return_s"] = round(full[0] - accepts, 3) if full else None
    return found


def measure_rounds(cluster, peers, options, results):
    """Measures all sides in turns."""
    own = {
        "pgbench": lambda: pgbench(cluster, options.seconds),
        "creates": lambda: tasks(cluster, "creates", options.seconds),
        "ends": lambda: tasks(cluster, "ends", options.seconds),
        "reads": lambda: tasks(cluster, "reads", options.seconds),
    }
    for _ in range(options.rounds):
        for name, measure in own.items():
            note(results, name, measure())
        for peer in peers:
            try:
                for what, found in peer.measure(cluster, options.seconds).items():
                    note(results, f"{peer.name} {what}", found)
            except Absent as error:
                print(f"FAILED: {peer.name}: {error}", flush=True)


def note(results, name, found):
    results.setdefault(name, []).append(found)
    print(f"{name:<26}{json.dumps(found)}", flush=True)


def fill(cluster, count, rounds, seconds, results):
    """Reads with many more tasks."""
    began = time.time()
    cluster.client("psql", "-q", "-c", FILL_SQL % count, "tasks")
    cluster.client("psql", "-q", "-c", "VACUUM ANALYZE task_done", "tasks")
    print(f"filled with {count} tasks in {time.time() - began:.0f} s", flush=True)
    for _ in range(rounds):
        note(results, "reads of many", tasks(cluster, "reads", seconds))


def print_ratios(results, peers):
    """Prints the medians, and how they stand to pgbench and to the best peer."""
    medians = {
        name: statistics.median(it["per_s"] for it in found) for name, found in results.items() if "per_s" in found[0]
    }
    for name, median in medians.items():
        print(f"median of {name:<26}{median:10,.0f} per s")
    for what, goal in OVER_PGBENCH.items():
        say_goal(f"{what} over pgbench", medians[what] / medians["pgbench"], goal)
        known = {peer.name: medians[f"{peer.name} {what}"] for peer in peers if f"{peer.name} {what}" in medians}
        if known:
            best = max(known, key=known.get)
            say_goal(f"{what} over the best peer, {best}", medians[what] / known[best], OVER_PEER)


def say_goal(what, ratio, goal):
    print(f"{what}: {ratio:.2f} (goal {goal}: {'met' if ratio >= goal else 'MISSED'})", flush=True)


def print_return(results):
    times = [found["return_s"] for found in results["return"]]
    worst = None if None in times else max(times)
    verdict = "met" if worst is not None and worst <= MOST_RETURN_S else "MISSED"
    print(f"full rate again after {times} s (goal {MOST_RETURN_S}: {verdict})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=",".join(NAMES), help="names of queues; none if empty")
    parser.add_argument("--fill", type=int, default=0)
    parser.add_argument("--returns", type=int, default=3, help="how often the database goes away and returns")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not PROGRAM.is_file():
        parser.error(f"{PROGRAM} is missing: cargo build --release -p pkgtool-serve --example tasks")
    peers, absent = installed(filter(None, options.peers.split(",")))
    say_absent(absent)
    home = tempfile.mkdtemp(prefix="pgbench-")
    cluster = Cluster(home)
    results = {}
    try:
        for database in ("peer", "tasks"):
            cluster.client("createdb", "--maintenance-db=postgres", database)
        cluster.client("pgbench", "-i", "-q", "-s", 10, "peer")
        measure_rounds(cluster, peers, options, results)
        if options.fill:
            fill(cluster, options.fill, options.rounds, options.seconds, results)
        for _ in range(options.returns):
            note(results, "return", return_time(cluster))
    finally:
        cluster.stop("immediate")
        shutil.rmtree(home)
    if options.rounds:
        print_ratios(results, peers)
    if options.returns:
        print_return(results)
    say_absent(absent)
    if options.json:
        options.json.write_text(json.dumps(results | {"absent": absent}, indent=2))


def say_absent(absent):
    for name, reason in absent.items():
        print(f"SKIPPED: {name}: {reason}", flush=True)


if __name__ == "__main__":
    main()
