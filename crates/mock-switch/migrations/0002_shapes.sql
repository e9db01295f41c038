-- Capabilities of other shapes: a statement, a listing by creditor account, and
-- sticky answers to a cancel.

-- The statement: every finished transfer in the order of the ends. A returned
-- transfer has a second entry; a tombstone has none. Only triggers write it, so
-- that every way of ending a transfer is covered.
CREATE TABLE statement (
    cursor      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id bigint      NOT NULL REFERENCES transfers (id),
    status      text        NOT NULL,
    reason      text,
    finished_at timestamptz NOT NULL
);

INSERT INTO statement (transfer_id, status, reason, finished_at)
SELECT id, status, reason, finished_at FROM transfers
WHERE status <> 'PENDING' AND NOT tombstone
ORDER BY finished_at, id;

CREATE FUNCTION statement_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO statement (transfer_id, status, reason, finished_at)
    VALUES (NEW.id, NEW.status, NEW.reason, NEW.finished_at);
    RETURN NULL;
END $$;

CREATE TRIGGER transfers_refused_in_statement AFTER INSERT ON transfers
    FOR EACH ROW WHEN (NEW.status <> 'PENDING' AND NOT NEW.tombstone)
    EXECUTE FUNCTION statement_entry();

CREATE TRIGGER transfers_end_in_statement AFTER UPDATE OF status ON transfers
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status)
    EXECUTE FUNCTION statement_entry();

CREATE INDEX transfers_by_creditor ON transfers (creditor_account, id);

-- An answer without a transfer is indefinite; only a switch with sticky answers
-- repeats it.
ALTER TABLE answers ADD COLUMN reference text;
UPDATE answers a SET reference = t.reference FROM transfers t WHERE t.id = a.transfer_id;
ALTER TABLE answers ALTER COLUMN reference SET NOT NULL;
ALTER TABLE answers ALTER COLUMN transfer_id DROP NOT NULL;

-- Recorded answers show the switch's own transfer id too.
UPDATE answers SET answer = jsonb_set(answer, '{transfer,transfer_id}', to_jsonb(transfer_id::text))
WHERE answer ? 'transfer';

-- Returns by messages of their own, each of a part or the whole of a settled transfer. Each has a statement entry; a transfer whose
-- returns add up to its amount is RETURNED, without a further entry.
CREATE TABLE returns (
    return_id    text        PRIMARY KEY,
    transfer_id  bigint      NOT NULL REFERENCES transfers (id),
    amount_minor bigint      NOT NULL,
    reason       text,
    returned_at  timestamptz NOT NULL,
    CONSTRAINT returns_amount CHECK (amount_minor > 0)
);

CREATE INDEX returns_by_transfer ON returns (transfer_id);
ALTER TABLE statement ADD COLUMN return_id text REFERENCES returns;

CREATE FUNCTION return_in_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO statement (transfer_id, status, reason, finished_at, return_id)
    VALUES (NEW.transfer_id, 'RETURNED', NEW.reason, NEW.returned_at, NEW.return_id);
    RETURN NULL;
END $$;

CREATE TRIGGER returns_in_statement AFTER INSERT ON returns FOR EACH ROW EXECUTE FUNCTION return_in_statement();

CREATE OR REPLACE FUNCTION statement_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status = 'RETURNED' AND EXISTS (SELECT FROM returns r WHERE r.transfer_id = NEW.id) THEN
        RETURN NULL;
    END IF;
    INSERT INTO statement (transfer_id, status, reason, finished_at)
    VALUES (NEW.id, NEW.status, NEW.reason, NEW.finished_at);
    RETURN NULL;
END $$;
