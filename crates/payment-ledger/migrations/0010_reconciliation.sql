-- Reconciliation: the switches' statements as read, and the runs that compare them with the ledger and the workflows.

-- Each line of a statement, once. A statement only grows, so its lines never change here either.
CREATE TABLE statement_lines (
    switch       text        NOT NULL,
    -- Position of the line, as the switch names it.
    cursor       text        NOT NULL,
    line_id      bigint      GENERATED ALWAYS AS IDENTITY,
    -- The switch's id of the transfer.
    transfer_id  text        NOT NULL,
    -- NULL from a switch without references.
    reference    text,
    status       text        NOT NULL,
    -- Of a line that is one return of its own, the switch's id of it.
    return_id    text,
    amount_minor bigint      NOT NULL,
    currency     text        NOT NULL,
    -- By the switch's clock.
    finished_at  timestamptz NOT NULL,
    read_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (switch, cursor),
    CONSTRAINT statement_lines_status_known CHECK (status IN ('SETTLED', 'REJECTED', 'CANCELLED', 'RETURNED'))
);

CREATE INDEX statement_lines_by_reference ON statement_lines (switch, reference) WHERE reference IS NOT NULL;
CREATE INDEX statement_lines_by_transfer ON statement_lines (switch, transfer_id);
CREATE INDEX statement_lines_in_order ON statement_lines (line_id);
-- The newest line that was read before a submit attempt.
CREATE INDEX statement_lines_by_read ON statement_lines (switch, read_at);

CREATE TRIGGER statement_lines_append_only BEFORE UPDATE OR DELETE ON statement_lines
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER statement_lines_no_truncate BEFORE TRUNCATE ON statement_lines
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The last line read of each statement. NULL: read from the beginning.
CREATE TABLE statement_cursors (
    switch  text        PRIMARY KEY,
    cursor  text,
    read_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE reconciliation_runs (
    reconciliation_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at       timestamptz,
    -- Only what changed since then was compared. NULL: everything.
    window_began_at   timestamptz,
    report            jsonb,
    CONSTRAINT reconciliation_runs_finished_has_a_report CHECK ((finished_at IS NULL) = (report IS NULL))
);

CREATE TRIGGER reconciliation_runs_finished_once BEFORE UPDATE ON reconciliation_runs
    FOR EACH ROW WHEN (OLD.finished_at IS NOT NULL) EXECUTE FUNCTION refuse_change();

-- Workflows that were running when a run listed them; deleted with the end of the run. Logged: a crash would empty it between two
-- statements of a run, which would then find every open payment without its workflow.
CREATE TABLE running_workflows (
    reconciliation_id bigint NOT NULL,
    workflow_id       text   NOT NULL,
    PRIMARY KEY (reconciliation_id, workflow_id)
);

-- Payments that a run with a window compares besides those that the journal and the statements name; deleted with the end of the run.
CREATE TABLE reconciled_payments (
    reconciliation_id bigint NOT NULL,
    payment_id        text   NOT NULL,
    PRIMARY KEY (reconciliation_id, payment_id)
);
