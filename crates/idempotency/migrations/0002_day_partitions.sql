-- One partition for each day, by the day of the claim (UTC): the oldest is dropped whole, never deleted from, and
-- every index is local to its day. A primary key cannot span partitions; that a key has one live row is kept by
-- the advisory lock under which every row is written, across midnight too.

ALTER TABLE idempotency_keys RENAME TO idempotency_keys_before;

CREATE TABLE idempotency_keys (
    -- First 16 bytes of SHA-256 over tenant, client and key: short, and of one length.
    scope_id        uuid        NOT NULL,
    created_on      date        NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')::date,
    tenant          text        NOT NULL,
    client          text        NOT NULL,
    key             text        NOT NULL,
    -- SHA-256 over tenant, method, path and canonical body: the same key with another request is refused.
    request_hash    bytea       NOT NULL,
    -- Who carries it out, or did: a holder that was taken over finds another token and can no longer complete.
    claim_token     uuid        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- Set while in progress, which happens only for effects outside the transaction.
    lease_until     timestamptz,
    completed_at    timestamptz,
    response_status smallint,
    response_body   bytea,
    expires_at      timestamptz NOT NULL,
    -- Layout of the row and meaning of the hash, so that a later release can tell old rows from its own.
    schema_version  smallint    NOT NULL,
    PRIMARY KEY (scope_id, created_on),
    CONSTRAINT idempotency_key_hash_is_sha256 CHECK (octet_length(request_hash) = 32),
    CONSTRAINT idempotency_key_is_held_or_answered CHECK (
        (completed_at IS NULL) = (lease_until IS NOT NULL)
        AND (completed_at IS NULL) = (response_status IS NULL)
        AND (completed_at IS NULL) = (response_body IS NULL)),
    -- What failed on our side may succeed on a repeat, so it is never stored.
    CONSTRAINT idempotency_key_no_server_error CHECK (response_status BETWEEN 200 AND 499),
    CONSTRAINT idempotency_key_expires_later CHECK (expires_at > created_at)
) PARTITION BY RANGE (created_on);

-- Rows come in the order of their expiry, so a block range index finds the live ones for next to nothing.
CREATE INDEX idempotency_keys_expiry ON idempotency_keys USING brin (expires_at);
CREATE INDEX idempotency_keys_in_progress ON idempotency_keys (lease_until) WHERE lease_until IS NOT NULL;

-- The days that have rows, today and tomorrow. Later days are made by whoever keeps the table.
DO $$
DECLARE day date;
BEGIN
    FOR day IN
        SELECT DISTINCT (created_at AT TIME ZONE 'UTC')::date FROM idempotency_keys_before
        UNION SELECT (now() AT TIME ZONE 'UTC')::date UNION SELECT (now() AT TIME ZONE 'UTC')::date + 1
    LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF idempotency_keys FOR VALUES FROM (%L) TO (%L)',
                       'idempotency_keys_' || to_char(day, 'YYYYMMDD'), day, day + 1);
    END LOOP;
END $$;

INSERT INTO idempotency_keys
    (scope_id, created_on, tenant, client, key, request_hash, claim_token, created_at, completed_at, response_status,
     response_body, expires_at, schema_version)
SELECT encode(substr(sha256(
           int8send(octet_length(tenant)) || convert_to(tenant, 'UTF8')
           || int8send(octet_length(client)) || convert_to(client, 'UTF8')
           || int8send(octet_length(key)) || convert_to(key, 'UTF8')), 1, 16), 'hex')::uuid,
       (created_at AT TIME ZONE 'UTC')::date, tenant, client, key, request_hash, gen_random_uuid(), created_at,
       completed_at, response_status, response_body, expires_at, schema_version
FROM idempotency_keys_before
WHERE completed_at IS NOT NULL;

DROP TABLE idempotency_keys_before;

-- The claims of one transaction, in one round trip: first the locks, then what is kept under the keys. Each statement of
-- a volatile function sees the table as it is when that statement begins; in one statement the look-up would see it as it
-- stood before the locks were granted. A lock is tried, not waited for. A claim is dated by its statement: the transaction may
-- have begun with the commit of the one before it, earlier than the requests came.
CREATE FUNCTION idempotency_claim(scope_ids uuid[], lock_numbers bigint[], lease_ms text)
RETURNS TABLE (place bigint, is_granted boolean, is_day_there boolean, claimed_at timestamptz, request_hash bytea,
               claim_token uuid, response_status smallint, response_body bytea, is_lease_passed boolean,
               schema_version smallint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    today       date := (now() AT TIME ZONE 'UTC')::date;
    granted     boolean[];
    day_there   boolean := to_regclass('idempotency_keys_' || to_char(today, 'YYYYMMDD')) IS NOT NULL;
BEGIN
    PERFORM set_config('statement_timeout', lease_ms, true), set_config('idle_in_transaction_session_timeout', lease_ms, true);
    granted := ARRAY(SELECT pg_try_advisory_xact_lock(wanted.number)
                     FROM unnest(lock_numbers) WITH ORDINALITY AS wanted (number, place) ORDER BY wanted.place);
    -- Every day on which a live row can have been written; one index look-up per key and day, whatever the planner
    -- believes of a new partition's size.
    RETURN QUERY
    SELECT wanted.place, granted[wanted.place], day_there, statement_timestamp(), kept.request_hash, kept.claim_token,
           kept.response_status, kept.response_body, kept.lease_until <= clock_timestamp(), kept.schema_version
    FROM unnest(scope_ids) WITH ORDINALITY AS wanted (scope_id, place)
    LEFT JOIN LATERAL (
        SELECT * FROM idempotency_keys one
        WHERE one.scope_id = wanted.scope_id AND one.expires_at > now()
          AND one.created_on BETWEEN today - 3 AND today + 1
        LIMIT 1) AS kept ON granted[wanted.place]
    ORDER BY wanted.place;
END $$;
