-- One row for each request that was carried out, so that its repeat gets the same answer.

CREATE TABLE idempotency_keys (
    tenant          text        NOT NULL,
    client          text        NOT NULL,
    key             text        NOT NULL,
    -- SHA-256 over tenant, method, path and canonical body: the same key with another request is refused.
    request_hash    bytea       NOT NULL,
    response_status integer,
    response_body   bytea,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- None: in progress, for effects outside the transaction.
    completed_at    timestamptz,
    expires_at      timestamptz NOT NULL,
    -- Layout of the row and meaning of the hash, so that a later release can tell old rows from its own.
    schema_version  smallint    NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant, client, key),
    CONSTRAINT idempotency_keys_hash_is_sha256 CHECK (octet_length(request_hash) = 32),
    CONSTRAINT idempotency_keys_answer_is_whole CHECK (
        (completed_at IS NULL) = (response_status IS NULL) AND (completed_at IS NULL) = (response_body IS NULL)),
    -- What failed on our side may succeed on a repeat, so it is never stored.
    CONSTRAINT idempotency_keys_no_server_error CHECK (response_status BETWEEN 200 AND 499),
    CONSTRAINT idempotency_keys_expire_later CHECK (expires_at > created_at)
);

CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
