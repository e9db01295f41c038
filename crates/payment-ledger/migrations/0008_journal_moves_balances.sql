-- Only the journal moves money: its triggers change balances and holds in the statement that inserts an entry, so no
-- transaction can commit in which they disagree.

-- Moves customer balances, then takes the time under the account's lock: an account's entries are in the order of their times. Only the payer
-- of the entry's payment is charged, and no more than its amount.
CREATE FUNCTION move_balances() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.debit_account NOT LIKE 'internal:%' THEN
        UPDATE accounts SET available_minor = available_minor - NEW.amount_minor
        WHERE account_id = NEW.debit_account AND currency = NEW.currency
          AND EXISTS (SELECT FROM payments WHERE payment_id = NEW.payment_id AND source_account = NEW.debit_account
                                             AND currency = NEW.currency AND amount_minor >= NEW.amount_minor);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'payment % charges no % % to the account %: % refused',
                NEW.payment_id, NEW.amount_minor, NEW.currency, NEW.debit_account, NEW.kind USING ERRCODE = 'restrict_violation';
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

-- Opens holds, passes them to the bank and closes them, at the time of the entry. A release pays the bearer of the hold.
CREATE FUNCTION move_holds() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.kind = 'reserve' THEN
        INSERT INTO holds (payment_id, account_id, amount_minor, currency, opened_at)
        VALUES (NEW.payment_id, NEW.debit_account, NEW.amount_minor, NEW.currency, NEW.posted_at);
    ELSIF NEW.kind = 'advance' THEN
        UPDATE holds SET borne_by_bank_since = NEW.posted_at
        WHERE payment_id = NEW.payment_id AND status = 'open' AND borne_by_bank_since IS NULL
          AND (account_id, amount_minor, currency) = (NEW.credit_account, NEW.amount_minor, NEW.currency);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'payment % has no open hold that matches this advance', NEW.payment_id
                USING ERRCODE = 'restrict_violation';
        END IF;
    ELSE
        UPDATE holds SET status = CASE NEW.kind WHEN 'debit' THEN 'debited' ELSE 'released' END, closed_at = NEW.posted_at
        WHERE payment_id = NEW.payment_id AND (amount_minor, currency) = (NEW.amount_minor, NEW.currency)
          AND (NEW.kind = 'debit' OR NEW.credit_account = CASE WHEN borne_by_bank_since IS NULL THEN account_id
                                                               ELSE 'internal:claims:' || currency END);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'payment % has no hold that matches this %', NEW.payment_id, NEW.kind
                USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_moves_holds AFTER INSERT ON journal
    FOR EACH ROW WHEN (NEW.kind IN ('reserve', 'debit', 'release', 'advance')) EXECUTE FUNCTION move_holds();

-- A debit of the claims account opens the payment's claim, and a credit pays it back.
CREATE FUNCTION move_claims() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.debit_account LIKE 'internal:claims:%' THEN
        INSERT INTO claims (entry_id, payment_id, switch, amount_minor, open_minor, currency, opened_at)
        SELECT NEW.entry_id, payment_id, switch, NEW.amount_minor, NEW.amount_minor, NEW.currency, NEW.posted_at
        FROM payments WHERE payment_id = NEW.payment_id AND currency = NEW.currency AND amount_minor >= NEW.amount_minor;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no payment % that the bank could bear % % of', NEW.payment_id, NEW.amount_minor, NEW.currency
                USING ERRCODE = 'restrict_violation';
        END IF;
    ELSE
        UPDATE claims SET open_minor = open_minor - NEW.amount_minor,
                          closed_at = CASE WHEN open_minor = NEW.amount_minor THEN NEW.posted_at END
        WHERE payment_id = NEW.payment_id AND closed_at IS NULL AND currency = NEW.currency AND open_minor >= NEW.amount_minor;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'payment % has no open claim that this % could pay back', NEW.payment_id, NEW.kind
                USING ERRCODE = 'restrict_violation';
        END IF;
        -- Nobody waits any more for the money that a recall asks for.
        UPDATE recalls r SET status = 'closed', next_attempt_at = NULL, updated_at = NEW.posted_at
        WHERE payment_id = NEW.payment_id
          AND NOT EXISTS (SELECT FROM claims c WHERE c.payment_id = r.payment_id AND c.closed_at IS NULL);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_moves_claims AFTER INSERT ON journal
    FOR EACH ROW WHEN (NEW.debit_account LIKE 'internal:claims:%' OR NEW.credit_account LIKE 'internal:claims:%')
    EXECUTE FUNCTION move_claims();

-- Counts what came back: no more than was charged, and to the payer, or to the bank's own accounts.
CREATE FUNCTION move_returned() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE payments SET returned_minor = returned_minor + NEW.amount_minor
    WHERE payment_id = NEW.payment_id AND (NEW.credit_account LIKE 'internal:%' OR NEW.credit_account = source_account)
      AND EXISTS (SELECT FROM journal WHERE payment_id = NEW.payment_id AND kind IN ('debit', 'late_debit'));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'payment % was not charged, or was not paid from %: % refused', NEW.payment_id, NEW.credit_account, NEW.kind
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_moves_returned AFTER INSERT ON journal
    FOR EACH ROW WHEN (NEW.kind IN ('return', 'return_credit')) EXECUTE FUNCTION move_returned();

-- Every other change of a balance, a hold, a claim or what came back is refused, whichever role makes it.
CREATE FUNCTION refuse_direct_change() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
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
CREATE TRIGGER claims_follow_journal BEFORE INSERT OR UPDATE OR DELETE ON claims
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_direct_change('a claim');
CREATE TRIGGER payments_begin_unreturned BEFORE INSERT ON payments
    FOR EACH ROW WHEN (NEW.returned_minor <> 0) EXECUTE FUNCTION refuse_direct_change('what came back');
CREATE TRIGGER payments_returned_follows_journal BEFORE UPDATE OF returned_minor ON payments
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_direct_change('what came back');
CREATE TRIGGER claims_no_truncate BEFORE TRUNCATE ON claims
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_direct_change('a claim');
CREATE TRIGGER holds_no_truncate BEFORE TRUNCATE ON holds
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_direct_change('a hold');
