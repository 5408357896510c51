"""`pkgtool serve` as a child process: started, watched until it is ready, killed, started again.

A server keeps its port, its key and its data directory over all its lives. Below its home: `data`,
`settings.toml`, `server.out` (what the present life printed), `server.log` (what all of them logged).
"""

import http.client
import os
import random
import signal
import socket
import sqlite3
import subprocess
import time
from pathlib import Path

PREFIX = "/api/mlpgateway/account/local"
HOST = "127.0.0.1"

# How often readiness is asked for, in seconds.
POLL = 0.002


class ServerError(Exception):
    """The server did not do what it must before any test can begin."""


class Server:
    def __init__(self, binary, home, settings, packages=()):
        self.binary, self.home = str(binary), Path(home)
        self.packages = [str(path) for path in packages]
        self.home.mkdir(parents=True, exist_ok=True)
        self.data = self.home / "data"
        self.config = self.home / "settings.toml"
        self.config.write_text(settings)
        self.port = free_port()
        self.key = None
        self.process = None

    @property
    def pid(self):
        return self.process.pid

    @property
    def database(self):
        return self.data / "pkgtool.db"

    @property
    def headers(self):
        return {"MLP-API-KEY": self.key}

    def spawn(self):
        """Starts the process, and does not wait for anything."""
        command = [self.binary, "serve", *self.packages, "--listen", f"{HOST}:{self.port}"]
        command += ["--data-dir", str(self.data), "--config", str(self.config)]
        with open(self.home / "server.out", "wb") as out, open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log
            )
        return time.monotonic()

    def wait_ready(self, since, patience=120):
        """Seconds from `since` until GET /readyz answers 200."""
        while True:
            if (code := self.process.poll()) is not None:
                raise ServerError(f"the server ended by itself: {code}\n{self.log_tail()}")
            if self.is_ready():
                return time.monotonic() - since
            if time.monotonic() - since > patience:
                raise ServerError(f"not ready after {patience} s\n{self.log_tail()}")
            time.sleep(POLL)

    def is_ready(self):
        connection = self.connect(timeout=10)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def start(self):
        """Starts it and waits until it is ready; gives the seconds that took."""
        took = self.wait_ready(self.spawn())
        if self.key is None:
            self.key = self.first_key()
        return took

    def first_key(self):
        """The key that the first start on a data directory prints, alone on a line."""
        for line in (self.home / "server.out").read_text().splitlines():
            if line.startswith("pk_"):
                return line.strip()
        raise ServerError("the first start printed no line with a key: is the data not fresh?")

    def kill(self):
        """SIGKILL; returns when the process is gone. False if it had ended by itself."""
        lived = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        return lived

    def stop(self, patience=60):
        """SIGTERM; SIGKILL if that is not obeyed."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()

    def set_rate(self, rps):
        """Raises the limit of the account `local`, with the tool's own command."""
        command = [self.binary, "accounts", "set", "local", "--rps", str(rps)]
        command += ["--data-dir", str(self.data)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            words = " ".join(command)
            raise ServerError(f"`{words}` ended with {ran.returncode}:\n{ran.stderr or ran.stdout}")
        # The command may say that it did what it did not.
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as database:
            row = database.execute("SELECT rps FROM account WHERE name = 'local'").fetchone()
        if row != (rps,):
            raise ServerError(f"after `accounts set local --rps {rps}` the database has {row}")

    def connect(self, timeout=120):
        return http.client.HTTPConnection(HOST, self.port, timeout=timeout)

    def send(self, method, path, body=None):
        """One request on a connection of its own: the status and the body."""
        connection = self.connect()
        try:
            connection.request(method, path, body, self.headers)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def memory(self):
        """Resident bytes of the process and of those that it started."""
        return sum(resident(pid) for pid in family(self.pid))

    @property
    def log_path(self):
        return self.home / "server.log"

    def log_tail(self, size=4000):
        with open(self.log_path, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - size))
            return log.read().decode(errors="replace")


def predict_path(service):
    return f"{PREFIX}/model/{service}/predict"


def create_path(service):
    return f"{PREFIX}/model/{service}/async/predict"


def task_path(task, operation=""):
    return f"{PREFIX}/async/task/{task}{operation}"


def free_port():
    """A port that no connection of another program is given while the server is down."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def family(pid):
    """A process and all its descendants."""
    found = [pid]
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = tasks.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            # The thread ended since it was listed: its children are another thread's now.
            continue
        for child in children:
            found += family(int(child))
    return found


def resident(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
