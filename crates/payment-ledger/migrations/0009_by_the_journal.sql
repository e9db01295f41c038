-- The journal alone moves money: balances and holds are made by the database from its entries, in the same statement, so
-- that no transaction can be committed in which they disagree. And whoever serves payments can add to history, not change it.

-- What an entry of a kind moves, between which accounts.
ALTER TABLE journal ADD CONSTRAINT journal_way_fits_its_kind CHECK (CASE kind
    WHEN 'fund' THEN debit_account = 'internal:funding:' || currency AND credit_account NOT LIKE 'internal:%'
    WHEN 'reserve' THEN debit_account NOT LIKE 'internal:%' AND credit_account = 'internal:holding:' || currency
    WHEN 'debit' THEN debit_account = 'internal:holding:' || currency AND credit_account = 'internal:escrow:' || currency
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
        UPDATE holds SET status = CASE NEW.kind WHEN 'debit' THEN 'settled' ELSE 'released' END, closed_at = NEW.posted_at
        WHERE payment_id = NEW.payment_id AND (amount_minor, currency) = (NEW.amount_minor, NEW.currency)
          AND (NEW.kind = 'debit' OR account_id = NEW.credit_account);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'payment % holds nothing that this % is of', NEW.payment_id, NEW.kind
                USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER journal_moves_holds AFTER INSERT ON journal
    FOR EACH ROW WHEN (NEW.kind IN ('reserve', 'debit', 'release')) EXECUTE FUNCTION move_holds();

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
    final_status, final_status_source, operator_reason, needs_operator_since, start_lease_until, start_rejections, started_at, updated_at,
    ended_at) ON payments TO payments_service;
GRANT UPDATE (outcome, detail, answered_at, marker, transfer_id) ON submissions TO payments_service;
GRANT UPDATE (deliveries, deliver_at, delivered_at) ON inbox TO payments_service;
GRANT UPDATE (closed_at, closed_by) ON exceptions TO payments_service;
GRANT UPDATE (status, confirmed_by, confirmed_at, confirm_reason, outcome, detail, closed_at) ON decisions TO payments_service;
GRANT UPDATE ON sealed_balances, sealed_hours TO payments_service;
-- What is sealed kill_switches waiting; the table's own trigger refuses the rest.
GRANT DELETE ON journal_unsealed TO payments_service;

-- What may leave an account, or a tenant's accounts together, in one currency. A limit is never changed: the newest counts,
-- and one without numbers is none. A day is UTC's, by the database's clock when the amount is held.
CREATE TABLE limits (
    limit_id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope             text        NOT NULL,
    scope_id          text        NOT NULL,
    currency          text        NOT NULL,
    per_payment_minor bigint,
    per_day_minor     bigint,
    per_day_count     bigint,
    set_by            text        NOT NULL,
    reason            text        NOT NULL,
    set_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT limits_scope_known CHECK (scope IN ('account', 'tenant')),
    CONSTRAINT limits_not_negative CHECK (per_payment_minor >= 0 AND per_day_minor >= 0 AND per_day_count >= 0),
    CONSTRAINT limits_named_and_reasoned CHECK (btrim(set_by) <> '' AND btrim(reason) <> '')
);

CREATE INDEX limits_newest ON limits (scope, scope_id, currency, limit_id DESC);
CREATE TRIGGER limits_are_append_only BEFORE UPDATE OR DELETE ON limits FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER limits_are_not_truncated BEFORE TRUNCATE ON limits FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What a day has used of its limit. There are rows only where there is a limit.
CREATE TABLE limit_days (
    scope      text   NOT NULL,
    scope_id   text   NOT NULL,
    currency   text   NOT NULL,
    day        date   NOT NULL,
    used_minor bigint NOT NULL DEFAULT 0,
    used_count bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, scope_id, currency, day),
    CONSTRAINT limit_days_not_negative CHECK (used_minor >= 0 AND used_count >= 0)
);

-- Which payment used it, so that exactly that is given back with what was held.
CREATE TABLE limit_uses (
    payment_id    text        NOT NULL REFERENCES payments,
    scope         text        NOT NULL,
    scope_id      text        NOT NULL,
    currency      text        NOT NULL,
    day           date        NOT NULL,
    amount_minor  bigint      NOT NULL,
    released_at timestamptz,
    PRIMARY KEY (payment_id, scope)
);

-- What takes no new payments: a switch, or a corridor (a currency and the beginning of the destination account). Who stopped
-- it, who lifted that, and why, stays on record.
CREATE TABLE kill_switches (
    kill_switch_id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    switch             text,
    currency           text,
    destination_prefix text,
    activated_by         text        NOT NULL,
    reason             text        NOT NULL,
    activated_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    lifted_by          text,
    lift_reason        text,
    lifted_at          timestamptz,
    CONSTRAINT stops_of_a_switch_or_a_corridor CHECK (
        (switch IS NULL) = (currency IS NOT NULL) AND (currency IS NULL) = (destination_prefix IS NULL)),
    CONSTRAINT stops_named_and_reasoned CHECK (
        btrim(activated_by) <> '' AND btrim(reason) <> '' AND btrim(lifted_by) <> '' AND btrim(lift_reason) <> ''),
    CONSTRAINT stops_lifted_whole CHECK (
        (lifted_at IS NULL) = (lifted_by IS NULL) AND (lifted_at IS NULL) = (lift_reason IS NULL))
);

CREATE UNIQUE INDEX stops_once ON kill_switches (coalesce(switch, ''), coalesce(currency, ''), coalesce(destination_prefix, ''))
    WHERE lifted_at IS NULL;

CREATE FUNCTION guard_kill_switch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.lifted_at IS NOT NULL
       OR (NEW.kill_switch_id, NEW.switch, NEW.currency, NEW.destination_prefix, NEW.activated_by, NEW.reason, NEW.activated_at)
          IS DISTINCT FROM
          (OLD.kill_switch_id, OLD.switch, OLD.currency, OLD.destination_prefix, OLD.activated_by, OLD.reason, OLD.activated_at) THEN
        RAISE EXCEPTION 'stop % is written: it can only be lifted, once', OLD.kill_switch_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER stops_are_kept BEFORE UPDATE ON kill_switches FOR EACH ROW EXECUTE FUNCTION guard_kill_switch();
CREATE TRIGGER stops_are_not_deleted BEFORE DELETE ON kill_switches FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER stops_are_not_truncated BEFORE TRUNCATE ON kill_switches FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Limits and kill_switches are set by the bank's own people.
GRANT SELECT ON limits, limit_days, limit_uses, kill_switches TO payments_service;
GRANT INSERT ON limit_days, limit_uses TO payments_service;
GRANT UPDATE (used_minor, used_count) ON limit_days TO payments_service;
GRANT UPDATE (released_at) ON limit_uses TO payments_service;
