-- Tokens by which instances of a service attach.
CREATE TABLE worker_token (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL REFERENCES account(id),
    service TEXT NOT NULL,
    name TEXT NOT NULL,
    -- SHA-256 of the token, which has 256 random bits.
    hash BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    UNIQUE (account, service, name)
) STRICT;
CREATE TRIGGER worker_token_inserted AFTER INSERT ON worker_token BEGIN UPDATE account_version SET version = version + 1; END;
CREATE TRIGGER worker_token_updated AFTER UPDATE ON worker_token BEGIN UPDATE account_version SET version = version + 1; END;
CREATE TRIGGER worker_token_deleted AFTER DELETE ON worker_token BEGIN UPDATE account_version SET version = version + 1; END;

-- The attached instance that answered, or failed.
ALTER TABLE task ADD COLUMN worker TEXT;
