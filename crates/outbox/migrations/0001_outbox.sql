-- Events, written in the transaction of what happened and published afterwards.

-- The last number of each key. Its row is locked until the writer's transaction ends, so that the numbers of one key have
-- no gap and come to be seen in their order. Kept when the events are pruned: a number is never given twice.
CREATE TABLE outbox_keys (
    subject_key   text   PRIMARY KEY,
    last_sequence bigint NOT NULL
);

CREATE TABLE outbox (
    position     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id     text        NOT NULL,
    kind         text        NOT NULL,
    version      integer     NOT NULL,
    -- What is published in order.
    subject_key  text        NOT NULL,
    sequence     bigint      NOT NULL,
    body         jsonb       NOT NULL,
    appended_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at timestamptz,
    -- Times the broker refused it.
    refusals     integer     NOT NULL DEFAULT 0,
    try_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    parked_at    timestamptz,
    refusal      text,
    CONSTRAINT outbox_event_once UNIQUE (event_id),
    CONSTRAINT outbox_key_in_order UNIQUE (subject_key, sequence),
    CONSTRAINT outbox_version_positive CHECK (version > 0),
    CONSTRAINT outbox_parked_has_a_reason CHECK (parked_at IS NULL OR refusal IS NOT NULL),
    CONSTRAINT outbox_parked_or_published CHECK (parked_at IS NULL OR published_at IS NULL)
);

CREATE INDEX outbox_unpublished ON outbox (position) WHERE published_at IS NULL;
CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;

-- What a consumer has taken in: written in the transaction of its effect.
CREATE TABLE processed_events (
    consumer     text        NOT NULL,
    event_id     text        NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, event_id)
);

CREATE INDEX processed_events_by_age ON processed_events (processed_at);

-- How far a consumer has come with each key: its next event is the one after this.
CREATE TABLE consumed_keys (
    consumer      text        NOT NULL,
    subject_key   text        NOT NULL,
    last_sequence bigint      NOT NULL,
    moved_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, subject_key)
);

CREATE INDEX consumed_keys_by_age ON consumed_keys (moved_at);

-- What a consumer could not take in, as it came.
CREATE TABLE parked_deliveries (
    consumer        text        NOT NULL,
    stream          text        NOT NULL,
    stream_sequence bigint      NOT NULL,
    subject         text        NOT NULL,
    event_id        text,
    payload         bytea       NOT NULL,
    reason          text        NOT NULL,
    deliveries      bigint      NOT NULL,
    parked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, stream, stream_sequence)
);

-- What is parked is told apart from what was not brought, event by event.
CREATE INDEX parked_deliveries_by_event ON parked_deliveries (consumer, event_id);
