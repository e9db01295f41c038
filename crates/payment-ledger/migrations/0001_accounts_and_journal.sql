-- Accounts, operation keys, and the append-only double-entry journal.

CREATE TABLE accounts (
    account_id      text        PRIMARY KEY,
    tenant_id       text        NOT NULL,
    kind            text        NOT NULL,
    currency        text        NOT NULL,
    status          text        NOT NULL DEFAULT 'active',
    -- Customer accounts store their available balance; triggers of the journal move it (0008). Internal accounts are hot, so
    -- they store none: their balance is the sum of their entries.
    available_minor bigint,
    opened_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT accounts_kind_known CHECK (kind IN ('customer', 'internal')),
    CONSTRAINT accounts_internal_prefix CHECK ((kind = 'internal') = (account_id LIKE 'internal:%')),
    CONSTRAINT accounts_currency_is_iso CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT accounts_status_known CHECK (status IN ('active', 'frozen', 'closed')),
    CONSTRAINT accounts_balance_only_for_customers CHECK ((kind = 'customer') = (available_minor IS NOT NULL)),
    CONSTRAINT accounts_available_not_negative CHECK (available_minor >= 0)
);

-- Internal accounts are few, and read every minute.
CREATE INDEX accounts_internal ON accounts (account_id) WHERE kind = 'internal';

-- The recorded outcome of each operation, written in the transaction of its balance change. A repeat of the key gets the
-- recorded outcome. `unsupported`: the switch has no such operation, which is not a refusal.
CREATE TABLE operations (
    operation_key text        PRIMARY KEY,
    payment_id    text,
    outcome       text        NOT NULL,
    reason        text,
    recorded_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT operations_outcome_known CHECK (outcome IN ('done', 'refused', 'unsupported')),
    CONSTRAINT operations_reason_unless_done CHECK ((outcome = 'done') = (reason IS NULL))
);


-- Double entry: one row debits one account and credits another by the same amount, so an unbalanced entry cannot be written.
-- The advance of the bank, where a customer's account is restored when no confirmation comes:
--   advance        claims -> customer: the hold stays open, and the bank bears it
--   release        holding -> claims, of a hold that the bank bears
--   collect        customer -> claims: the transfer settled after all; by the debit, or by an operator decision
-- Returns, each once, whole or in part:
--   return         escrow -> the bearer of the amount: the customer, else claims, else losses
-- Corrections, by an operator decision after the payment's end:
--   late_debit     customer, else claims -> escrow: the money left and nobody was debited
--   return_credit  escrow -> the debited account: the money came back, or never left
--   write_off      losses -> claims: the bank gives the claim up
CREATE TABLE journal (
    entry_id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_key  text        NOT NULL UNIQUE,
    payment_id     text,
    kind           text        NOT NULL,
    debit_account  text        NOT NULL REFERENCES accounts,
    credit_account text        NOT NULL REFERENCES accounts,
    amount_minor   bigint      NOT NULL,
    currency       text        NOT NULL,
    -- Set by a trigger under the customer account's lock (0008), so the entries of an account are in the order of their times.
    posted_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT journal_kind_known CHECK (kind IN (
        'fund', 'reserve', 'debit', 'release', 'advance', 'collect', 'return', 'late_debit', 'return_credit', 'write_off')),
    CONSTRAINT journal_amount_positive CHECK (amount_minor > 0),
    CONSTRAINT journal_two_accounts CHECK (debit_account <> credit_account),
    CONSTRAINT journal_payment_unless_fund CHECK ((kind = 'fund') = (payment_id IS NULL)),
    -- Named to be checked after the others: PostgreSQL checks constraints in the order of their names.
    CONSTRAINT journal_valid_accounts_for_kind CHECK (CASE kind
        WHEN 'fund' THEN debit_account = 'internal:funding:' || currency AND credit_account NOT LIKE 'internal:%'
        WHEN 'reserve' THEN debit_account NOT LIKE 'internal:%' AND credit_account = 'internal:holding:' || currency
        WHEN 'debit' THEN debit_account = 'internal:holding:' || currency AND credit_account = 'internal:escrow:' || currency
        WHEN 'release' THEN debit_account = 'internal:holding:' || currency
            AND (credit_account NOT LIKE 'internal:%' OR credit_account = 'internal:claims:' || currency)
        WHEN 'advance' THEN debit_account = 'internal:claims:' || currency AND credit_account NOT LIKE 'internal:%'
        WHEN 'collect' THEN debit_account NOT LIKE 'internal:%' AND credit_account = 'internal:claims:' || currency
        WHEN 'late_debit' THEN (debit_account NOT LIKE 'internal:%' OR debit_account = 'internal:claims:' || currency)
            AND credit_account = 'internal:escrow:' || currency
        WHEN 'return' THEN debit_account = 'internal:escrow:' || currency AND (credit_account NOT LIKE 'internal:%'
            OR credit_account IN ('internal:claims:' || currency, 'internal:losses:' || currency))
        WHEN 'return_credit' THEN debit_account = 'internal:escrow:' || currency AND (credit_account NOT LIKE 'internal:%'
            OR credit_account IN ('internal:claims:' || currency, 'internal:losses:' || currency))
        WHEN 'write_off' THEN debit_account = 'internal:losses:' || currency AND credit_account = 'internal:claims:' || currency
        ELSE false END)
);

-- One reserve per payment; its hold is debited or released, never both. A payment is debited once, by its step or late. An advance,
-- its collection and each correction are posted once.
CREATE UNIQUE INDEX journal_one_reserve ON journal (payment_id) WHERE kind = 'reserve';
CREATE UNIQUE INDEX journal_debited_or_released ON journal (payment_id) WHERE kind IN ('debit', 'release');
CREATE UNIQUE INDEX journal_debited_once ON journal (payment_id) WHERE kind IN ('debit', 'late_debit');
CREATE UNIQUE INDEX journal_one_advance ON journal (payment_id) WHERE kind = 'advance';
CREATE UNIQUE INDEX journal_one_collect ON journal (payment_id) WHERE kind = 'collect';
CREATE UNIQUE INDEX journal_one_return_credit ON journal (payment_id) WHERE kind = 'return_credit';
CREATE UNIQUE INDEX journal_one_write_off ON journal (payment_id) WHERE kind = 'write_off';

CREATE INDEX journal_by_debit_account ON journal (debit_account, posted_at, entry_id);
CREATE INDEX journal_by_credit_account ON journal (credit_account, posted_at, entry_id);
-- For entries posted after an instant. Entries are inserted in the order of time, so a block range index is small and exact.
CREATE INDEX journal_by_time ON journal USING brin (posted_at);

-- Functions of triggers have a fixed search path: the session that fires them could put tables, functions or operators of its own before
-- ours.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER journal_append_only BEFORE UPDATE OR DELETE ON journal
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER journal_no_truncate BEFORE TRUNCATE ON journal
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
