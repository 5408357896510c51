"""Fills the database of a server that is down with finished tasks.

They are copies of a real one, with ids and times of their own: what a server has that finished many.
"""

import os
import sqlite3

BATCH = 10_000


def fill(database, count):
    """So many tasks in all, older than the one that is copied."""
    connection = sqlite3.connect(database)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    query = "SELECT * FROM task WHERE status = 2 AND answer IS NOT NULL ORDER BY id LIMIT 1"
    real = connection.execute(query).fetchone()
    if real is None:
        raise ValueError("there is no finished task to copy, with its answer in the record")
    there = connection.execute("SELECT count(*) FROM task").fetchone()[0]
    columns = real.keys()
    marks = ", ".join("?" * len(columns))
    insert = f"INSERT INTO task ({', '.join(columns)}) VALUES ({marks})"
    took = real["completed_at"] - real["created_at"]
    newest = int.from_bytes(real["id"][:6], "big")
    missing = max(0, count - there)
    for begin in range(0, missing, BATCH):
        rows = []
        for number in range(begin, min(begin + BATCH, missing)):
            # One a millisecond, up to the real one.
            created = newest - missing + number
            row = dict(real)
            row.update(id=task_id(created), created_at=created, completed_at=created + took)
            row.update(repeat_key=None, repeat_sha256=None)
            rows.append([row[column] for column in columns])
        with connection:
            connection.executemany(insert, rows)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    # What the fill left to the system is on disk before anything is measured.
    os.sync()


def task_id(millis):
    """A UUID of version 7."""
    random = bytearray(os.urandom(10))
    random[0] = random[0] & 0x0F | 0x70
    random[2] = random[2] & 0x3F | 0x80
    return millis.to_bytes(6, "big") + bytes(random)
