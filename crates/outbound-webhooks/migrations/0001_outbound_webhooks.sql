-- Endpoints of tenants, what is to be delivered to them, and each attempt. No secret is here: an endpoint's is made from its
-- id, its version and a key that stays outside.

CREATE TABLE webhook_endpoints (
    endpoint_id      text        PRIMARY KEY,
    tenant_id        text        NOT NULL,
    url              text        NOT NULL,
    -- What it is told of; none means everything.
    kinds            text[]      NOT NULL DEFAULT '{}',
    status           text        NOT NULL DEFAULT 'active',
    disabled_for     text,
    -- In the words of whoever disabled it.
    disabled_note    text,
    secret_version   integer     NOT NULL DEFAULT 1,
    -- Tells another master key from the one the secret was made of; far too short to guess either from.
    secret_check     bytea       NOT NULL,
    -- Until then what is sent is signed with the version before, too.
    old_secret_until timestamptz,
    -- Since when no attempt has succeeded; none while they do, and when nothing is tried any more.
    failing_since    timestamptz,
    made_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    rotated_at       timestamptz,
    CONSTRAINT webhook_endpoints_id_readable CHECK (endpoint_id ~ '^whe_[0-9a-f]{32}$'),
    CONSTRAINT webhook_endpoints_status_known CHECK (status IN ('active', 'disabled', 'deleted')),
    CONSTRAINT webhook_endpoints_disabled_for_known
        CHECK (disabled_for IN ('asked', 'operator', 'gone', 'failing')),
    CONSTRAINT webhook_endpoints_disabled_has_a_reason CHECK ((status = 'disabled') = (disabled_for IS NOT NULL)),
    CONSTRAINT webhook_endpoints_version_positive CHECK (secret_version > 0)
);

CREATE INDEX webhook_endpoints_by_tenant ON webhook_endpoints (tenant_id, made_at) WHERE status <> 'deleted';
CREATE INDEX webhook_endpoints_deleted ON webhook_endpoints (endpoint_id) WHERE status = 'deleted';
CREATE INDEX webhook_endpoints_active ON webhook_endpoints (endpoint_id) WHERE status = 'active';

-- One for each endpoint and event, with the very bytes that are sent.
CREATE TABLE webhook_deliveries (
    position    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id text        NOT NULL REFERENCES webhook_endpoints,
    event_id    text        NOT NULL,
    kind        text        NOT NULL,
    body        text        NOT NULL,
    state       text        NOT NULL DEFAULT 'pending',
    -- Attempts that failed since it was made or replayed: its place in the schedule.
    tries       integer     NOT NULL DEFAULT 0,
    -- When the next attempt is due; while one is under way, when its lease ends.
    next_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Of the attempt under way: who does not hold it any more, records nothing here.
    lease       uuid,
    made_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    CONSTRAINT webhook_deliveries_once UNIQUE (endpoint_id, event_id),
    CONSTRAINT webhook_deliveries_state_known CHECK (state IN ('pending', 'delivered', 'failed')),
    CONSTRAINT webhook_deliveries_end_is_timed CHECK ((state = 'pending') = (ended_at IS NULL)),
    CONSTRAINT webhook_deliveries_ended_is_not_under_way CHECK (state = 'pending' OR lease IS NULL)
);

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint_id, next_at) WHERE state = 'pending';
-- Apart, so that who counts what is under way does not read what is scheduled for later.
CREATE INDEX webhook_deliveries_under_way ON webhook_deliveries (endpoint_id, next_at) WHERE lease IS NOT NULL;
CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (endpoint_id, position);
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, position) WHERE state = 'failed';
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (coalesce(ended_at, next_at));

-- What came of each attempt. The last ones of a delivery are kept.
CREATE TABLE webhook_attempts (
    attempt_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position   bigint      NOT NULL REFERENCES webhook_deliveries ON DELETE CASCADE,
    ended_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    took_ms    bigint      NOT NULL,
    -- Of the answer; none where none came.
    status     integer,
    -- Why it was no success.
    error      text,
    -- The first bytes of the answer.
    answer     text,
    CONSTRAINT webhook_attempts_came_to_something CHECK (status IS NOT NULL OR error IS NOT NULL)
);

CREATE INDEX webhook_attempts_by_delivery ON webhook_attempts (position, attempt_id);
