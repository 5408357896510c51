#!/usr/bin/env python3
"""Times single requests alone and beside a batch of a gateway, alternately.

    batches.py [--rounds 3] [--requests 1000] [--pause 0.01]

The models are a sentence encoder of 22 million parameters (`tests/setup`) and a small one of the examples. The
goal is a 99th percentile beside a full batch of at most 1.2 times that alone.
"""

import argparse
import contextlib
import http.client
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "target/release/pkgtool"
PACKAGES = [ROOT / "target/test-environment/minilm", ROOT / "packages-examples/hush-sentence"]
SERVICES = ["local/hush_sentence", "local/all_minilm_l6_v2"]
BASE = "/api/adapters/openai/v1"
ENDPOINT = "/v1/embeddings"
GOAL = 1.2


@contextlib.contextmanager
def server():
    with tempfile.TemporaryDirectory() as directory:
        command = [PROGRAM, "serve", *PACKAGES, "--listen", "127.0.0.1:0", "--data-dir", directory]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        key = process.stdout.readline().strip()
        address = process.stdout.readline().split("http://")[1].strip()
        try:
            yield address, key
        finally:
            process.terminate()
            process.wait()


class Client:
    def __init__(self, address, key):
        self.connection = http.client.HTTPConnection(address)
        self.headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def send(self, method, path, body=None, **headers):
        self.connection.request(method, BASE + path, body, {**self.headers, **headers})
        reply = self.connection.getresponse()
        answer = reply.read()
        assert reply.status == 200, answer
        return json.loads(answer)

    def embed(self, service, number):
        body = {"model": service, "input": f"A sentence about a thing with the number {number}."}
        return self.send("POST", "/embeddings", json.dumps(body))

    def start_batch(self, service, lines=50_000):
        def line(number):
            body = {"model": service, "input": f"A sentence of a batch with the number {number}."}
            request = {"custom_id": str(number), "method": "POST", "url": ENDPOINT, "body": body}
            return json.dumps(request)

        content = "\n".join(map(line, range(lines)))
        part = 'content-disposition: form-data; name="'
        form = f'--b\r\n{part}purpose"\r\n\r\nbatch\r\n--b\r\n{part}file"; filename="b.jsonl"\r\n\r\n{content}\r\n--b--\r\n'
        kind = {"content-type": "multipart/form-data; boundary=b"}
        file = self.send("POST", "/files", form.encode(), **kind)
        asked = {"input_file_id": file["id"], "endpoint": ENDPOINT, "completion_window": "24h"}
        return self.send("POST", "/batches", json.dumps(asked))["id"]

    def completed(self, batch):
        return self.send("GET", f"/batches/{batch}")["request_counts"]["completed"]

    def cancel(self, batch):
        self.send("POST", f"/batches/{batch}/cancel")
        while self.send("GET", f"/batches/{batch}")["status"] != "cancelled":
            time.sleep(0.1)


def percentiles(client, service, given):
    times = []
    for number in range(given.requests):
        start = time.perf_counter()
        client.embed(service, number)
        times.append((time.perf_counter() - start) * 1000)
        time.sleep(given.pause)
    cuts = statistics.quantiles(times, n=100)
    return cuts[49], cuts[98]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between requests")
    given = parser.parse_args()
    worst = 0
    with server() as (address, key):
        client = Client(address, key)
        for service in SERVICES:
            client.embed(service, 0)
            ratios = []
            for _ in range(given.rounds):
                alone = percentiles(client, service, given)
                batch = client.start_batch(service)
                while client.completed(batch) < 50:
                    time.sleep(0.1)
                before, start = client.completed(batch), time.time()
                beside = percentiles(client, service, given)
                rate = (client.completed(batch) - before) / (time.time() - start)
                client.cancel(batch)
                ratios.append(beside[1] / alone[1])
                print(
                    f"{service}: alone {alone[0]:.2f} ms, 99% {alone[1]:.2f}; "
                    f"beside {beside[0]:.2f} ms, 99% {beside[1]:.2f} ({rate:.0f} lines/s); "
                    f"ratio of 99% {ratios[-1]:.2f}",
                    flush=True,
                )
            worst = max(worst, statistics.median(ratios))
    print(f"worst median ratio {worst:.2f}, goal {GOAL}")
    return 0 if worst <= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
