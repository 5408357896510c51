"""The files of adbd.py, a stand-in for tests: version 1 of the service `sync`."""

import os
import stat
import struct

CHUNK = 64 * 1024


def serve(stream):
    """Answers requests for files until the stream ends."""
    device = stream.connection.device
    while True:
        request, length = struct.unpack("<4sI", stream.read(8))
        name = stream.read(length)
        if request == b"QUIT":
            return
        try:
            if request == b"STAT":
                stream.write(b"STAT" + numbers(device.path(name)))
            elif request == b"LIST":
                stream.write(entries(device.path(name)))
            elif request == b"RECV":
                send_file(stream, device.path(name))
            elif request == b"SEND":
                name, _, mode = name.rpartition(b",")
                receive_file(stream, device.path(name), int(mode))
                stream.write(struct.pack("<4sI", b"OKAY", 0))
            else:
                raise OSError(0, "unknown request")
        except OSError as error:
            reason = f"{os.fsdecode(name)}: {error.strerror}".encode()
            stream.write(struct.pack("<4sI", b"FAIL", len(reason)) + reason)


def numbers(path):
    """The mode, size and time of a file, or zeros."""
    try:
        found = path.lstat()
    except OSError:
        return bytes(12)
    fields = (found.st_mode, found.st_size, int(found.st_mtime))
    return struct.pack("<3I", *(field & 0xFFFFFFFF for field in fields))


def entries(directory):
    try:
        names = [".", "..", *os.listdir(directory)]
    except OSError:
        names = []
    parts = []
    for name in names:
        data = os.fsencode(name)
        length = struct.pack("<I", len(data))
        parts.append(b"DENT" + numbers(directory / name) + length + data)
    return b"".join([*parts, b"DONE", bytes(16)])


def send_file(stream, path):
    per_message = max(stream.connection.max_payload // (CHUNK + 8), 1)
    with open(path, "rb") as file:
        while data := file.read(per_message * CHUNK):
            parts = []
            for start in range(0, len(data), CHUNK):
                chunk = data[start : start + CHUNK]
                parts += [struct.pack("<4sI", b"DATA", len(chunk)), chunk]
            stream.write(b"".join(parts))
    stream.write(struct.pack("<4sI", b"DONE", 0))


def receive_file(stream, path, mode):
    """Writes a file. An incomplete file is removed. All is read, even if it cannot be written."""
    problem = file = None
    try:
        if stat.S_ISLNK(mode):
            raise OSError(0, "the stand-in makes no symbolic links")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        file = open(path, "wb")
    except OSError as error:
        problem = error
    complete = False
    try:
        while True:
            kind, value = struct.unpack("<4sI", stream.read(8))
            if kind == b"DONE":
                break
            data = stream.read(value)
            if not problem:
                try:
                    file.write(data)
                except OSError as error:
                    problem = error
        complete = not problem
    finally:
        if file:
            file.close()
            if not complete:
                path.unlink(missing_ok=True)
    if problem:
        raise problem
    path.chmod(mode & 0o777)
    os.utime(path, (value, value))
