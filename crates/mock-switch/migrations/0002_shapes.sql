-- What switches of other shapes need: a statement, a listing by creditor, and
-- cancel answers that are repeated although they bind nobody.

-- Each end of a transfer, in the order in which the ends came; money that came
-- back is an entry after the one of its settlement. A tombstone is no entry.
-- Written by trigger alone, so that no way of ending a transfer can forget it.
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

-- An answer without a transfer bound nobody: it is repeated only by a switch
-- whose answers are sticky.
ALTER TABLE answers ADD COLUMN reference text;
UPDATE answers a SET reference = t.reference FROM transfers t WHERE t.id = a.transfer_id;
ALTER TABLE answers ALTER COLUMN reference SET NOT NULL;
ALTER TABLE answers ALTER COLUMN transfer_id DROP NOT NULL;

-- A transfer now shows the switch's own id, in answers given earlier too.
UPDATE answers SET answer = jsonb_set(answer, '{transfer,transfer_id}', to_jsonb(transfer_id::text))
WHERE answer ? 'transfer';
