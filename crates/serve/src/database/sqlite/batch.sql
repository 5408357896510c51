-- Files of batches: uploads of accounts, and answers. Their content is in the blob store.
CREATE TABLE file (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL REFERENCES account(id),
    name TEXT NOT NULL,
    purpose TEXT NOT NULL,
    blob TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX file_of_account ON file (account, id);
CREATE INDEX file_expiring ON file (expires_at);

CREATE TABLE batch (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL REFERENCES account(id),
    endpoint TEXT NOT NULL,
    input INTEGER NOT NULL,
    -- As JSON.
    metadata TEXT NOT NULL,
    state TEXT NOT NULL,
    lines INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    -- Size of the answers in `batch_line`.
    bytes INTEGER NOT NULL DEFAULT 0,
    -- Faults of the input, as JSON.
    faults TEXT,
    output INTEGER,
    failures INTEGER,
    created_at INTEGER NOT NULL,
    began_at INTEGER,
    canceling_at INTEGER,
    finalizing_at INTEGER,
    ended_at INTEGER,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX batch_of_account ON batch (account, id);
CREATE INDEX batch_open ON batch (id) WHERE ended_at IS NULL;
CREATE INDEX batch_ended ON batch (ended_at) WHERE ended_at IS NOT NULL;

-- Answers of open batches. They leave for a file at the end. A table with a rowid, because answers
-- may be large.
CREATE TABLE batch_line (
    batch INTEGER NOT NULL,
    line INTEGER NOT NULL,
    custom_id TEXT NOT NULL,
    status INTEGER NOT NULL,
    answer BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX batch_line_of ON batch_line (batch, line);
