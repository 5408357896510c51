#!/usr/bin/env python3
"""A stand-in for tests. It is not Android, and it is not Android's adbd.

It speaks the protocol of adbd over TCP, so that the real adb connects to it (`adb connect 127.0.0.1:PORT`)
and runs commands of this machine in place of a phone's. It prints its port as one line.

The directory --root is the root of the device. Paths of `adb push` and `adb pull` are paths below it.

    data/local/tmp                  the place for files. Each `/data/local/tmp` in the text of a command
                                    becomes the path of this directory. The text in files and in what a
                                    command reads and prints is not changed, so output has the long path.
    system/etc/properties           what `getprop` prints, lines NAME=VALUE, written at the start
    system/etc/logcat.txt           what `logcat` prints; a test may write it
    system/etc/dumpsys-NAME.txt     what `dumpsys NAME` prints; a test may write it; `battery` needs no file

The stand-in differs from a phone in these ways, too:

- Commands run with this machine's `sh`, tools, processor and user, in the root directory.
- The programs in tools/ stand in for `getprop`, `logcat` and `dumpsys`.
- The services are `shell,v2`, `shell`, `exec` and version 1 of `sync`. Others are refused. There are no terminals.
- A lost connection ends the process groups of its running commands, first with SIGHUP, then with SIGKILL. A phone
  sends SIGHUP to the process of each command only. A client that leaves ends its command as on a phone.
- Every client is trusted.
"""

import argparse
import contextlib
import fcntl
import itertools
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

sys.dont_write_bytecode = True
import adbd_sync  # noqa: E402

VERSION = 0x01000001  # From this version on, only CNXN has a checksum.
MAX_PAYLOAD = 1 << 20
FEATURES = "shell_v2,fixed_push_mkdir"
CNXN, OPEN, OKAY, WRTE, CLSE = struct.unpack("<5I", b"CNXNOPENOKAYWRTECLSE")
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)
PIPE_SIZE = 1 << 20
# How long a command has to end after SIGHUP, in seconds.
GRACE = 0.5
PROPERTIES = {
    "ro.product.model": "Stand-in",
    "ro.product.manufacturer": "Tests",
    "ro.product.name": "standin",
    "ro.product.device": "standin",
    "ro.soc.manufacturer": "Tests",
    "ro.soc.model": "SI1000",
    "ro.build.version.release": "15",
    "ro.build.version.sdk": "35",
    "ro.product.cpu.abi": "x86_64",
    "ro.serialno": "STANDIN0001",
}


class Closed(Exception):
    """The stream or the connection is closed."""


class Device:
    """The files of the device, and its open connections."""

    def __init__(self, options):
        self.options = options
        self.root = Path(options.root).resolve()
        if shlex.quote(str(self.root)) != str(self.root):
            sys.exit(f"this path has characters with a meaning for the shell: {self.root}")
        self.files = self.root / "data/local/tmp"
        # A path that is already changed is not changed again.
        self.place = re.compile(rf"(?<!{re.escape(str(self.root))})/data/local/tmp(?![\w-])")
        self.connections = set()
        self.was_connected = False
        self.lock = threading.Lock()
        self.properties = {**PROPERTIES, **given_properties(options.properties)}
        if options.serial:
            self.properties["ro.serialno"] = options.serial
        etc = self.root / "system/etc"
        for directory in etc, self.files:
            directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}\n" for name, value in self.properties.items()]
        (etc / "properties").write_text("".join(lines))
        (etc / "logcat.txt").touch()

    def banner(self):
        names = ("ro.product.name", "ro.product.model", "ro.product.device")
        fields = [f"{name}={self.properties[name]};" for name in names]
        return f"device::{''.join(fields)}features={FEATURES}".encode()

    def path(self, name):
        """The file of this machine that has this name on the device."""
        name = os.fsdecode(name)
        return Path(name) if name.startswith(f"{self.root}/") else self.root / name.lstrip("/")

    def start(self, command, stderr):
        """Starts a command in a process group of its own."""
        command = self.place.sub(lambda _: str(self.files), os.fsdecode(command))
        tools = Path(__file__).resolve().parent / "tools"
        return subprocess.Popen(
            ["sh", "-c", command] if command else ["sh"],
            cwd=self.root,
            env={
                "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin",
                "ANDROID_ROOT": f"{self.root}/system",
                "ANDROID_DATA": f"{self.root}/data",
                "TMPDIR": str(self.files),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            bufsize=0,
        )

    def connect(self, peer):
        with self.lock:
            is_cut = not (self.options.cut_once and self.was_connected)
            self.was_connected = True
            connection = Connection(self, peer, self.options.cut_after if is_cut else None)
            self.connections.add(connection)
        in_background(connection.serve)

    def cut(self):
        """Closes all connections, and waits for the end of their commands."""
        with self.lock:
            connections = list(self.connections)
        for connection in connections:
            connection.shut()
        for connection in connections:
            connection.done.wait(2 * GRACE + 1)

    def end(self):
        self.cut()
        os._exit(0)


def given_properties(file):
    """The properties in a file: a JSON object, or lines NAME=VALUE."""
    text = Path(file).read_text() if file else ""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    lines = [line.strip() for line in text.splitlines()]
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


class Connection:
    """A connection with an adb server. One thread reads it; the threads of streams write."""

    def __init__(self, device, peer, left):
        self.device = device
        self.peer = peer
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The number of bytes that pass before the connection is cut, or None.
        self.left = left
        self.max_payload = MAX_PAYLOAD
        self.ids = itertools.count(1)
        self.streams = {}
        self.commands = set()
        self.lost = False
        # Guards streams, commands and lost.
        self.lock = threading.Lock()
        self.sending = threading.Lock()
        self.done = threading.Event()

    def serve(self):
        with contextlib.suppress(Closed, OSError):
            while True:
                header = self.receive(24)
                command, first, second, length, _, magic = struct.unpack("<6I", header)
                if magic != command ^ 0xFFFFFFFF or length > MAX_PAYLOAD:
                    break
                self.handle(command, first, second, self.receive(length))
        self.shut()
        with self.lock:
            self.lost = True
            streams, commands = list(self.streams.values()), list(self.commands)
        for stream in streams:
            stream.close()
        for command in commands:
            command.signal(signal.SIGHUP, os.killpg)
        end = time.monotonic() + GRACE
        while self.commands and time.monotonic() < end:
            time.sleep(0.01)
        for command in commands:
            command.signal(signal.SIGKILL, os.killpg)
        self.peer.close()
        with self.device.lock:
            self.device.connections.discard(self)
        self.done.set()

    def handle(self, command, first, second, payload):
        if command == CNXN:
            self.max_payload = min(MAX_PAYLOAD, second)
            self.send(CNXN, VERSION, MAX_PAYLOAD, self.device.banner())
        elif command == OPEN:
            stream = Stream(self, next(self.ids), first)
            with self.lock:
                self.streams[stream.id] = stream
            in_background(stream.serve, payload)
        elif stream := self.streams.get(second):
            if command == OKAY:
                stream.credit.release()
            elif command == WRTE:
                stream.arrive(payload)
            elif command == CLSE:
                stream.close()

    def receive(self, length):
        """Exactly so many bytes."""
        allowed = self.allowed(length)
        data = self.peer.recv(allowed, socket.MSG_WAITALL) if allowed else b""
        if len(data) < length:
            raise Closed
        return data

    def send(self, command, first, second, payload=b""):
        if self.device.options.delay:
            time.sleep(self.device.options.delay)
        checksum = sum(payload) if command == CNXN else 0
        header = (command, first, second, len(payload), checksum, command ^ 0xFFFFFFFF)
        with self.sending:
            for part in struct.pack("<6I", *header), payload:
                allowed = self.allowed(len(part))
                try:
                    self.peer.sendall(memoryview(part)[:allowed])
                except OSError as error:
                    raise Closed from error
                if allowed < len(part):
                    self.shut()
                    raise Closed

    def allowed(self, length):
        """How many of these bytes pass before the connection is cut."""
        if self.left is None:
            return length
        with self.lock:
            allowed = min(length, self.left)
            self.left -= allowed
        return allowed

    def shut(self):
        with contextlib.suppress(OSError):
            self.peer.shutdown(socket.SHUT_RDWR)


class Stream:
    """A stream of a connection, for one service. Bytes go in both directions."""

    def __init__(self, connection, number, remote):
        self.connection = connection
        self.id = number
        self.remote = remote
        self.closed = False
        self.on_close = lambda: None
        # The number of messages that may be sent: one, then one for each answer of the other side.
        self.credit = threading.Semaphore(1)
        self.writing = threading.Lock()
        self.arrived = deque()
        self.arrival = threading.Condition()
        self.rest = b""

    def serve(self, name):
        service = service_named(name.rstrip(b"\0"))
        ours = self.id if service else 0
        with contextlib.suppress(Closed, OSError):
            if service:
                self.connection.send(OKAY, ours, self.remote)
                service(self)
        with self.connection.lock:
            del self.connection.streams[self.id]
        is_open = not self.closed
        self.on_close = lambda: None
        self.close()
        if is_open:
            with contextlib.suppress(Closed):
                self.connection.send(CLSE, ours, self.remote)

    def arrive(self, payload):
        with self.arrival:
            self.arrived.append(payload)
            self.arrival.notify()

    def close(self):
        """Wakes all threads of the stream. They still read what has arrived."""
        self.closed = True
        self.credit.release()
        with self.arrival:
            self.arrival.notify()
        self.on_close()

    def message(self):
        """The bytes of the next message. From now on the other side may send another one."""
        with self.arrival:
            self.arrival.wait_for(lambda: self.arrived or self.closed)
            if not self.arrived:
                raise Closed
            payload = self.arrived.popleft()
        if not self.closed:
            self.connection.send(OKAY, self.id, self.remote)
        return payload

    def read(self, length):
        """Exactly so many bytes."""
        parts = [self.rest]
        missing = length - len(self.rest)
        while missing > 0:
            parts.append(self.message())
            missing -= len(parts[-1])
        data = b"".join(parts)
        self.rest = data[length:]
        return data[:length]

    def write(self, data):
        limit = self.connection.max_payload
        with self.writing:
            for start in range(0, len(data), limit):
                self.credit.acquire()
                if self.closed:
                    # Other threads that wait see the end, too.
                    self.credit.release()
                    raise Closed
                self.connection.send(WRTE, self.id, self.remote, data[start : start + limit])


def service_named(name):
    """The function that serves a stream, or None."""
    kind, _, command = name.partition(b":")
    kind, *arguments = kind.split(b",")
    if kind == b"shell" and b"v2" in arguments:
        return lambda stream: shell_v2(stream, command)
    if kind in (b"shell", b"exec"):
        return lambda stream: shell(stream, command)
    return adbd_sync.serve if kind == b"sync" else None


class Command:
    """A running command, which ends with its connection."""

    def __init__(self, stream, text, stderr):
        self.connection = stream.connection
        self.lock = threading.Lock()
        self.ended = False
        with self.connection.lock:
            if self.connection.lost:
                raise Closed
            self.process = self.connection.device.start(text, stderr)
            self.connection.commands.add(self)
        for pipe in self.process.stdin, self.process.stdout:
            # A user may have only so many large pipes, and only Linux has them.
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_SIZE)

    def signal(self, number, send):
        with self.lock:
            if not self.ended:
                with contextlib.suppress(ProcessLookupError):
                    send(self.process.pid, number)

    def wait(self):
        """Waits for the end of the command and returns its exit status."""
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        if self.connection.lost:
            # The group keeps its number until the process is waited for.
            self.signal(signal.SIGKILL, os.killpg)
        with self.lock:
            status = self.process.wait()
            self.ended = True
        with self.connection.lock:
            self.connection.commands.discard(self)
        return status if status >= 0 else 128 - status


def shell_v2(stream, text):
    """Runs a command with packets of version 2: kind, length, bytes."""
    command = Command(stream, text, subprocess.PIPE)
    process = command.process
    stream.on_close = lambda: command.signal(signal.SIGHUP, os.kill)
    if stream.closed:
        stream.on_close()

    def parts():
        while True:
            kind, length = struct.unpack("<BI", stream.read(5))
            data = stream.read(length)
            if kind == CLOSE_STDIN:
                process.stdin.close()
            elif kind == STDIN:
                yield data

    def packets(kind):
        return lambda data: struct.pack("<BI", kind, len(data)) + data

    in_background(feed, process.stdin, parts())
    errors = in_background(pump, process.stderr, stream, packets(STDERR))
    pump(process.stdout, stream, packets(STDOUT))
    errors.join()
    stream.write(struct.pack("<BIB", EXIT, 1, command.wait()))


def shell(stream, text):
    """Runs a command without packets: errors are part of the output, and the exit status is lost."""
    command = Command(stream, text, subprocess.STDOUT)
    in_background(feed, command.process.stdin, iter(stream.message, None))
    pump(command.process.stdout, stream, lambda data: data)
    command.wait()


def feed(pipe, parts):
    """Writes to a command until the stream ends. A command that has ended loses the bytes."""
    with contextlib.suppress(Closed):
        for part in parts:
            left = memoryview(part)
            with contextlib.suppress(BrokenPipeError):
                while left and not pipe.closed:
                    left = left[pipe.write(left) :]
    pipe.close()


def pump(pipe, stream, packed):
    """Sends what a command writes. After the end of the stream, the command cannot write."""
    # A packet has a header of five bytes.
    limit = stream.connection.max_payload - 5
    with pipe, contextlib.suppress(Closed):
        while data := pipe.read(limit):
            stream.write(packed(data))


def in_background(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--root", required=True, metavar="DIRECTORY", help="the root directory of the device")
    add("--port", type=int, default=0, help="the port; 0, the default, is any")
    add("--serial", help="the property ro.serialno")
    add("--properties", metavar="FILE", help="properties: a JSON object, or lines NAME=VALUE")
    add("--cut-after", type=int, metavar="BYTES", help="cuts connections after so many bytes")
    add("--cut-once", action="store_true", help="cuts only the first connection")
    add("--delay", type=float, metavar="SECONDS", help="waits before each message to adb")
    add("--until-eof", action="store_true", help="ends with its input; a line `cut` cuts connections")
    device = Device(parser.parse_args())
    server = socket.create_server(("127.0.0.1", device.options.port))
    for number in signal.SIGTERM, signal.SIGINT:
        # The main thread may hold a lock that the end needs.
        signal.signal(number, lambda *_: in_background(device.end))
    if device.options.until_eof:
        in_background(follow_input, device)
    print(server.getsockname()[1], flush=True)
    while True:
        device.connect(server.accept()[0])


def follow_input(device):
    for line in sys.stdin:
        if line.strip() == "cut":
            device.cut()
    device.end()


if __name__ == "__main__":
    main()
