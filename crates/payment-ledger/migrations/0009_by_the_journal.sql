-- The journal alone moves money: balances and holds are made by the database from its entries, in the same statement, so
-- that no transaction can be committed in which they disagree. And whoever serves payments can add to history, not change it.

-- What an entry of a kind moves, between which accounts.
ALTER TABLE journal ADD CONSTRAINT journal_way_fits_its_kind CHECK (CASE kind
    WHEN 'fund' THEN debit_account = 'internal:funding:' || currency AND credit_account NOT LIKE 'internal:%'
    WHEN 'reserve' THEN debit_account NOT LIKE 'internal:%' AND credit_account = 'internal:holding:' || currency
    WHEN 'settle' THEN debit_account = 'internal:holding:' || currency AND credit_account = 'internal:escrow:' || currency
    WHEN 'release' THEN debit_account = 'internal:holding:' || currency AND credit_account NOT LIKE 'internal:%'
    WHEN 'late_debit' THEN (debit_account NOT LIKE 'internal:%' OR debit_account = 'internal:claims:' || currency)
        AND credit_account = 'internal:escrow:' || currency
    WHEN 'return_credit' THEN debit_account = 'internal:escrow:' || currency AND (credit_account NOT LIKE 'internal:%'
        OR credit_account IN ('internal:claims:' || currency, 'internal:losses:' || currency))
    WHEN 'write_off' THEN debit_account = 'internal:losses:' || currency AND credit_account = 'internal:claims:' || currency
    ELSE false END);

-- Moves customers' balances, and then takes the time: under the account's lock, so that an account's entries have their
-- times in the order in which they moved it.
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

-- Opens and closes holds, at the entry's own time.
CREATE FUNCTION move_holds() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.kind = 'reserve' THEN
        INSERT INTO holds (payment_id, account_id, amount_minor, currency, opened_at)
        VALUES (NEW.payment_id, NEW.debit_account, NEW.amount_minor, NEW.currency, NEW.posted_at);
    ELSE
        UPDATE holds SET status = CASE NEW.kind WHEN 'settle' THEN 'settled' ELSE 'released' END, closed_at = NEW.posted_at
        WHERE payment_id = NEW.payment_id AND (amount_minor, currency) = (NEW.amount_minor, NEW.currency)
          AND (NEW.kind = 'settle' OR account_id = NEW.credit_account);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'payment % holds nothing that this % is of', NEW.payment_id, NEW.kind
                USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_moves_holds AFTER INSERT ON journal
    FOR EACH ROW WHEN (NEW.kind IN ('reserve', 'settle', 'release')) EXECUTE FUNCTION move_holds();

-- Nothing else moves them: what no trigger of the journal does is refused, whoever does it.
CREATE FUNCTION refuse_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% changes by entries of the journal only: % refused', TG_ARGV[0], TG_OP USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER accounts_open_empty BEFORE INSERT ON accounts
    FOR EACH ROW WHEN (NEW.available_minor <> 0) EXECUTE FUNCTION refuse_by_hand('a balance');
CREATE TRIGGER accounts_follow_the_journal BEFORE UPDATE OF available_minor ON accounts
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_by_hand('a balance');
CREATE TRIGGER holds_follow_the_journal BEFORE INSERT OR UPDATE OR DELETE ON holds
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_by_hand('a hold');
CREATE TRIGGER holds_are_not_truncated BEFORE TRUNCATE ON holds
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_by_hand('a hold');

ALTER FUNCTION await_seal() SECURITY DEFINER SET search_path = public, pg_temp;

-- What the services may do: a login of theirs is granted this role (`payments_service`), which can add to history and move a
-- payment on, and has no right to change or take away what was written. A table that is made later has no rights until its
-- migration grants them. The role is the cluster's: it is made here where the owner may, and beforehand where not.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'payments_service') THEN
        CREATE ROLE payments_service NOLOGIN;
        EXECUTE format('GRANT payments_service TO %I', current_user);
    END IF;
EXCEPTION
    -- Another database of the cluster was migrated at the same moment.
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION 'there is no role payments_service, and this user may make none: CREATE ROLE payments_service NOLOGIN first'
            USING ERRCODE = 'insufficient_privilege';
END
$$;

GRANT USAGE ON SCHEMA public TO payments_service;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO payments_service;
GRANT INSERT ON journal, operations, payments, submissions, timeline, switch_callbacks, inbox, exceptions, alerts, decisions,
    journal_seals, seal_batches, sealed_balances, sealed_hours TO payments_service;
-- A row can be locked only by who may change something of it.
GRANT UPDATE (status) ON accounts TO payments_service;
GRANT UPDATE (state, workflow_id, resume_count, run_id, attempts, first_attempt_at, submit_deadline, cause, cancelling_since,
    verdict, verdict_source, operator_reason, standing_since, start_lease_until, start_refusals, started_at, updated_at,
    ended_at) ON payments TO payments_service;
GRANT UPDATE (outcome, detail, answered_at, marker, transfer_id) ON submissions TO payments_service;
GRANT UPDATE (deliveries, deliver_at, delivered_at) ON inbox TO payments_service;
GRANT UPDATE (closed_at, closed_by) ON exceptions TO payments_service;
GRANT UPDATE (status, confirmed_by, confirmed_at, confirm_reason, outcome, detail, closed_at) ON decisions TO payments_service;
GRANT UPDATE ON sealed_balances, sealed_hours TO payments_service;
-- What is sealed stops waiting; the table's own trigger refuses the rest.
GRANT DELETE ON journal_unsealed TO payments_service;
