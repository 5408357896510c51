-- CPU time of accounts' requests, by days since the epoch.
CREATE TABLE cpu_usage (
    account INTEGER NOT NULL,
    day INTEGER NOT NULL,
    micros INTEGER NOT NULL,
    PRIMARY KEY (account, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX cpu_usage_of_day ON cpu_usage (day);
