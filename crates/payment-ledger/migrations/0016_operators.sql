-- Operators: people with a login of their own, what each may do, and their sessions.

CREATE TABLE operators (
    -- The login, and the name under which decisions and the audit log record the operator. It never changes.
    name          text        PRIMARY KEY,
    roles         text[]      NOT NULL,
    -- An operator logs in with a password or as an identity of an OpenID provider. The password's secret is what argon2id makes of it and
    -- of the salt, with the costs of the version. Only the secret's SHA-256 is stored: who reads it logs in with it nowhere.
    password_salt    bytea,
    password_version smallint,
    password_proof   bytea,
    -- The provider's issuer, and the subject under which it knows the operator.
    oidc_issuer      text,
    oidc_subject     text,
    login_set_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Attempts since the last login that succeeded.
    failed_logins integer     NOT NULL DEFAULT 0,
    locked_until  timestamptz,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    disabled_at   timestamptz,
    CONSTRAINT operators_name_format CHECK (name ~ '^[a-zA-Z0-9][a-zA-Z0-9._@-]{0,63}$'),
    CONSTRAINT operators_roles_known CHECK (roles <@ '{viewer,operator,approver,administrator}'),
    CONSTRAINT operators_roles_not_empty CHECK (cardinality(roles) > 0),
    CONSTRAINT operators_have_one_login CHECK (
        num_nulls(password_salt, password_version, password_proof) = 0 AND num_nonnulls(oidc_issuer, oidc_subject) = 0
        OR num_nonnulls(password_salt, password_version, password_proof) = 0 AND num_nulls(oidc_issuer, oidc_subject) = 0),
    -- Visible ASCII.
    CONSTRAINT operators_identity_bounded CHECK (oidc_issuer ~ '^[!-~]{1,255}$' AND oidc_subject ~ '^[!-~]{1,255}$'),
    -- One identity is one person, whatever its operators would be called.
    CONSTRAINT operators_identity_unique UNIQUE (oidc_issuer, oidc_subject),
    CONSTRAINT operators_password_salt_is_16_bytes CHECK (octet_length(password_salt) = 16),
    CONSTRAINT operators_password_proof_is_sha256 CHECK (octet_length(password_proof) = 32),
    CONSTRAINT operators_failed_logins_counted CHECK (failed_logins >= 0)
);

-- Two spellings are one person, as for the four eyes of a decision.
CREATE UNIQUE INDEX operators_by_person ON operators (lower(regexp_replace(name, '[^a-zA-Z0-9]', '', 'g')));

-- A session's token stays with its operator. Its proof, the token's SHA-256 in hexadecimal digits, is what statements carry, and only the
-- proof's SHA-256 is stored.
CREATE TABLE operator_sessions (
    session_id   text        PRIMARY KEY DEFAULT 'ses_' || left(replace(gen_random_uuid()::text, '-', ''), 20),
    operator     text        NOT NULL REFERENCES operators,
    proof_hash   bytea       NOT NULL UNIQUE,
    -- SHA-256 of the ID token that opened it, without its signature; NULL if a password did. A token opens one session.
    id_token_hash bytea      UNIQUE,
    address      text,
    opened_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A session that is not used ends before.
    expires_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    CONSTRAINT operator_sessions_hash_is_sha256 CHECK (octet_length(proof_hash) = 32),
    CONSTRAINT operator_sessions_id_token_hash_is_sha256 CHECK (octet_length(id_token_hash) = 32),
    CONSTRAINT operator_sessions_expire CHECK (expires_at > opened_at AND expires_at <= opened_at + interval '12 hours 1 minute')
);

CREATE INDEX operator_sessions_by_operator ON operator_sessions (operator, opened_at);

-- A name never changes, and an operator is disabled and never deleted: the records name operators.
CREATE FUNCTION guard_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.name <> OLD.name OR NEW.created_at <> OLD.created_at THEN
        RAISE EXCEPTION 'the name of operator % is final', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    -- The audit log has no password, but that there is another one.
    IF (NEW.password_proof, NEW.oidc_issuer, NEW.oidc_subject) IS DISTINCT FROM (OLD.password_proof, OLD.oidc_issuer, OLD.oidc_subject) THEN
        NEW.login_set_at := clock_timestamp();
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
       OR (NEW.session_id, NEW.operator, NEW.proof_hash, NEW.id_token_hash, NEW.address, NEW.opened_at, NEW.expires_at)
          IS DISTINCT FROM
          (OLD.session_id, OLD.operator, OLD.proof_hash, OLD.id_token_hash, OLD.address, OLD.opened_at, OLD.expires_at) THEN
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
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('name', 'password_salt', 'password_proof', 'failed_logins');
CREATE TRIGGER operator_sessions_audited_insert AFTER INSERT ON operator_sessions
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('operator,session_id', 'proof_hash', 'id_token_hash', 'last_used_at');
CREATE TRIGGER operator_sessions_audited_end AFTER UPDATE OF ended_at ON operator_sessions
    FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('operator,session_id', 'proof_hash', 'id_token_hash', 'last_used_at');

-- Sessions: how long one lasts without being used.
CREATE FUNCTION operator_session_idle_max() RETURNS interval LANGUAGE sql IMMUTABLE SET search_path = public, pg_temp
    AS $$ SELECT interval '30 minutes' $$;

-- What the password of a login is hashed with; no row for an unknown login, and for one without a password.
CREATE FUNCTION operator_password_salt(login text, OUT salt bytea, OUT version smallint) RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT password_salt, password_version FROM operators WHERE name = login AND password_salt IS NOT NULL
$$;

-- Inserts a session. Not for the processes' roles.
CREATE FUNCTION insert_operator_session(login text, proof text, id_token bytea, from_address text, OUT opened text, OUT ends_at timestamptz)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    -- Also a transaction without a session has a setting: the empty one.
    IF proof !~ '^[0-9a-f]{64}$' THEN
        RAISE EXCEPTION 'the proof of a session has 64 hexadecimal digits' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO operator_sessions (operator, proof_hash, id_token_hash, address, expires_at)
    VALUES (login, sha256(convert_to(proof, 'UTF8')), id_token, from_address, clock_timestamp() + interval '12 hours')
    ON CONFLICT (id_token_hash) DO NOTHING
    RETURNING session_id, expires_at INTO opened, ends_at;
END
$$;

-- Opens a session for who knows the secret of the login's password. Each attempt is counted, and after five that fail the login is locked
-- for 15 minutes. No role but the owner's can open one otherwise.
CREATE FUNCTION open_operator_session(login text, secret bytea, proof text, from_address text, OUT refusal text, OUT opened text,
                                      OUT ends_at timestamptz, OUT has_roles text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    known operators;
    fails integer;
BEGIN
    -- Attempts at the same moment follow each other.
    SELECT * INTO known FROM operators WHERE name = login FOR NO KEY UPDATE;
    IF NOT FOUND OR known.password_proof IS NULL THEN
        refusal := 'unknown';
    ELSIF known.locked_until > clock_timestamp() THEN
        refusal := 'locked';
    -- A secret that is NULL is wrong, too.
    ELSIF known.disabled_at IS NOT NULL OR sha256(secret) IS DISTINCT FROM known.password_proof THEN
        refusal := CASE WHEN known.disabled_at IS NULL THEN 'wrong_password' ELSE 'disabled' END;
        fails := CASE WHEN known.locked_until IS NULL THEN known.failed_logins ELSE 0 END + 1;
        UPDATE operators SET failed_logins = fails,
            locked_until = CASE WHEN fails >= 5 THEN clock_timestamp() + interval '15 minutes' END
        WHERE name = login;
    ELSE
        UPDATE operators SET failed_logins = 0, locked_until = NULL
        WHERE name = login AND (failed_logins > 0 OR locked_until IS NOT NULL);
        SELECT i.opened, i.ends_at INTO opened, ends_at FROM insert_operator_session(login, proof, NULL, from_address) i;
        has_roles := known.roles;
    END IF;
END
$$;

-- Opens a session for an identity that the caller has verified by the provider's ID token; `id_token` is the SHA-256 of its signed part. A
-- token opens one session: a copy of it, from a log or a proxy, opens none.
CREATE FUNCTION open_operator_session_of_identity(issuer text, subject text, id_token bytea, proof text, from_address text,
                                                  OUT refusal text, OUT login text, OUT opened text, OUT ends_at timestamptz,
                                                  OUT has_roles text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    known operators;
BEGIN
    IF id_token IS NULL THEN
        RAISE EXCEPTION 'an identity opens a session by its ID token' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- A session opened while its operator is disabled would outlive that.
    SELECT * INTO known FROM operators WHERE oidc_issuer = issuer AND oidc_subject = subject FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        refusal := 'unknown';
    ELSIF known.disabled_at IS NOT NULL THEN
        refusal := 'disabled';
    ELSE
        SELECT i.opened, i.ends_at INTO opened, ends_at FROM insert_operator_session(known.name, proof, id_token, from_address) i;
        IF opened IS NULL THEN
            refusal := 'token_used';
        ELSE
            login := known.name;
            has_roles := known.roles;
        END IF;
    END IF;
END
$$;

-- The open session of a proof; this use prolongs it. Written once a minute at most.
CREATE FUNCTION use_operator_session(proof text, OUT used text, OUT ends_at timestamptz, OUT acting text, OUT has_roles text[])
RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE operator_sessions s SET last_used_at = clock_timestamp()
    WHERE s.proof_hash = sha256(convert_to(proof, 'UTF8')) AND s.ended_at IS NULL
      AND s.last_used_at < clock_timestamp() - interval '1 minute' AND s.last_used_at > clock_timestamp() - operator_session_idle_max();
    RETURN QUERY
        SELECT s.session_id, s.expires_at, o.name, o.roles FROM operator_sessions s JOIN operators o ON o.name = s.operator
        WHERE s.proof_hash = sha256(convert_to(proof, 'UTF8')) AND s.ended_at IS NULL AND s.expires_at > clock_timestamp()
          AND s.last_used_at > clock_timestamp() - operator_session_idle_max() AND o.disabled_at IS NULL;
END
$$;

-- Ends a session for who has its token.
CREATE FUNCTION end_operator_session(proof text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    -- For the audit log: who has the token acts.
    SELECT set_config('payments.operator_session', proof, true);
    UPDATE operator_sessions SET ended_at = clock_timestamp()
    WHERE proof_hash = sha256(convert_to(proof, 'UTF8')) AND ended_at IS NULL
$$;

-- The operator in whose session the transaction acts, if the operator has the role; NULL is any role. The setting has the session's proof: a process knows
-- the proofs of the tokens that it is given, and acts for nobody else. Not in a snapshot, which may be older than the end of a session.
CREATE FUNCTION acting_operator(needed_role text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT o.name FROM operator_sessions s JOIN operators o ON o.name = s.operator
    WHERE s.proof_hash = sha256(convert_to(coalesce(current_setting('payments.operator_session', true), ''), 'UTF8'))
      AND s.ended_at IS NULL AND s.expires_at > clock_timestamp()
      AND s.last_used_at > clock_timestamp() - operator_session_idle_max()
      AND o.disabled_at IS NULL AND (needed_role IS NULL OR needed_role = ANY (o.roles))
      AND current_setting('transaction_isolation') = 'read committed'
$$;

-- operator-api: sessions, by these functions alone, and what operators decide in them.
REVOKE EXECUTE ON FUNCTION operator_password_salt(text), open_operator_session(text, bytea, text, text),
    open_operator_session_of_identity(text, text, bytea, text, text), insert_operator_session(text, text, bytea, text),
    use_operator_session(text), end_operator_session(text), acting_operator(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION operator_password_salt(text), open_operator_session(text, bytea, text, text),
    open_operator_session_of_identity(text, text, bytea, text, text), use_operator_session(text), end_operator_session(text),
    acting_operator(text) TO operator_api;
-- What an operator looks at.
GRANT SELECT ON payments, accounts, holds, claims, operations, journal, timeline, submissions, switch_callbacks, inbox, returns, recalls,
    switch_profiles, statement_lines, alerts, exceptions, decisions, notifications, outbox, outbox_keys TO operator_api;
-- Proposals and confirmations; the payment's workflow applies them. Locking a row takes the right to update one of its columns.
GRANT INSERT ON decisions, exceptions, timeline, inbox TO operator_api;
GRANT UPDATE (status, confirmed_by, confirmed_at, confirm_reason, withdrawn_by, outcome, detail, closed_at) ON decisions TO operator_api;
GRANT UPDATE (closed_at, closed_by) ON exceptions TO operator_api;
GRANT UPDATE (delivered_at) ON inbox TO operator_api;
GRANT UPDATE (has_unbooked_return) ON payments TO operator_api;
GRANT UPDATE (opened_at) ON accounts TO operator_api;
-- Corrections, which it posts itself, with the returns that were kept until then and their events.
GRANT INSERT ON operations, journal, outbox, outbox_keys TO operator_api;
GRANT UPDATE (booked_at) ON returns TO operator_api;
GRANT UPDATE (last_sequence) ON outbox_keys TO operator_api;

-- The following holds for operator-api, and for every role that is neither the owner's nor another process's.

CREATE FUNCTION refuse_action(what text) RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the role % may not do this: %', current_user, what USING ERRCODE = 'insufficient_privilege';
END
$$;

-- Whether a proposal is too old to be confirmed.
CREATE FUNCTION is_old_proposal(proposed_at timestamptz) RETURNS boolean LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT proposed_at < clock_timestamp() - interval '7 days'
$$;

-- Whether this operator was disabled, or lost the role to propose decisions.
CREATE FUNCTION may_propose_no_more(operator text) RETURNS boolean LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM operators o
                   WHERE o.name = operator AND (o.disabled_at IS NOT NULL OR NOT 'operator' = ANY (o.roles)))
$$;

-- Who proposes, confirms or withdraws is who has the session. Proposals take the role operator, a confirmation of another operator the
-- role approver. A proposal is confirmed within 7 days, and while who proposed it may propose. A decision goes from a proposal to its
-- confirmation or withdrawal, and from there to its outcome.
CREATE FUNCTION check_acting_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' AND NEW.proposed_by IS DISTINCT FROM acting_operator('operator') THEN
        PERFORM refuse_action('propose for ' || NEW.proposed_by);
    END IF;
    IF TG_OP = 'INSERT' THEN
        NEW.proposed_at := clock_timestamp();
    END IF;
    IF TG_OP = 'INSERT' AND NEW.exception_id IS NOT NULL AND NOT EXISTS (
           SELECT FROM exceptions e WHERE e.exception_id = NEW.exception_id AND e.closed_at IS NULL
             AND e.payment_id IS NOT DISTINCT FROM NEW.payment_id) THEN
        PERFORM refuse_action('decide about an exception that is not open, or of another payment');
    END IF;
    IF NEW.confirmed_by IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.confirmed_by IS NULL) THEN
        IF NEW.confirmed_by IS DISTINCT FROM
           acting_operator(CASE WHEN NEW.action IN ('retry_cancel', 'close') THEN 'operator' ELSE 'approver' END) THEN
            PERFORM refuse_action('confirm for ' || NEW.confirmed_by);
        END IF;
        IF TG_OP = 'UPDATE' AND (is_old_proposal(OLD.proposed_at) OR may_propose_no_more(OLD.proposed_by)) THEN
            PERFORM refuse_action('confirm an old proposal, or one of an operator who may not propose any more');
        END IF;
        NEW.confirmed_at := clock_timestamp();
    END IF;
    IF NOT coalesce(CASE
           WHEN TG_OP = 'INSERT' THEN
               NEW.status = 'proposed' AND NEW.confirmed_by IS NULL OR NEW.status = 'done' AND NEW.action = 'close'
           WHEN OLD.status = 'proposed' AND NEW.status = 'confirmed' THEN OLD.confirmed_by IS NULL
           WHEN OLD.status = 'proposed' AND NEW.status = 'withdrawn' THEN
               NEW.confirmed_by IS NULL AND NEW.withdrawn_by = coalesce(acting_operator('operator'), acting_operator('approver'))
           -- Refused by its workflow, in no operator's session.
           WHEN OLD.status = 'confirmed' AND NEW.status = 'refused' THEN NEW.action IN ('retry_cancel', 'debit', 'release')
           -- A correction, once its confirmation has posted it.
           WHEN OLD.status = 'confirmed' AND NEW.status = 'done' THEN is_posted_correction(NEW.decision_id)
           END, false) THEN
        PERFORM refuse_action(format('make decision %s %s', NEW.decision_id, NEW.status));
    END IF;
    RETURN NEW;
END
$$;

-- Whether a correction has its journal entry.
CREATE FUNCTION is_posted_correction(decision text) RETURNS boolean LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM decisions d JOIN payments p USING (payment_id) JOIN journal j USING (payment_id)
                   WHERE d.decision_id = decision AND j.operation_key = p.tx_id || ':correct:' || d.decision_id)
$$;

-- An operator opens exceptions of one kind, and a late debit those of money that it could not collect or must give back. A decision about an
-- exception closes it.
CREATE FUNCTION check_exception_of_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' AND (NEW.closed_at IS NOT NULL OR NOT CASE
           WHEN NEW.kind = 'opened_by_operator' THEN NEW.origin = NEW.payment_id AND acting_operator('operator') IS NOT NULL
           WHEN NEW.kind IN ('debited_to_claims', 'returned_after_debit', 'return_differs') THEN EXISTS (
               SELECT FROM decisions d WHERE d.payment_id = NEW.payment_id AND d.action = 'late_debit' AND d.status = 'confirmed'
                 AND d.confirmed_by = acting_operator('approver'))
           ELSE false END) THEN
        PERFORM refuse_action('open an exception outside the session of an operator');
    END IF;
    IF TG_OP = 'UPDATE' AND (OLD.closed_at IS NOT NULL OR NOT EXISTS (
           SELECT FROM decisions d WHERE d.decision_id = NEW.closed_by AND d.exception_id = NEW.exception_id AND (
               d.action = 'close' AND d.status = 'done' AND d.confirmed_by = acting_operator('operator')
               OR d.status = 'confirmed' AND d.confirmed_by = acting_operator('approver') AND is_posted_correction(d.decision_id)))) THEN
        PERFORM refuse_action(format('close exception %s without a decision about it', NEW.exception_id));
    END IF;
    RETURN NEW;
END
$$;

-- A correction that two operators have decided, in the session of who confirms it: its own entry, of its kind, its payment's account and
-- amount, and the returns that its payment kept until then.
CREATE FUNCTION check_correction() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    d          decisions;
    p          payments;
    is_own_key boolean;
    is_allowed boolean;
BEGIN
    SELECT * INTO d FROM decisions WHERE payment_id = NEW.payment_id AND status = 'confirmed'
        AND action IN ('late_debit', 'return_credit', 'write_off') AND confirmed_by = acting_operator('approver');
    SELECT * INTO p FROM payments WHERE payment_id = NEW.payment_id AND ended_at IS NOT NULL;
    is_own_key := NEW.operation_key = p.tx_id || ':correct:' || d.decision_id;
    is_allowed := (is_own_key OR d.action = 'late_debit' AND EXISTS (
            SELECT FROM returns r WHERE r.payment_id = p.payment_id AND r.booked_at IS NULL
              AND NEW.operation_key = p.tx_id || ':return:' || r.return_id))
        AND EXISTS (SELECT FROM exceptions e WHERE e.exception_id = d.exception_id AND e.payment_id = p.payment_id AND e.closed_at IS NULL);
    IF is_allowed AND TG_TABLE_NAME = 'operations' THEN
        is_allowed := NEW.outcome = 'done';
    ELSIF is_allowed THEN
        is_allowed := NEW.currency = p.currency
            AND (NEW.debit_account LIKE 'internal:%' OR NEW.debit_account = p.source_account)
            AND (NEW.credit_account LIKE 'internal:%' OR NEW.credit_account = p.source_account)
            AND CASE
                WHEN NOT is_own_key THEN NEW.kind = 'return' AND EXISTS (
                    SELECT FROM returns r WHERE r.payment_id = p.payment_id AND r.currency = p.currency
                      AND r.amount_minor = NEW.amount_minor AND NEW.operation_key = p.tx_id || ':return:' || r.return_id)
                WHEN d.action = 'late_debit' AND NEW.kind = 'late_debit' THEN NEW.amount_minor = p.amount_minor
                WHEN d.action = 'return_credit' AND NEW.kind = 'return_credit' THEN NEW.amount_minor = p.amount_minor - p.returned_minor
                WHEN d.action = 'late_debit' AND NEW.kind = 'collect' OR d.action = 'write_off' AND NEW.kind = 'write_off' THEN
                    NEW.amount_minor = (SELECT c.open_minor FROM claims c WHERE c.payment_id = p.payment_id AND c.closed_at IS NULL)
                ELSE false END;
    END IF;
    IF is_allowed IS NOT TRUE THEN
        PERFORM refuse_action(format('write %s into %s', NEW.operation_key, TG_TABLE_NAME));
    END IF;
    RETURN NEW;
END
$$;

-- The message of a confirmed decision, and that it was delivered.
CREATE FUNCTION check_inbox_of_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.kind <> 'decision' OR NOT EXISTS (
           SELECT FROM decisions d WHERE d.decision_id = NEW.decision_id AND d.payment_id = NEW.payment_id
             AND (d.status = 'confirmed' OR TG_OP = 'UPDATE' AND d.confirmed_by IS NOT NULL)) THEN
        PERFORM refuse_action('write another message than that of a confirmed decision');
    END IF;
    RETURN NEW;
END
$$;

-- What is recorded beside a decision: in its operator's session, or about a decision of the payment whose workflow refused it.
CREATE FUNCTION check_timeline_of_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF coalesce(acting_operator('operator'), acting_operator('approver')) IS NULL
       AND NOT EXISTS (SELECT FROM decisions d WHERE d.payment_id = NEW.payment_id AND d.status IN ('confirmed', 'refused')) THEN
        PERFORM refuse_action('write into the timeline outside the session of an operator');
    END IF;
    NEW.happened_at := clock_timestamp();
    RETURN NEW;
END
$$;

-- A return is booked by its journal entry, and no payment loses the mark of one that is not.
CREATE FUNCTION check_return_of_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM journal j JOIN payments p USING (payment_id)
                   WHERE j.payment_id = NEW.payment_id AND j.operation_key = p.tx_id || ':return:' || NEW.return_id) THEN
        PERFORM refuse_action('book a return without its journal entry');
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION check_payment_of_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF acting_operator('approver') IS NULL OR NOT EXISTS (
           SELECT FROM decisions d WHERE d.payment_id = NEW.payment_id AND d.action = 'late_debit' AND d.status = 'confirmed') THEN
        PERFORM refuse_action('change a payment without a correction of it');
    END IF;
    RETURN NEW;
END
$$;

-- The events of the charges and returns that a correction books: each after its journal entry, under its payment's id and with its amount.
CREATE FUNCTION check_event_of_operator() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
           SELECT FROM decisions d JOIN payments p USING (payment_id) JOIN journal j USING (payment_id)
           WHERE d.payment_id = NEW.subject_key AND d.status = 'confirmed' AND d.confirmed_by = acting_operator('approver')
             AND NEW.body ->> 'payment_id' = NEW.subject_key
             AND CASE NEW.kind
                 WHEN 'transfer_charged' THEN NEW.event_id = NEW.subject_key || ':transfer_charged'
                     AND j.operation_key = p.tx_id || ':correct:' || d.decision_id AND j.debit_account = p.source_account
                     AND NEW.body ->> 'charged_minor' = j.amount_minor::text
                 WHEN 'transfer_returned' THEN starts_with(NEW.event_id, NEW.subject_key || ':transfer_returned:')
                     AND d.action IN ('late_debit', 'return_credit') AND j.kind IN ('return', 'return_credit')
                     AND NEW.body ->> 'returned_minor' = j.amount_minor::text
                 ELSE false END) THEN
        PERFORM refuse_action('append an event that no correction causes');
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
            ('decisions', 'INSERT OR UPDATE', 'check_acting_operator'),
            ('exceptions', 'INSERT OR UPDATE', 'check_exception_of_operator'),
            ('journal', 'INSERT', 'check_correction'),
            ('operations', 'INSERT', 'check_correction'),
            ('inbox', 'INSERT OR UPDATE', 'check_inbox_of_operator'),
            ('timeline', 'INSERT', 'check_timeline_of_operator'),
            ('returns', 'UPDATE', 'check_return_of_operator'),
            ('payments', 'UPDATE', 'check_payment_of_operator'),
            ('outbox', 'INSERT', 'check_event_of_operator')
        ) AS guards (guarded_table, events, guard)
    LOOP
        EXECUTE format(
            'CREATE TRIGGER %1$I BEFORE %2$s ON %3$I FOR EACH ROW
                WHEN (current_user NOT IN (''payments_api'', ''payment_worker'', ''background_worker'', ''payctl_reconcile'')
                      AND NOT pg_has_role(current_user, %4$L, ''USAGE''))
                EXECUTE FUNCTION %5$I()',
            guarded.guarded_table || '_of_operator', guarded.events, guarded.guarded_table, current_user, guarded.guard);
    END LOOP;
END
$$;

-- A trigger function with the owner's rights moves money: no role uses it in a trigger of its own.
REVOKE EXECUTE ON FUNCTION move_balances(), move_holds(), move_claims(), move_returned(), queue_for_seal() FROM PUBLIC;
