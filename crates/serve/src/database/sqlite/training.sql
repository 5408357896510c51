-- Datasets: their content is in the blob store.
CREATE TABLE dataset (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL REFERENCES account(id),
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    data_type TEXT NOT NULL,
    access_mode TEXT NOT NULL,
    file_name TEXT NOT NULL,
    format TEXT NOT NULL,
    -- What is in it, as JSON.
    summary TEXT NOT NULL,
    blob TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX dataset_of_account ON dataset (account, id);

CREATE TABLE fit_config (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    service INTEGER NOT NULL REFERENCES service(id),
    name TEXT NOT NULL,
    config TEXT NOT NULL,
    is_default INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX fit_config_of_service ON fit_config (service, id);

-- Services that were derived from others, trained or not.
CREATE TABLE derived (
    service INTEGER PRIMARY KEY REFERENCES service(id),
    owner INTEGER NOT NULL REFERENCES account(id),
    owner_name TEXT NOT NULL,
    name TEXT NOT NULL,
    base_owner INTEGER NOT NULL REFERENCES account(id),
    base_owner_name TEXT NOT NULL,
    base INTEGER NOT NULL REFERENCES service(id),
    base_name TEXT NOT NULL,
    hidden INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL REFERENCES account(id),
    service INTEGER NOT NULL REFERENCES service(id),
    service_name TEXT NOT NULL,
    dataset INTEGER NOT NULL,
    config TEXT NOT NULL,
    state TEXT NOT NULL,
    percentage INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    metrics TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER
) STRICT;
CREATE INDEX job_of_account ON job (account, id);
CREATE INDEX job_of_service ON job (service, id);
-- Of a service one at a time: its package is one.
CREATE UNIQUE INDEX job_open ON job (service) WHERE state IN ('WAITING', 'RUNNING');
