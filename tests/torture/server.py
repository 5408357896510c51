"""`pkgtool serve` as a child process that can be killed and started again on the same data."""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time

PATIENCE = 120


class Server:
    """A server on a port of its own."""

    def __init__(self, binary, data, packages=(), settings=""):
        self.binary, self.data, self.packages = str(binary), data, [str(path) for path in packages]
        data.mkdir(parents=True, exist_ok=True)
        self.config = data / "settings.toml"
        self.config.write_text(settings)
        self.port = free_port()
        self.key = None
        self.process = None
        self.restarts = []

    def start(self):
        """Starts it and waits until it is ready; gives the seconds that took."""
        begin = time.monotonic()
        command = [self.binary, "serve", *self.packages]
        command += ["--listen", f"127.0.0.1:{self.port}", "--config", str(self.config)]
        command += ["--data-dir", str(self.data / "data")]
        with open(self.data / "log.jsonl", "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self.process.stdout:
            if line.startswith("pk_"):
                self.key = line.strip()
            if line.startswith("the API"):
                break
        else:
            raise SystemExit(f"the server ended with {self.process.wait()}; see {log.name}")
        # What it prints later must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        while True:
            try:
                if self.ask("GET", "/readyz", timeout=5)[0] == 200:
                    break
            except OSError:
                pass
            if time.monotonic() - begin > PATIENCE:
                raise SystemExit(f"the server is not ready after {PATIENCE} s; see {log.name}")
            time.sleep(0.002)
        took = time.monotonic() - begin
        self.restarts.append(took)
        return took

    def kill(self):
        """Ends it at once, without a chance to write anything."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def tool(self, *arguments):
        """Another command of the tool on the same data."""
        command = [self.binary, *arguments, "--data-dir", str(self.data / "data")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def connection(self, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ask(self, method, path, body=None, connection=None, timeout=60):
        """One request: its status and body."""
        used = connection or self.connection(timeout)
        used.request(method, path, body, {"MLP-API-KEY": self.key or ""})
        reply = used.getresponse()
        content = reply.read()
        if connection is None:
            used.close()
        return reply.status, content

    def memory(self):
        """Bytes that the process holds in memory."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def loads(content):
    return json.loads(content) if content else None
