-- Logins of browsers: one-time codes, and the sessions that they or keys begin. A session without a
-- key belongs to whoever operates the server.
CREATE TABLE login (
    hash BLOB PRIMARY KEY,
    is_code INTEGER NOT NULL,
    key INTEGER REFERENCES api_key (id),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX login_of_key ON login (is_code, key, created_at);
