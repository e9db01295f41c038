-- What people decide: about payments that stand before them, and about what contradicts the books after an end.

-- The newest transfer of the account at the switch before ours was sent, and what the switch calls ours. A switch without
-- references is asked by these.
ALTER TABLE submissions ADD COLUMN marker text, ADD COLUMN transfer_id text;

-- Such a switch has one transfer to an account under way at a time.
CREATE INDEX payments_under_way_to_account ON payments (switch, destination_account)
    WHERE ended_at IS NULL AND attempts > 0 AND profile ->> 'strategy' = 'validate';

-- When a payment first came to stand before a person.
ALTER TABLE payments ADD COLUMN needs_operator_since timestamptz;
UPDATE payments SET needs_operator_since = updated_at WHERE state = 'needs_operator';
CREATE INDEX payments_needing_operator ON payments (operator_reason) WHERE state = 'needs_operator';

-- A recall that the switch cannot do at all is another answer than its refusal.
ALTER TABLE operations DROP CONSTRAINT operations_outcome_known;
ALTER TABLE operations ADD CONSTRAINT operations_outcome_known CHECK (outcome IN ('done', 'refused', 'impossible'));
ALTER TABLE operations DROP CONSTRAINT operations_refusal_has_a_reason;
ALTER TABLE operations ADD CONSTRAINT operations_refusal_has_a_reason CHECK ((outcome = 'done') = (reason IS NULL));

-- The audit trail: who decided what, for which reason, on which evidence, who else agreed, and what came of it.
CREATE TABLE decisions (
    decision_id    text        PRIMARY KEY,
    -- None for an exception of no payment of ours.
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
    status         text        NOT NULL DEFAULT 'proposed',
    -- What the payment's workflow made of it.
    outcome        jsonb,
    detail         text,
    closed_at      timestamptz,
    CONSTRAINT decisions_action_known CHECK (action IN (
        'retry_cancel', 'debit', 'release', 'late_debit', 'return_credit', 'write_off', 'close')),
    CONSTRAINT decisions_status_known CHECK (status IN ('proposed', 'confirmed', 'done', 'refused', 'withdrawn')),
    CONSTRAINT decisions_about_a_payment CHECK (action = 'close' OR payment_id IS NOT NULL),
    CONSTRAINT decisions_about_an_exception CHECK (
        (action IN ('late_debit', 'return_credit', 'write_off', 'close')) = (exception_id IS NOT NULL)),
    CONSTRAINT decisions_reasoned CHECK (btrim(reason) <> '' AND btrim(confirm_reason) <> ''),
    CONSTRAINT decisions_named CHECK (btrim(proposed_by) <> '' AND btrim(confirmed_by) <> ''),
    CONSTRAINT decisions_evidenced CHECK (action NOT IN ('debit', 'release') OR btrim(coalesce(evidence, '')) <> ''),
    CONSTRAINT decisions_confirmed_whole CHECK (
        (confirmed_by IS NULL) = (confirmed_at IS NULL) AND (confirmed_by IS NULL) = (confirm_reason IS NULL)),
    CONSTRAINT decisions_done_after_confirmation CHECK (status NOT IN ('confirmed', 'done') OR confirmed_by IS NOT NULL),
    CONSTRAINT decisions_money_needs_two CHECK (
        action IN ('retry_cancel', 'close') OR lower(btrim(confirmed_by)) <> lower(btrim(proposed_by))),
    CONSTRAINT decisions_close_has_a_time CHECK ((status IN ('proposed', 'confirmed')) = (closed_at IS NULL))
);

CREATE UNIQUE INDEX decisions_one_open ON decisions (payment_id) WHERE status IN ('proposed', 'confirmed');
CREATE INDEX decisions_by_payment ON decisions (payment_id, proposed_at);
CREATE INDEX decisions_by_exception ON decisions (exception_id) WHERE exception_id IS NOT NULL;

-- What was proposed never changes, what was confirmed is confirmed once, and what is closed stays as it is.
CREATE FUNCTION keep_decision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.closed_at IS NOT NULL THEN
        RAISE EXCEPTION 'decision % is closed: %', OLD.decision_id, OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    IF (NEW.decision_id, NEW.payment_id, NEW.exception_id, NEW.action, NEW.reason, NEW.evidence, NEW.proposed_by, NEW.proposed_at)
       IS DISTINCT FROM
       (OLD.decision_id, OLD.payment_id, OLD.exception_id, OLD.action, OLD.reason, OLD.evidence, OLD.proposed_by, OLD.proposed_at) THEN
        RAISE EXCEPTION 'decision % is written', OLD.decision_id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.confirmed_by IS NOT NULL AND (NEW.confirmed_by, NEW.confirmed_at, NEW.confirm_reason)
       IS DISTINCT FROM (OLD.confirmed_by, OLD.confirmed_at, OLD.confirm_reason) THEN
        RAISE EXCEPTION 'decision % is confirmed', OLD.decision_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER decisions_are_kept BEFORE UPDATE ON decisions FOR EACH ROW EXECUTE FUNCTION keep_decision();
CREATE TRIGGER decisions_are_not_deleted BEFORE DELETE ON decisions FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER decisions_are_not_truncated BEFORE TRUNCATE ON decisions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A confirmed decision is told to the payment's workflow.
ALTER TABLE inbox ADD COLUMN decision_id text REFERENCES decisions;
ALTER TABLE inbox DROP CONSTRAINT inbox_kind_known;
ALTER TABLE inbox ADD CONSTRAINT inbox_kind_known CHECK (kind IN ('callback', 'cancel', 'final_status', 'decision'));
ALTER TABLE inbox ADD CONSTRAINT inbox_decision_is_named CHECK ((kind = 'decision') = (decision_id IS NOT NULL));
CREATE UNIQUE INDEX inbox_decision_once ON inbox (decision_id) WHERE kind = 'decision';

-- An exception is closed by a decision.
ALTER TABLE exceptions ADD COLUMN closed_by text REFERENCES decisions;
ALTER TABLE exceptions DROP CONSTRAINT exceptions_kind_known;
ALTER TABLE exceptions ADD CONSTRAINT exceptions_kind_known CHECK (kind IN (
    'late_confirmation', 'contradictory_final_status', 'confirmation_mismatch', 'settled_without_attempt', 'callback_for_unknown_payment',
    'callback_from_other_switch', 'callback_event_id_reused', 'debited_to_claims'));
ALTER TABLE exceptions ADD CONSTRAINT exceptions_closed_by_a_decision CHECK ((closed_at IS NULL) = (closed_by IS NULL));

-- Money that moves by a decision, where no hold can be settled or released:
--   late_debit     the customer, else claims -> escrow: it left and was not debited
--   return_credit  escrow -> who was debited: it came back, or never left
--   write_off      losses -> claims: what the customer did not bear is given up
ALTER TABLE journal DROP CONSTRAINT journal_kind_known;
ALTER TABLE journal ADD CONSTRAINT journal_kind_known CHECK (kind IN (
    'fund', 'reserve', 'debit', 'release', 'late_debit', 'return_credit', 'write_off'));

-- A payment is debited once, by its step or late, and each correction is made once.
CREATE UNIQUE INDEX journal_debited_once ON journal (payment_id) WHERE kind IN ('debit', 'late_debit');
CREATE UNIQUE INDEX journal_one_return_credit ON journal (payment_id) WHERE kind = 'return_credit';
CREATE UNIQUE INDEX journal_one_write_off ON journal (payment_id) WHERE kind = 'write_off';

-- What customers did not bear and somebody must look into, and what was given up.
INSERT INTO accounts (account_id, tenant_id, kind, currency)
SELECT DISTINCT 'internal:' || name || ':' || currency, 'internal', 'internal', currency
FROM accounts, unnest(ARRAY['claims', 'losses']) AS names (name);
