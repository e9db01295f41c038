-- Erasure: two operators have the personal fields of an account's payments erased. The books keep the account's id, the amounts and the
-- times: journal, seals and audit log stay as they are, and no balance changes. Exceptions and decisions stay with their words.

-- One for each account; a later change begins it again, for the payments since.
CREATE TABLE erasures (
    account_id   text        PRIMARY KEY REFERENCES accounts,
    approved_by  text        NOT NULL,
    reason       text        NOT NULL,
    -- Payments accepted before are erased.
    requested_at timestamptz NOT NULL,
    -- Payments erased so far.
    payments     bigint      NOT NULL DEFAULT 0,
    -- The last payment of the current pass, and how many of it have to wait; between two passes, of the last one.
    at           timestamptz NOT NULL DEFAULT '-infinity',
    at_payment   text        NOT NULL DEFAULT '',
    waiting      bigint      NOT NULL DEFAULT 0,
    next_look_at timestamptz NOT NULL,
    -- Payments of the next step.
    batch        integer     NOT NULL DEFAULT 500,
    -- Why the database refused a payment in this pass.
    failure      text,
    done_at      timestamptz
);

CREATE INDEX erasures_open ON erasures (next_look_at) WHERE done_at IS NULL;
CREATE TRIGGER erasures_audited AFTER INSERT OR UPDATE OF requested_at, done_at ON erasures
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('account_id', 'payments', 'at', 'at_payment', 'waiting', 'next_look_at', 'batch', 'failure');

-- Whether nothing can happen any more that needs the personal fields of a payment: it ended long ago, and nothing of it is open.
CREATE FUNCTION may_be_erased(p payments, ended_for interval) RETURNS boolean LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT coalesce(p.ended_at < clock_timestamp() - ended_for, false) AND NOT p.has_unbooked_return
        AND NOT EXISTS (SELECT FROM exceptions e WHERE e.payment_id = p.payment_id AND e.closed_at IS NULL)
        AND NOT EXISTS (SELECT FROM claims c WHERE c.payment_id = p.payment_id AND c.closed_at IS NULL)
        AND NOT EXISTS (SELECT FROM decisions d WHERE d.payment_id = p.payment_id AND d.status IN ('proposed', 'confirmed'))
        AND NOT EXISTS (SELECT FROM recalls r WHERE r.payment_id = p.payment_id AND r.status IN ('due', 'sent', 'pending', 'promised'))
        AND NOT EXISTS (SELECT FROM outbox o WHERE o.subject_key = p.payment_id
                        AND (o.published_at IS NULL OR o.published_at > clock_timestamp() - ended_for))
$$;

-- Erases the personal fields of a tenant's payments: who was paid, the customer's reference, and what the switch wrote in its own words. The
-- hash of the request goes, too, since it is easily guessed: a repeat of the request is then refused as another one, and not paid again.
CREATE FUNCTION erase_payments(tenant text, ids text[]) RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE payments p
        SET destination_account = CASE WHEN is_named THEN p.destination_account ELSE '(erased)' END, end_to_end_id = NULL,
            request_hash = sha256(convert_to(p.payment_id, 'UTF8')), response_body = '',
            cause = CASE WHEN p.cause ? 'reason' THEN jsonb_set(p.cause, '{reason}', '"erased"') ELSE p.cause END,
            erased_at = coalesce(p.erased_at, clock_timestamp())
        -- A switch without references names the transfer by the account that was paid, until its own id of the transfer is known.
        FROM (SELECT q.payment_id, q.needs_account_lock AND q.attempts > 0 AND NOT EXISTS (
                  SELECT FROM submissions s WHERE s.payment_id = q.payment_id AND s.transfer_id IS NOT NULL) AS is_named
              FROM payments q WHERE q.payment_id = ANY (ids)) named
        WHERE p.payment_id = named.payment_id;
    UPDATE submissions SET detail = NULL WHERE payment_id = ANY (ids);
    UPDATE operations SET reason = 'erased' WHERE payment_id = ANY (ids) AND operation_key LIKE '%:recall' AND reason IS NOT NULL;
    UPDATE switch_callbacks SET body = '', reason = NULL WHERE payment_id = ANY (ids);
    UPDATE returns SET reason = NULL WHERE payment_id = ANY (ids);
    UPDATE recalls SET detail = NULL WHERE payment_id = ANY (ids);
    UPDATE timeline SET detail = 'erased' WHERE payment_id = ANY (ids);
    UPDATE alerts SET detail = 'erased' WHERE payment_id = ANY (ids);
    UPDATE parked_deliveries SET payload = '' WHERE split_part(event_id, ':', 1) = ANY (ids);
    DELETE FROM webhook_deliveries d USING webhook_endpoints e, notifications n
        WHERE e.tenant_id = tenant AND n.payment_id = ANY (ids) AND (d.endpoint_id, d.event_id) = (e.endpoint_id, n.event_id);
    UPDATE notifications SET message = 'erased' WHERE payment_id = ANY (ids);
    DELETE FROM outbox WHERE subject_key = ANY (ids);
END
$$;

-- Goes on with an erasure, if one is due: takes the next payments of its account, erases those that may be, and begins again an hour after
-- a pass in which some had to wait. Payments that were erased before are among them, for what came since. Returns how many it took, NULL if
-- no erasure is due. Of a step that fails, or takes too long, the next one takes half as many; one payment that fails alone waits for the next
-- pass, and is returned with its account and the reason. Planned for each account: a plan for any would read all payments.
CREATE FUNCTION go_on_with_erasure(ended_for interval, at_most integer,
    OUT taken_count bigint, OUT failed_account text, OUT failed_payment text, OUT failed_because text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    e       erasures;
    tenant  text;
    taken   text[];
    last_at timestamptz;
    last_id text;
    ids     text[];
    newly   bigint;
    because text;
BEGIN
    SELECT * INTO e FROM erasures WHERE done_at IS NULL AND next_look_at <= clock_timestamp() ORDER BY next_look_at LIMIT 1
        FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF e.at = '-infinity' THEN
        e.waiting := 0;
        e.failure := NULL;
    END IF;
    BEGIN
        SELECT a.tenant_id INTO tenant FROM accounts a WHERE a.account_id = e.account_id;
        SELECT array_agg(p.payment_id ORDER BY p.accepted_at, p.payment_id), max(p.accepted_at) INTO taken, last_at
        FROM (SELECT p.payment_id, p.accepted_at FROM payments p
              WHERE p.tenant_id = tenant AND p.source_account = e.account_id AND p.accepted_at >= e.at
                AND (p.accepted_at, p.payment_id) > (e.at, e.at_payment) AND p.accepted_at < e.requested_at
              ORDER BY p.accepted_at, p.payment_id LIMIT greatest(1, least(at_most, e.batch))) p;
        last_id := taken[cardinality(taken)];
        -- Locked first, and looked at afterwards: nothing of them is opened meanwhile. One that somebody else has locked waits.
        ids := ARRAY(SELECT p.payment_id FROM payments p WHERE p.payment_id = ANY (taken) ORDER BY p.payment_id FOR UPDATE SKIP LOCKED);
        SELECT coalesce(array_agg(p.payment_id), '{}'), count(*) FILTER (WHERE p.erased_at IS NULL) INTO ids, newly
        FROM payments p WHERE p.payment_id = ANY (ids) AND may_be_erased(p, greatest(ended_for, interval '1 day'));
        PERFORM erase_payments(tenant, ids);
    -- The others leave out the timeout of the statement.
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        because := SQLERRM;
    END;
    taken_count := coalesce(cardinality(taken), 0);
    IF because IS NULL AND taken_count = 0 THEN
        -- The end of a pass.
        UPDATE erasures SET at = '-infinity', at_payment = '', waiting = e.waiting, failure = e.failure,
               next_look_at = clock_timestamp() + interval '1 hour', done_at = CASE e.waiting WHEN 0 THEN clock_timestamp() END
            WHERE account_id = e.account_id;
    ELSIF because IS NULL THEN
        UPDATE erasures SET at = last_at, at_payment = last_id, payments = payments + newly, batch = least(500, e.batch * 2),
               waiting = e.waiting + taken_count - cardinality(ids), failure = e.failure
            WHERE account_id = e.account_id;
    ELSIF taken_count > 1 THEN
        UPDATE erasures SET batch = taken_count / 2, next_look_at = clock_timestamp() WHERE account_id = e.account_id;
    ELSE
        failed_account := e.account_id;
        failed_payment := last_id;
        failed_because := because;
        -- Without a payment not even the list of them was read.
        UPDATE erasures SET at = coalesce(last_at, e.at), at_payment = coalesce(last_id, e.at_payment), failure = because,
               waiting = e.waiting + taken_count, batch = greatest(1, e.batch / 2),
               next_look_at = clock_timestamp() + CASE taken_count WHEN 0 THEN interval '1 minute' ELSE interval '0' END
            WHERE account_id = e.account_id;
    END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION erase_payments(text, text[]), go_on_with_erasure(interval, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION go_on_with_erasure(interval, integer) TO background_worker;
GRANT SELECT ON erasures TO background_worker, operator_api, payctl;
