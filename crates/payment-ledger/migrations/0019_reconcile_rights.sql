-- What the role payctl_reconcile may write into tables that others write, too: the marks after lost commits, and the drift that it finds.
-- Its grants (0014) name the columns; these triggers, which concern no other role, the values. It records no return and moves no money.

-- An open payment is marked, once; one that has ended is complete. The id of the lost attempt of a marked payment is minted at a rail that
-- takes ids of ours.
CREATE FUNCTION check_payment_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.attempts_uncertain < OLD.attempts_uncertain OR NEW.attempts_uncertain > OLD.attempts_uncertain AND OLD.ended_at IS NOT NULL THEN
        PERFORM refuse_action('take the mark of lost commits away, or mark a payment that has ended');
    END IF;
    IF NEW.rail_id IS DISTINCT FROM OLD.rail_id AND NOT coalesce(
           NEW.attempts_uncertain AND NEW.rail_id ~ '^[0-9A-Za-z]{1,35}$'
           AND EXISTS (SELECT FROM switch_profiles s WHERE s.profile_hash = NEW.profile_hash AND s.profile ? 'id_scheme'), false) THEN
        PERFORM refuse_action('name the transfer of a payment without the mark of lost commits, or at a switch that takes our references');
    END IF;
    RETURN NEW;
END
$$;

-- Customers read none of its words.
CREATE FUNCTION check_timeline_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT NEW.is_internal THEN
        PERFORM refuse_action('write into the timeline that customers read');
    END IF;
    RETURN NEW;
END
$$;

-- The kinds of drift. What a switch reports has other kinds, which the steps of a payment heed.
CREATE FUNCTION check_exception_of_reconcile() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.kind NOT IN ('missing_hold', 'orphan_hold', 'settled_not_debited', 'debited_not_settled', 'released_but_settled', 'amount_mismatch',
                        'settled_twice', 'transfer_without_payment', 'payment_without_workflow', 'workflow_without_payment',
                        'unmatched_callback', 'stuck_cancelling', 'journal_hash_mismatch') THEN
        PERFORM refuse_action('open an exception of the kind ' || NEW.kind);
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER payments_of_reconcile BEFORE UPDATE ON payments FOR EACH ROW
    WHEN (current_user = 'payctl_reconcile') EXECUTE FUNCTION check_payment_of_reconcile();
CREATE TRIGGER timeline_of_reconcile BEFORE INSERT ON timeline FOR EACH ROW
    WHEN (current_user = 'payctl_reconcile') EXECUTE FUNCTION check_timeline_of_reconcile();
CREATE TRIGGER exceptions_of_reconcile BEFORE INSERT ON exceptions FOR EACH ROW
    WHEN (current_user = 'payctl_reconcile') EXECUTE FUNCTION check_exception_of_reconcile();
