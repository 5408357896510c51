"""Workers of a server, and a proxy between them and its gate that delays and cuts.

Each round one fault is chosen: a worker is killed and started again, a worker is stopped for longer than its gate waits
for a heartbeat and then goes on, all streams are cut, some are cut in the middle of a message, or bytes come late.
"""

import json
import os
import random
import select
import signal
import socket
import subprocess
import threading
import time

from server import HOST, PREFIX, ServerError, free_port

SETTINGS = """
[workers]
listen = "{host}:{port}"
heartbeat_s = 0.2
attempts = 1000
"""

# How long a frozen worker is silent, in seconds: longer than three heartbeats and a second.
FROZEN_SECONDS = 2.2
# The longest delay of a piece of bytes, in seconds.
LATE_SECONDS = 0.05
PIECE = 16 << 10
# How long workers may take to attach at first, in seconds.
PATIENCE = 60


class Proxy(threading.Thread):
    """Forwards connections to the gate, in one thread for each."""

    def __init__(self, gate, seed):
        super().__init__(name="proxy", daemon=True)
        self.gate = gate
        self.chance = random.Random(f"{seed} proxy")
        self.listener = socket.create_server((HOST, 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.pairs = set()
        self.lock = threading.Lock()
        self.late_until = 0

    def run(self):
        while True:
            near, _ = self.listener.accept()
            threading.Thread(target=self.forward, args=(near,), daemon=True).start()

    def forward(self, near):
        try:
            far = socket.create_connection((HOST, self.gate), timeout=5)
        except OSError:
            near.close()
            return
        pair = (near, far)
        with self.lock:
            self.pairs.add(pair)
        try:
            while True:
                readable, _, _ = select.select(pair, [], [], 60)
                for side in readable:
                    if not (piece := side.recv(PIECE)):
                        return
                    if time.monotonic() < self.late_until:
                        time.sleep(self.chance.uniform(0, LATE_SECONDS))
                    (far if side is near else near).sendall(piece)
        except (OSError, ValueError):
            pass  # The connection was cut.
        finally:
            with self.lock:
                self.pairs.discard(pair)
            for side in pair:
                side.close()

    def cut(self, share):
        """Cuts a share of the connections, with a reset."""
        with self.lock:
            pairs = [pair for pair in self.pairs if self.chance.random() < share]
        for side in (side for pair in pairs for side in pair):
            try:
                # Unsent bytes are lost.
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def delay(self, seconds):
        self.late_until = time.monotonic() + seconds


class Workers:
    def __init__(self, binary, packages, service, count, seed):
        self.binary, self.packages, self.service = str(binary), str(packages), service
        self.chance = random.Random(f"{seed} workers")
        self.gate = free_port()
        self.settings = SETTINGS.format(host=HOST, port=self.gate)
        self.proxy = Proxy(self.gate, seed)
        self.processes = [None] * count
        self.token = None
        self.faults = {}

    def start(self, server):
        """Creates the token, starts all workers, and waits until they are attached."""
        command = [self.binary, "workers", "token", "create", self.service]
        command += ["--data-dir", str(server.data)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise ServerError(f"no token: {made.stderr}")
        self.token = made.stdout.strip()
        self.proxy.start()
        for number in range(len(self.processes)):
            self.spawn(number)
        deadline = time.monotonic() + PATIENCE
        while len(json.loads(server.send("GET", f"{PREFIX}/worker")[1])) < len(self.processes):
            if time.monotonic() > deadline:
                raise ServerError("the workers do not attach")
            time.sleep(0.05)

    def spawn(self, number):
        command = [self.binary, "attach", self.packages, "--plain", "--name", f"worker-{number}"]
        command += ["--gate", f"{HOST}:{self.proxy.port}"]
        environment = os.environ | {"MLP_SERVICE_TOKEN": self.token}
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet)
        self.processes[number] = process

    def fault(self):
        """One fault of a random kind."""
        kinds = [self.kill, self.freeze, self.cut_all, self.cut_some, self.delay]
        kind = self.chance.choice(kinds)
        kind(self.chance.randrange(len(self.processes)))
        self.faults[kind.__name__] = self.faults.get(kind.__name__, 0) + 1

    def kill(self, number):
        self.processes[number].kill()
        self.processes[number].wait()
        self.spawn(number)

    def freeze(self, number):
        process = self.processes[number]
        process.send_signal(signal.SIGSTOP)
        threading.Timer(FROZEN_SECONDS, self.thaw, [process]).start()

    def thaw(self, process):
        # It may have been killed meanwhile.
        process.send_signal(signal.SIGCONT)

    def cut_all(self, _):
        self.proxy.cut(1)

    def cut_some(self, _):
        self.proxy.cut(0.5)

    def delay(self, _):
        self.proxy.delay(0.5)

    def stop(self):
        for process in self.processes:
            if process:
                process.kill()
                process.wait()
