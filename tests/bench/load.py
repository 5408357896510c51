"""Loads for the benchmark of `pkgtool serve`: wrk as fast as it goes, and a fixed rate.

Every reply must be the expected one; any other ends the run with `LoadError`.
"""

import http.client
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

HOST = "127.0.0.1"

SCRIPT = """
local function lines(path)
  local found = {}
  for line in io.lines(path) do found[#found + 1] = line end
  return found
end

local requests, turn = {}, 0

function init(arguments)
  local method, headers, body, paths = unpack(arguments)
  for _, line in ipairs(lines(headers)) do
    local name, value = line:match("^(.-): (.*)$")
    wrk.headers[name] = value
  end
  local file = io.open(body)
  local content = file:read("*a")
  file:close()
  if content == "" then content = nil end
  for _, path in ipairs(lines(paths)) do
    requests[#requests + 1] = wrk.format(method, path, nil, content)
  end
end

function request()
  turn = turn + 1
  return requests[turn % #requests + 1]
end

function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    'RESULT {"requests": %d, "seconds": %f, "p50_us": %d, "p99_us": %d, "failed": %d, "broken": %d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write + e.timeout))
end
"""


class LoadError(Exception):
    """A load was not answered as it must be, or could not be made."""


class Target:
    """The requests of a load and their target."""

    def __init__(self, port, method, paths, headers=None, body=""):
        self.port, self.method, self.body = port, method, body
        self.paths = [paths] if isinstance(paths, str) else list(paths)
        self.headers = {"Content-Type": "application/json"} if body else {}
        self.headers.update(headers or {})
        if not self.paths:
            raise LoadError("there is nothing to ask for")

    def write(self, home):
        """Files with the headers, the body and the paths, for a program that sends them."""
        texts = {
            "headers": "".join(f"{name}: {value}\n" for name, value in self.headers.items()),
            "body": self.body,
            "paths": "".join(f"{path}\n" for path in self.paths),
        }
        for name, text in texts.items():
            (home / name).write_text(text)
        return [str(home / name) for name in texts]


def require_wrk():
    if not shutil.which("wrk"):
        raise LoadError("`wrk` is missing; on Debian: apt-get install wrk")


def probe(target):
    """Each of the paths, once."""
    connection = http.client.HTTPConnection(HOST, target.port, timeout=60)
    try:
        for path in target.paths:
            connection.request(target.method, path, target.body or None, target.headers)
            reply = connection.getresponse()
            answer = reply.read()
            if reply.status != 200:
                raise LoadError(f"{target.method} {path}: {reply.status} {answer[:500]!r}")
    except (OSError, http.client.HTTPException) as error:
        raise LoadError(f"{target.method} {target.paths[0]}: {error!r}") from error
    finally:
        connection.close()


def saturate(target, connections, seconds):
    """wrk with so many connections, each of which asks again as soon as it is answered."""
    probe(target)
    with tempfile.TemporaryDirectory() as home:
        home = Path(home)
        script = home / "load.lua"
        script.write_text(SCRIPT)
        command = ["wrk", "-t", str(min(connections, 2)), "-c", str(connections)]
        command += ["-d", f"{seconds}s", "--timeout", "30s", "-s", str(script)]
        command += [f"http://{HOST}:{target.port}", "--", target.method, *target.write(home)]
        ran = run(command)
    found = [line for line in ran.splitlines() if line.startswith("RESULT ")]
    if not found:
        raise LoadError(f"wrk gave no result:\n{ran}")
    result = json.loads(found[0].removeprefix("RESULT "))
    # wrk counts statuses over 399 as errors; that the others are 200 `probe` made sure of.
    if result["failed"] or result["broken"] or not result["requests"]:
        raise LoadError(f"{target.method} {target.paths[0]}: {result}")
    result["per_second"] = result["requests"] / result["seconds"]
    return result


def paced(program, target, rate, connections, seconds):
    """A fixed number of requests per second, whatever the server does."""
    with tempfile.TemporaryDirectory() as home:
        command = [str(program), f"{HOST}:{target.port}", target.method, str(rate), str(seconds)]
        result = json.loads(run([*command, str(connections), *target.write(Path(home))]))
    if set(result["statuses"]) != {"200"}:
        raise LoadError(f"{target.method} {target.paths[0]}: {result['statuses']}")
    return result


def run(command):
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        words = " ".join(command)
        raise LoadError(f"`{words}` ended with {ran.returncode}:\n{ran.stderr or ran.stdout}")
    return ran.stdout
