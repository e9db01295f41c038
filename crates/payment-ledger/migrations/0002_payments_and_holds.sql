-- Payments with their holds and timeline. The payment row is the record; the workflow's memory is not.

CREATE FUNCTION switch_profile_hash(profile jsonb) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT sha256(convert_to(profile::text, 'UTF8'))
$$;

-- The profiles that payments were accepted with, each once, under the hash of its contents. A change of configuration never changes an
-- accepted payment: a profile that differs is another row.
CREATE TABLE switch_profiles (
    profile_hash bytea PRIMARY KEY,
    profile      jsonb NOT NULL,
    CONSTRAINT switch_profiles_hash_of_contents CHECK (profile_hash = switch_profile_hash(profile))
);

CREATE TRIGGER switch_profiles_append_only BEFORE UPDATE OR DELETE ON switch_profiles
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER switch_profiles_no_truncate BEFORE TRUNCATE ON switch_profiles
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

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
    -- The switch's profile at acceptance. No foreign key: each payment would lock the same row of switch_profiles, which changes nothing.
    profile_hash        bytea       NOT NULL,
    -- Whether the switch has no references, so that an account has one unfinished transfer at a time.
    needs_account_lock  boolean     NOT NULL,
    -- Kept for ever: after its idempotency key was pruned, a repeated request neither pays twice nor gets another's answer.
    request_hash        bytea       NOT NULL,
    response_body       bytea       NOT NULL,
    -- Position of the request in its distributed trace (W3C traceparent), for every later span of the payment.
    trace_parent        text,

    state               text        NOT NULL DEFAULT 'accepted',
    workflow_id         text        NOT NULL,
    -- Recovery workflows started for this payment.
    resume_count        integer     NOT NULL DEFAULT 0,
    -- The workflow run that reserved the amount, set once by compare-and-set.
    run_id              text,
    attempts            integer     NOT NULL DEFAULT 0,
    first_attempt_at    timestamptz,
    -- Queries of the transfer, at a switch that limits them.
    asks                integer     NOT NULL DEFAULT 0,
    last_asked_at       timestamptz,
    -- Attempts may be missing: a commit may have been lost. "Never sent" is then not believed.
    attempts_uncertain  boolean     NOT NULL DEFAULT false,
    -- The switch accepted the transfer, as Temporal shows: the commit of its answer was lost.
    acceptance_unrecorded boolean   NOT NULL DEFAULT false,
    -- By the switch's clock.
    submit_deadline     timestamptz,
    -- The id by which the rail knows the transfer, minted with the first attempt or query; NULL where the switch takes our reference.
    rail_id             text,
    -- The first cause of compensation.
    cause               jsonb,
    cancelling_since    timestamptz,
    final_status        text,
    final_status_source text,
    -- When a callback first said that the transfer settled or came back, where the payment must ask the switch to confirm it. NULL: none
    -- has, or a callback is believed.
    money_reported_at   timestamptz,
    -- What came back after the debit and was paid to its bearer; moved by the journal (0008).
    returned_minor      bigint      NOT NULL DEFAULT 0,
    -- A return that is booked with the debit.
    has_unbooked_return boolean     NOT NULL DEFAULT false,
    operator_reason     text,
    -- When the payment first needed an operator.
    needs_operator_since timestamptz,

    -- When the customer's account is due to be restored without a confirmation. NULL: never, the amount stays held.
    restore_due_at      timestamptz,
    -- When an advance restored it.
    restored_at         timestamptz,

    start_lease_until   timestamptz,
    -- Place in the queue of its switch instead of accepted_at, for a payment whose row the claiming version could not parse.
    start_postponed_until timestamptz,
    start_rejections    integer     NOT NULL DEFAULT 0,
    accepted_at         timestamptz NOT NULL DEFAULT now(),
    valid_until         timestamptz NOT NULL,
    started_at          timestamptz,
    updated_at          timestamptz NOT NULL DEFAULT now(),
    -- The last liveness check of its workflow. No progress of the payment, so updated_at stays.
    liveness_checked_at timestamptz,
    ended_at            timestamptz,
    -- When its personal fields were erased (0018).
    erased_at           timestamptz,

    CONSTRAINT payments_amount_positive CHECK (amount_minor > 0),
    CONSTRAINT payments_returned_at_most_once CHECK (returned_minor BETWEEN 0 AND amount_minor),
    CONSTRAINT payments_two_accounts CHECK (source_account <> destination_account),
    CONSTRAINT payments_trace_parent_bounded CHECK (length(trace_parent) = 55),
    CONSTRAINT payments_state_known CHECK (state IN (
        'accepted', 'started', 'reserved', 'submitted', 'confirmed', 'cancelling', 'needs_operator',
        'settled', 'rejected', 'failed', 'timed_out', 'cancelled')),
    CONSTRAINT payments_final_status_known CHECK (final_status IN ('settled', 'void', 'returned')),
    CONSTRAINT payments_final_status_has_a_source CHECK ((final_status IS NULL) = (final_status_source IS NULL)),
    CONSTRAINT payments_first_attempt_has_a_time CHECK ((attempts = 0) = (first_attempt_at IS NULL)),
    CONSTRAINT payments_end_has_a_time CHECK (
        (state IN ('settled', 'rejected', 'failed', 'timed_out', 'cancelled')) = (ended_at IS NOT NULL)),
    CONSTRAINT payments_erased_after_their_end CHECK (erased_at IS NULL OR ended_at IS NOT NULL)
);

-- A rail knows each id once. Also the way from the name in a report to the payment, of whichever switch.
CREATE UNIQUE INDEX payments_by_rail_id ON payments (rail_id, switch) WHERE rail_id IS NOT NULL;
-- The queue of each switch, so that a claim reads no payment of a switch at its in-flight limit.
CREATE INDEX payments_to_start ON payments (switch, (coalesce(start_postponed_until, accepted_at))) WHERE state = 'accepted';
-- Also the order in which the hold audit reads open payments.
CREATE INDEX payments_open ON payments (tenant_id, state, accepted_at, payment_id) WHERE ended_at IS NULL;
-- The lists of a state that few payments end in. A settled payment is not in it.
CREATE INDEX payments_unsuccessful ON payments (tenant_id, state, accepted_at, payment_id)
    WHERE state IN ('rejected', 'failed', 'timed_out', 'cancelled');
-- Counted against the in-flight limit of each switch; those that are confirmed, by age.
CREATE INDEX payments_in_flight ON payments (switch, state, updated_at) WHERE state IN ('started', 'reserved', 'confirmed');
-- The same, of those whose debit asks the switch to confirm a callback.
CREATE INDEX payments_to_debit ON payments (switch, money_reported_at)
    WHERE state = 'submitted' AND money_reported_at IS NOT NULL;
-- The queue of the liveness check: a check moves a payment behind those that were not checked for longer.
CREATE INDEX payments_by_liveness ON payments ((greatest(updated_at, liveness_checked_at)))
    WHERE ended_at IS NULL AND state <> 'accepted';
CREATE INDEX payments_needing_operator ON payments (operator_reason) WHERE state = 'needs_operator';
CREATE INDEX payments_by_source ON payments (tenant_id, source_account, accepted_at);
CREATE INDEX payments_by_tenant ON payments (tenant_id, accepted_at);
CREATE INDEX payments_by_end_to_end_id ON payments (tenant_id, end_to_end_id) WHERE end_to_end_id IS NOT NULL;
-- The queue of restores, of payments that hold an amount and are not confirmed.
CREATE INDEX payments_to_restore ON payments (restore_due_at, payment_id)
    WHERE restore_due_at IS NOT NULL AND restored_at IS NULL AND ended_at IS NULL
      AND state NOT IN ('accepted', 'started') AND final_status IS DISTINCT FROM 'settled';
-- Restores that were later than the second that a profile leaves for them.
CREATE INDEX payments_restored_late ON payments (restored_at) WHERE restored_at - restore_due_at > interval '1 second';
-- Found after commits may have been lost: these may have taken a lost attempt for a transfer that was never sent.
CREATE INDEX payments_ended_without_attempt ON payments (ended_at) WHERE attempts = 0 AND ended_at IS NOT NULL;
-- A switch without references has one unfinished transfer per destination account at a time.
CREATE INDEX payments_submitted_to_account ON payments (switch, destination_account)
    WHERE ended_at IS NULL AND (attempts > 0 OR attempts_uncertain) AND needs_account_lock;

-- The final status, the run, the rail's id and the end are written once; only a return replaces the final status. What was erased stays so.
CREATE FUNCTION guard_payment() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF OLD.final_status IS NOT NULL AND NEW.final_status IS DISTINCT FROM OLD.final_status
       AND NEW.final_status IS DISTINCT FROM 'returned' THEN
        RAISE EXCEPTION 'the final status of payment % is final: %', OLD.payment_id, OLD.final_status
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.run_id IS NOT NULL AND NEW.run_id IS DISTINCT FROM OLD.run_id THEN
        RAISE EXCEPTION 'the run of payment % is final: %', OLD.payment_id, OLD.run_id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.rail_id IS NOT NULL AND NEW.rail_id IS DISTINCT FROM OLD.rail_id THEN
        RAISE EXCEPTION 'the id of the transfer of payment % is final: %', OLD.payment_id, OLD.rail_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.ended_at IS NOT NULL AND NEW.state <> OLD.state THEN
        RAISE EXCEPTION 'payment % has ended: %', OLD.payment_id, OLD.state USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.erased_at IS NOT NULL AND (NEW.erased_at, NEW.destination_account, NEW.end_to_end_id)
                                     IS DISTINCT FROM (OLD.erased_at, OLD.destination_account, OLD.end_to_end_id) THEN
        RAISE EXCEPTION 'payment % is erased', OLD.payment_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER payments_guard_update BEFORE UPDATE ON payments FOR EACH ROW EXECUTE FUNCTION guard_payment();

-- The Temporal namespaces that have the workflows of open payments: the last one counts. In another one every workflow would
-- look lost. An operator accepts each but the first.
CREATE TABLE temporal_namespaces (
    number       integer     PRIMARY KEY,
    namespace_id text        NOT NULL,
    accepted_by  text        NOT NULL,
    reason       text        NOT NULL,
    accepted_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT temporal_namespaces_number_positive CHECK (number > 0)
);

CREATE TABLE holds (
    payment_id   text        PRIMARY KEY REFERENCES payments,
    account_id   text        NOT NULL REFERENCES accounts,
    amount_minor bigint      NOT NULL,
    currency     text        NOT NULL,
    status       text        NOT NULL DEFAULT 'open',
    opened_at    timestamptz NOT NULL DEFAULT now(),
    -- Since when the bank bears the hold: an advance restored the customer's account. NULL: the customer bears it.
    borne_by_bank_since timestamptz,
    closed_at    timestamptz,
    CONSTRAINT holds_amount_positive CHECK (amount_minor > 0),
    CONSTRAINT holds_status_known CHECK (status IN ('open', 'debited', 'released')),
    CONSTRAINT holds_closed_has_a_time CHECK ((status = 'open') = (closed_at IS NULL))
);

CREATE INDEX holds_open ON holds (account_id, payment_id) WHERE status = 'open';
-- The holds of an account that were open at an instant.
CREATE INDEX holds_by_account ON holds (account_id, closed_at);

CREATE FUNCTION guard_closed_hold() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF OLD.status <> 'open' THEN
        RAISE EXCEPTION 'the hold of payment % is closed: %', OLD.payment_id, OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

-- Named so that it fires before holds_follow_journal (0008): triggers fire in the order of their names.
CREATE TRIGGER holds_close_once BEFORE UPDATE ON holds FOR EACH ROW EXECUTE FUNCTION guard_closed_hold();

-- What the bank has paid and nobody has paid back: an advance, or money that left and was debited from no customer. The open claims
-- add up to the claims account.
CREATE TABLE claims (
    -- The journal entry that opened it.
    entry_id     bigint      PRIMARY KEY,
    payment_id   text        NOT NULL REFERENCES payments,
    switch       text        NOT NULL,
    amount_minor bigint      NOT NULL,
    -- What is not paid back yet; returns may pay a part.
    open_minor   bigint      NOT NULL,
    currency     text        NOT NULL,
    opened_at    timestamptz NOT NULL,
    closed_at    timestamptz,
    CONSTRAINT claims_open_within_amount CHECK (open_minor BETWEEN 0 AND amount_minor),
    CONSTRAINT claims_closed_when_paid_back CHECK ((open_minor = 0) = (closed_at IS NOT NULL))
);

CREATE UNIQUE INDEX claims_one_open ON claims (payment_id) WHERE closed_at IS NULL;
CREATE INDEX claims_by_close ON claims (closed_at) WHERE closed_at IS NOT NULL;
-- What each switch makes the bank bear.
CREATE INDEX claims_open_by_switch ON claims (switch, currency) INCLUDE (open_minor, opened_at) WHERE closed_at IS NULL;

-- The history of a payment in words. An internal line is not shown to the customer.
CREATE TABLE timeline (
    entry_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id  text        NOT NULL REFERENCES payments,
    state       text        NOT NULL,
    detail      text        NOT NULL,
    happened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_internal boolean     NOT NULL DEFAULT false
);

CREATE INDEX timeline_by_payment ON timeline (payment_id, entry_id);
