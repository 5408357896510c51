-- The webhooks of the settings, so that only the accounts that have one write events.
CREATE TABLE webhook (
    name TEXT PRIMARY KEY,
    account INTEGER NOT NULL
) STRICT;
CREATE INDEX webhook_of_account ON webhook (account);

-- Events that are not assigned to webhooks yet.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account INTEGER NOT NULL,
    type TEXT NOT NULL,
    -- The id in the API, and the service if there is one.
    subject TEXT NOT NULL,
    service TEXT,
    at INTEGER NOT NULL
) STRICT;

-- Events to send.
CREATE TABLE delivery (
    webhook TEXT NOT NULL,
    event INTEGER NOT NULL,
    body TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER NOT NULL,
    PRIMARY KEY (webhook, event)
) STRICT, WITHOUT ROWID;
CREATE INDEX delivery_due ON delivery (webhook, next_at);

-- An event is stored with the end that it reports.
CREATE TRIGGER task_ended_event AFTER UPDATE OF status ON task
WHEN NEW.status >= 2 AND OLD.status < 2 AND EXISTS (SELECT 1 FROM webhook WHERE account = NEW.caller)
BEGIN
    INSERT INTO event (account, type, subject, service, at) VALUES (
        NEW.caller,
        CASE WHEN NEW.status = 2 THEN 'task.completed' WHEN NEW.outcome = 4 THEN 'task.canceled' ELSE 'task.failed' END,
        lower(hex(substr(NEW.id, 1, 4)) || '-' || hex(substr(NEW.id, 5, 2)) || '-' || hex(substr(NEW.id, 7, 2))
            || '-' || hex(substr(NEW.id, 9, 2)) || '-' || hex(substr(NEW.id, 11, 6))),
        NEW.service,
        NEW.completed_at
    );
END;
CREATE TRIGGER batch_ended_event AFTER UPDATE OF ended_at ON batch
WHEN NEW.ended_at IS NOT NULL AND OLD.ended_at IS NULL AND EXISTS (SELECT 1 FROM webhook WHERE account = NEW.account)
BEGIN
    INSERT INTO event (account, type, subject, at)
    VALUES (NEW.account, 'batch.' || NEW.state, 'batch_' || NEW.id, NEW.ended_at);
END;
CREATE TRIGGER job_ended_event AFTER UPDATE OF state ON job
WHEN NEW.state IN ('SUCCESS', 'FAILED', 'CANCELED') AND OLD.state IN ('WAITING', 'RUNNING')
    AND EXISTS (SELECT 1 FROM webhook WHERE account = NEW.account)
BEGIN
    INSERT INTO event (account, type, subject, service, at) VALUES (
        NEW.account,
        CASE NEW.state WHEN 'SUCCESS' THEN 'job.succeeded' WHEN 'FAILED' THEN 'job.failed' ELSE 'job.canceled' END,
        CAST(NEW.id AS TEXT),
        NEW.service_name,
        coalesce(NEW.ended_at, NEW.created_at)
    );
END;
