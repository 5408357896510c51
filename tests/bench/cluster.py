#!/usr/bin/env python3
"""Times the store of tasks in PostgreSQL beside pgbench, on this machine, in one run.

    cargo build --release -p pkgtool-serve --example tasks
    python3 tests/bench/cluster.py [--seconds 5] [--rounds 3] [--fill 10000000] [--json FILE]

The server is a fresh cluster of Debian's PostgreSQL with `fsync` on, in a temporary directory; both sides reach it by
its socket.

pgbench  its script `simple-update`, 64 clients: one UPDATE, one SELECT and one INSERT in a transaction
creates  durable creates of tasks of 1 kB for 20 accounts, by 64 callers at once
ends     fair claims of up to 64 tasks by four claimers, and the ends of the tasks; one of both for each task
reads    states of tasks, with the tasks of the run, and with --fill more that ended
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

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(os.environ.get("PKGTOOL_TEST_POSTGRES", "/usr/lib/postgresql/15/bin"))
PROGRAM = ROOT / "target" / "release" / "examples" / "tasks"
CLIENTS = 64
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
        options = f"-k {self.home} -c listen_addresses= -c max_connections=200"
        start = self.program("pg_ctl", "-D", data, "-o", options, "-l", self.home / "log", "-w", "start")
        run(start, **self.ordinary)

    def program(self, name, *arguments):
        return [str(PROGRAMS / name), *map(str, arguments)]

    def client(self, name, *arguments):
        return run(self.program(name, "-h", self.home, "-U", "bench", *arguments))

    def url(self, database):
        return f"postgres://bench@/{database}?host={self.home}&sslmode=disable"

    def stop(self):
        run(self.program("pg_ctl", "-D", self.home / "data", "-m", "fast", "stop"), **self.ordinary)


def run(command, **options):
    ran = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **options)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def pgbench(cluster, seconds):
    said = cluster.client(
        "pgbench", "-n", "-b", "simple-update", "-c", CLIENTS, "-j", 2, "-T", seconds, "peer"
    )
    return {"per_s": float(re.search(r"tps = ([0-9.]+)", said)[1])}


def tasks(cluster, what, seconds):
    return json.loads(run([str(PROGRAM), cluster.url("tasks"), what, str(seconds)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fill", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not PROGRAM.is_file():
        parser.error(f"{PROGRAM} is missing: cargo build --release -p pkgtool-serve --example tasks")
    home = tempfile.mkdtemp(prefix="pgbench-")
    cluster = Cluster(home)
    results = {}
    try:
        for database in ("peer", "tasks"):
            cluster.client("createdb", "--maintenance-db=postgres", database)
        cluster.client("pgbench", "-i", "-q", "-s", 10, "peer")
        for _ in range(options.rounds):
            for name, measure in (
                ("pgbench", lambda: pgbench(cluster, options.seconds)),
                ("creates", lambda: tasks(cluster, "creates", options.seconds)),
                ("ends", lambda: tasks(cluster, "ends", options.seconds)),
                ("reads", lambda: tasks(cluster, "reads", options.seconds)),
            ):
                found = measure()
                results.setdefault(name, []).append(found)
                print(f"{name:<9}{json.dumps(found)}", flush=True)
        if options.fill:
            began = time.time()
            cluster.client("psql", "-q", "-c", FILL_SQL % options.fill, "tasks")
            cluster.client("psql", "-q", "-c", "VACUUM ANALYZE task_done", "tasks")
            print(f"filled with {options.fill} tasks in {time.time() - began:.0f} s", flush=True)
            for _ in range(options.rounds):
                found = tasks(cluster, "reads", options.seconds)
                results.setdefault("reads of many", []).append(found)
                print(f"reads of many {json.dumps(found)}", flush=True)
        peer = statistics.median(it["per_s"] for it in results["pgbench"])
        for name in ("creates", "ends"):
            ratio = statistics.median(it["per_s"] for it in results[name]) / peer
            print(f"{name} per transaction of pgbench: {ratio:.2f}")
    finally:
        cluster.stop()
        shutil.rmtree(home)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
