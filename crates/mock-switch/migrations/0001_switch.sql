-- The complete state of the mock switch, so that a killed process loses nothing
-- that it answered.
--
-- Two clocks: received_at, deadline and finished_at are on the switch's own
-- clock, which tests can shift; due_at and next_attempt_at are on the
-- database's, so that a shift starts and stops nothing.

-- The book. A tombstone is a row too: its reference was cancelled before a submit.
CREATE TABLE transfers (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reference        text        NOT NULL,
    status           text        NOT NULL,
    tombstone        boolean     NOT NULL DEFAULT false,
    -- refused in the answer to its submit, not rejected later
    refused          boolean     NOT NULL DEFAULT false,
    -- received while the switch deduplicated by reference
    deduplicated     boolean     NOT NULL,
    -- beyond the retention when its reference was used again
    forgotten        boolean     NOT NULL DEFAULT false,
    amount_minor     bigint,
    currency         text,
    creditor_account text,
    end_to_end_id    text,
    reason           text,
    -- reason of the refused recall, which is repeated
    recall_refusal   text,
    -- when the receiving bank was asked to return the money; its answer comes later
    recall_asked_at  timestamptz,
    received_at      timestamptz NOT NULL,
    deadline         timestamptz,
    -- null: only the admin API ends the transfer
    due_at           timestamptz,
    due_status       text,
    due_reason       text,
    finished_at      timestamptz,
    CONSTRAINT transfers_status CHECK
        (status IN ('PENDING', 'SETTLED', 'REJECTED', 'CANCELLED', 'RETURNED')),
    CONSTRAINT transfers_due_status CHECK (due_status IN ('SETTLED', 'REJECTED')),
    CONSTRAINT transfers_amount CHECK (amount_minor > 0),
    CONSTRAINT transfers_tombstone CHECK (CASE WHEN tombstone
        THEN status = 'CANCELLED' AND amount_minor IS NULL
        ELSE amount_minor IS NOT NULL AND currency IS NOT NULL AND creditor_account IS NOT NULL END),
    CONSTRAINT transfers_finished CHECK ((status = 'PENDING') = (finished_at IS NULL))
);

CREATE INDEX transfers_by_reference ON transfers (reference, id);
CREATE INDEX transfers_due ON transfers (due_at) WHERE status = 'PENDING';
CREATE UNIQUE INDEX transfers_one_per_reference ON transfers (reference)
    WHERE deduplicated AND NOT forgotten;

-- A transfer ends once; only a settled transfer can be returned.
CREATE FUNCTION transfers_end_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'PENDING' OR (OLD.status = 'SETTLED' AND NEW.status = 'RETURNED') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'transfer % is % and cannot become %', OLD.reference, OLD.status, NEW.status;
END $$;

CREATE TRIGGER transfers_end_once BEFORE UPDATE OF status ON transfers
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status)
    EXECUTE FUNCTION transfers_end_once();

-- Definite answers to cancel and recall, repeated under their idempotency key
-- within the retention of their transfer.
CREATE TABLE answers (
    operation       text   NOT NULL,
    idempotency_key text   NOT NULL,
    transfer_id     bigint NOT NULL REFERENCES transfers (id),
    answer          jsonb  NOT NULL,
    PRIMARY KEY (operation, idempotency_key)
);

-- Requests received per reference and operation, whatever their outcome, and the
-- step of the current behaviour's script.
CREATE TABLE requests (
    reference    text   NOT NULL,
    operation    text   NOT NULL,
    received     bigint NOT NULL,
    behaviour_id bigint,
    step         bigint NOT NULL,
    PRIMARY KEY (reference, operation)
);

-- Scripted misbehaviour; the reference 'default' applies to all. A replaced
-- behaviour gets a new id, which restarts its script.
CREATE SEQUENCE behaviour_ids;
CREATE TABLE behaviours (
    reference text   PRIMARY KEY,
    id        bigint NOT NULL DEFAULT nextval('behaviour_ids'),
    behaviour jsonb  NOT NULL
);

-- Settings changed while running; a setting without a row is configured.
CREATE TABLE settings (
    name  text  PRIMARY KEY,
    value jsonb NOT NULL
);

-- Callbacks, with the exact body that is signed and sent.
CREATE TABLE callbacks (
    id              uuid        PRIMARY KEY,
    event_id        text        NOT NULL,
    reference       text        NOT NULL,
    body            text        NOT NULL,
    state           text        NOT NULL,
    -- this callback must be delivered, lost or abandoned first
    after_id        uuid        REFERENCES callbacks (id),
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    last_status     integer,
    last_error      text,
    CONSTRAINT callbacks_state CHECK (state IN ('WAITING', 'DELIVERED', 'LOST', 'ABANDONED'))
);

CREATE INDEX callbacks_waiting ON callbacks (next_attempt_at) WHERE state = 'WAITING';
CREATE INDEX callbacks_by_reference ON callbacks (reference);
