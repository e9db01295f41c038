-- Only the journal moves money: its triggers change balances and holds in the statement that inserts an entry, so no
-- transaction can commit in which they disagree.

-- Moves customer balances, then takes the time under the account's lock: an account's entries are in the order of their times.
CREATE FUNCTION move_balances() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.debit_account NOT LIKE 'internal:%' THEN
        UPDATE accounts SET available_minor = available_minor - NEW.amount_minor
        WHERE account_id = NEW.debit_account AND currency = NEW.currency;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no account % in %', NEW.debit_account, NEW.currency USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    IF NEW.credit_account NOT LIKE 'internal:%' THEN
        UPDATE accounts SET available_minor = available_minor + NEW.amount_minor
        WHERE account_id = NEW.credit_account AND currency = NEW.currency;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no account % in %', NEW.credit_account, NEW.currency USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    NEW.posted_at := clock_timestamp();
    RETURN NEW;
END
$$;

CREATE TRIGGER journal_moves_balances BEFORE INSERT ON journal FOR EACH ROW EXECUTE FUNCTION move_balances();

-- Opens and closes holds, at the time of the entry.
CREATE FUNCTION move_holds() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.kind = 'reserve' THEN
        INSERT INTO holds (payment_id, account_id, amount_minor, currency, opened_at)
        VALUES (NEW.payment_id, NEW.debit_account, NEW.amount_minor, NEW.currency, NEW.posted_at);
    ELSE
        UPDATE holds SET status = CASE NEW.kind WHEN 'debit' THEN 'debited' ELSE 'released' END, closed_at = NEW.posted_at
        WHERE payment_id = NEW.payment_id AND (amount_minor, currency) = (NEW.amount_minor, NEW.currency)
          AND (NEW.kind = 'debit' OR account_id = NEW.credit_account);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'payment % has no hold that matches this %', NEW.payment_id, NEW.kind
                USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_moves_holds AFTER INSERT ON journal
    FOR EACH ROW WHEN (NEW.kind IN ('reserve', 'debit', 'release')) EXECUTE FUNCTION move_holds();

-- Every other change of a balance or a hold is refused, whichever role makes it.
CREATE FUNCTION refuse_direct_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% changes by journal entries only: % refused', TG_ARGV[0], TG_OP USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER accounts_open_empty BEFORE INSERT ON accounts
    FOR EACH ROW WHEN (NEW.available_minor <> 0) EXECUTE FUNCTION refuse_direct_change('a balance');
CREATE TRIGGER accounts_follow_journal BEFORE UPDATE OF available_minor ON accounts
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_direct_change('a balance');
CREATE TRIGGER holds_follow_journal BEFORE INSERT OR UPDATE OR DELETE ON holds
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_direct_change('a hold');
CREATE TRIGGER holds_no_truncate BEFORE TRUNCATE ON holds
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_direct_change('a hold');
