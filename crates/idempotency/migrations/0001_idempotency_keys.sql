-- Idempotency keys: one row per completed request, so that its repeat gets the same response.
--
-- In a schema of their own: the process that maintains the partitions creates and drops tables, and must not be able to create one where
-- others look for theirs.
CREATE SCHEMA idempotency;

-- One partition per UTC day of the claim: expired days are dropped whole, and every index is local to its day. A primary key
-- cannot span partitions; the advisory lock under which every row is written keeps one live row per key, across midnight too.
CREATE TABLE idempotency.keys (
    -- First 16 bytes of SHA-256 over tenant, client and key: short, and of fixed length.
    scope_id        uuid        NOT NULL,
    created_on      date        NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')::date,
    tenant          text        NOT NULL,
    client          text        NOT NULL,
    key             text        NOT NULL,
    -- SHA-256 over tenant, method, path and canonical body: the same key with another request is refused.
    request_hash    bytea       NOT NULL,
    -- Token of the claim: a holder that lost its lease finds another token and can no longer complete.
    claim_token     uuid        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- Set while a request with effects outside the transaction is in progress.
    lease_until     timestamptz,
    completed_at    timestamptz,
    response_status smallint,
    response_body   bytea,
    expires_at      timestamptz NOT NULL,
    -- Version of the row layout and of the hash, so that a later release recognises old rows.
    schema_version  smallint    NOT NULL,
    PRIMARY KEY (scope_id, created_on),
    CONSTRAINT keys_hash_is_sha256 CHECK (octet_length(request_hash) = 32),
    CONSTRAINT keys_leased_or_completed CHECK (
        (completed_at IS NULL) = (lease_until IS NOT NULL)
        AND (completed_at IS NULL) = (response_status IS NULL)
        AND (completed_at IS NULL) = (response_body IS NULL)),
    -- A server error is never stored: a repeat may succeed.
    CONSTRAINT keys_no_server_error CHECK (response_status BETWEEN 200 AND 499),
    CONSTRAINT keys_expire_later CHECK (expires_at > created_at)
) PARTITION BY RANGE (created_on);

-- Rows are inserted roughly in the order of their expiry, so a block range index finds the live ones cheaply.
CREATE INDEX keys_expiry ON idempotency.keys USING brin (expires_at);
CREATE INDEX keys_in_progress ON idempotency.keys (lease_until) WHERE lease_until IS NOT NULL;

-- Creates the missing partitions of today and the next three days; returns how many it created. It runs with its owner's rights, so that a
-- process may create a missing partition without owning the table. A new partition is created as a table and then attached, which makes no
-- claim wait.
CREATE FUNCTION idempotency.create_partitions() RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    day     date;
    name    text;
    created int := 0;
BEGIN
    -- One session at a time: the lock of partition maintenance.
    PERFORM pg_advisory_xact_lock(7594306392163449203);
    FOR day IN SELECT (now() AT TIME ZONE 'UTC')::date + n FROM generate_series(0, 3) AS n LOOP
        name := 'keys_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('idempotency.' || name) IS NOT NULL;
        EXECUTE format('CREATE TABLE idempotency.%I (LIKE idempotency.keys INCLUDING ALL)', name);
        EXECUTE format('ALTER TABLE idempotency.keys ATTACH PARTITION idempotency.%I FOR VALUES FROM (%L) TO (%L)', name, day, day + 1);
        created := created + 1;
    END LOOP;
    RETURN created;
END $$;

-- Partitions of today and tomorrow; partition maintenance creates the later ones.
DO $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    day   date;
BEGIN
    FOREACH day IN ARRAY ARRAY[today, today + 1] LOOP
        EXECUTE format('CREATE TABLE idempotency.%I PARTITION OF idempotency.keys FOR VALUES FROM (%L) TO (%L)',
                       'keys_' || to_char(day, 'YYYYMMDD'), day, day + 1);
    END LOOP;
END $$;

-- Claims the keys of one transaction in one round trip: first the advisory locks, tried and not waited for, then the rows
-- under the keys. Each statement of a volatile function has a snapshot of its own; a single statement would read the rows as of
-- before the locks were granted. Without its lock a key shows its completed row only, which never changes: repeats of a
-- completed request that arrive together all get its response. `claimed_at` is the time of the statement: the transaction may have begun with the commit of
-- the one before it, earlier than the requests arrived.
CREATE FUNCTION idempotency.claim(scope_ids uuid[], lock_numbers bigint[], lease_ms text)
RETURNS TABLE (ordinal bigint, is_granted boolean, has_partition boolean, claimed_at timestamptz, request_hash bytea,
               claim_token uuid, response_status smallint, response_body bytea, is_lease_expired boolean,
               schema_version smallint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    today           date := (now() AT TIME ZONE 'UTC')::date;
    granted         boolean[];
    today_partition boolean := to_regclass('idempotency.keys_' || to_char(today, 'YYYYMMDD')) IS NOT NULL;
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', lease_ms, true);
    -- No statement outlives the lease, and a shorter limit of the session stays: its client waits no longer.
    IF current_setting('statement_timeout')::interval NOT BETWEEN interval '1 ms' AND lease_ms::bigint * interval '1 ms' THEN
        PERFORM set_config('statement_timeout', lease_ms, true);
    END IF;
    granted := ARRAY(SELECT pg_try_advisory_xact_lock(requested.number)
                     FROM unnest(lock_numbers) WITH ORDINALITY AS requested (number, ordinal) ORDER BY requested.ordinal);
    -- Every day on which a live row can have been written; one index scan per key and day, whatever size the planner assumes
    -- for a new partition.
    RETURN QUERY
    SELECT requested.ordinal, granted[requested.ordinal], today_partition, statement_timestamp(), live.request_hash,
           live.claim_token, live.response_status, live.response_body, live.lease_until <= clock_timestamp(),
           live.schema_version
    FROM unnest(scope_ids) WITH ORDINALITY AS requested (scope_id, ordinal)
    LEFT JOIN LATERAL (
        SELECT * FROM idempotency.keys k
        WHERE k.scope_id = requested.scope_id AND k.expires_at > now()
          AND k.created_on BETWEEN today - 3 AND today + 1
        LIMIT 1) AS live ON granted[requested.ordinal] OR live.response_status IS NOT NULL
    ORDER BY requested.ordinal;
END $$;
