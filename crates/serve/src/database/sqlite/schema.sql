CREATE TABLE account (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    rps INTEGER NOT NULL,
    blocked INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_key (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL REFERENCES account(id),
    name TEXT NOT NULL,
    -- SHA-256 of the secret, which has 256 random bits: no slow hash is needed.
    hash BLOB NOT NULL UNIQUE,
    predict INTEGER NOT NULL,
    read INTEGER NOT NULL,
    write INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    UNIQUE (account, name)
) STRICT;

-- Changes with every change of accounts and keys: what others keep of them is read again then.
CREATE TABLE account_version (version INTEGER NOT NULL) STRICT;
INSERT INTO account_version VALUES (1);
CREATE TRIGGER account_inserted AFTER INSERT ON account BEGIN UPDATE account_version SET version = version + 1; END;
CREATE TRIGGER account_updated AFTER UPDATE ON account BEGIN UPDATE account_version SET version = version + 1; END;
CREATE TRIGGER account_deleted AFTER DELETE ON account BEGIN UPDATE account_version SET version = version + 1; END;
CREATE TRIGGER api_key_inserted AFTER INSERT ON api_key BEGIN UPDATE account_version SET version = version + 1; END;
CREATE TRIGGER api_key_updated AFTER UPDATE ON api_key BEGIN UPDATE account_version SET version = version + 1; END;
CREATE TRIGGER api_key_deleted AFTER DELETE ON api_key BEGIN UPDATE account_version SET version = version + 1; END;

-- The lasting numbers of services.
CREATE TABLE service (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner INTEGER NOT NULL REFERENCES account(id),
    name TEXT NOT NULL,
    UNIQUE (owner, name)
) STRICT;

CREATE TABLE predict_config (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    service INTEGER NOT NULL REFERENCES service(id),
    name TEXT NOT NULL,
    config TEXT NOT NULL,
    is_default INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX predict_config_of_service ON predict_config (service, id);

-- Ids grow in the order of acceptance: rows are appended, and the queue is in their order.
-- status: 0 waiting, 1 running, 2 completed, 3 canceled.
CREATE TABLE task (
    id BLOB PRIMARY KEY,
    caller INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    service TEXT NOT NULL,
    status INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    completed_at INTEGER,
    -- Which claim of the task holds; grows with every claim and never goes back.
    attempt INTEGER NOT NULL DEFAULT 0,
    -- How many of the claims ended in a crash.
    crashes INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER,
    retries INTEGER NOT NULL,
    config TEXT,
    data_type TEXT,
    -- In the record itself, or size and checksum of a blob.
    body BLOB,
    body_size INTEGER,
    body_sha256 BLOB,
    -- 1 an answer, 2 an answer that is gone, 3 an error, 4 canceled by the user.
    outcome INTEGER,
    answer BLOB,
    answer_size INTEGER,
    answer_sha256 BLOB,
    expires_at INTEGER,
    failure_status INTEGER,
    failure_code TEXT,
    failure_message TEXT,
    repeat_key TEXT,
    repeat_sha256 BLOB
) STRICT, WITHOUT ROWID;
-- With the status in them nothing but the index is read to count or to find the next.
CREATE INDEX task_waiting ON task (caller, id, status) WHERE status = 0;
CREATE INDEX task_running ON task (caller, id, status) WHERE status = 1;
CREATE INDEX task_expiring ON task (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX task_repeated ON task (caller, repeat_key) WHERE repeat_key IS NOT NULL;
CREATE INDEX task_of_caller ON task (caller, id);
CREATE INDEX task_canceled ON task (caller, id) WHERE status = 3;
