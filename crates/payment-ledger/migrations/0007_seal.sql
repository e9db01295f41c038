-- The seal: a hash chain over the journal, so that no change of an entry goes undetected. The sealer rolls the balances of
-- internal accounts forward with it.

-- Committed entries that are not sealed yet, written in the writer's own transaction. Its readers therefore see exactly the
-- committed entries: no late commit is missed, and no writer waits.
CREATE TABLE journal_unsealed (
    entry_id bigint PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE FUNCTION queue_for_seal() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO journal_unsealed (entry_id) VALUES (NEW.entry_id);
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_queued_for_seal AFTER INSERT ON journal FOR EACH ROW EXECUTE FUNCTION queue_for_seal();

-- The chain: each entry has a position and a hash of its content; each batch has a hash over the hash of the batch before and
-- the hashes of its entries.
CREATE TABLE journal_seals (
    position bigint PRIMARY KEY,
    entry_id bigint NOT NULL UNIQUE,
    hash     bytea  NOT NULL,
    CONSTRAINT journal_seals_hash_is_sha256 CHECK (octet_length(hash) = 32)
);

CREATE TABLE seal_batches (
    batch          bigint      PRIMARY KEY,
    first_position bigint      NOT NULL UNIQUE,
    last_position  bigint      NOT NULL UNIQUE,
    -- Unique, so that the chain cannot fork.
    previous_hash  bytea       NOT NULL UNIQUE,
    hash           bytea       NOT NULL UNIQUE,
    sealed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT seal_batches_not_empty CHECK (batch >= 1 AND first_position >= 1 AND last_position >= first_position),
    CONSTRAINT seal_batches_hashes_are_sha256 CHECK (octet_length(previous_hash) = 32 AND octet_length(hash) = 32)
);

CREATE TRIGGER journal_seals_append_only BEFORE UPDATE OR DELETE ON journal_seals
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER journal_seals_no_truncate BEFORE TRUNCATE ON journal_seals
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER seal_batches_append_only BEFORE UPDATE OR DELETE ON seal_batches
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER seal_batches_no_truncate BEFORE TRUNCATE ON seal_batches
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- An entry leaves journal_unsealed only after it was sealed.
CREATE FUNCTION guard_unsealed() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM deleted WHERE NOT EXISTS (SELECT FROM journal_seals s WHERE s.entry_id = deleted.entry_id)) THEN
        RAISE EXCEPTION 'an unsealed entry cannot be deleted from journal_unsealed: seal it first'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_unsealed_guard_delete AFTER DELETE ON journal_unsealed REFERENCING OLD TABLE AS deleted
    FOR EACH STATEMENT EXECUTE FUNCTION guard_unsealed();
CREATE TRIGGER journal_unsealed_no_update BEFORE UPDATE ON journal_unsealed
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER journal_unsealed_no_truncate BEFORE TRUNCATE ON journal_unsealed
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Balances of internal accounts by their sealed entries; with their unsealed entries added they are exact. Only the sealer
-- writes here, so payments never contend for these rows.
CREATE TABLE sealed_balances (
    account_id    text   PRIMARY KEY REFERENCES accounts,
    balance_minor bigint NOT NULL,
    -- Position of the last entry included.
    position      bigint NOT NULL
);

-- Net change per hour of the entries' times, for balances at an earlier instant. An entry committed late is added to the hour
-- of its time.
CREATE TABLE sealed_hours (
    account_id  text        NOT NULL REFERENCES accounts,
    hour        timestamptz NOT NULL,
    moved_minor bigint      NOT NULL,
    PRIMARY KEY (account_id, hour)
);
