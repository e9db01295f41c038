-- Money: accounts, and the journal that alone changes what they hold.

CREATE TABLE accounts (
    account_id      text        PRIMARY KEY,
    tenant_id       text        NOT NULL,
    kind            text        NOT NULL,
    currency        text        NOT NULL,
    status          text        NOT NULL DEFAULT 'active',
    -- Customers' accounts keep their balance here, changed in the journal's own transaction.
    -- Internal accounts are hot and keep none: their balance is the sum of their entries.
    available_minor bigint,
    opened_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT accounts_kind_known CHECK (kind IN ('customer', 'internal')),
    CONSTRAINT accounts_internal_named_so CHECK ((kind = 'internal') = (account_id LIKE 'internal:%')),
    CONSTRAINT accounts_currency_is_iso CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT accounts_status_known CHECK (status IN ('active', 'frozen', 'closed')),
    CONSTRAINT accounts_only_customers_keep_a_balance CHECK ((kind = 'customer') = (available_minor IS NOT NULL)),
    CONSTRAINT accounts_available_not_negative CHECK (available_minor >= 0)
);

-- What was done, or refused, under each key. Written in the transaction of the balance change; a
-- repeat of the key gets the recorded outcome.
CREATE TABLE operations (
    operation_key text        PRIMARY KEY,
    payment_id    text,
    outcome       text        NOT NULL,
    reason        text,
    recorded_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT operations_outcome_known CHECK (outcome IN ('done', 'refused')),
    CONSTRAINT operations_refusal_has_a_reason CHECK ((outcome = 'refused') = (reason IS NOT NULL))
);

CREATE INDEX operations_by_age ON operations (recorded_at);

-- Double entry: one row debits one account and credits another by the same amount, so that an
-- unbalanced entry cannot be written down.
CREATE TABLE journal (
    entry_id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_key  text        NOT NULL UNIQUE,
    payment_id     text,
    kind           text        NOT NULL,
    debit_account  text        NOT NULL REFERENCES accounts,
    credit_account text        NOT NULL REFERENCES accounts,
    amount_minor   bigint      NOT NULL,
    currency       text        NOT NULL,
    posted_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT journal_kind_known CHECK (kind IN ('fund', 'reserve', 'debit', 'release')),
    CONSTRAINT journal_amount_positive CHECK (amount_minor > 0),
    CONSTRAINT journal_two_accounts CHECK (debit_account <> credit_account),
    CONSTRAINT journal_payment_named CHECK ((kind = 'fund') = (payment_id IS NULL))
);

-- A payment holds once, and what it holds is settled or released, never both.
CREATE UNIQUE INDEX journal_one_reserve ON journal (payment_id) WHERE kind = 'reserve';
CREATE UNIQUE INDEX journal_debited_or_released ON journal (payment_id) WHERE kind IN ('debit', 'release');
CREATE INDEX journal_by_debit_account ON journal (debit_account, entry_id);
CREATE INDEX journal_by_credit_account ON journal (credit_account, entry_id);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER journal_is_append_only BEFORE UPDATE OR DELETE ON journal
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER journal_is_not_truncated BEFORE TRUNCATE ON journal
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
