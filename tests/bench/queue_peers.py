"""Peers of the store of tasks: the job queues awa, procrastinate and graphile-worker, in the same PostgreSQL.

Each is installed into target/bench-peers with pinned versions; one that cannot be installed is reported, and the others
run. Each round has a fresh database. The programs in `queues` keep each queue busy with jobs of 1 kB:

creates  one job by each call, which is durable when the call returns, by 64 callers at once
batches  500 jobs by each call, by eight callers; also what `ends` then executes
ends     executed jobs that do nothing, from the first until the last completion is stored
single_ends  as ends, without the batches of graphile-worker, which are off by default

The callers and workers of a queue are in two processes, as the machine has two cores: Python and Node.js use one each.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

from peer import peer_python

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "target" / "bench-peers"
PROGRAMS = ROOT / "tests" / "bench" / "queues"
PROCESSES = 2
CALLERS = 64
BATCH_CALLERS = 8
# Jobs must be left when `ends` is over, so they are stored for longer than they are executed.
BATCHES_PER_END = 2
PATIENCE = 120
PYTHON_PEERS = {
    "awa": ["awa-pg==0.6.9"],
    "procrastinate": ["procrastinate==3.10.0", "psycopg[binary]==3.3.9"],
}
# graphile-worker needs a later Node.js than Debian's, which npm has as a package.
NODE_PEERS = {"graphile-worker": ["graphile-worker@0.18.0", "node@24.21.0"]}
NAMES = (*PYTHON_PEERS, *NODE_PEERS)


class Absent(Exception):
    """A peer could not be installed, or did not run."""


class Peer:
    """A queue that is installed."""

    def __init__(self, name):
        self.name = name
        self.database = name.replace("-", "_")
        try:
            self.command = python_program(name) if name in PYTHON_PEERS else node_program(name)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Absent(f"cannot be installed: {error}") from error

    def measure(self, cluster, seconds):
        """Returns the jobs per second of each measurement, in a fresh database."""
        cluster.client("dropdb", "--maintenance-db=postgres", "--if-exists", self.database)
        cluster.client("createdb", "--maintenance-db=postgres", self.database)
        url = cluster.plain_url(self.database)
        self.load(url, "schema", 0, 1, 1)
        found = {
            "creates": self.load(url, "creates", seconds, CALLERS // PROCESSES, PROCESSES),
            "batches": self.load(url, "batches", seconds * BATCHES_PER_END, BATCH_CALLERS // PROCESSES, PROCESSES),
        }
        cluster.client("psql", "-q", "-c", "VACUUM ANALYZE", self.database)
        found["ends"] = self.load(url, "ends", seconds, CALLERS // PROCESSES, PROCESSES)
        if self.name in NODE_PEERS:
            found["single_ends"] = self.load(url, "single_ends", seconds, CALLERS // PROCESSES, PROCESSES)
        return found

    def load(self, url, what, seconds, callers, processes):
        """Runs the program in several processes that begin at once. Returns the jobs per second of all."""
        command = [*map(str, self.command), url, what, str(seconds), str(callers)]
        running = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        try:
            if what != "schema":
                for program in running:
                    program.stdout.readline()
                for program in running:
                    start(program)
            said = [result(program, seconds) for program in running]
        except (Absent, subprocess.TimeoutExpired) as error:
            raise Absent(f"{what}: {error}") from error
        finally:
            for program in running:
                program.kill()
                program.communicate()
        return {"per_s": rate(said)} if what != "schema" else None


def start(program):
    try:
        program.stdin.write("go\n")
        program.stdin.flush()
    except BrokenPipeError:
        pass


def result(program, seconds):
    said, errors = program.communicate(timeout=seconds + PATIENCE)
    if program.returncode:
        raise Absent(errors.strip().splitlines()[-1] if errors.strip() else f"exit {program.returncode}")
    return said


def rate(said):
    results = [json.loads(line.splitlines()[-1]) for line in said]
    time = max(it["ended"] for it in results) - min(it["began"] for it in results)
    return sum(it["count"] for it in results) / time


def python_program(name):
    return [peer_python(HOME / name, PYTHON_PEERS[name]), "-B", PROGRAMS / f"{name}_jobs.py"]


def node_program(name):
    """The program, with Node.js and its modules from a directory of their own."""
    home = HOME / name
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "node_modules" / ".bin" / "node").exists():
        npm = shutil.which("npm")
        if not npm:
            raise Absent("npm is missing")
        command = [npm, "install", "--no-audit", "--no-fund", "--silent", *NODE_PEERS[name]]
        subprocess.run(command, cwd=home, check=True)
    os.environ["PEER_MODULES"] = str(home)
    return [home / "node_modules" / ".bin" / "node", PROGRAMS / "graphile_jobs.mjs"]


def installed(names):
    """The peers that are installed, and why others are not."""
    peers, absent = [], {}
    for name in names:
        try:
            peers.append(Peer(name))
        except Absent as error:
            absent[name] = str(error)
    return peers, absent
