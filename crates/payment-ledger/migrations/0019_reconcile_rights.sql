-- What the role payctl_reconcile may write into the tables that other processes write, too: the return that a line of a statement shows, and
-- the marks after lost commits. Its grants (0014) name the columns; these triggers, which concern no other role, the values.

-- Whether a line of the switch's statement shows this return of a payment: of a part by its id, of the whole transfer without one.
CREATE FUNCTION is_listed_return(payment text, id text, minor bigint, code text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM payments p JOIN statement_lines s ON s.switch = p.switch AND s.reference = coalesce(p.rail_id, p.tx_id || ':submit')
        WHERE p.payment_id = payment AND s.status = 'RETURNED' AND s.return_id IS NOT DISTINCT FROM id
          AND (s.amount_minor, s.currency) = (minor, code)
        UNION ALL
        SELECT FROM submissions m JOIN payments p USING (payment_id)
        JOIN statement_lines s ON s.switch = p.switch AND s.transfer_id = m.transfer_id AND s.reference IS NULL
        WHERE m.payment_id = payment AND s.status = 'RETURNED' AND s.return_id IS NOT DISTINCT FROM id
          AND (s.amount_minor, s.currency) = (minor, code))
$$;

CREATE FUNCTION check_payment_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.attempts_uncertain < OLD.attempts_uncertain OR NEW.has_unbooked_return < OLD.has_unbooked_return THEN
        PERFORM refuse_action('take a mark away from a payment');
    END IF;
    IF (NEW.final_status, NEW.final_status_source) IS DISTINCT FROM (OLD.final_status, OLD.final_status_source)
       AND NOT coalesce((NEW.final_status, NEW.final_status_source) = ('returned', 'statement')
                        AND is_listed_return(NEW.payment_id, NULL, NEW.amount_minor, NEW.currency), false) THEN
        PERFORM refuse_action('write a final status that no statement shows');
    END IF;
    IF NEW.ended_at IS DISTINCT FROM OLD.ended_at
       OR NEW.state <> OLD.state AND NOT coalesce(NEW.state = 'confirmed' AND NEW.final_status = 'returned', false) THEN
        PERFORM refuse_action('move a payment to the state ' || NEW.state);
    END IF;
    IF NEW.rail_id IS DISTINCT FROM OLD.rail_id AND NOT NEW.attempts_uncertain THEN
        PERFORM refuse_action('name the transfer of a payment without the mark of lost commits');
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION check_return_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.booked_at IS NOT NULL OR NOT is_listed_return(NEW.payment_id, NEW.return_id, NEW.amount_minor, NEW.currency) THEN
        PERFORM refuse_action('store a return that no statement shows');
    END IF;
    RETURN NEW;
END
$$;

-- An operation and its journal entry: a return that is stored and not booked.
CREATE FUNCTION check_booking_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    r returns;
BEGIN
    SELECT u.* INTO r FROM returns u JOIN payments p USING (payment_id)
        WHERE u.payment_id = NEW.payment_id AND u.booked_at IS NULL AND NEW.operation_key = p.tx_id || ':return:' || u.return_id
          AND u.switch = p.switch;
    IF NOT FOUND
       OR TG_TABLE_NAME = 'journal' AND (to_jsonb(NEW) ->> 'amount_minor', to_jsonb(NEW) ->> 'currency')
                                        IS DISTINCT FROM (r.amount_minor::text, r.currency) THEN
        PERFORM refuse_action(format('write %s into %s', NEW.operation_key, TG_TABLE_NAME));
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION check_inbox_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.kind <> 'final_status' OR NOT EXISTS (
           SELECT FROM payments p WHERE p.payment_id = NEW.payment_id AND p.final_status = 'returned') THEN
        PERFORM refuse_action('write another message than that of a return');
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION check_exception_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.closed_at IS NOT NULL OR NEW.kind = 'opened_by_operator' THEN
        PERFORM refuse_action('open an exception for an operator, or a closed one');
    END IF;
    RETURN NEW;
END
$$;

-- Customers read of a payment only that its money came back.
CREATE FUNCTION check_timeline_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT NEW.is_internal AND NOT EXISTS (SELECT FROM returns r WHERE r.payment_id = NEW.payment_id)
       AND NOT EXISTS (SELECT FROM payments p WHERE p.payment_id = NEW.payment_id AND p.final_status = 'returned') THEN
        PERFORM refuse_action('write into the timeline of a payment without a return');
    END IF;
    NEW.happened_at := clock_timestamp();
    RETURN NEW;
END
$$;

CREATE FUNCTION check_event_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.kind <> 'transfer_returned' OR NOT EXISTS (
           SELECT FROM returns r WHERE r.payment_id = NEW.subject_key AND r.booked_at IS NOT NULL) THEN
        PERFORM refuse_action('append another event than that of a booked return');
    END IF;
    RETURN NEW;
END
$$;

DO $$
DECLARE
    guarded record;
BEGIN
    FOR guarded IN
        SELECT * FROM (VALUES
            ('payments', 'UPDATE', 'check_payment_of_reconcile'),
            ('returns', 'INSERT', 'check_return_of_reconcile'),
            ('operations', 'INSERT', 'check_booking_of_reconcile'),
            ('journal', 'INSERT', 'check_booking_of_reconcile'),
            ('inbox', 'INSERT', 'check_inbox_of_reconcile'),
            ('exceptions', 'INSERT', 'check_exception_of_reconcile'),
            ('timeline', 'INSERT', 'check_timeline_of_reconcile'),
            ('outbox', 'INSERT', 'check_event_of_reconcile')
        ) AS guards (guarded_table, events, guard)
    LOOP
        EXECUTE format(
            'CREATE TRIGGER %1$I BEFORE %2$s ON %3$I FOR EACH ROW WHEN (current_user = ''payctl_reconcile'') EXECUTE FUNCTION %4$I()',
            guarded.guarded_table || '_of_reconcile', guarded.events, guarded.guarded_table, guarded.guard);
    END LOOP;
END
$$;

-- Booked by its journal entry, as for operator-api (0016).
CREATE TRIGGER returns_booked_of_reconcile BEFORE UPDATE ON returns FOR EACH ROW
    WHEN (current_user = 'payctl_reconcile') EXECUTE FUNCTION check_return_is_booked();
