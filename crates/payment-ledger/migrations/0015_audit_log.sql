-- The audit log: what operators did, and what processes did to the same objects: who, from where, why, and each column before and
-- after. Triggers write it, so whatever statement changes such an object is recorded with it, one typed into psql too.

CREATE TABLE audit_log (
    entry_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The operator and the reason that the changed row names, if it has columns for them.
    operator    text,
    reason      text,
    -- What the database knows of the session: its login, its address (NULL within the machine's sockets), and the name that the
    -- program gave itself; payctl's has the user and the machine.
    login       text        NOT NULL,
    address     text,
    program     text        NOT NULL,
    -- The table of the changed row, and the row's key.
    object      text        NOT NULL,
    subject     text        NOT NULL,
    action      text        NOT NULL,
    -- Of an update the changed columns only. Without columns that authenticate somebody.
    before      jsonb,
    after       jsonb,
    CONSTRAINT audit_log_action_known CHECK (action IN ('insert', 'update', 'delete')),
    CONSTRAINT audit_log_before_and_after CHECK ((action = 'insert') = (before IS NULL) AND (action = 'delete') = (after IS NULL))
);

CREATE INDEX audit_log_by_time ON audit_log (recorded_at);
CREATE INDEX audit_log_by_subject ON audit_log (subject, entry_id);
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Entries that are not sealed yet, as journal_unsealed has those of the journal: the sealer depends on no order of commits, and no
-- operator waits for it.
CREATE TABLE audit_log_unsealed (
    entry_id bigint PRIMARY KEY
);

-- The chain: each entry has a position and a hash of its content and of the entry before.
CREATE TABLE audit_log_seals (
    position      bigint PRIMARY KEY,
    entry_id      bigint NOT NULL UNIQUE,
    -- Unique, so that the chain cannot fork.
    previous_hash bytea  NOT NULL UNIQUE,
    hash          bytea  NOT NULL UNIQUE,
    CONSTRAINT audit_log_seals_position_positive CHECK (position >= 1),
    CONSTRAINT audit_log_seals_hashes_are_sha256 CHECK (octet_length(previous_hash) = 32 AND octet_length(hash) = 32)
);

CREATE TRIGGER audit_log_seals_append_only BEFORE UPDATE OR DELETE ON audit_log_seals
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_seals_no_truncate BEFORE TRUNCATE ON audit_log_seals
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- An entry leaves audit_log_unsealed only after it was sealed.
CREATE FUNCTION guard_unsealed_audit_log() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM deleted WHERE NOT EXISTS (SELECT FROM audit_log_seals s WHERE s.entry_id = deleted.entry_id)) THEN
        RAISE EXCEPTION 'an unsealed entry cannot be deleted from audit_log_unsealed: seal it first'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER audit_log_unsealed_guard_delete AFTER DELETE ON audit_log_unsealed REFERENCING OLD TABLE AS deleted
    FOR EACH STATEMENT EXECUTE FUNCTION guard_unsealed_audit_log();
CREATE TRIGGER audit_log_unsealed_no_update BEFORE UPDATE ON audit_log_unsealed
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_unsealed_no_truncate BEFORE TRUNCATE ON audit_log_unsealed
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Records a changed row. Arguments: the columns of its key, separated by commas, then the columns that are left out. With the owner's
-- rights: no role writes the audit log by itself.
CREATE FUNCTION record_in_audit_log() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    left_out text[] := coalesce(TG_ARGV[1:], '{}');
    old_row  jsonb  := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - left_out END;
    new_row  jsonb  := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - left_out END;
    subject  text;
    recorded bigint;
    operator text;
    reason   text;
BEGIN
    SELECT string_agg(coalesce(old_row, new_row) ->> key, '/' ORDER BY ordinal) INTO subject
    FROM unnest(string_to_array(TG_ARGV[0], ',')) WITH ORDINALITY AS keys (key, ordinal);
    IF TG_OP = 'UPDATE' THEN
        SELECT jsonb_object_agg(o.key, o.value), jsonb_object_agg(o.key, new_row -> o.key) INTO old_row, new_row
        FROM jsonb_each(old_row) o WHERE new_row -> o.key IS DISTINCT FROM o.value;
        IF old_row IS NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    -- closed_by names a decision.
    SELECT value INTO operator FROM jsonb_each_text(new_row)
    WHERE (key LIKE '%\_by' AND key <> 'closed_by' OR key = 'operator') AND value IS NOT NULL ORDER BY key LIMIT 1;
    IF operator IS NULL THEN
        -- In whose open session a change was made (0016).
        operator := acting_operator(NULL);
    END IF;
    IF operator IS NULL AND TG_TABLE_NAME = 'operator_sessions' AND TG_OP = 'UPDATE' THEN
        -- The session that the transaction acts in has ended by it.
        SELECT s.operator INTO operator FROM operator_sessions s
        WHERE s.ended_at >= transaction_timestamp()
          AND s.proof_hash = sha256(convert_to(coalesce(current_setting('payments.operator_session', true), ''), 'UTF8'));
    END IF;
    SELECT value INTO reason FROM jsonb_each_text(new_row)
    WHERE key IN ('reason', 'confirm_reason', 'lift_reason', 'discarded_reason', 'disabled_note') AND value IS NOT NULL
    ORDER BY key LIMIT 1;
    INSERT INTO audit_log (operator, reason, login, address, program, object, subject, action, before, after)
    VALUES (operator, reason, session_user, host(inet_client_addr()), current_setting('application_name'), TG_TABLE_NAME,
            coalesce(subject, ''), lower(TG_OP), old_row, new_row)
    RETURNING entry_id INTO recorded;
    INSERT INTO audit_log_unsealed (entry_id) VALUES (recorded);
    RETURN NULL;
END
$$;

-- Who owns a table could have its own rows recorded as somebody's actions.
REVOKE EXECUTE ON FUNCTION record_in_audit_log() FROM PUBLIC;

-- Accounts are opened, frozen and unfrozen; their balances follow the journal, whose entries are no operator's but for deposits.
-- Internal accounts are opened with the first entry in their currency.
CREATE TRIGGER accounts_audited_insert AFTER INSERT ON accounts FOR EACH ROW WHEN (NEW.kind = 'customer')
    EXECUTE FUNCTION record_in_audit_log('account_id', 'available_minor');
CREATE TRIGGER accounts_audited_update AFTER UPDATE OF account_id, tenant_id, kind, currency, status ON accounts
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('account_id', 'available_minor', 'opened_at');
CREATE TRIGGER accounts_audited_delete AFTER DELETE ON accounts
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('account_id');
CREATE TRIGGER journal_audited_deposit AFTER INSERT ON journal FOR EACH ROW WHEN (NEW.kind = 'fund')
    EXECUTE FUNCTION record_in_audit_log('operation_key');
-- Decisions, from the proposal to the outcome; exceptions that an operator opens, and the end of each one.
CREATE TRIGGER decisions_audited AFTER INSERT OR UPDATE OR DELETE ON decisions
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('decision_id');
CREATE TRIGGER exceptions_audited_insert AFTER INSERT ON exceptions FOR EACH ROW WHEN (NEW.kind = 'opened_by_operator')
    EXECUTE FUNCTION record_in_audit_log('exception_id');
CREATE TRIGGER exceptions_audited_change AFTER UPDATE OR DELETE ON exceptions
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('exception_id');
CREATE TRIGGER limits_audited AFTER INSERT OR UPDATE OR DELETE ON limits
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('scope,scope_id,currency');
CREATE TRIGGER kill_switches_audited AFTER INSERT OR UPDATE OR DELETE ON kill_switches
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('kill_switch_id');
CREATE TRIGGER api_keys_audited AFTER INSERT OR UPDATE OR DELETE ON api_keys
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('id', 'key_hash', 'prefix');
-- Webhook endpoints, which tenants change through payments-api. Whether deliveries fail changes often, and is nobody's action.
CREATE TRIGGER webhook_endpoints_audited AFTER INSERT OR UPDATE OR DELETE ON webhook_endpoints
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('endpoint_id', 'secret_check', 'failing_since');
-- What a consumer or the relay gave up, once an operator decides about it.
CREATE TRIGGER parked_deliveries_audited AFTER UPDATE OR DELETE ON parked_deliveries
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('consumer,stream,stream_sequence', 'payload');
CREATE TRIGGER outbox_audited_unparked AFTER UPDATE OF parked_at ON outbox
    FOR EACH ROW WHEN (OLD.parked_at IS NOT NULL) EXECUTE FUNCTION record_in_audit_log('event_id', 'body');
CREATE TRIGGER temporal_namespaces_audited AFTER INSERT OR UPDATE OR DELETE ON temporal_namespaces
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('number');

-- background-worker seals.
GRANT SELECT, INSERT ON audit_log_seals TO background_worker;
GRANT SELECT ON audit_log TO background_worker, payctl;
GRANT SELECT, DELETE ON audit_log_unsealed TO background_worker;
GRANT SELECT ON audit_log_seals, audit_log_unsealed TO payctl;
