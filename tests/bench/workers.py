#!/usr/bin/env python3
"""Times workers that attach to `pkgtool serve --gate`, on this machine, over loopback, in one run.

    tests/setup && python3 tests/bench/workers.py [--only latency,scale,idle] [--seconds 3] [--json FILE]

latency  one client, one request after the other: a model of one operator in the gateway, and the same model on an
         attached worker, in turns
scale    answers per second of one worker and of three, each of which answers one request at a time; the model is a wait
         of --wait-ms, so that three of them do not need three cores
idle     memory of the gateway before and after --instances idle instances have attached

`scale` and `idle` need grpcio (tests/setup installs it).
"""

import argparse
import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("torture", "clients")]
sys.path.insert(0, str(ROOT / "target" / "test-environment" / "grpc"))

from model import write_package  # noqa: E402
from server import HOST, PREFIX, Server, free_port, resident  # noqa: E402

BODY = json.dumps({"inputs": [{"data": [1.0, 2.0]}]})
ROUNDS = 20
CLIENTS = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="latency,scale,idle")
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--wait-ms", type=float, default=20)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--binary", type=Path, default=ROOT / "target" / "release" / "pkgtool")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="pkgtool-bench-") as home:
        for name in options.only.split(","):
            bench = Bench(Path(home) / name, options)
            try:
                results[name] = {"latency": latency, "scale": scale, "idle": idle}[name](bench)
            finally:
                bench.stop()
            for what, value in results[name].items():
                print(f"{name:<9}{what:<42}{value:.4g}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


class Bench:
    """A gateway, and the processes of its workers."""

    def __init__(self, home, options):
        self.options, self.gate = options, free_port()
        self.packages = home / "packages"
        write_package(self.packages, "negate")
        settings = f'[workers]\nlisten = "{HOST}:{self.gate}"\nin_flight = 1\ninstances_per_token = 10000\n'
        settings += '[log]\nlevel = "warn"\n'
        self.server = Server(options.binary, home, settings, [self.packages])
        self.server.start()
        self.server.set_rate(1_000_000)
        self.processes = []

    def token(self, service):
        command = [str(self.options.binary), "workers", "token", "create", service]
        command += ["--data-dir", str(self.server.data)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def start(self, command, token):
        environment = os.environ | {"MLP_SERVICE_TOKEN": token}
        quiet = subprocess.DEVNULL
        self.processes.append(subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet))

    def attached(self, count):
        deadline = time.monotonic() + 120
        while len(json.loads(self.server.send("GET", f"{PREFIX}/worker")[1])) != count:
            if time.monotonic() > deadline:
                sys.exit(f"{count} workers do not attach")
            time.sleep(0.1)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.server.stop()


class Caller:
    """A client that keeps its connection."""

    def __init__(self, server, service):
        self.server, self.path = server, f"{PREFIX}/model/{service}/predict"
        self.connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
        self.connection.connect()

    def ask(self):
        self.connection.request("POST", self.path, BODY, self.server.headers)
        reply = self.connection.getresponse()
        answer = reply.read()
        if reply.status != 200:
            sys.exit(f"{reply.status}: {answer!r}")


def latency(bench):
    token = bench.token("remote")
    bench.start(
        [str(bench.options.binary), "attach", str(bench.packages), "--plain", "--gate", f"{HOST}:{bench.gate}"], token
    )
    bench.attached(1)
    callers = {name: Caller(bench.server, name) for name in ("negate", "remote")}
    times = {name: [] for name in callers}
    for number in range(ROUNDS + 1):
        for name, caller in callers.items():
            end = time.perf_counter() + bench.options.seconds / ROUNDS
            while (begin := time.perf_counter()) < end:
                caller.ask()
                # The first round loads the model.
                if number:
                    times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(each) * 1000 for name, each in times.items()}
    slow = {name: statistics.quantiles(each, n=100)[98] * 1000 for name, each in times.items()}
    return {
        "in the gateway: p50, ms": medians["negate"],
        "on a worker: p50, ms": medians["remote"],
        "added: p50, ms": medians["remote"] - medians["negate"],
        "in the gateway: p99, ms": slow["negate"],
        "on a worker: p99, ms": slow["remote"],
    }


def scale(bench):
    found = {}
    for count in (1, 3):
        service = f"waiting{count}"
        token = bench.token(service)
        for _ in range(count):
            script = [sys.executable, __file__, "--worker", f"{HOST}:{bench.gate}", str(bench.options.wait_ms)]
            bench.start(script, token)
        bench.attached(len(bench.processes))
        found[count] = throughput(bench, service)
    return {
        "one worker: answers per second": found[1],
        "three workers: answers per second": found[3],
        "three workers: times one": found[3] / found[1],
    }


def throughput(bench, service):
    end = time.monotonic() + bench.options.seconds
    counts = [0] * CLIENTS

    def work(number):
        caller = Caller(bench.server, service)
        while time.monotonic() < end:
            caller.ask()
            counts[number] += 1

    threads = [threading.Thread(target=work, args=[number]) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / bench.options.seconds


def idle(bench):
    token = bench.token("idle")
    time.sleep(1)
    before = resident(bench.server.pid)
    count = bench.options.instances
    bench.start([sys.executable, __file__, "--instances-of", f"{HOST}:{bench.gate}", str(count)], token)
    bench.attached(count)
    time.sleep(2)
    grown = resident(bench.server.pid) - before
    return {
        "instances": count,
        "memory of all, MB": grown / 1e6,
        "memory of each, kB": grown / 1e3 / count,
    }


# ---- Workers ----


def worker(address, wait_ms):
    """Answers one request at a time, after a wait."""
    import grpc
    from stubs import made

    messages, services = made(ROOT / "crates" / "gate" / "proto" / "mlp-gate.proto")
    import queue

    to_gate = queue.Queue()
    to_gate.put(announcement(messages))
    stub = services.GateStub(grpc.insecure_channel(address))
    answer = messages.PredictResponseProto(data=messages.PayloadProto(json="1"))
    for message in stub.processAsync(iter(to_gate.get, None)):
        if message.WhichOneof("body") == "heartBeat":
            to_gate.put(messages.ServiceToGateProto(heartBeat=messages.HeartBeatProto()))
        elif message.WhichOneof("body") == "predict":
            time.sleep(float(wait_ms) / 1000)
            to_gate.put(messages.ServiceToGateProto(requestId=message.requestId, predict=answer))


def announcement(messages):
    start = messages.StartServingProto(connectionToken=os.environ["MLP_SERVICE_TOKEN"], version=2)
    return messages.ServiceToGateProto(startServing=start)


async def instances(address, count):
    """So many instances that do nothing, each on a connection of its own."""
    import grpc
    from stubs import made

    messages, services = made(ROOT / "crates" / "gate" / "proto" / "mlp-gate.proto")
    own = [("grpc.use_local_subchannel_pool", 1)]

    async def one():
        call = services.GateStub(grpc.aio.insecure_channel(address, options=own)).processAsync()
        await call.write(announcement(messages))
        while (message := await call.read()) is not grpc.aio.EOF:
            if message.WhichOneof("body") == "heartBeat":
                await call.write(messages.ServiceToGateProto(heartBeat=messages.HeartBeatProto()))

    # The gate admits few strangers at a time.
    running = []
    for _ in range(int(count)):
        running.append(asyncio.create_task(one()))
        await asyncio.sleep(0.005)
    await asyncio.gather(*running)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    elif sys.argv[1:2] == ["--instances-of"]:
        asyncio.run(instances(*sys.argv[2:]))
    else:
        main()
