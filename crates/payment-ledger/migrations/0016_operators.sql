-- Operators: people with a login of their own, what each may do, and their sessions.

CREATE TABLE operators (
    -- The login, and the name under which decisions and the audit log record the operator. It never changes.
    name          text        PRIMARY KEY,
    roles         text[]      NOT NULL,
    -- argon2id, as a PHC string.
    password_hash text        NOT NULL,
    -- Attempts since the last login that succeeded; each is counted before its password is compared.
    failed_logins integer     NOT NULL DEFAULT 0,
    locked_until  timestamptz,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    disabled_at   timestamptz,
    CONSTRAINT operators_name_format CHECK (name ~ '^[a-zA-Z0-9][a-zA-Z0-9._@-]{0,63}$'),
    CONSTRAINT operators_roles_known CHECK (roles <@ '{viewer,operator,approver,administrator}'),
    CONSTRAINT operators_roles_not_empty CHECK (cardinality(roles) > 0),
    CONSTRAINT operators_password_is_argon2id CHECK (password_hash LIKE '$argon2id$%'),
    CONSTRAINT operators_failed_logins_counted CHECK (failed_logins >= 0)
);

-- Two spellings are one person, as for the four eyes of a decision.
CREATE UNIQUE INDEX operators_by_person ON operators (lower(regexp_replace(name, '[^a-zA-Z0-9]', '', 'g')));

-- Only the SHA-256 of a session's token is stored.
CREATE TABLE operator_sessions (
    session_id   text        PRIMARY KEY DEFAULT 'ses_' || left(replace(gen_random_uuid()::text, '-', ''), 20),
    operator     text        NOT NULL REFERENCES operators,
    token_hash   bytea       NOT NULL UNIQUE,
    address      text,
    opened_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A session that is not used ends before.
    expires_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    CONSTRAINT operator_sessions_hash_is_sha256 CHECK (octet_length(token_hash) = 32),
    CONSTRAINT operator_sessions_expire CHECK (expires_at > opened_at)
);

CREATE INDEX operator_sessions_by_operator ON operator_sessions (operator, opened_at);

-- A name never changes, and an operator is disabled and never deleted: the records name operators.
CREATE FUNCTION guard_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.name <> OLD.name OR NEW.created_at <> OLD.created_at THEN
        RAISE EXCEPTION 'the name of operator % is final', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER operators_guard_update BEFORE UPDATE ON operators FOR EACH ROW EXECUTE FUNCTION guard_operator();
CREATE TRIGGER operators_no_delete BEFORE DELETE ON operators FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER operators_no_truncate BEFORE TRUNCATE ON operators FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A session belongs to one operator, ends once, and never lasts longer than it was opened for.
CREATE FUNCTION guard_operator_session() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL
       OR (NEW.session_id, NEW.operator, NEW.token_hash, NEW.address, NEW.opened_at, NEW.expires_at)
          IS DISTINCT FROM (OLD.session_id, OLD.operator, OLD.token_hash, OLD.address, OLD.opened_at, OLD.expires_at) THEN
        RAISE EXCEPTION 'session % is final', OLD.session_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER operator_sessions_guard_update BEFORE UPDATE ON operator_sessions
    FOR EACH ROW EXECUTE FUNCTION guard_operator_session();
CREATE TRIGGER operator_sessions_no_delete BEFORE DELETE ON operator_sessions FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER operator_sessions_no_truncate BEFORE TRUNCATE ON operator_sessions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The audit log has each operator's roles and each lockout, and the beginning and end of each session; no password and no token.
CREATE TRIGGER operators_audited AFTER INSERT OR UPDATE ON operators
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('name', 'password_hash', 'failed_logins');
CREATE TRIGGER operator_sessions_audited_insert AFTER INSERT ON operator_sessions
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('operator,session_id', 'token_hash', 'last_used_at');
CREATE TRIGGER operator_sessions_audited_end AFTER UPDATE OF ended_at ON operator_sessions
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('operator,session_id', 'token_hash', 'last_used_at');

-- Sessions: how long one lasts without being used.
CREATE FUNCTION operator_session_idle_max() RETURNS interval LANGUAGE sql IMMUTABLE SET search_path = public, pg_temp
    AS $$ SELECT interval '30 minutes' $$;

-- The operator whose session the transaction acts in, if the operator has the role. The setting has the session's token, of which the
-- tables have the hash alone: a process knows the tokens that it is given, and acts for nobody else.
CREATE FUNCTION acting_operator(needed_role text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT o.name FROM operator_sessions s JOIN operators o ON o.name = s.operator
    WHERE s.token_hash = sha256(convert_to(coalesce(current_setting('payments.operator_session', true), ''), 'UTF8'))
      AND s.ended_at IS NULL AND s.expires_at > clock_timestamp()
      AND s.last_used_at > clock_timestamp() - operator_session_idle_max()
      AND o.disabled_at IS NULL AND needed_role = ANY (o.roles)
$$;

-- operator-api: sessions, and what operators decide in them.
REVOKE EXECUTE ON FUNCTION acting_operator(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION acting_operator(text) TO operator_api;
GRANT SELECT ON operators TO operator_api;
GRANT UPDATE (failed_logins, locked_until) ON operators TO operator_api;
GRANT SELECT, INSERT ON operator_sessions TO operator_api;
GRANT UPDATE (last_used_at, ended_at) ON operator_sessions TO operator_api;
-- What an operator looks at.
GRANT SELECT ON payments, accounts, holds, claims, operations, journal, timeline, submissions, switch_callbacks, inbox, returns, recalls,
    switch_profiles, statement_lines, alerts, exceptions, decisions TO operator_api;
-- Proposals and confirmations, below bound to the session's operator; the payment's workflow applies them. Locking a row takes the right
-- to update one of its columns.
GRANT INSERT ON decisions, exceptions, timeline, inbox TO operator_api;
GRANT UPDATE (status, confirmed_by, confirmed_at, confirm_reason, outcome, detail, closed_at) ON decisions TO operator_api;
GRANT UPDATE (closed_at, closed_by) ON exceptions TO operator_api;
GRANT UPDATE (delivered_at) ON inbox TO operator_api;
GRANT UPDATE (updated_at) ON payments TO operator_api;
GRANT UPDATE (opened_at) ON accounts TO operator_api;
-- Corrections, which it posts itself, each behind a decision of two operators.
GRANT INSERT ON operations, journal TO operator_api;
GRANT UPDATE (booked_at) ON returns TO operator_api;

-- Who proposes, confirms or withdraws is who has the session. Proposals take the role operator, a confirmation of another operator the
-- role approver.
CREATE FUNCTION check_acting_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' AND NEW.proposed_by IS DISTINCT FROM acting_operator('operator') THEN
        RAISE EXCEPTION 'operator % proposes without a session of this operator, or without the role operator', NEW.proposed_by
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.confirmed_by IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.confirmed_by IS NULL)
       AND NEW.confirmed_by IS DISTINCT FROM
           acting_operator(CASE WHEN NEW.action IN ('retry_cancel', 'close') THEN 'operator' ELSE 'approver' END) THEN
        RAISE EXCEPTION 'operator % confirms without a session of this operator, or without the role approver', NEW.confirmed_by
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.status = 'withdrawn' AND acting_operator('operator') IS NULL AND acting_operator('approver') IS NULL THEN
        RAISE EXCEPTION 'decision % is withdrawn without a session of an operator', NEW.decision_id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER decisions_acting_operator BEFORE INSERT OR UPDATE ON decisions
    FOR EACH ROW WHEN (current_user = 'operator_api') EXECUTE FUNCTION check_acting_operator();

-- An operator opens exceptions of one kind, and only a decision about an exception closes it.
CREATE FUNCTION check_exception_of_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' AND (NEW.kind <> 'opened_by_operator' OR acting_operator('operator') IS NULL) THEN
        RAISE EXCEPTION 'an exception is opened without a session of an operator' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF TG_OP = 'UPDATE' AND NOT EXISTS (SELECT FROM decisions d WHERE d.decision_id = NEW.closed_by AND d.exception_id = NEW.exception_id
                                        AND d.status IN ('confirmed', 'done')) THEN
        RAISE EXCEPTION 'exception % is closed without a decision about it', NEW.exception_id USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER exceptions_acting_operator BEFORE INSERT OR UPDATE ON exceptions
    FOR EACH ROW WHEN (current_user = 'operator_api') EXECUTE FUNCTION check_exception_of_operator();

-- operator-api posts what a correction posts, and only while a decision of two operators about the payment is confirmed and open, which it
-- is in the transaction that posts it.
CREATE FUNCTION check_correction() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM decisions d WHERE d.payment_id = NEW.payment_id AND d.status = 'confirmed'
                   AND d.action IN ('late_debit', 'return_credit', 'write_off')) THEN
        RAISE EXCEPTION 'the role operator_api may not write this into %: %', TG_TABLE_NAME, NEW.operation_key
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER journal_acting_operator BEFORE INSERT ON journal
    FOR EACH ROW WHEN (current_user = 'operator_api') EXECUTE FUNCTION check_correction();
CREATE TRIGGER operations_acting_operator BEFORE INSERT ON operations
    FOR EACH ROW WHEN (current_user = 'operator_api') EXECUTE FUNCTION check_correction();
