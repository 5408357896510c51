"""What the programs of the queues in Python share: what they are asked, when they begin, and what they say.

A program is called as `URL creates|batches|ends SECONDS CALLERS`. It says `ready` when it is connected, begins when it
reads a line, and says a line of JSON: the number of jobs, and when the first began and the last ended.
"""

import asyncio
import json
import sys
import time

BATCH = 500
BODY = "x" * 1000


def asked():
    url, what, seconds, callers = sys.argv[1:]
    return url, what, float(seconds), int(callers)


def wait_for_start():
    print("ready", flush=True)
    sys.stdin.readline()


async def call_until_end(call, seconds, callers):
    """Calls a function from several callers until the time is over; it returns how many jobs it stored."""
    wait_for_start()
    began = time.time()

    async def caller():
        count = 0
        while time.time() - began < seconds:
            count += await call()
        return count

    counts = await asyncio.gather(*(caller() for _ in range(callers)))
    say(sum(counts), began, time.time())


class Executed:
    """Counts jobs that were executed."""

    def __init__(self):
        self.count = 0
        self.began = None
        self.last = None

    def one(self):
        self.last = time.time()
        self.began = self.began or self.last
        self.count += 1

    async def wait(self, seconds):
        """Waits until jobs were executed for a time."""
        while not self.began or time.time() - self.began < seconds:
            await asyncio.sleep(0.01)
        if time.time() - self.last > 1:
            sys.exit("the queue ran empty")


def say(count, began, ended):
    print(json.dumps({"count": count, "began": began, "ended": ended}), flush=True)
