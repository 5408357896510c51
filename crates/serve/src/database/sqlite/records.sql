-- Bodies and answers that are too long for rows which are often written, and too short for files of
-- their own. A table with a rowid: its leaves hold rows of up to a page, the other kind's a quarter.
CREATE TABLE content (
    number INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;
ALTER TABLE task ADD COLUMN body_number INTEGER;
ALTER TABLE task ADD COLUMN answer_number INTEGER;
-- What body and config took when the task was accepted.
ALTER TABLE task ADD COLUMN request_bytes INTEGER;
-- What has ended is deleted in this order.
CREATE INDEX task_ended ON task (completed_at) WHERE completed_at IS NOT NULL;
