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
