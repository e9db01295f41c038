-- Payments: the row decides, not the workflow engine's memory.

CREATE TABLE payments (
    payment_id          text        PRIMARY KEY,
    tx_id               text        NOT NULL UNIQUE,
    tenant_id           text        NOT NULL,
    client_id           text        NOT NULL,
    source_account      text        NOT NULL,
    destination_account text        NOT NULL,
    end_to_end_id       text,
    amount_minor        bigint      NOT NULL,
    currency            text        NOT NULL,
    switch              text        NOT NULL,
    -- Copied at acceptance: configuration never changes a payment in flight.
    profile             jsonb       NOT NULL,
    -- Kept for ever, so that a pruned idempotency key can neither pay twice nor replay another's.
    request_hash        bytea       NOT NULL,
    response_body       bytea       NOT NULL,

    state               text        NOT NULL DEFAULT 'accepted',
    workflow_id         text        NOT NULL,
    resume_count        integer     NOT NULL DEFAULT 0,
    -- The run that reserved from the top, set once by compare-and-set.
    run_id              text,
    attempts            integer     NOT NULL DEFAULT 0,
    first_attempt_at    timestamptz,
    submit_deadline     timestamptz,
    cause               jsonb,
    cancelling_since    timestamptz,
    final_status             text,
    final_status_source      text,
    operator_reason     text,

    start_lease_until   timestamptz,
    start_rejections      integer     NOT NULL DEFAULT 0,
    accepted_at         timestamptz NOT NULL DEFAULT now(),
    valid_until         timestamptz NOT NULL,
    started_at          timestamptz,
    updated_at          timestamptz NOT NULL DEFAULT now(),
    ended_at            timestamptz,

    CONSTRAINT payments_amount_positive CHECK (amount_minor > 0),
    CONSTRAINT payments_two_accounts CHECK (source_account <> destination_account),
    CONSTRAINT payments_state_known CHECK (state IN (
        'accepted', 'started', 'reserved', 'submitted', 'confirmed', 'cancelling', 'needs_operator',
        'settled', 'rejected', 'failed', 'timed_out', 'cancelled')),
    CONSTRAINT payments_final_status_known CHECK (final_status IN ('settled', 'void')),
    CONSTRAINT payments_final_status_has_a_source CHECK ((final_status IS NULL) = (final_status_source IS NULL)),
    CONSTRAINT payments_attempts_begin_once CHECK ((attempts = 0) = (first_attempt_at IS NULL)),
    CONSTRAINT payments_end_has_a_time CHECK (
        (state IN ('settled', 'rejected', 'failed', 'timed_out', 'cancelled')) = (ended_at IS NOT NULL))
);

CREATE INDEX payments_to_start ON payments (accepted_at) WHERE state = 'accepted';
CREATE INDEX payments_open ON payments (state, accepted_at) WHERE ended_at IS NULL;
CREATE INDEX payments_in_work ON payments (switch) WHERE state IN ('started', 'reserved');
CREATE INDEX payments_open_by_idleness ON payments (updated_at) WHERE ended_at IS NULL AND state <> 'accepted';
CREATE INDEX payments_by_source ON payments (tenant_id, source_account, accepted_at);
CREATE INDEX payments_by_tenant ON payments (tenant_id, accepted_at);

-- The first definite answer of the switch is written once.
CREATE FUNCTION keep_first_answer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.final_status IS NOT NULL AND NEW.final_status IS DISTINCT FROM OLD.final_status THEN
        RAISE EXCEPTION 'the final_status of % is written: %', OLD.payment_id, OLD.final_status USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.run_id IS NOT NULL AND NEW.run_id IS DISTINCT FROM OLD.run_id THEN
        RAISE EXCEPTION 'the run of % is written', OLD.payment_id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.ended_at IS NOT NULL AND NEW.state <> OLD.state THEN
        RAISE EXCEPTION 'payment % has ended: %', OLD.payment_id, OLD.state USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER payments_keep_first_answer BEFORE UPDATE ON payments
    FOR EACH ROW EXECUTE FUNCTION keep_first_answer();

CREATE TABLE holds (
    payment_id   text        PRIMARY KEY REFERENCES payments,
    account_id   text        NOT NULL REFERENCES accounts,
    amount_minor bigint      NOT NULL,
    currency     text        NOT NULL,
    status       text        NOT NULL DEFAULT 'open',
    opened_at    timestamptz NOT NULL DEFAULT now(),
    closed_at    timestamptz,
    CONSTRAINT holds_amount_positive CHECK (amount_minor > 0),
    CONSTRAINT holds_status_known CHECK (status IN ('open', 'settled', 'released')),
    CONSTRAINT holds_close_has_a_time CHECK ((status = 'open') = (closed_at IS NULL))
);

CREATE INDEX holds_open ON holds (account_id) WHERE status = 'open';

CREATE FUNCTION close_hold_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status <> 'open' THEN
        RAISE EXCEPTION 'the hold of % is %', OLD.payment_id, OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER holds_close_once BEFORE UPDATE ON holds FOR EACH ROW EXECUTE FUNCTION close_hold_once();

-- Every attempt at the switch, written before it is sent.
CREATE TABLE submissions (
    payment_id  text        NOT NULL REFERENCES payments,
    attempt     integer     NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    outcome     text,
    detail      text,
    answered_at timestamptz,
    PRIMARY KEY (payment_id, attempt),
    CONSTRAINT submissions_outcome_known CHECK (outcome IN ('accepted', 'refused', 'unknown')),
    CONSTRAINT submissions_outcome_has_a_time CHECK ((outcome IS NULL) = (answered_at IS NULL))
);

-- What happened to a payment, for people.
CREATE TABLE timeline (
    entry_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id  text        NOT NULL REFERENCES payments,
    state       text        NOT NULL,
    detail      text        NOT NULL,
    happened_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX timeline_by_payment ON timeline (payment_id, entry_id);
