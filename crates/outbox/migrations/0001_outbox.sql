-- Events: written in the transaction they report, published by the outbox relay, and consumed once.

-- The last sequence number of each key. Its row stays locked until the writer's transaction ends, so the numbers of a key have
-- no gap and become visible in their order. Kept when events are pruned: a number is never used twice.
CREATE TABLE outbox_keys (
    subject_key   text   PRIMARY KEY,
    last_sequence bigint NOT NULL
);

CREATE TABLE outbox (
    position        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id        text        NOT NULL,
    kind            text        NOT NULL,
    version         integer     NOT NULL,
    -- Events of one key are published in the order of their sequence.
    subject_key     text        NOT NULL,
    sequence        bigint      NOT NULL,
    body            jsonb       NOT NULL,
    appended_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at    timestamptz,
    -- Rejections by the broker, 0 once it has confirmed the event, and the reason of the last one.
    rejections      integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    parked_at       timestamptz,
    rejection       text,
    -- Position of the event in its distributed trace (W3C traceparent).
    trace_parent    text,
    CONSTRAINT outbox_event_once UNIQUE (event_id),
    CONSTRAINT outbox_key_in_order UNIQUE (subject_key, sequence),
    CONSTRAINT outbox_version_positive CHECK (version > 0),
    CONSTRAINT outbox_parked_has_a_rejection CHECK (parked_at IS NULL OR (rejection IS NOT NULL AND rejections > 0)),
    CONSTRAINT outbox_parked_or_published CHECK (parked_at IS NULL OR published_at IS NULL),
    CONSTRAINT outbox_rejected_or_published CHECK (rejections = 0 OR published_at IS NULL)
);

CREATE INDEX outbox_unpublished ON outbox (position) WHERE published_at IS NULL;
-- Events that may hold back the later events of their key. Empty unless the broker rejects events, so an event costs it no
-- write. Its condition does not contain that of outbox_unpublished: with statistics from a time without a backlog the database
-- would look these events up in that index, and read the whole backlog for each event.
CREATE INDEX outbox_rejected ON outbox (subject_key, sequence) WHERE rejections > 0;
CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;

-- Consumed events, written in the transaction of their effect.
CREATE TABLE processed_events (
    consumer     text        NOT NULL,
    event_id     text        NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, event_id)
);

CREATE INDEX processed_events_by_age ON processed_events (processed_at);

-- The last consumed sequence number of each consumer and key.
CREATE TABLE consumer_positions (
    consumer      text        NOT NULL,
    subject_key   text        NOT NULL,
    last_sequence bigint      NOT NULL,
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, subject_key)
);

CREATE INDEX consumer_positions_by_age ON consumer_positions (updated_at);

-- Messages that a consumer could not process, as received. An operator retries or discards them; a discarded one is kept as a
-- record.
CREATE TABLE parked_deliveries (
    consumer         text        NOT NULL,
    stream           text        NOT NULL,
    stream_sequence  bigint      NOT NULL,
    -- By the broker's clock. A stream that was made anew counts from the beginning.
    published_at     timestamptz NOT NULL,
    subject          text        NOT NULL,
    event_id         text,
    payload          bytea       NOT NULL,
    reason           text        NOT NULL,
    deliveries       bigint      NOT NULL,
    parked_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    discarded_at     timestamptz,
    discarded_by     text,
    discarded_reason text,
    PRIMARY KEY (consumer, stream, stream_sequence, published_at),
    CONSTRAINT parked_deliveries_discard_complete
        CHECK ((discarded_at IS NULL) = (discarded_by IS NULL) AND (discarded_at IS NULL) = (discarded_reason IS NULL))
);

-- Distinguishes a parked event from one that was never delivered.
CREATE INDEX parked_deliveries_by_event ON parked_deliveries (consumer, event_id);

-- What operators do. Queues a parked event to be published again, with zero rejections. False if the event is not parked.
CREATE FUNCTION retry_parked_event(event text) RETURNS boolean LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE outbox SET parked_at = NULL, rejections = 0, next_attempt_at = clock_timestamp()
        WHERE event_id = event AND parked_at IS NOT NULL;
    RETURN FOUND;
END
$$;

-- Discards a parked message; its row stays as a record. False if the message is not parked, was processed since, or was discarded before.
CREATE FUNCTION discard_parked_message(of_consumer text, of_stream text, of_sequence bigint, by_operator text, why text) RETURNS boolean
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE parked_deliveries d SET discarded_at = clock_timestamp(), discarded_by = by_operator, discarded_reason = why
        WHERE (d.consumer, d.stream, d.stream_sequence) = (of_consumer, of_stream, of_sequence) AND d.discarded_at IS NULL
          AND NOT EXISTS (SELECT FROM processed_events p WHERE (p.consumer, p.event_id) = (d.consumer, d.event_id));
    RETURN FOUND;
END
$$;

-- Queues events to be published again that were published from one moment on and before another, the oldest ones and at most so many.
-- Returns their number.
CREATE FUNCTION republish_events(since timestamptz, published_before timestamptz, at_most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    republished bigint;
BEGIN
    UPDATE outbox SET published_at = NULL, rejections = 0, next_attempt_at = clock_timestamp()
        WHERE position IN (SELECT o.position FROM outbox o WHERE o.published_at >= since AND o.published_at < published_before
                           ORDER BY o.published_at LIMIT at_most);
    GET DIAGNOSTICS republished = ROW_COUNT;
    RETURN republished;
END
$$;
