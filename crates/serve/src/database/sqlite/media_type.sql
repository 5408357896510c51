-- Of a task's answer, or of the body that an upstream gave with its error; none is JSON.
ALTER TABLE task ADD COLUMN media_type TEXT;
