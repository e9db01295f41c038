-- Changes: what operators do to accounts, limits, kill switches and API keys, to webhook endpoints, events and the Temporal namespace, and
-- what administrators do to operators. A change that lets money move, or lets more of it move, takes two operators. These functions are the only way of the role
-- operator_api to such a change.

CREATE TABLE changes (
    change_id      text        PRIMARY KEY DEFAULT 'chg_' || left(replace(gen_random_uuid()::text, '-', ''), 20),
    kind           text        NOT NULL,
    -- As apply_change() reads them. Amounts are in minor units.
    arguments      jsonb       NOT NULL,
    -- Of a new API key.
    key_hash       bytea,
    needs_two      boolean     NOT NULL,
    -- What it changes, as it was when the change was proposed: what an operator compares before a confirmation.
    before         jsonb,
    reason         text        NOT NULL,
    proposed_by    text        NOT NULL REFERENCES operators,
    proposed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Who proposed it, if one operator suffices.
    confirmed_by   text        REFERENCES operators,
    confirm_reason text,
    withdrawn_by   text        REFERENCES operators,
    status         text        NOT NULL DEFAULT 'proposed',
    -- The outcome, or the reason of a withdrawal, in words.
    detail         text,
    closed_at      timestamptz,
    CONSTRAINT changes_kind_known CHECK (kind IN (
        'open_account', 'fund_account', 'freeze_account', 'unfreeze_account', 'activate_kill_switch', 'lift_kill_switch', 'set_limit',
        'create_api_key', 'rotate_api_key', 'revoke_api_key', 'disable_endpoint', 'enable_endpoint', 'replay_delivery',
        'replay_failed_deliveries', 'retry_event', 'discard_message', 'republish_events', 'accept_temporal_namespace',
        'erase_account', 'create_operator', 'set_operator_roles', 'set_operator_identity', 'disable_operator')),
    CONSTRAINT changes_status_known CHECK (status IN ('proposed', 'done', 'withdrawn')),
    CONSTRAINT changes_key_hash_of_a_new_key CHECK (
        (kind IN ('create_api_key', 'rotate_api_key')) = (key_hash IS NOT NULL) AND octet_length(key_hash) = 32),
    CONSTRAINT changes_reason_given CHECK (btrim(reason) <> '' AND btrim(confirm_reason) <> ''),
    CONSTRAINT changes_four_eyes CHECK (needs_two = (confirmed_by <> proposed_by)),
    CONSTRAINT changes_closed CHECK (
        (status = 'proposed') = (closed_at IS NULL) AND (status = 'done') = (confirmed_by IS NOT NULL)
        AND (status = 'withdrawn') = (withdrawn_by IS NOT NULL))
);

CREATE INDEX changes_open ON changes (proposed_at) WHERE status = 'proposed';
CREATE INDEX changes_by_time ON changes (proposed_at);

-- A proposal is done or withdrawn once, and is what it was proposed as.
CREATE FUNCTION guard_change() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF OLD.status <> 'proposed'
       OR (NEW.change_id, NEW.kind, NEW.arguments, NEW.key_hash, NEW.needs_two, NEW.before, NEW.reason, NEW.proposed_by, NEW.proposed_at)
          IS DISTINCT FROM
          (OLD.change_id, OLD.kind, OLD.arguments, OLD.key_hash, OLD.needs_two, OLD.before, OLD.reason, OLD.proposed_by, OLD.proposed_at) THEN
        RAISE EXCEPTION 'change % is final', OLD.change_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER changes_guard_update BEFORE UPDATE ON changes FOR EACH ROW EXECUTE FUNCTION guard_change();
CREATE TRIGGER changes_no_delete BEFORE DELETE ON changes FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER changes_no_truncate BEFORE TRUNCATE ON changes FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER changes_audited AFTER INSERT OR UPDATE ON changes
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('change_id', 'key_hash');

-- The limit in force of a scope and currency, as a change's arguments name them.
CREATE FUNCTION limit_in_force(a jsonb) RETURNS SETOF limits LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT * FROM limits WHERE (scope, scope_id, currency) = (a ->> 'scope', a ->> 'scope_id', a ->> 'currency')
    ORDER BY limit_id DESC LIMIT 1
$$;

CREATE FUNCTION accepted_namespace() RETURNS text LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT namespace_id FROM temporal_namespaces ORDER BY number DESC LIMIT 1
$$;

-- Administrators manage operators, and do nothing else here; other changes are proposed by operators and confirmed by approvers.
CREATE FUNCTION change_role(change_kind text, is_confirmation boolean) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = public, pg_temp AS $$
    SELECT CASE WHEN change_kind IN ('create_operator', 'set_operator_roles', 'set_operator_identity', 'disable_operator') THEN 'administrator'
                WHEN is_confirmation THEN 'approver' ELSE 'operator' END
$$;

-- What lets money move, or lets more of it move, takes two operators. What stops it takes one.
CREATE FUNCTION change_needs_two(change_kind text, a jsonb) RETURNS boolean LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT CASE
        -- In another namespace the open payments' workflows are started again.
        WHEN change_kind IN ('fund_account', 'unfreeze_account', 'lift_kill_switch', 'create_api_key', 'rotate_api_key',
                             'accept_temporal_namespace') THEN true
        -- An operator whom one administrator made alone would be a second pair of that administrator's eyes.
        WHEN change_kind IN ('create_operator', 'set_operator_roles', 'set_operator_identity') THEN true
        -- Nobody gets back what is erased.
        WHEN change_kind = 'erase_account' THEN true
        -- A bound that is removed or raised.
        WHEN change_kind = 'set_limit' THEN EXISTS (
            SELECT FROM limit_in_force(a) l
            WHERE l.per_payment_minor < coalesce((a ->> 'per_payment_minor')::bigint, 'Infinity'::numeric)
               OR l.per_day_minor < coalesce((a ->> 'per_day_minor')::bigint, 'Infinity'::numeric)
               OR l.per_day_count < coalesce((a ->> 'per_day_count')::bigint, 'Infinity'::numeric))
        ELSE false END
$$;

-- Why an administrator's change of an operator cannot be made now; NULL if it can.
CREATE FUNCTION operator_change_bar(change_kind text, a jsonb) RETURNS text LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
DECLARE
    changed operators;
    other   text;
BEGIN
    SELECT * INTO changed FROM operators WHERE name = a ->> 'name';
    SELECT o.name INTO other FROM operators o
        WHERE (o.oidc_issuer, o.oidc_subject) = (a ->> 'issuer', a ->> 'subject') AND o.name <> a ->> 'name'
           OR change_kind = 'create_operator' AND lower(regexp_replace(o.name, '[^a-zA-Z0-9]', '', 'g'))
              = lower(regexp_replace(a ->> 'name', '[^a-zA-Z0-9]', '', 'g'))
        LIMIT 1;
    RETURN CASE
        WHEN other IS NOT NULL THEN
            format('operator %s exists already; two names or two logins would be two operators for one person', other)
        WHEN change_kind <> 'create_operator' AND changed.name IS NULL THEN format('there is no operator %s; check the name', a ->> 'name')
        WHEN changed.disabled_at IS NOT NULL THEN format('operator %s is disabled', changed.name)
        WHEN change_kind = 'create_operator' AND (a ->> 'name' ~ '^[a-zA-Z0-9][a-zA-Z0-9._@-]{0,63}$') IS NOT TRUE THEN
            'a name has 1 to 64 ASCII letters, digits and . _ - @, the first one a letter or a digit'
        WHEN change_kind IN ('create_operator', 'set_operator_roles') AND (
                 SELECT bool_and(coalesce(role IN ('viewer', 'operator', 'approver', 'administrator'), false))
                 FROM jsonb_array_elements_text(CASE jsonb_typeof(a -> 'roles') WHEN 'array' THEN a -> 'roles' END) role) IS NOT TRUE THEN
            'roles are one or more of viewer, operator, approver and administrator'
        WHEN change_kind IN ('create_operator', 'set_operator_identity')
             AND (a ->> 'issuer' ~ '^[!-~]{1,255}$' AND a ->> 'subject' ~ '^[!-~]{1,255}$') IS NOT TRUE THEN
            'an identity has an issuer and a subject of 1 to 255 visible ASCII characters'
        -- The audit log would not name who did it, for the session ends with it.
        WHEN change_kind = 'disable_operator' AND changed.name = acting_operator('administrator') THEN
            'nobody disables themselves; another administrator does it' END;
END
$$;

-- Why a change cannot be made now; NULL if it can.
CREATE FUNCTION change_bar(change_kind text, a jsonb, hash bytea) RETURNS text LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
DECLARE
    account accounts;
    key     api_keys;
BEGIN
    SELECT * INTO account FROM accounts WHERE account_id = a ->> 'account_id';
    SELECT * INTO key FROM api_keys WHERE id = a ->> 'key_id';
    IF jsonb_typeof(a) IS DISTINCT FROM 'object' OR a ? 'currency' AND (a ->> 'currency' ~ '^[A-Z]{3}$') IS NOT TRUE THEN
        RETURN 'the arguments are no object, or the currency is no ISO 4217 code';
    ELSIF change_kind = 'open_account' THEN
        RETURN CASE
            WHEN (a ->> 'account_id' ~ '^[A-Za-z0-9._:-]{1,64}$' AND a ->> 'tenant_id' ~ '^[A-Za-z0-9._:-]{1,64}$' AND a ? 'currency')
                 IS NOT TRUE THEN 'an account has an id, a tenant and a currency'
            WHEN a ->> 'account_id' LIKE 'internal:%' THEN 'the prefix internal: is that of the bank''s own accounts; choose another id'
            WHEN (account.tenant_id, account.currency) <> (a ->> 'tenant_id', a ->> 'currency') THEN
                format('account %s exists already, of another tenant or in another currency; choose another id', account.account_id) END;
    ELSIF change_kind IN ('fund_account', 'freeze_account', 'unfreeze_account', 'erase_account') THEN
        RETURN CASE
            WHEN account.account_id IS NULL OR account.tenant_id IS DISTINCT FROM a ->> 'tenant_id' OR account.kind <> 'customer' THEN
                format('tenant %s has no account %s; check both', a ->> 'tenant_id', a ->> 'account_id')
            WHEN change_kind = 'erase_account' THEN (
                SELECT format('the erasure of account %s of %s goes on', e.account_id, e.requested_at)
                FROM erasures e WHERE e.account_id = account.account_id AND e.done_at IS NULL)
            WHEN account.status = 'closed' THEN format('account %s is closed', account.account_id)
            WHEN change_kind = 'fund_account' AND account.currency IS DISTINCT FROM a ->> 'currency' THEN
                format('account %s is in %s, not in %s', account.account_id, account.currency, a ->> 'currency')
            WHEN change_kind = 'fund_account' AND ((a ->> 'amount_minor')::numeric BETWEEN 1 AND 1e15) IS NOT TRUE THEN
                'a deposit is greater than zero, and at most 10^15 minor units'
            WHEN change_kind = 'freeze_account' AND account.status = 'frozen' THEN format('account %s is frozen already', account.account_id)
            WHEN change_kind = 'unfreeze_account' AND account.status <> 'frozen' THEN format('account %s is not frozen', account.account_id) END;
    ELSIF change_kind = 'activate_kill_switch' THEN
        RETURN (SELECT format('kill switch %s does so already', k.kill_switch_id) FROM kill_switches k
                WHERE k.lifted_at IS NULL AND (k.switch, k.currency, k.destination_prefix)
                      IS NOT DISTINCT FROM (a ->> 'switch', a ->> 'currency', a ->> 'destination_prefix'));
    ELSIF change_kind = 'lift_kill_switch' THEN
        RETURN CASE WHEN NOT EXISTS (SELECT FROM kill_switches k
                                     WHERE k.kill_switch_id = (a ->> 'kill_switch_id')::bigint AND k.lifted_at IS NULL)
               THEN format('kill switch %s is not active', a ->> 'kill_switch_id') END;
    ELSIF change_kind = 'set_limit' THEN
        RETURN CASE WHEN NOT EXISTS (SELECT FROM accounts c WHERE c.kind = 'customer' AND a ->> 'scope_id' =
                                         CASE a ->> 'scope' WHEN 'account' THEN c.account_id ELSE c.tenant_id END)
               THEN format('there is no account of %s %s; check the id', a ->> 'scope', a ->> 'scope_id') END;
    ELSIF change_kind = 'create_api_key' THEN
        RETURN CASE WHEN key.id IS NOT NULL OR EXISTS (SELECT FROM api_keys k WHERE k.key_hash = hash)
               THEN format('API key %s exists already; generate another one', a ->> 'key_id') END;
    ELSIF change_kind = 'accept_temporal_namespace' THEN
        RETURN CASE
            WHEN btrim(coalesce(a ->> 'namespace_id', '')) = '' THEN 'a namespace has an id'
            WHEN a ->> 'namespace_id' = accepted_namespace() THEN
                format('Temporal namespace %s is the accepted one already', a ->> 'namespace_id') END;
    ELSIF change_kind IN ('rotate_api_key', 'revoke_api_key') THEN
        RETURN CASE
            WHEN key.id IS NULL THEN format('there is no API key %s; check the id', a ->> 'key_id')
            WHEN key.revoked_at IS NOT NULL THEN format('API key %s was revoked before', key.id)
            WHEN change_kind = 'revoke_api_key' THEN NULL
            WHEN key.expires_at <= clock_timestamp() THEN format('API key %s is expired; create another one', key.id)
            WHEN key.rotated_to IS NOT NULL THEN format('API key %s was rotated before; rotate its successor %s', key.id, key.rotated_to)
            WHEN EXISTS (SELECT FROM api_keys k WHERE k.key_hash = hash OR k.id = a ->> 'successor_id') THEN
                format('API key %s exists already; generate another one', a ->> 'successor_id') END;
    ELSIF change_role(change_kind, false) = 'administrator' THEN
        RETURN operator_change_bar(change_kind, a);
    END IF;
    -- apply_event_change() finds out by itself.
    RETURN NULL;
END
$$;

-- Makes a change of a webhook endpoint or of events for an operator. Returns the outcome in words where the arguments do not have it.
CREATE FUNCTION apply_event_change(change_kind text, a jsonb, by_operator text, why text) RETURNS text
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    -- Rows that one change sets: no other operator waits for long.
    at_most  CONSTANT integer := 10000;
    endpoint CONSTANT text    := a ->> 'endpoint_id';
    event    CONSTANT text    := a ->> 'event_id';
    since    CONSTANT timestamptz := (a ->> 'since')::timestamptz;
    changed  bigint;
    refusal  text;
BEGIN
    -- The clock of who sends it may be somewhat ahead.
    IF change_kind IN ('replay_failed_deliveries', 'republish_events')
       AND (since < coalesce(a ->> 'failed_before', a ->> 'published_before')::timestamptz
            AND coalesce(a ->> 'failed_before', a ->> 'published_before')::timestamptz < clock_timestamp() + interval '1 minute') IS NOT TRUE THEN
        refusal := 'the period ends after its beginning, and not in the future';
    ELSIF change_kind LIKE 'replay%' AND NOT EXISTS (SELECT FROM webhook_endpoints WHERE endpoint_id = endpoint AND status = 'active') THEN
        -- A replay would only queue.
        refusal := format('webhook endpoint %s is disabled or does not exist; enable it first', endpoint);
    ELSIF change_kind = 'disable_endpoint' THEN
        -- Its tenant reads the note.
        refusal := CASE WHEN NOT disable_webhook_endpoint(endpoint, by_operator || ': ' || why) THEN
            format('there is no webhook endpoint %s; check the id', endpoint) END;
    ELSIF change_kind = 'enable_endpoint' THEN
        refusal := CASE WHEN NOT enable_webhook_endpoint(endpoint) THEN
            format('webhook endpoint %s is not disabled or does not exist', endpoint) END;
    ELSIF change_kind = 'replay_delivery' THEN
        refusal := CASE WHEN NOT replay_webhook_delivery(endpoint, event) THEN
            format('webhook endpoint %s has no delivery of event %s, or it is in flight', endpoint, event) END;
    ELSIF change_kind = 'replay_failed_deliveries' THEN
        changed := replay_failed_webhook_deliveries(endpoint, since, (a ->> 'failed_before')::timestamptz, at_most);
    ELSIF change_kind = 'retry_event' THEN
        refusal := CASE WHEN NOT retry_parked_event(event) THEN format('event %s is not parked', event) END;
    ELSIF change_kind = 'discard_message' THEN
        refusal := CASE WHEN NOT discard_parked_message(
                a ->> 'consumer', a ->> 'stream', (a ->> 'stream_sequence')::bigint, by_operator, why) THEN
            format('message %s %s is not parked for consumer %s', a ->> 'stream', a ->> 'stream_sequence', a ->> 'consumer') END;
    ELSIF change_kind = 'republish_events' THEN
        changed := republish_events(since, (a ->> 'published_before')::timestamptz, at_most);
    ELSE
        refusal := format('there is no change of the kind %s', change_kind);
    END IF;
    IF refusal IS NOT NULL THEN
        RAISE EXCEPTION '%', refusal USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN changed || ' queued';
END
$$;

-- Makes a change for an operator. Returns the outcome in words where the arguments do not have it.
CREATE FUNCTION apply_change(change text, change_kind text, a jsonb, hash bytea, by_operator text, why text) RETURNS text
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    IF change_kind = 'open_account' THEN
        INSERT INTO accounts (account_id, tenant_id, kind, currency)
            SELECT format('internal:%s:%s', name, a ->> 'currency'), 'internal', 'internal', a ->> 'currency'
            FROM unnest('{holding,escrow,funding,claims,losses}'::text[]) AS internal (name) ON CONFLICT DO NOTHING;
        INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor)
            VALUES (a ->> 'account_id', a ->> 'tenant_id', 'customer', a ->> 'currency', 0) ON CONFLICT DO NOTHING;
    ELSIF change_kind = 'fund_account' THEN
        INSERT INTO operations (operation_key, outcome) VALUES (format('fund:%s:%s', a ->> 'account_id', change), 'done');
        INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
            VALUES (format('fund:%s:%s', a ->> 'account_id', change), 'fund', 'internal:funding:' || (a ->> 'currency'),
                    a ->> 'account_id', (a ->> 'amount_minor')::bigint, a ->> 'currency');
    ELSIF change_kind IN ('freeze_account', 'unfreeze_account') THEN
        UPDATE accounts SET status = CASE change_kind WHEN 'freeze_account' THEN 'frozen' ELSE 'active' END
            WHERE account_id = a ->> 'account_id' AND kind = 'customer' AND status <> 'closed';
    ELSIF change_kind = 'erase_account' THEN
        -- Not at once: a payment that was accepted before may not be committed yet.
        INSERT INTO erasures (account_id, approved_by, reason, requested_at, next_look_at)
            VALUES (a ->> 'account_id', by_operator, why, clock_timestamp(), clock_timestamp() + interval '1 minute')
            ON CONFLICT (account_id) DO UPDATE SET approved_by = excluded.approved_by, reason = excluded.reason,
                requested_at = excluded.requested_at, next_look_at = excluded.next_look_at, at = '-infinity', at_payment = '', failure = NULL,
                done_at = NULL;
    ELSIF change_kind = 'activate_kill_switch' THEN
        INSERT INTO kill_switches (switch, currency, destination_prefix, activated_by, reason)
            VALUES (a ->> 'switch', a ->> 'currency', a ->> 'destination_prefix', by_operator, why)
            ON CONFLICT DO NOTHING RETURNING kill_switch_id INTO number;
        -- Without a number, another operator activated it in this moment.
        RETURN coalesce(format('kill switch %s is active', number), 'the kill switch is active');
    ELSIF change_kind = 'lift_kill_switch' THEN
        UPDATE kill_switches SET lifted_by = by_operator, lift_reason = why, lifted_at = clock_timestamp()
            WHERE kill_switch_id = (a ->> 'kill_switch_id')::bigint;
    ELSIF change_kind = 'set_limit' THEN
        INSERT INTO limits (scope, scope_id, currency, per_payment_minor, per_day_minor, per_day_count, set_by, reason)
            VALUES (a ->> 'scope', a ->> 'scope_id', a ->> 'currency', (a ->> 'per_payment_minor')::bigint,
                    (a ->> 'per_day_minor')::bigint, (a ->> 'per_day_count')::bigint, by_operator, why);
    ELSIF change_kind = 'create_api_key' THEN
        INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes, expires_at)
            VALUES (a ->> 'key_id', hash, a ->> 'key_id', a ->> 'tenant_id', a ->> 'client_id',
                    ARRAY(SELECT jsonb_array_elements_text(a -> 'scopes')), now() + (a ->> 'lifetime_s')::bigint * interval '1 second');
    ELSIF change_kind = 'rotate_api_key' THEN
        -- The successor has the client, the scopes and the lifetime.
        INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes, expires_at)
            SELECT a ->> 'successor_id', hash, a ->> 'successor_id', tenant_id, client_id, scopes, now() + (expires_at - created_at)
            FROM api_keys WHERE id = a ->> 'key_id';
        UPDATE api_keys SET rotated_to = a ->> 'successor_id',
               expires_at = least(expires_at, clock_timestamp() + (a ->> 'overlap_s')::bigint * interval '1 second')
            WHERE id = a ->> 'key_id';
    ELSIF change_kind = 'revoke_api_key' THEN
        UPDATE api_keys SET revoked_at = clock_timestamp() WHERE id = a ->> 'key_id';
    ELSIF change_kind = 'accept_temporal_namespace' THEN
        INSERT INTO temporal_namespaces (number, namespace_id, accepted_by, reason)
            SELECT coalesce(max(n.number), 0) + 1, a ->> 'namespace_id', by_operator, why FROM temporal_namespaces n;
    ELSIF change_kind = 'create_operator' THEN
        INSERT INTO operators (name, roles, oidc_issuer, oidc_subject)
            VALUES (a ->> 'name', ARRAY(SELECT jsonb_array_elements_text(a -> 'roles')), a ->> 'issuer', a ->> 'subject')
            ON CONFLICT DO NOTHING;
    ELSIF change_role(change_kind, false) = 'administrator' THEN
        -- The operator's row first: a login under way has it locked, and its session is seen after that.
        UPDATE operators o SET
                roles = CASE change_kind WHEN 'set_operator_roles' THEN ARRAY(SELECT jsonb_array_elements_text(a -> 'roles')) ELSE o.roles END,
                disabled_at = CASE change_kind WHEN 'disable_operator' THEN clock_timestamp() ELSE o.disabled_at END
            WHERE o.name = a ->> 'name';
        UPDATE operators o SET password_salt = NULL, password_version = NULL, password_proof = NULL, failed_logins = 0, locked_until = NULL,
                oidc_issuer = a ->> 'issuer', oidc_subject = a ->> 'subject'
            WHERE o.name = a ->> 'name' AND change_kind = 'set_operator_identity';
        -- Roles take effect in open sessions.
        UPDATE operator_sessions SET ended_at = clock_timestamp()
            WHERE operator = a ->> 'name' AND ended_at IS NULL AND change_kind <> 'set_operator_roles';
        RETURN NULL;
    ELSE
        RETURN apply_event_change(change_kind, a, by_operator, why);
    END IF;
    IF NOT FOUND AND change_kind <> 'open_account' THEN
        RAISE EXCEPTION 'there is nothing to change any more' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$$;

-- What a change is about: another change of it makes the open ones stale. NULL where change_bar() finds out.
CREATE FUNCTION change_object(change_kind text, a jsonb) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = public, pg_temp AS $$
    SELECT CASE
        WHEN change_kind IN ('freeze_account', 'unfreeze_account') THEN 'account ' || (a ->> 'account_id')
        WHEN change_kind = 'erase_account' THEN 'erasure ' || (a ->> 'account_id')
        WHEN change_kind = 'set_limit' THEN concat_ws(' ', 'limit', a ->> 'scope', a ->> 'scope_id', a ->> 'currency')
        WHEN change_role(change_kind, false) = 'administrator' THEN 'operator ' || (a ->> 'name')
        WHEN change_kind = 'accept_temporal_namespace' THEN 'namespace' END
$$;

-- What a change is about, as it is now.
CREATE FUNCTION change_before(change_kind text, a jsonb) RETURNS jsonb LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT CASE
        WHEN change_kind IN ('fund_account', 'freeze_account', 'unfreeze_account', 'erase_account') THEN (
            SELECT jsonb_build_object('status', c.status, 'available_minor', c.available_minor, 'currency', c.currency)
            FROM accounts c WHERE c.account_id = a ->> 'account_id')
        WHEN change_kind = 'lift_kill_switch' THEN (
            SELECT jsonb_strip_nulls(jsonb_build_object('switch', k.switch, 'currency', k.currency, 'destination_prefix', k.destination_prefix,
                                                        'activated_by', k.activated_by, 'reason', k.reason))
            FROM kill_switches k WHERE k.kill_switch_id = (a ->> 'kill_switch_id')::bigint)
        WHEN change_kind = 'set_limit' THEN (
            SELECT jsonb_build_object('per_payment_minor', l.per_payment_minor, 'per_day_minor', l.per_day_minor,
                                      'per_day_count', l.per_day_count, 'currency', l.currency)
            FROM limit_in_force(a) l)
        WHEN change_kind IN ('rotate_api_key', 'revoke_api_key') THEN (
            SELECT jsonb_build_object('tenant_id', k.tenant_id, 'client_id', k.client_id, 'scopes', k.scopes, 'expires_at', k.expires_at)
            FROM api_keys k WHERE k.id = a ->> 'key_id')
        WHEN change_kind IN ('disable_endpoint', 'enable_endpoint') THEN (
            SELECT jsonb_strip_nulls(jsonb_build_object('tenant_id', e.tenant_id, 'url', e.url, 'status', e.status,
                                                        'disabled_reason', e.disabled_reason, 'disabled_note', e.disabled_note))
            FROM webhook_endpoints e WHERE e.endpoint_id = a ->> 'endpoint_id')
        WHEN change_role(change_kind, false) = 'administrator' THEN (
            SELECT jsonb_strip_nulls(jsonb_build_object('roles', o.roles, 'issuer', o.oidc_issuer, 'subject', o.oidc_subject))
            FROM operators o WHERE o.name = a ->> 'name')
        WHEN change_kind = 'accept_temporal_namespace' THEN jsonb_build_object('namespace_id', accepted_namespace()) END
$$;

-- Operators act one after the other: what a change needs does not become false beside it. A table, and no number that every role could
-- lock. An account's row is locked first, for a payment may keep it for a while.
CREATE TABLE change_lock ();

CREATE FUNCTION lock_changes(change_kind text, a jsonb) RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM FROM accounts WHERE account_id = a ->> 'account_id' AND change_kind <> 'erase_account' FOR NO KEY UPDATE;
    -- An emergency stop waits for nobody: it needs nothing, and an index makes it once. What concerns events takes longer, and nobody waits
    -- for it: it locks the rows that it changes.
    IF change_kind NOT IN ('activate_kill_switch', 'disable_endpoint', 'enable_endpoint', 'replay_delivery', 'replay_failed_deliveries',
                           'retry_event', 'discard_message', 'republish_events') THEN
        LOCK TABLE change_lock IN EXCLUSIVE MODE;
    END IF;
END
$$;

-- Makes a proposed change, and withdraws the other open changes about the same object.
CREATE FUNCTION make_change(id text, by_operator text, why text, is_confirmed boolean) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    c       changes;
    outcome text;
BEGIN
    SELECT * INTO c FROM changes WHERE change_id = id;
    outcome := apply_change(id, c.kind, c.arguments, c.key_hash, by_operator, why);
    UPDATE changes SET status = 'done', confirmed_by = by_operator, confirm_reason = CASE WHEN is_confirmed THEN why END,
           detail = outcome, closed_at = clock_timestamp()
        WHERE change_id = id;
    UPDATE changes SET status = 'withdrawn', withdrawn_by = by_operator, closed_at = clock_timestamp(),
           detail = format('change %s came before it; propose it again if it is still needed', id)
        WHERE status = 'proposed' AND change_object(kind, arguments) = change_object(c.kind, c.arguments);
END
$$;

-- Proposes a change in the session of an operator, and makes it if one operator suffices. A repeat of an open proposal is that proposal.
CREATE FUNCTION propose_change(new_kind text, new_arguments jsonb, hash bytea, new_reason text, OUT refusal text, OUT proposed text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    operator text;
    two      boolean;
BEGIN
    PERFORM lock_changes(new_kind, new_arguments);
    -- After the wait: the session may have ended meanwhile.
    operator := acting_operator(change_role(new_kind, false));
    IF operator IS NULL THEN
        RAISE EXCEPTION 'no open session of an operator with the role: propose a change' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT c.change_id INTO proposed FROM changes c
        WHERE c.status = 'proposed' AND (c.proposed_by, c.kind, c.arguments, c.reason) = (operator, new_kind, new_arguments, new_reason)
          AND c.key_hash IS NOT DISTINCT FROM hash;
    IF FOUND THEN
        RETURN;
    END IF;
    refusal := change_bar(new_kind, new_arguments, hash);
    IF refusal IS NOT NULL THEN
        RETURN;
    END IF;
    two := change_needs_two(new_kind, new_arguments);
    INSERT INTO changes (kind, arguments, key_hash, needs_two, before, reason, proposed_by)
        VALUES (new_kind, new_arguments, hash, two, change_before(new_kind, new_arguments), new_reason, operator)
        RETURNING change_id INTO proposed;
    IF NOT two THEN
        PERFORM make_change(proposed, operator, new_reason, false);
    END IF;
END
$$;

-- Says which role a change takes to who has another one of these; who has none of them acts without a session that may.
CREATE FUNCTION refuse_role(change_kind text, what text, others text[], OUT refused text, OUT refusal text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM unnest(others) other WHERE acting_operator(other) IS NOT NULL) THEN
        RAISE EXCEPTION 'no open session of an operator with the role: % a change', what USING ERRCODE = 'insufficient_privilege';
    END IF;
    refused := CASE WHEN change_kind IS NULL THEN 'unknown' ELSE 'role' END;
    refusal := CASE WHEN change_kind IS NULL THEN 'there is no such change; check the id'
                    ELSE format('to %s a change of the kind %s takes the role %s', what, change_kind, change_role(change_kind, true)) END;
END
$$;

-- Confirms a change of another operator in the session of an approver or administrator, and makes it. A repeat has no further effect.
CREATE FUNCTION confirm_change(id text, why text, OUT refused text, OUT refusal text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    operator text;
    c        changes;
BEGIN
    SELECT * INTO c FROM changes WHERE change_id = id;
    PERFORM lock_changes(coalesce(c.kind, ''), c.arguments);
    SELECT * INTO c FROM changes WHERE change_id = id FOR UPDATE;
    operator := acting_operator(change_role(coalesce(c.kind, ''), true));
    IF operator IS NULL THEN
        SELECT r.refused, r.refusal INTO refused, refusal FROM refuse_role(c.kind, 'confirm', '{approver,administrator}') r;
        RETURN;
    END IF;
    IF c.status = 'done' AND c.confirmed_by = operator THEN
        RETURN;
    END IF;
    refused := CASE WHEN c.change_id IS NULL THEN 'unknown'
                    WHEN c.status = 'proposed' AND c.proposed_by = operator THEN 'same_operator' ELSE 'barred' END;
    refusal := CASE
        WHEN refused = 'unknown' THEN 'there is no such change; check the id'
        WHEN refused = 'same_operator' THEN format('operator %s proposed this change; another operator must confirm it', operator)
        WHEN c.status <> 'proposed' THEN format('the change is %s by %s', c.status, coalesce(c.withdrawn_by, c.confirmed_by))
        WHEN is_old_proposal(c.proposed_at) THEN 'the proposal is older than 7 days; propose the change again'
        WHEN NOT EXISTS (SELECT FROM operators o
                         WHERE o.name = c.proposed_by AND o.disabled_at IS NULL AND change_role(c.kind, false) = ANY (o.roles)) THEN
            format('operator %s, who proposed the change, may not propose any more; propose it again', c.proposed_by)
        ELSE change_bar(c.kind, c.arguments, c.key_hash) END;
    IF refusal IS NULL THEN
        refused := NULL;
        PERFORM make_change(id, operator, why, true);
    END IF;
END
$$;

-- Withdraws a proposed change in the session of an operator or an approver, or of an administrator. A repeat has no further effect.
CREATE FUNCTION withdraw_change(id text, why text, OUT refused text, OUT refusal text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    operator text;
    c        changes;
BEGIN
    SELECT * INTO c FROM changes WHERE change_id = id FOR UPDATE;
    operator := coalesce(acting_operator(change_role(coalesce(c.kind, ''), false)), acting_operator(change_role(coalesce(c.kind, ''), true)));
    IF operator IS NULL THEN
        SELECT r.refused, r.refusal INTO refused, refusal
            FROM refuse_role(c.kind, 'withdraw', '{operator,approver,administrator}') r;
        RETURN;
    END IF;
    IF c.change_id IS NULL THEN
        refused := 'unknown';
        refusal := 'there is no such change; check the id';
    ELSIF c.status = 'done' THEN
        refused := 'barred';
        refusal := format('the change is done by %s; propose the opposite', c.confirmed_by);
    ELSIF c.status = 'proposed' THEN
        UPDATE changes SET status = 'withdrawn', withdrawn_by = operator, detail = why, closed_at = clock_timestamp()
            WHERE change_id = id;
    END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION apply_change(text, text, jsonb, bytea, text, text), apply_event_change(text, jsonb, text, text), make_change(text, text, text, boolean),
    propose_change(text, jsonb, bytea, text), confirm_change(text, text), withdraw_change(text, text), lock_changes(text, jsonb),
    refuse_role(text, text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION propose_change(text, jsonb, bytea, text), confirm_change(text, text), withdraw_change(text, text) TO operator_api;
-- What an operator looks at. The hash of a key authenticates nobody, and nobody needs it here.
GRANT SELECT (change_id, kind, arguments, needs_two, before, reason, proposed_by, proposed_at, confirmed_by, confirm_reason, withdrawn_by, status,
              detail, closed_at) ON changes TO operator_api;
GRANT SELECT ON limits, limit_days, kill_switches TO operator_api;
GRANT SELECT (name, roles, oidc_issuer, oidc_subject, created_at, disabled_at, locked_until) ON operators TO operator_api;
GRANT SELECT (operator, last_used_at, expires_at, ended_at) ON operator_sessions TO operator_api;
GRANT SELECT (id, prefix, tenant_id, client_id, scopes, created_at, expires_at, revoked_at, rotated_to) ON api_keys TO operator_api;
