-- Where the broker keeps an event, so that it can be asked whether it still does. None on rows of former releases.

ALTER TABLE outbox ADD COLUMN stream_sequence bigint;

-- What is parked is told apart from what was not brought, event by event.
CREATE INDEX parked_deliveries_by_event ON parked_deliveries (consumer, event_id);
