"""Backups and purges beside a server that is killed, and what is in a backup.

Each is a process of its own, as an operator runs it; some are killed, too. A directory that bears a
backup's name must be complete: its database intact, every blob there that a task needs.
"""

import hashlib
import json
import random
import shutil
import sqlite3
import subprocess
import threading
import time
import uuid

from history import Backup

# Of 100 of them, how many are killed, and within how many seconds.
KILLED, KILLED_SECONDS = 25, 0.3

# Of 100 cycles, how many purge.
PURGES = 30


class Backups(threading.Thread):
    def __init__(self, server, keep, seed):
        super().__init__(name="backups", daemon=True)
        self.server, self.keep = server, keep
        self.chance = random.Random(f"{seed} backups")
        self.home = server.home / "backups"
        self.made, self.problems = [], []
        self.cut_off = 0
        self.stopped = threading.Event()

    def run(self):
        self.home.mkdir(exist_ok=True)
        number = 0
        while not self.stopped.is_set():
            number += 1
            if self.chance.random() * 100 < PURGES:
                self.purge()
            else:
                self.backup(self.home / f"backup-{number}")
            self.stopped.wait(0.1)

    def purge(self):
        self.admin("purge", "--older-than", f"{self.keep}s")

    def backup(self, path):
        begin = time.monotonic()
        whole = self.admin("backup", str(path))
        end, wall = time.monotonic(), time.time()
        if path.exists():
            for problem in check(path):
                self.problems.append(f"{path.name}: {problem}")
            self.made.append(Backup(path.name, begin, end, wall, tasks_of(path)))
            shutil.rmtree(path)
        elif whole:
            self.problems.append(f"{path.name} is not there, though its command ended well")
        else:
            self.cut_off += 1

    def admin(self, *words, killed=KILLED):
        """Whether the command did what it should; what it says otherwise is a problem."""
        command = [self.server.binary, "admin", *words, "--data-dir", str(self.server.data)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.chance.random() * 100 < killed:
            try:
                process.wait(self.chance.uniform(0, KILLED_SECONDS))
            except subprocess.TimeoutExpired:
                process.kill()
        _, errors = process.communicate()
        if process.returncode > 0:
            self.problems.append(f"`admin {words[0]}` ended with {process.returncode}: {errors}")
        return process.returncode == 0


def check(path):
    """What is wrong with a backup."""
    if not (path / "backup.json").is_file():
        return ["it is there without its marker"]
    problems = []
    marker = json.loads((path / "backup.json").read_text())
    if marker["missing"]:
        problems.append(f"blobs were missing: {marker['missing'][:3]}")
    with sqlite3.connect(f"file:{path / 'pkgtool.db'}?mode=ro", uri=True) as database:
        (verdict,) = database.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            problems.append(f"its database is damaged: {verdict}")
        rows = database.execute(
            """SELECT id, attempt, status < 2, body_sha256, answer_sha256,
                   status < 2 AND body IS NULL AND body_sha256 IS NULL AND NOT EXISTS
                       (SELECT 1 FROM content WHERE number = body_number)
                   OR status = 2 AND outcome = 1 AND answer IS NULL AND answer_sha256 IS NULL
                       AND NOT EXISTS (SELECT 1 FROM content WHERE number = answer_number)
               FROM task"""
        )
        for task, attempt, is_open, body, answer, is_lost in rows:
            name = str(uuid.UUID(bytes=task))
            sha256, place = (body, "body") if is_open else (answer, "answer")
            if is_lost:
                problems.append(f"the {place} of {name} is nowhere")
            if sha256 is None:
                continue
            file = name if is_open else f"{name}.{attempt}"
            try:
                found = (path / "blobs" / place / name[-2:] / file).read_bytes()
            except FileNotFoundError:
                problems.append(f"the {place} of {name} is not there")
                continue
            if hashlib.sha256(found).digest() != sha256:
                problems.append(f"the {place} of {name} is not what was stored")
    return problems


def tasks_of(path):
    with sqlite3.connect(f"file:{path / 'pkgtool.db'}?mode=ro", uri=True) as database:
        return {str(uuid.UUID(bytes=row[0])) for row in database.execute("SELECT id FROM task")}
