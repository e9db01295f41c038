-- Where the broker keeps an event, so that it can be asked whether it still does. None on rows of former releases.

ALTER TABLE outbox ADD COLUMN stream_sequence bigint;
