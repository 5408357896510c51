"""Loads procrastinate: jobs of 1 kB in one queue."""

import asyncio
import logging
import time

import procrastinate
from measure import BATCH, BODY, Executed, asked, call_until_end, say, wait_for_start

# A worker fetches one job at a time, so several work at once.
WORKERS = 8
CONCURRENCY = 4
URL, WHAT, SECONDS, CALLERS = asked()
executed = Executed()
connector = procrastinate.PsycopgConnector(conninfo=URL, min_size=CALLERS, max_size=CALLERS)
app = procrastinate.App(connector=connector)


@app.task(queue="bench", name="bench")
async def bench(body):
    executed.one()


async def create():
    await bench.defer_async(body=BODY)
    return 1


async def create_batch():
    return len(await bench.batch_defer_async(*[{"body": BODY}] * BATCH))


async def execute():
    wait_for_start()
    settings = {"queues": ["bench"], "concurrency": CONCURRENCY, "install_signal_handlers": False}
    working = [asyncio.create_task(app.run_worker_async(**settings)) for _ in range(WORKERS)]
    await executed.wait(SECONDS)
    for worker in working:
        worker.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    say(executed.count, executed.began, time.time())


async def main():
    logging.disable(logging.INFO)
    async with app.open_async():
        if WHAT == "schema":
            await app.schema_manager.apply_schema_async()
        elif WHAT == "creates":
            await call_until_end(create, SECONDS, CALLERS)
        elif WHAT == "batches":
            await call_until_end(create_batch, SECONDS, CALLERS)
        else:
            await execute()


asyncio.run(main())
