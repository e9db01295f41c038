-- Alerts, exceptions, and the operator decisions that close them.

-- At most one alert per payment and kind.
CREATE TABLE alerts (
    payment_id text        NOT NULL REFERENCES payments,
    kind       text        NOT NULL,
    detail     text        NOT NULL,
    raised_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (payment_id, kind)
);

-- Recorded contradictions between the books: found when a switch reports, by a reconciliation run, or by an operator. Only a decision closes
-- an exception.
CREATE TABLE exceptions (
    exception_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id   text        REFERENCES payments,
    kind         text        NOT NULL,
    -- Deduplicates: an exception of the same kind and origin is not opened twice.
    origin       text        NOT NULL,
    detail       text        NOT NULL,
    opened_at    timestamptz NOT NULL DEFAULT now(),
    closed_at    timestamptz,
    closed_by    text,
    CONSTRAINT exceptions_kind_known CHECK (kind IN (
        'late_confirmation', 'contradictory_final_status', 'returned_after_debit', 'return_differs', 'confirmation_mismatch',
        'settled_without_attempt', 'attempt_record_lost', 'workflow_input_differs', 'accepted_then_unknown',
        'callback_for_unknown_payment', 'callback_from_other_switch', 'callback_event_id_reused', 'debited_to_claims',
        'opened_by_operator',
        'missing_hold', 'orphan_hold', 'settled_not_debited', 'debited_not_settled', 'released_but_settled',
        'amount_mismatch', 'settled_twice', 'transfer_without_payment', 'payment_without_workflow',
        'workflow_without_payment', 'unmatched_callback', 'stuck_cancelling', 'journal_hash_mismatch')),
    CONSTRAINT exceptions_closed_by_a_decision CHECK ((closed_at IS NULL) = (closed_by IS NULL))
);

-- By payment, as every step asks: in an index with another order the planner would look for the payment's open exceptions among
-- all open ones, whenever its statistics say that none is open.
CREATE INDEX exceptions_open ON exceptions (payment_id) WHERE closed_at IS NULL;
-- Only while it is open: after it was closed, the same contradiction opens a new exception.
CREATE UNIQUE INDEX exceptions_open_once ON exceptions (kind, origin) WHERE closed_at IS NULL;
CREATE INDEX exceptions_by_origin ON exceptions (kind, origin);
CREATE INDEX exceptions_by_payment ON exceptions (payment_id);

-- The audit trail: who decided what, why, on which evidence, who approved, and the outcome.
CREATE TABLE decisions (
    decision_id    text        PRIMARY KEY,
    -- NULL for an exception without a payment.
    payment_id     text        REFERENCES payments,
    exception_id   bigint      REFERENCES exceptions,
    action         text        NOT NULL,
    reason         text        NOT NULL,
    evidence       text,
    proposed_by    text        NOT NULL,
    proposed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    confirmed_by   text,
    confirmed_at   timestamptz,
    confirm_reason text,
    withdrawn_by   text,
    status         text        NOT NULL DEFAULT 'proposed',
    -- As reported by the payment's workflow.
    outcome        jsonb,
    detail         text,
    closed_at      timestamptz,
    CONSTRAINT decisions_action_known CHECK (action IN (
        'retry_cancel', 'debit', 'release', 'late_debit', 'return_credit', 'write_off', 'close')),
    CONSTRAINT decisions_status_known CHECK (status IN ('proposed', 'confirmed', 'done', 'refused', 'withdrawn')),
    CONSTRAINT decisions_about_a_payment CHECK (action = 'close' OR payment_id IS NOT NULL),
    CONSTRAINT decisions_about_an_exception CHECK (
        (action IN ('late_debit', 'return_credit', 'write_off', 'close')) = (exception_id IS NOT NULL)),
    CONSTRAINT decisions_reason_given CHECK (btrim(reason) <> '' AND btrim(confirm_reason) <> ''),
    CONSTRAINT decisions_operator_given CHECK (btrim(proposed_by) <> '' AND btrim(confirmed_by) <> ''),
    CONSTRAINT decisions_evidence_given CHECK (action NOT IN ('debit', 'release') OR btrim(coalesce(evidence, '')) <> ''),
    CONSTRAINT decisions_confirmation_complete CHECK (
        (confirmed_by IS NULL) = (confirmed_at IS NULL) AND (confirmed_by IS NULL) = (confirm_reason IS NULL)),
    CONSTRAINT decisions_done_after_confirmation CHECK (status NOT IN ('confirmed', 'done') OR confirmed_by IS NOT NULL),
    -- Two spellings are one person.
    CONSTRAINT decisions_four_eyes CHECK (
        action IN ('retry_cancel', 'close')
        OR lower(regexp_replace(confirmed_by, '[^a-zA-Z0-9]', '', 'g')) <> lower(regexp_replace(proposed_by, '[^a-zA-Z0-9]', '', 'g'))),
    -- NULL as well for a proposal that the end of its payment withdrew.
    CONSTRAINT decisions_withdrawn_by_an_operator CHECK (withdrawn_by IS NULL OR status = 'withdrawn'),
    CONSTRAINT decisions_closed_has_a_time CHECK ((status IN ('proposed', 'confirmed')) = (closed_at IS NULL))
);

-- Exceptions and decisions reference each other, so one of the two references follows both tables.
ALTER TABLE exceptions ADD CONSTRAINT exceptions_closed_by_fkey FOREIGN KEY (closed_by) REFERENCES decisions;

CREATE UNIQUE INDEX decisions_one_open ON decisions (payment_id) WHERE status IN ('proposed', 'confirmed');
CREATE INDEX decisions_by_payment ON decisions (payment_id, proposed_at);
CREATE INDEX decisions_by_exception ON decisions (exception_id) WHERE exception_id IS NOT NULL;

-- A proposal never changes, a confirmation is written once, and a closed decision is final.
CREATE FUNCTION guard_decision() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF OLD.closed_at IS NOT NULL THEN
        RAISE EXCEPTION 'decision % is closed: %', OLD.decision_id, OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    IF (NEW.decision_id, NEW.payment_id, NEW.exception_id, NEW.action, NEW.reason, NEW.evidence, NEW.proposed_by, NEW.proposed_at)
       IS DISTINCT FROM
       (OLD.decision_id, OLD.payment_id, OLD.exception_id, OLD.action, OLD.reason, OLD.evidence, OLD.proposed_by, OLD.proposed_at) THEN
        RAISE EXCEPTION 'the proposal of decision % is final', OLD.decision_id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.confirmed_by IS NOT NULL AND (NEW.confirmed_by, NEW.confirmed_at, NEW.confirm_reason)
       IS DISTINCT FROM (OLD.confirmed_by, OLD.confirmed_at, OLD.confirm_reason) THEN
        RAISE EXCEPTION 'the confirmation of decision % is final', OLD.decision_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER decisions_guard_update BEFORE UPDATE ON decisions FOR EACH ROW EXECUTE FUNCTION guard_decision();
CREATE TRIGGER decisions_no_delete BEFORE DELETE ON decisions FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER decisions_no_truncate BEFORE TRUNCATE ON decisions FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
