-- The third book: what the switches' statements say, as it was read, beside our own.

-- Every line of a statement, once. A switch's statement only grows, so its lines are never changed here either.
CREATE TABLE statement_lines (
    switch       text        NOT NULL,
    -- The line's place in the statement, as the switch names it.
    cursor       text        NOT NULL,
    line_id      bigint      GENERATED ALWAYS AS IDENTITY,
    -- What the switch calls the transfer.
    transfer_id  text        NOT NULL,
    -- None from a switch without references.
    reference    text,
    status       text        NOT NULL,
    amount_minor bigint      NOT NULL,
    currency     text        NOT NULL,
    -- When the transfer came to this end, by the switch's clock.
    finished_at  timestamptz NOT NULL,
    read_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (switch, cursor),
    CONSTRAINT statement_lines_status_known CHECK (status IN ('SETTLED', 'REJECTED', 'CANCELLED', 'RECALLED'))
);

CREATE INDEX statement_lines_by_reference ON statement_lines (switch, reference) WHERE reference IS NOT NULL;
CREATE INDEX statement_lines_by_transfer ON statement_lines (switch, transfer_id);
CREATE INDEX statement_lines_in_order ON statement_lines (line_id);

CREATE TRIGGER statement_lines_are_append_only BEFORE UPDATE OR DELETE ON statement_lines
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER statement_lines_are_not_truncated BEFORE TRUNCATE ON statement_lines
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- How far each statement was read. None yet: it is read from its beginning.
CREATE TABLE statement_cursors (
    switch  text        PRIMARY KEY,
    cursor  text,
    read_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Each sweep, and what it found.
CREATE TABLE reconciliations (
    reconciliation_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at       timestamptz,
    report            jsonb,
    CONSTRAINT reconciliations_finish_has_a_report CHECK ((finished_at IS NULL) = (report IS NULL))
);

-- The workflows that ran when a sweep looked, for as long as it runs. Worth nothing after a crash, so not logged.
CREATE UNLOGGED TABLE running_workflows (
    reconciliation_id bigint NOT NULL,
    workflow_id       text   NOT NULL,
    PRIMARY KEY (reconciliation_id, workflow_id)
);

-- What a sweep finds is an exception like any other.
ALTER TABLE exceptions DROP CONSTRAINT exceptions_kind_known;
ALTER TABLE exceptions ADD CONSTRAINT exceptions_kind_known CHECK (kind IN (
    'late_confirmation', 'contradictory_final_status', 'confirmation_mismatch', 'settled_without_attempt', 'callback_for_unknown_payment',
    'callback_from_other_switch', 'callback_event_id_reused', 'debited_to_claims',
    'missing_hold', 'orphan_hold', 'settled_not_debited', 'debited_not_settled', 'released_but_settled',
    'amount_mismatch', 'settled_twice', 'transfer_without_payment', 'payment_without_workflow', 'workflow_without_payment',
    'unmatched_callback', 'stuck_cancelling', 'journal_hash_mismatch'));

CREATE INDEX exceptions_by_origin ON exceptions (kind, origin);
CREATE INDEX submissions_by_transfer ON submissions (transfer_id) WHERE transfer_id IS NOT NULL;
CREATE INDEX switch_callbacks_unmatched ON switch_callbacks (switch, event_id) WHERE payment_id IS NULL;
-- The bank's own accounts are few, and looked at every minute.
CREATE INDEX accounts_internal ON accounts (account_id) WHERE kind = 'internal';
