"""Loads awa: jobs of 1 kB in a queue of four partitions, its documented lever for throughput."""

import asyncio
import json
import time
from dataclasses import dataclass
from itertools import count

import awa
from measure import BATCH, BODY, Executed, asked, call_until_end, say, wait_for_start

QUEUE = awa.PartitionedQueue("bench", 4)
# Together what its page about configuration names for jobs that do nothing.
WORKERS_OF_PARTITION = 256


@dataclass
class BenchJob:
    body: str


async def main():
    url, what, seconds, callers = asked()
    client = awa.AsyncClient(url, max_connections=max(callers, 10))
    numbers = count()

    async def create():
        await client.insert(BenchJob(BODY), **QUEUE.route_by_index(next(numbers)))
        return 1

    async def create_batch():
        jobs = [BenchJob(BODY)] * BATCH
        return await client.enqueue_many_copy(jobs, **QUEUE.route_by_index(next(numbers)))

    if what == "schema":
        await make_schema(client)
    elif what == "creates":
        await call_until_end(create, seconds, callers)
    elif what == "batches":
        await call_until_end(create_batch, seconds, callers)
    else:
        await execute(client, seconds)


async def make_schema(client):
    """Makes the schema. The first worker that starts switches a fresh one to the storage of this release."""
    await client.migrate()

    @client.task(BenchJob, queue=QUEUE.physical_queues[0])
    async def bench(job):
        pass

    await client.start(QUEUE.queue_configs(1))
    while json.loads(await client.storage_status())["current_engine"] != "queue_storage":
        await asyncio.sleep(0.1)
    await client.shutdown()
    # The first job of a partition makes its rows, which two callers cannot do at once.
    for partition in range(QUEUE.partitions):
        await client.insert(BenchJob(BODY), **QUEUE.route_by_index(partition))


async def execute(client, seconds):
    executed = Executed()

    @client.task(BenchJob, queue=QUEUE.physical_queues[0])
    async def bench(job):
        executed.one()

    wait_for_start()
    await client.start(QUEUE.queue_configs(WORKERS_OF_PARTITION, deadline_duration_ms=0))
    await executed.wait(seconds)
    await client.shutdown(10_000)
    say(executed.count, executed.began, time.time())


asyncio.run(main())
