"""Fills the database of a stopped server with finished tasks.

They are copies of a real task with different ids and times, like those of a server that has finished many.
"""

import os
import sqlite3

BATCH = 10_000


def fill(database, count):
    """Adds copies, older than the original, until the database has `count` tasks."""
    connection = sqlite3.connect(database)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    query = "SELECT * FROM task WHERE status = 2 AND answer IS NOT NULL ORDER BY id LIMIT 1"
    real = connection.execute(query).fetchone()
    if real is None:
        raise ValueError("missing a finished task to copy, with its answer in the record")
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
    # Flush pending writes to disk before anything is measured.
    os.sync()


def task_id(millis):
    """A UUID of version 7."""
    random = bytearray(os.urandom(10))
    random[0] = random[0] & 0x0F | 0x70
    random[2] = random[2] & 0x3F | 0x80
    return millis.to_bytes(6, "big") + bytes(random)
