-- A history that nobody can change unseen: every entry of the journal is sealed into a chain of hashes, and what internal
-- accounts hold is rolled forward with it.

-- When an entry was made, not when its transaction began: a customer's entries are made under its account's lock, so their
-- times are in the order in which its balance changed.
ALTER TABLE journal ALTER COLUMN posted_at SET DEFAULT clock_timestamp();
DROP INDEX journal_by_debit_account;
DROP INDEX journal_by_credit_account;
CREATE INDEX journal_by_debit_account ON journal (debit_account, posted_at, entry_id);
CREATE INDEX journal_by_credit_account ON journal (credit_account, posted_at, entry_id);
-- What was posted after an instant; entries come in the order of time, so this costs next to nothing.
CREATE INDEX journal_by_time ON journal USING brin (posted_at);

-- Entries that are committed and not sealed yet. Written in the writer's own transaction, so whoever reads this table sees
-- exactly the entries that count: no late commit is passed over, no writer waits.
CREATE TABLE journal_unsealed (
    entry_id bigint PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE FUNCTION await_seal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO journal_unsealed (entry_id) VALUES (NEW.entry_id);
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_awaits_its_seal AFTER INSERT ON journal FOR EACH ROW EXECUTE FUNCTION await_seal();

INSERT INTO journal_unsealed (entry_id) SELECT entry_id FROM journal;

-- The chain: each entry has a place and a hash of its content, each batch a hash of the batch before it and of its entries'.
CREATE TABLE journal_seals (
    position bigint PRIMARY KEY,
    entry_id bigint NOT NULL UNIQUE,
    hash     bytea  NOT NULL,
    CONSTRAINT journal_seals_hash_is_whole CHECK (octet_length(hash) = 32)
);

CREATE TABLE seal_batches (
    batch          bigint      PRIMARY KEY,
    first_position bigint      NOT NULL UNIQUE,
    last_position  bigint      NOT NULL UNIQUE,
    -- Two batches after the same one would be two histories.
    previous_hash  bytea       NOT NULL UNIQUE,
    hash           bytea       NOT NULL UNIQUE,
    sealed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT seal_batches_not_empty CHECK (batch >= 1 AND first_position >= 1 AND last_position >= first_position),
    CONSTRAINT seal_batches_hashes_are_whole CHECK (octet_length(previous_hash) = 32 AND octet_length(hash) = 32)
);

CREATE TRIGGER journal_seals_are_append_only BEFORE UPDATE OR DELETE ON journal_seals
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER journal_seals_are_not_truncated BEFORE TRUNCATE ON journal_seals
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER seal_batches_are_append_only BEFORE UPDATE OR DELETE ON seal_batches
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER seal_batches_are_not_truncated BEFORE TRUNCATE ON seal_batches
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- An entry waits until it is sealed, and no longer.
CREATE FUNCTION keep_until_sealed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM gone WHERE NOT EXISTS (SELECT FROM journal_seals s WHERE s.entry_id = gone.entry_id)) THEN
        RAISE EXCEPTION 'an entry kill_switches waiting only when it is sealed' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_unsealed_is_kept AFTER DELETE ON journal_unsealed REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION keep_until_sealed();
CREATE TRIGGER journal_unsealed_is_not_changed BEFORE UPDATE ON journal_unsealed
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER journal_unsealed_is_not_truncated BEFORE TRUNCATE ON journal_unsealed
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What internal accounts hold by their sealed entries; with those that still wait it is their balance. Only the sealer
-- writes here, so payments never meet on these rows.
CREATE TABLE sealed_balances (
    account_id    text   PRIMARY KEY REFERENCES accounts,
    balance_minor bigint NOT NULL,
    -- Of the last entry counted.
    position      bigint NOT NULL
);

-- What each hour moved on them, by the time of the entries: an instant long ago is reached in steps of an hour. An entry
-- that is committed late is added to its own hour.
CREATE TABLE sealed_hours (
    account_id  text        NOT NULL REFERENCES accounts,
    hour        timestamptz NOT NULL,
    moved_minor bigint      NOT NULL,
    PRIMARY KEY (account_id, hour)
);

-- What an account's holds were at an instant.
CREATE INDEX holds_by_account ON holds (account_id, closed_at);
