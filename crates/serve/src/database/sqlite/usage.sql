-- What accounts used of services, by days since the epoch. Nothing is referenced: a count that could not
-- be stored would keep those beside it from being.
CREATE TABLE usage (
    account INTEGER NOT NULL,
    day INTEGER NOT NULL,
    service INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    PRIMARY KEY (account, day, service)
) STRICT, WITHOUT ROWID;
-- The oldest days are deleted first.
CREATE INDEX usage_of_day ON usage (day);
