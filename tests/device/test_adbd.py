#!/usr/bin/env python3
"""Tests the stand-in adbd.py with the real adb: PKGTOOL_TEST_ADB, or the one on PATH. Takes some seconds."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE = 20
MANY = 50_000_000


class Adb:
    """An adb with a server of its own, which sees only the devices that it is connected with."""

    def __init__(self, directory):
        self.program = os.environ.get("PKGTOOL_TEST_ADB") or shutil.which("adb")
        if not self.program:
            sys.exit("adb is missing; tests/setup gets it")
        self.environment = {
            "PATH": os.environ["PATH"],
            # The keys of adb and its log are there.
            "HOME": str(directory),
            "TMPDIR": str(directory),
            "ADB_SERVER_SOCKET": f"localfilesystem:{directory}/adb",
            "ADB_USB": "0",
            "ADB_EMU": "0",
            "ADB_LOCAL_TRANSPORT_MAX_PORT": "1",
            "ADB_MDNS_AUTO_CONNECT": "0",
            "ADB_MDNS_OPENSCREEN": "0",
        }

    def start(self, *arguments, **pipes):
        return subprocess.Popen([self.program, *arguments], env=self.environment, **pipes)

    def run(self, *arguments, data=b""):
        return subprocess.run(
            [self.program, *arguments],
            env=self.environment,
            input=data,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )


class Phone:
    """A running stand-in, connected with adb."""

    def __init__(self, adb, root, *options):
        self.adb = adb
        self.root = root
        self.files = root / "data/local/tmp"
        program = [sys.executable, str(HERE / "adbd.py"), "--root", str(root), "--until-eof"]
        self.process = subprocess.Popen(
            [*program, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.serial = f"127.0.0.1:{int(self.process.stdout.readline())}"
        self.connect()

    def connect(self):
        self.adb.run("disconnect", self.serial)
        said = self.adb.run("connect", self.serial).stdout
        assert said == f"connected to {self.serial}\n".encode(), said

    def run(self, *arguments, data=b""):
        return self.adb.run("-s", self.serial, *arguments, data=data)

    def shell(self, command, data=b""):
        done = self.run("shell", "-T", command, data=data)
        return done.returncode, done.stdout, done.stderr

    def start(self, command):
        """Starts a command that prints a line first; the line is its process."""
        client = self.adb.start(
            *("-s", self.serial, "shell", "-T", command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return client, int(client.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        self.adb.run("disconnect", self.serial)


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A process without a parent may wait for its end to be noticed.
    stat = Path(f"/proc/{pid}/stat")
    with contextlib.suppress(OSError):
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    return not stat.exists()


def commands(phone):
    listed = phone.adb.run("devices", "-l").stdout.decode()
    assert f"{phone.serial} " in listed and "model:Jackdaw" in listed, listed
    assert phone.shell("echo out; echo error >&2; exit 7") == (7, b"out\n", b"error\n")
    assert phone.shell("kill -9 $$") == (137, b"", b"")
    assert phone.shell("cat", bytes(range(256)) * 3) == (0, bytes(range(256)) * 3, b"")
    assert phone.shell("exit 3", bytes(10_000_000)) == (3, b"", b"")
    assert phone.shell("", b"echo hello\nexit 4\n") == (4, b"hello\n", b"")
    # Version 1 of the protocol mixes output and errors, and has no exit status.
    mixed = "echo out; echo error >&2; exit 5"
    for done in phone.run("shell", "-x", mixed), phone.run("exec-out", mixed):
        assert (done.returncode, done.stdout) == (0, b"out\nerror\n"), done
    # A path is changed once.
    place = f"{phone.files}\n".encode()
    assert phone.shell("cd /data/local/tmp/ && pwd") == (0, place, b"")
    assert phone.shell(f"cd {phone.files} && pwd") == (0, place, b"")
    assert phone.shell("pwd; echo $HOME")[1] == f"{phone.root}\n\n".encode()


def tools(phone):
    assert phone.shell("getprop ro.product.model")[1] == b"Jackdaw\n"
    assert phone.shell("getprop ro.serialno")[1] == b"J1\n"
    assert phone.shell("getprop ro.none; getprop ro.none 7")[1] == b"\n7\n"
    assert b"[ro.soc.model]: [SI1000]\n" in phone.shell("getprop")[1]
    (phone.root / "system/etc/logcat.txt").write_text("one\ntwo\nthree\n")
    assert phone.shell("logcat -d -t 2")[1] == b"two\nthree\n"
    assert b"  level: 100\n" in phone.shell("dumpsys battery")[1]
    (phone.root / "system/etc/dumpsys-battery.txt").write_text("  level: 7\n")
    assert phone.shell("dumpsys battery")[1] == b"  level: 7\n"


def many_bytes(phone, directory):
    data = os.urandom(MANY)
    assert phone.shell("cat", data) == (0, data, b"")
    assert phone.shell("cat >&2", data) == (0, b"", data)
    here, back = directory / "here", directory / "back"
    here.write_bytes(data)
    here.chmod(0o750)
    done = phone.run("push", str(here), "/data/local/tmp/new/there")
    assert done.returncode == 0, done
    there = phone.files / "new/there"
    assert there.read_bytes() == data and there.stat().st_mode & 0o777 == 0o750
    (phone.files / "new/empty").touch()
    done = phone.run("pull", "/data/local/tmp/new", str(back))
    assert done.returncode == 0, done
    assert (back / "there").read_bytes() == data and (back / "empty").read_bytes() == b""
    for done in (
        phone.run("pull", "/data/local/tmp/none", str(back)),
        phone.run("push", str(here), "/data/local/tmp/new/empty/below"),
    ):
        assert done.returncode == 1, done
    phone.run("exec-in", "cat > /data/local/tmp/given; mv /data/local/tmp/given /data/local/tmp/all", data=data)
    wait_until((phone.files / "all").exists)
    assert (phone.files / "all").read_bytes() == data
    assert phone.run("exec-out", "cat /data/local/tmp/all").stdout == data


def several_at_once(phone):
    clients = [phone.start("echo $$; cat; exit 6")[0] for _ in range(3)]
    for turn in range(10):
        for number, client in enumerate(clients):
            line = f"{turn} {number}\n".encode()
            client.stdin.write(line)
            client.stdin.flush()
            assert client.stdout.readline() == line
    for client in clients:
        client.stdin.close()
        assert client.wait(PATIENCE) == 6


def ends(phone):
    # The client ends: its command ends.
    client, pid = phone.start("echo $$; exec sleep 1000")
    client.kill()
    client.wait()
    wait_until(lambda: is_gone(pid))
    # The connection ends: all processes of the command end, even one that ignores SIGHUP.
    client, pid = phone.start("trap '' HUP; sleep 1000 & echo $!; wait")
    phone.process.stdin.write("cut\n")
    phone.process.stdin.flush()
    client.communicate(timeout=PATIENCE)
    wait_until(lambda: is_gone(pid))
    phone.connect()
    assert phone.shell("echo again") == (0, b"again\n", b"")
    # The stand-in ends.
    client, pid = phone.start("echo $$; exec sleep 1000")
    phone.process.send_signal(signal.SIGTERM)
    client.communicate(timeout=PATIENCE)
    wait_until(lambda: is_gone(pid))


def cut_after_bytes(adb, directory):
    data = directory / "cut"
    data.write_bytes(bytes(4_000_000))
    phone = Phone(adb, directory / "once", "--cut-after", "1000000", "--cut-once")
    assert phone.run("push", str(data), "/data/local/tmp/cut").returncode == 1
    wait_until(lambda: not (phone.files / "cut").exists())
    phone.connect()
    assert phone.run("push", str(data), "/data/local/tmp/cut").returncode == 0
    phone.close()
    phone = Phone(adb, directory / "always", "--cut-after", "1000000", "--delay", "0.001")
    for _ in range(2):
        assert phone.run("push", str(data), "/data/local/tmp/cut").returncode == 1
        phone.connect()
    phone.close()


def main():
    with tempfile.TemporaryDirectory(prefix="adbd-") as directory:
        directory = Path(directory).resolve()
        adb = Adb(directory)
        properties = directory / "properties"
        properties.write_text(json.dumps({"ro.product.model": "Jackdaw"}))
        try:
            phone = Phone(
                adb, directory / "phone", "--serial", "J1", "--properties", str(properties)
            )
            commands(phone)
            tools(phone)
            many_bytes(phone, directory)
            several_at_once(phone)
            ends(phone)
            phone.close()
            cut_after_bytes(adb, directory)
        finally:
            adb.run("kill-server")


if __name__ == "__main__":
    main()
