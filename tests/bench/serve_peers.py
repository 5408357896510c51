"""Peers of the gateway's durable creates: BentoML's tasks, and Celery with Redis behind FastAPI.

Each is installed into target/bench-peers; one that cannot be installed is reported, and the others run. By
default, none synchronises every create to disk. BentoML keeps tasks in SQLite; Redis is configured here to append
every write to its file and to synchronise it, as `pkgtool serve` does. The workers do nothing: only creates are
measured.
"""

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from contextlib import ExitStack
from pathlib import Path

from load import HOST, LoadError, Target, saturate
from server import free_port

HOME = Path(__file__).resolve().parents[2] / "target" / "bench-peers"
CONNECTIONS = (1, 16, 64)
PATIENCE = 120

BENTO = """
import bentoml

@bentoml.service(workers=1)
class Negate:
    @bentoml.task
    def negate(self, data: list[float]) -> list[float]:
        return [-value for value in data]
"""

CELERY = """
import os
from celery import Celery
from fastapi import FastAPI

app = Celery("negate", broker=os.environ["REDIS"], backend=os.environ["REDIS"])
api = FastAPI()

@app.task
def negate(data):
    return [-value for value in data]

@api.post("/negate")
def create(body: dict):
    return negate.delay(body["data"]).id

@api.get("/ready")
def ready():
    return "ready"
"""


class Absent(Exception):
    """Why a peer cannot be measured."""


def peers(seconds):
    print("\n**Creates of peers**\n\n| | connections | requests/s | p50 ms | p99 ms |")
    print("|---|---|---|---|---|", flush=True)
    results = {}
    for name, measure in (("BentoML", bentoml), ("Celery, Redis, FastAPI", celery)):
        try:
            results[name] = measure(name, seconds)
        except (Absent, LoadError, OSError, subprocess.SubprocessError) as error:
            results[name] = {"absent": str(error)}
            print(f"| {name} | NOT MEASURED | | | |", flush=True)
            print(f"\n{name} was NOT measured: {error}\n", file=sys.stderr, flush=True)
    return results


def bentoml(name, seconds):
    python = installed("bentoml", ["bentoml"])
    with tempfile.TemporaryDirectory() as home, ExitStack() as running:
        Path(home, "service.py").write_text(BENTO)
        port = free_port()
        # Its tasks' database goes to BENTOML_HOME and the temporary directory.
        environment = {"BENTOML_HOME": home, "TMPDIR": home, "BENTOML_DO_NOT_TRACK": "true"}
        command = [python, "-m", "bentoml", "serve", "service:Negate", "--port", str(port)]
        start(running, [*command, "--host", HOST], home, environment)
        wait_for(port, "/readyz")
        return measured(name, Target(port, "POST", "/negate/submit", body='{"data":[1.0,2.0]}'), seconds)


def celery(name, seconds):
    redis = shutil.which("redis-server")
    if not redis:
        raise Absent("`redis-server` is missing; on Debian: apt-get install redis-server")
    python = installed("celery", ["celery[redis]", "fastapi", "uvicorn"])
    with tempfile.TemporaryDirectory() as home, ExitStack() as running:
        Path(home, "negate.py").write_text(CELERY)
        at, port = free_port(), free_port()
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--dir", home]
        start(running, [redis, "--port", str(at), "--bind", HOST, *durable], home)
        environment = {"REDIS": f"redis://{HOST}:{at}/0"}
        start(running, [python, "-m", "celery", "-A", "negate", "worker", "-c", "1"], home, environment)
        command = [python, "-m", "uvicorn", "negate:api", "--port", str(port), "--host", HOST]
        start(running, [*command, "--log-level", "warning"], home, environment)
        wait_for(port, "/ready")
        return measured(name, Target(port, "POST", "/negate", body='{"data":[1.0,2.0]}'), seconds)


def measured(name, target, seconds):
    rows = []
    for connections in CONNECTIONS:
        row = saturate(target, connections, seconds)
        rows.append({"connections": connections, **row})
        print(
            f"| {name} | {connections} | {row['per_second']:,.0f} | {row['p50_us'] / 1000:.2f} "
            f"| {row['p99_us'] / 1000:.2f} |",
            flush=True,
        )
    return rows


# ---- Installing and running ----


def installed(name, wanted):
    """The Python of an environment of its own that has these packages."""
    home = HOME / name
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        ran = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *wanted],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise Absent(f"pip install {' '.join(wanted)} failed:\n{ran.stderr[-2000:]}")
        (home / "complete").touch()
    return str(python)


def start(running, command, home, environment=None):
    """A process with its children, which ends with the block."""
    with open(Path(home) / "log", "ab") as log:
        process = subprocess.Popen(
            command,
            cwd=home,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def end():
        # The group is this process and what it started.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                continue
        process.wait()

    running.callback(end)


def wait_for(port, path):
    deadline = time.monotonic() + PATIENCE
    while True:
        connection = http.client.HTTPConnection(HOST, port, timeout=10)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        if time.monotonic() > deadline:
            raise Absent(f"it was not ready after {PATIENCE} s")
        time.sleep(0.1)
