-- Webhook endpoints of tenants, their deliveries, and every delivery attempt. No secret is stored: the signing secret of an
-- endpoint is derived from its id, its secret version and a master key outside the database.

CREATE TABLE webhook_endpoints (
    endpoint_id      text        PRIMARY KEY,
    tenant_id        text        NOT NULL,
    url              text        NOT NULL,
    -- Event kinds to deliver; empty: all.
    kinds            text[]      NOT NULL DEFAULT '{}',
    status           text        NOT NULL DEFAULT 'active',
    disabled_reason  text,
    -- In the operator's words.
    disabled_note    text,
    secret_version   integer     NOT NULL DEFAULT 1,
    -- Detects a changed master key; too short to guess the key or the secret from.
    secret_check     bytea       NOT NULL,
    -- Until then deliveries are also signed with the previous secret.
    old_secret_until timestamptz,
    -- The first failed attempt since the last success. NULL if the last attempt succeeded or no delivery is pending.
    failing_since    timestamptz,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    rotated_at       timestamptz,
    CONSTRAINT webhook_endpoints_id_format CHECK (endpoint_id ~ '^whe_[0-9a-f]{32}$'),
    CONSTRAINT webhook_endpoints_status_known CHECK (status IN ('active', 'disabled', 'deleted')),
    CONSTRAINT webhook_endpoints_disabled_reason_known
        CHECK (disabled_reason IN ('by_tenant', 'by_operator', 'endpoint_gone', 'failing')),
    CONSTRAINT webhook_endpoints_disabled_has_a_reason CHECK ((status = 'disabled') = (disabled_reason IS NOT NULL)),
    CONSTRAINT webhook_endpoints_version_positive CHECK (secret_version > 0)
);

CREATE INDEX webhook_endpoints_by_tenant ON webhook_endpoints (tenant_id, created_at) WHERE status <> 'deleted';
CREATE INDEX webhook_endpoints_deleted ON webhook_endpoints (endpoint_id) WHERE status = 'deleted';
CREATE INDEX webhook_endpoints_active ON webhook_endpoints (endpoint_id) WHERE status = 'active';

-- One delivery per endpoint and event, with the exact bytes of the request body.
CREATE TABLE webhook_deliveries (
    position        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id     text        NOT NULL REFERENCES webhook_endpoints,
    event_id        text        NOT NULL,
    kind            text        NOT NULL,
    body            text        NOT NULL,
    -- Position of the event in its distributed trace (W3C traceparent), sent to the endpoint.
    trace_parent    text,
    state           text        NOT NULL DEFAULT 'pending',
    -- Failed attempts since the delivery was created or replayed: the position in the retry schedule.
    failed_attempts integer     NOT NULL DEFAULT 0,
    -- When the next attempt is due; while an attempt is in flight, when its lease expires.
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Lease of the attempt in flight: a sender that lost the lease records no outcome.
    lease           uuid,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at        timestamptz,
    CONSTRAINT webhook_deliveries_once UNIQUE (endpoint_id, event_id),
    CONSTRAINT webhook_deliveries_state_known CHECK (state IN ('pending', 'delivered', 'failed')),
    CONSTRAINT webhook_deliveries_end_has_a_time CHECK ((state = 'pending') = (ended_at IS NULL)),
    CONSTRAINT webhook_deliveries_ended_has_no_lease CHECK (state = 'pending' OR lease IS NULL)
);

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint_id, next_attempt_at) WHERE state = 'pending';
-- Counts the attempts in flight without reading the scheduled deliveries.
CREATE INDEX webhook_deliveries_in_flight ON webhook_deliveries (endpoint_id, next_attempt_at) WHERE lease IS NOT NULL;
CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (endpoint_id, position);
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, position) WHERE state = 'failed';
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (coalesce(ended_at, next_attempt_at));

-- Delivery attempts with their outcome; the newest ones of each delivery are kept.
CREATE TABLE webhook_attempts (
    attempt_id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position         bigint      NOT NULL REFERENCES webhook_deliveries ON DELETE CASCADE,
    ended_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    duration_ms      bigint      NOT NULL,
    -- HTTP status. NULL if no response was received.
    response_status  integer,
    -- NULL if the attempt succeeded.
    error            text,
    -- The first bytes of the response body.
    response_excerpt text,
    CONSTRAINT webhook_attempts_response_or_error CHECK (response_status IS NOT NULL OR error IS NOT NULL)
);

CREATE INDEX webhook_attempts_by_delivery ON webhook_attempts (position, attempt_id);

-- What operators do with any endpoint. Disables it with a note; false if no endpoint has the id.
CREATE FUNCTION disable_webhook_endpoint(endpoint text, note text) RETURNS boolean LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = 'by_operator', disabled_note = note
        WHERE endpoint_id = endpoint AND status <> 'deleted';
    RETURN FOUND;
END
$$;

-- Enables an endpoint, whatever disabled it; false if nothing did.
CREATE FUNCTION enable_webhook_endpoint(endpoint text) RETURNS boolean LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE webhook_endpoints SET status = 'active', disabled_reason = NULL, disabled_note = NULL, failing_since = NULL
        WHERE endpoint_id = endpoint AND status = 'disabled';
    RETURN FOUND;
END
$$;

-- Replays a delivery, whatever its state; false without it, or while an attempt is in flight.
CREATE FUNCTION replay_webhook_delivery(endpoint text, event text) RETURNS boolean LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE webhook_deliveries
        SET state = 'pending', failed_attempts = 0, next_attempt_at = clock_timestamp(), lease = NULL, ended_at = NULL
        WHERE endpoint_id = endpoint AND event_id = event AND (lease IS NULL OR next_attempt_at <= clock_timestamp());
    RETURN FOUND;
END
$$;

-- Replays the failed deliveries of events consumed since a moment that failed before another one, the oldest ones and at most so many.
-- Returns their number.
CREATE FUNCTION replay_failed_webhook_deliveries(endpoint text, since timestamptz, failed_before timestamptz, at_most bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    replayed bigint;
BEGIN
    UPDATE webhook_deliveries SET state = 'pending', failed_attempts = 0, next_attempt_at = clock_timestamp(), ended_at = NULL
        WHERE position IN (SELECT d.position FROM webhook_deliveries d
                           WHERE d.endpoint_id = endpoint AND d.state = 'failed' AND d.created_at >= since AND d.ended_at < failed_before
                           ORDER BY d.position LIMIT at_most FOR UPDATE);
    GET DIAGNOSTICS replayed = ROW_COUNT;
    RETURN replayed;
END
$$;
