#!/usr/bin/env python3
"""Times `pkgtool serve`, on this machine, over loopback, in one run.

    python3 tests/bench/serve.py [--only creates,reads,predict,restart,growth,ends,idle,bodies]
                                 [--seconds 5] [--fill 200000] [--peers] [--json FILE]

Needs Linux and wrk (Debian: apt-get install wrk). The load runs on the measured machine and uses a
share of it. Ratios therefore compare with an axum handler that answers a constant
(tests/bench/bare-axum), under the same load, in the same run.

creates  durable creates (every one is synchronised to disk before its answer) for a proxy service
         whose upstream never answers; bodies that fit the task's row, of 1 kB, which are kept beside it,
         and of 40 kB, which are files
reads    states and results of finished tasks
predict  synchronous predict of a model of one operator, saturated and at a fixed rate
restart  from start to ready with 100,000 stored tasks
growth   creates, states, results, cancels, lists with 1,000 stored tasks and with --fill of them
ends     creates at a fixed rate with nothing to delete, while --fill old tasks are deleted, and while
         backups are made
bodies   memory while 200 clients send 60 MB each on one key, and afterwards
idle     memory of a server of packages-examples that has done nothing yet
peers    (--peers) creates of BentoML's tasks, and of Celery with Redis behind FastAPI
"""

import argparse
import json
import os
import platform
import random
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
BARE = BENCH / "bare-axum"
sys.path[:0] = [str(BENCH), str(ROOT / "tests" / "torture")]

from load import LoadError, Target, paced, require_wrk, run, saturate  # noqa: E402
from model import write_package  # noqa: E402
from serve_peers import peers  # noqa: E402
from server import (  # noqa: E402
    PREFIX,
    Server,
    ServerError,
    create_path,
    predict_path,
    resident,
    task_path,
)
from stored import fill  # noqa: E402
from upstream import Upstream  # noqa: E402

SETTINGS = """\
[limits]
waiting = 100000000
running = 50

[log]
level = "warn"
"""

SHORT = json.dumps({"inputs": [{"data": [1.0, 2.0]}]})
LONG = json.dumps({"inputs": [{"data": [float(value) for value in range(1000, 1140)]}]})
FILE = json.dumps({"inputs": [{"data": [float(value) for value in range(1000, 6000)]}]})
FINISHED = 100
RESTART_TASKS = 100_000
PREDICT_RATE = 2_000
GROWTH_CONNECTIONS = 8
BODY_CLIENTS = 200
BODY_BYTES = 60_000_000


def main():
    options = arguments()
    try:
        require_wrk()
        bench = Bench(options)
        with tempfile.TemporaryDirectory(prefix="pkgtool-bench-", dir=options.data_dir) as home:
            bench.all(Path(home))
    except (LoadError, ServerError, subprocess.CalledProcessError) as error:
        sys.exit(f"the benchmark failed: {error}")
    if options.json:
        options.json.write_text(json.dumps(bench.document, indent=2) + "\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="SECTIONS", help=f"of {','.join(SECTIONS)}; more with commas")
    parser.add_argument("--seconds", type=int, default=5, help="of each load")
    parser.add_argument("--fill", type=int, default=200_000, help="stored tasks of `growth`")
    parser.add_argument("--growth-rate", type=int, default=500, help="requests/s of `growth`")
    parser.add_argument("--peers", action="store_true", help="installs them below target/ first")
    parser.add_argument("--data-dir", type=Path, help="where data goes: the disk that is measured")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--binary", type=Path, help="instead of a release build made now")
    parser.add_argument("--debug", action="store_true", help="debug builds: to try this script")
    parser.add_argument(
        "--service",
        choices=["model", "proxy"],
        default="model",
        help="what finishes tasks and predicts; `proxy` needs no engine",
    )
    options = parser.parse_args()
    options.sections = options.only.split(",") if options.only else list(SECTIONS)
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"--only: unknown section {', '.join(sorted(unknown))}; expected {', '.join(SECTIONS)}")
    return options


class Bench:
    def __init__(self, options):
        self.options = options
        profile = "debug" if options.debug else "release"
        build = ["cargo", "build", "--locked", *([] if options.debug else ["--release"])]
        subprocess.run(build, cwd=BARE, check=True)
        self.bare_program = BARE / "target" / profile / "bare-axum"
        self.paced_program = BARE / "target" / profile / "paced"
        if options.binary:
            self.binary = options.binary.resolve()
        else:
            subprocess.run(build, cwd=ROOT, check=True)
            self.binary = ROOT / "target" / profile / "pkgtool"
        machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
        self.document = {"machine": machine, "seconds": options.seconds, "debug": options.debug}
        self.count = 0

    def all(self, home):
        self.home = home
        note = "; DEBUG BUILDS, the numbers mean nothing" if self.options.debug else ""
        print(f"\n{self.document['machine']}; {self.options.seconds} s a load{note}")
        self.model = write_package(home / "packages", "negate")
        finishing = Upstream("negate") if self.options.service == "proxy" else nullcontext()
        with Upstream("hold") as hold, finishing as negate:
            self.proxies = {"slow": hold.url}
            if negate:
                self.proxies["negate"] = negate.url
            for name in self.options.sections:
                self.document[name] = SECTIONS[name](self)
        if self.options.peers:
            self.document["peers"] = peers(self.options.seconds)

    @contextmanager
    def server(self, home=None, packages=None):
        """A server on fresh data, or on those of `home`."""
        settings = SETTINGS
        for name, url in self.proxies.items():
            settings += f'\n[[proxies]]\nname = "{name}"\nupstream = "{url}"\n'
        if packages is None:
            packages = [] if "negate" in self.proxies else [self.home / "packages"]
        self.count += 1
        home = home or self.home / f"server-{self.count}"
        server = Server(self.binary, home, settings, packages)
        try:
            server.start()
            server.set_rate(1_000_000)
            # A running server looks at limits a while later; a new one at once.
            server.stop()
            server.start()
            yield server
        except LoadError as error:
            code = server.process.poll()
            state = "runs" if code is None else f"ended with {code}"
            raise LoadError(f"{error}\nthe server {state}; its log:\n{server.log_tail()}") from error
        finally:
            server.kill()
            shutil.rmtree(home, ignore_errors=True)

    @contextmanager
    def bare(self):
        process = subprocess.Popen([str(self.bare_program)], stdout=subprocess.PIPE, text=True)
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def finish(self, server, body, count):
        """Creates tasks and waits for their ends; gives their ids."""
        tasks = []
        for _ in range(count):
            code, answer = server.send("POST", create_path("negate"), body)
            if code != 200:
                raise LoadError(f"create: {code} {answer!r}")
            tasks.append(json.loads(answer))
        for task in tasks:
            deadline = time.monotonic() + 60
            while True:
                code, answer = server.send("GET", task_path(task, "?wait=30"))
                if code == 200 and json.loads(answer)["status"] == "COMPLETED":
                    break
                if code != 200 or time.monotonic() > deadline:
                    raise LoadError(f"task {task} did not complete: {code} {answer!r}")
        return tasks

    def against_bare(self, what, connections, target, bare_target):
        """One row: ours and the bare handler under the same load."""
        bare = saturate(bare_target, connections, self.options.seconds)
        ours = saturate(target, connections, self.options.seconds)
        ratio = ours["per_second"] / bare["per_second"]
        print(
            f"| {what} | {connections} | {ours['per_second']:,.0f} | {ms(ours['p50_us'])} "
            f"| {ms(ours['p99_us'])} | {bare['per_second']:,.0f} | {ratio:.2f} |",
            flush=True,
        )
        return {"what": what, "connections": connections, "ratio": ratio, "ours": ours, "bare": bare}


HEAD = "| | connections | requests/s | p50 ms | p99 ms | bare handler, requests/s | ratio |"


def heading(title, head):
    print(f"\n**{title}**\n\n{head}\n|{'---|' * (head.count('|') - 1)}", flush=True)


def ms(micros):
    return f"{micros / 1000:.2f}"


# ---- Sections ----


def creates(bench):
    heading("Durable creates", HEAD)
    rows = []
    loads = [("create", SHORT, 1), ("create", SHORT, 16), ("create", SHORT, 64)]
    loads.append((f"create, body of {len(LONG)} bytes", LONG, 64))
    loads.append((f"create, body of {len(FILE)} bytes", FILE, 64))
    for what, body, connections in loads:
        # Fresh data for each: none is measured with the tasks of the one before.
        with bench.bare() as port, bench.server() as server:
            path = create_path("slow")
            target = Target(server.port, "POST", path, server.headers, body)
            bare = Target(port, "POST", path, server.headers, body)
            rows.append(bench.against_bare(what, connections, target, bare))
    return rows


def reads(bench):
    heading("Reads of finished tasks", HEAD)
    rows = []
    with bench.bare() as port, bench.server() as server:
        short = bench.finish(server, SHORT, FINISHED)
        long = bench.finish(server, LONG, FINISHED)
        file = bench.finish(server, FILE, FINISHED)
        for what, paths in (
            ("status", [task_path(task) for task in short]),
            ("result, in the row", [task_path(task, "/response") for task in short]),
            (f"result, {len(LONG)} bytes", [task_path(task, "/response") for task in long]),
            ("result, in a file", [task_path(task, "/response") for task in file]),
        ):
            target = Target(server.port, "GET", paths, server.headers)
            bare = Target(port, "GET", paths, server.headers)
            rows.append(bench.against_bare(what, 64, target, bare))
    return rows


def predict(bench):
    heading("Synchronous predict of a trivial model", "| | requests/s | p50 ms | p99 ms |")
    with bench.server() as server:
        target = Target(server.port, "POST", predict_path("negate"), server.headers, SHORT)
        saturate(target, 1, 1)
        one = saturate(target, 1, bench.options.seconds)
        many = saturate(target, 64, bench.options.seconds)
        rate = PREDICT_RATE
        fixed = paced(bench.paced_program, target, rate, 64, bench.options.seconds)
    rows = {"one": one, "saturated": many, "paced": fixed}
    for what, row in (
        ("1 connection", one),
        ("64 connections, saturated", many),
        (f"64 connections, {rate:,} requests/s offered", fixed),
    ):
        print(f"| {what} | {row['per_second']:,.0f} | {ms(row['p50_us'])} | {ms(row['p99_us'])} |")
    engine = None if bench.options.service == "proxy" else engine_micros(bench)
    if engine is None:
        print("\nThe engine's own time is not known: the medians are all there is.")
    else:
        added = one["p50_us"] - engine
        rows.update(engine_us=engine, added_us=added)
        print(f"\nThe engine's own median is {ms(engine)} ms: {ms(added)} ms are added to it.")
    return rows


def engine_micros(bench):
    """The median of the model's runs in a worker of `pkgtool bench`."""
    command = [str(bench.binary), "bench", str(bench.model), "--rounds", "1", "--seconds", "2"]
    try:
        ran = run([*command, "--input", "ones", "--dim", "n=2", "--json", "--samples"])
        samples = json.loads(ran)["series"][0]["samples_ms"]
    except (LoadError, ValueError, LookupError) as error:
        print(f"\n`pkgtool bench` failed: {error}", file=sys.stderr)
        return None
    return statistics.median(samples) * 1000


def restart(bench):
    heading("Restart", "| stored tasks | start to ready, ms |")
    rows = []
    with bench.server() as server:
        bench.finish(server, SHORT, 1)
        for count in (1, RESTART_TASKS):
            server.stop()
            fill(server.database, count)
            times = [server.start()]
            for _ in range(4):
                server.kill()
                times.append(server.start())
            median = statistics.median(times)
            print(f"| {count:,} | {median * 1000:.0f} ({min(times) * 1000:.0f}–{max(times) * 1000:.0f}) |")
            rows.append({"stored": count, "seconds": times})
    return rows


def growth(bench):
    rate, seconds = bench.options.growth_rate, bench.options.seconds
    large = bench.options.fill
    title = f"p99 in ms at {rate} requests/s, with stored tasks"
    if large != 1_000_000:
        title += f" ({large:,}: `--fill 1000000` makes it a million)"
    rows = {count: growth_of(bench, count, rate, seconds) for count in (1_000, large)}
    heading(title, f"| | 1,000 | {large:,} | ratio |")
    for operation in rows[large]:
        few, many = (rows[count][operation]["p99_us"] for count in (1_000, large))
        print(f"| {operation} | {ms(few)} | {ms(many)} | {many / max(few, 1):.2f} |")
    return {"rate": rate, "stored": rows}


def growth_of(bench, count, rate, seconds):
    with bench.server() as server:
        bench.finish(server, SHORT, 1)
        server.stop()
        fill(server.database, count)
        server.start()
        tasks = sample(server, 1_000)
        measured = {}

        def measure(operation, method, paths, body=""):
            target = Target(server.port, method, paths, server.headers, body)
            program, connections = bench.paced_program, GROWTH_CONNECTIONS
            measured[operation] = paced(program, target, rate, connections, seconds)

        measure("status", "GET", [task_path(task) for task in tasks])
        measure("result", "GET", [task_path(task, "/response") for task in tasks])
        measure("list", "GET", f"{PREFIX}/async/task?limit=100")
        measure("create", "POST", create_path("slow"), SHORT)
        waiting = listed(server, "QUEUED")[: rate * seconds]
        measure("cancel", "POST", [task_path(task, "/cancel") for task in waiting])
        return measured


def ends(bench):
    rate, seconds, count = bench.options.growth_rate, bench.options.seconds, bench.options.fill
    heading(f"Creates at {rate} requests/s while records end", "| | p50 ms | p99 ms |")
    rows = {}
    with bench.server() as server:
        bench.finish(server, SHORT, 1)
        server.stop()
        # As old as they may get, and all of them due at the second start.
        fill(server.database, count)
        server.start()
        target = Target(server.port, "POST", create_path("slow"), server.headers, SHORT)

        def measure(what):
            row = paced(bench.paced_program, target, rate, GROWTH_CONNECTIONS, seconds)
            rows[what] = row
            print(f"| {what} | {ms(row['p50_us'])} | {ms(row['p99_us'])} |", flush=True)

        measure("nothing ends")
        server.stop()
        text = server.config.read_text()
        server.config.write_text(f"{text}\n[tasks]\nrecord_ttl_days = 0.00001\n")
        server.start()
        measure(f"{count:,} tasks are deleted")
        left = stored(server)
        rows["deleted"] = count - left
        print(f"\n{count - left:,} were deleted in that time.\n")
        server.stop()
        server.config.write_text(text)
        server.start()
        command = [server.binary, "admin", "backup", "--data-dir", str(server.data)]
        into = server.home / "backup"
        backing = subprocess.Popen([*command, str(into)], stdout=subprocess.DEVNULL)
        measure("a backup is made")
        if backing.wait():
            raise ServerError(f"`admin backup` ended with {backing.returncode}")
    return rows


def stored(server):
    """Finished tasks."""
    with sqlite3.connect(f"file:{server.database}?mode=ro", uri=True) as database:
        return database.execute("SELECT count(*) FROM task WHERE status = 2").fetchone()[0]


def sample(server, count):
    """Ids of stored tasks, from all over the table."""
    with sqlite3.connect(f"file:{server.database}?mode=ro", uri=True) as database:
        ids = [row[0] for row in database.execute("SELECT id FROM task WHERE status = 2")]
    chosen = random.Random(0).sample(ids, min(count, len(ids)))
    return [str(uuid.UUID(bytes=it)) for it in chosen]


def listed(server, status):
    found, before = [], ""
    while True:
        path = f"{PREFIX}/async/task?status={status}&limit=1000{before}"
        code, answer = server.send("GET", path)
        if code != 200:
            raise LoadError(f"{path}: {code} {answer!r}")
        page = [task["taskId"] for task in json.loads(answer)]
        if not page:
            return found
        found += page
        before = f"&before={page[-1]}"


def idle(bench):
    heading("Idle memory with packages-examples", "| resident, MB | with its processes, MB |")
    with bench.server(packages=[ROOT / "packages-examples"]) as server:
        time.sleep(2)
        own, all_of_it = resident(server.pid), server.memory()
    print(f"| {own / 1e6:.1f} | {all_of_it / 1e6:.1f} |")
    return {"resident_bytes": own, "with_processes_bytes": all_of_it}


def bodies(bench):
    heading(
        f"Memory with {BODY_CLIENTS} clients at once on one key, {BODY_BYTES / 1e6:.0f} MB each",
        "| | resident at most, MB | 5 s later, MB | answers |",
    )
    rows = []
    loads = [
        ("predict, another service", predict_path("slow"), b"7"),
        ("create, another service", create_path("slow"), b"7"),
        ("create, a model", create_path("negate"), b'{"inputs":[{"data":[1,'),
    ]
    for what, path, start in loads:
        # The memory of each is its own: a new server.
        with bench.server() as server:
            answers = flood(server, path, start)
            most = status_bytes(server.pid, "VmHWM")
            time.sleep(5)
            after = status_bytes(server.pid, "VmRSS")
        told = ", ".join(f"{count} x {code}" for code, count in sorted(answers.items()))
        print(f"| {what} | {most / 1e6:.0f} | {after / 1e6:.0f} | {told} |", flush=True)
        rows.append({"what": what, "most_bytes": most, "after_bytes": after, "answers": answers})
    return rows


def flood(server, path, start):
    """Sends large bodies from many clients at once; gives how many got which status."""
    body = start + b"1" * (BODY_BYTES - len(start))
    answers = Counter()

    def client():
        head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in server.headers.items())
        answer = b""
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as stream:
                try:
                    stream.sendall(head.encode() + b"\r\n")
                    stream.sendall(body)
                except OSError:
                    # It was refused early; the answer may be there all the same.
                    pass
                answer = stream.recv(64)
        except OSError:
            pass
        answers[answer[9:12].decode() or "none"] += 1

    threads = [threading.Thread(target=client) for _ in range(BODY_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(answers)


def status_bytes(pid, name):
    """Memory of a process as the system reports it, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


SECTIONS = {
    "creates": creates,
    "reads": reads,
    "predict": predict,
    "restart": restart,
    "growth": growth,
    "ends": ends,
    "idle": idle,
    "bodies": bodies,
}

if __name__ == "__main__":
    os.environ.pop("PKGTOOL_CONFIG", None)
    main()
