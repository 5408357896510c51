#!/usr/bin/env python3
"""A tiny HTTP service for proxy services to call, as a process of its own.

    upstream.py negate    answers as the service of model.py does
    upstream.py hold      takes every request and never answers

Prints its port, and ends when its standard input is closed: it does not outlive who started it.
"""

import asyncio
import json
import subprocess
import sys
import threading


class Upstream:
    """Such a process, for a `with` block."""

    def __init__(self, behaviour):
        self.behaviour = behaviour

    def __enter__(self):
        command = [sys.executable, __file__, self.behaviour]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/"
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def negated(body):
    outputs = []
    for tensor in json.loads(body)["inputs"]:
        data = [-value for value in tensor["data"]]
        outputs.append({"name": "y", "shape": [len(data)], "dtype": "float32", "data": data})
    return json.dumps({"outputs": outputs}).encode()


async def serve(reader, writer, behaviour):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = 0
            for line in head.split("\r\n"):
                if line.startswith("content-length:"):
                    length = int(line.split(":")[1])
            body = await reader.readexactly(length)
            if behaviour == "hold":
                # Until the caller goes away.
                await reader.read(1)
                return
            answer = negated(body)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
                + str(len(answer)).encode()
                + b"\r\n\r\n"
                + answer
            )
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main(behaviour):
    server = await asyncio.start_server(
        lambda reader, writer: serve(reader, writer, behaviour), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def wait_for_end():
        sys.stdin.read()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=wait_for_end, daemon=True).start()
    await over.wait()


if __name__ == "__main__":
    if sys.argv[1:] not in (["negate"], ["hold"]):
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
