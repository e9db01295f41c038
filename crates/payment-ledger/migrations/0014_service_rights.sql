-- Database rights of the services: each process has a role of its own, which its login is granted. It has the rights that the code
-- of the process uses and no others, so one process that is taken over has no rights of the others. No role can change or delete
-- history. What operators do no service can but operator-api, and that only decisions, in an operator's session (0016).
-- A table of a later migration has no rights until that migration grants them. Roles belong to the cluster: they are created here if
-- the owner may create roles, and must exist otherwise.
DO $$
DECLARE
    service text;
BEGIN
    FOREACH service IN ARRAY ARRAY['payments_api', 'payment_worker', 'background_worker', 'notifier', 'operator_api', 'payctl', 'payctl_reconcile', 'idempotency_keys'] LOOP
        -- A block for each role: one that another database of the cluster created at the same moment ends no other's creation.
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = service) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', service);
                EXECUTE format('GRANT %I TO %I', service, current_user);
            END IF;
        EXCEPTION
            -- Another database of the cluster was migrated at the same moment.
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'role % does not exist and this user may not create it: run CREATE ROLE % NOLOGIN first', service, service
                    USING ERRCODE = 'insufficient_privilege';
        END;
    END LOOP;
    -- idempotency_keys owns the schema of idempotency keys, whose partitions background-worker drops.
    FOREACH service IN ARRAY ARRAY['background_worker', current_user] LOOP
        IF NOT pg_has_role(service, 'idempotency_keys', 'MEMBER') THEN
            BEGIN
                EXECUTE format('GRANT idempotency_keys TO %I', service);
            EXCEPTION WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'role % is no member of idempotency_keys and this user may not grant that: run GRANT idempotency_keys TO % first', service, service
                    USING ERRCODE = 'insufficient_privilege';
            END;
        END IF;
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA public TO payments_api, payment_worker, background_worker, notifier, operator_api, payctl, payctl_reconcile;

-- Locking a row takes the right to update one of its columns. Of an account that is opened_at, which nothing reads: no service can
-- change the status of an account, and its balance follows the journal.

-- payments-api: accepts payments, stores what the switches report, answers its clients.

-- Who calls, what may be paid, and from which account.
GRANT SELECT ON api_keys, kill_switches, accounts, claims TO payments_api;
-- A new payment, with the profile of its switch.
GRANT SELECT, INSERT ON payments, switch_profiles, timeline TO payments_api;
-- What its clients read: a payment, its account, the account's statement.
GRANT SELECT ON holds, operations, journal, journal_unsealed, sealed_hours, notifications TO payments_api;
-- Whether the switch lists an earlier transfer of a payment that is accepted.
GRANT SELECT (switch, reference, finished_at) ON statement_lines TO payments_api;
-- The switches' reports, and the final status where a report is believed. Whether an operator's decision is open is read with it.
GRANT SELECT, INSERT ON switch_callbacks, inbox, returns TO payments_api;
GRANT SELECT, INSERT (payment_id, kind, origin, detail) ON exceptions TO payments_api;
GRANT SELECT ON recalls, decisions TO payments_api;
GRANT UPDATE (state, final_status, final_status_source, money_reported_at, has_unbooked_return, updated_at, ended_at)
    ON payments TO payments_api;
GRANT UPDATE (delivered_at) ON inbox TO payments_api;
GRANT UPDATE (status, detail, next_attempt_at, answer_due_at, updated_at) ON recalls TO payments_api;
-- A reported return is paid to its bearer at once, with its event: entries of that kind alone, see below.
GRANT INSERT ON operations, journal TO payments_api;
GRANT UPDATE (booked_at) ON returns TO payments_api;
GRANT SELECT, INSERT ON outbox, outbox_keys TO payments_api;
GRANT UPDATE (last_sequence) ON outbox_keys TO payments_api;
-- Tenants manage their webhook endpoints and replay deliveries. The tenant of an endpoint never changes.
GRANT SELECT, INSERT ON webhook_endpoints TO payments_api;
GRANT UPDATE (url, kinds, status, disabled_reason, disabled_note, secret_version, secret_check, old_secret_until, failing_since,
    rotated_at) ON webhook_endpoints TO payments_api;
GRANT SELECT ON webhook_deliveries, webhook_attempts TO payments_api;
GRANT UPDATE (state, failed_attempts, next_attempt_at, lease, ended_at) ON webhook_deliveries TO payments_api;

-- payment-worker: carries payments through their steps, reconciles them with the switches' statements.

-- Money. It accepts no payment.
GRANT SELECT ON accounts, holds, claims, switch_profiles TO payment_worker;
GRANT UPDATE (opened_at) ON accounts TO payment_worker;
GRANT SELECT, INSERT ON journal, operations TO payment_worker;
GRANT INSERT ON timeline TO payment_worker;
-- Payments.
GRANT SELECT ON payments TO payment_worker;
GRANT UPDATE (state, workflow_id, resume_count, run_id, attempts, first_attempt_at, submit_deadline, rail_id, cause, cancelling_since,
    asks, last_asked_at, attempts_uncertain, acceptance_unrecorded, final_status, final_status_source, operator_reason,
    needs_operator_since, restored_at, has_unbooked_return, start_lease_until, start_postponed_until, start_rejections, started_at,
    updated_at, liveness_checked_at, ended_at) ON payments TO payment_worker;
-- The first namespace.
GRANT SELECT, INSERT ON temporal_namespaces TO payment_worker;
-- Operators set the limits; a reserve counts their use, and a release gives it back.
GRANT SELECT ON limits TO payment_worker;
GRANT SELECT, INSERT ON limit_days, limit_uses TO payment_worker;
GRANT UPDATE (used_minor, used_count) ON limit_days TO payment_worker;
GRANT UPDATE (released_at) ON limit_uses TO payment_worker;
-- The switch: attempts and their answers, recalls, returns that a statement lists.
GRANT SELECT, INSERT ON submissions, recalls, returns TO payment_worker;
GRANT UPDATE (outcome, detail, answered_at, marker, transfer_id) ON submissions TO payment_worker;
GRANT UPDATE (status, detail, attempts, attempt_token, next_attempt_at, answer_due_at, updated_at) ON recalls TO payment_worker;
GRANT UPDATE (booked_at) ON returns TO payment_worker;
-- The inbox wakes a payment's own workflow. Callbacks are read.
GRANT SELECT, INSERT ON inbox TO payment_worker;
GRANT SELECT ON switch_callbacks TO payment_worker;
GRANT UPDATE (next_delivery_at, delivered_at) ON inbox TO payment_worker;
-- Alerts and exceptions are raised; operators close exceptions. A decision that operators confirmed gets its outcome.
GRANT INSERT ON alerts TO payment_worker;
GRANT SELECT, INSERT (payment_id, kind, origin, detail) ON exceptions TO payment_worker;
GRANT SELECT ON decisions TO payment_worker;
GRANT UPDATE (status, outcome, detail, closed_at) ON decisions TO payment_worker;
-- Events.
GRANT SELECT, INSERT ON outbox, outbox_keys TO payment_worker;
GRANT UPDATE (last_sequence) ON outbox_keys TO payment_worker;
-- Reconciliation, which verifies the seal and writes none.
GRANT SELECT ON journal_unsealed, journal_seals, seal_batches, sealed_balances, sealed_hours TO payment_worker;
GRANT SELECT, INSERT ON statement_lines, statement_cursors, reconciliation_runs TO payment_worker;
GRANT UPDATE (cursor, read_at) ON statement_cursors TO payment_worker;
GRANT UPDATE (finished_at, report) ON reconciliation_runs TO payment_worker;
GRANT SELECT, INSERT, DELETE ON running_workflows, reconciled_payments TO payment_worker;

-- background-worker: delivers the inbox, publishes events, seals the journal, audits holds, restores customers' accounts, measures.

-- Restores: an advance of the bank, or a release where nothing was sent.
GRANT SELECT ON accounts, holds, claims, switch_profiles, payments TO background_worker;
GRANT UPDATE (opened_at) ON accounts TO background_worker;
GRANT UPDATE (state, cause, cancelling_since, restored_at, updated_at, ended_at) ON payments TO background_worker;
GRANT SELECT, INSERT ON journal, operations, timeline TO background_worker;
GRANT SELECT ON limits, limit_days, limit_uses, kill_switches TO background_worker;
GRANT UPDATE (used_minor, used_count) ON limit_days TO background_worker;
GRANT UPDATE (released_at) ON limit_uses TO background_worker;
-- The inbox. A decision that its workflow refused is closed.
GRANT SELECT, INSERT ON inbox TO background_worker;
GRANT UPDATE (delivery_attempts, next_delivery_at, delivered_at) ON inbox TO background_worker;
GRANT SELECT ON switch_callbacks, decisions TO background_worker;
GRANT UPDATE (status, outcome, detail, closed_at) ON decisions TO background_worker;
-- Events: appended with a restore, published, and deleted after their retention.
GRANT SELECT, INSERT, DELETE ON outbox TO background_worker;
GRANT UPDATE (published_at, rejections, rejection, next_attempt_at, parked_at) ON outbox TO background_worker;
GRANT SELECT, INSERT ON outbox_keys TO background_worker;
GRANT UPDATE (last_sequence) ON outbox_keys TO background_worker;
-- The seal. Only a sealed entry can be deleted from journal_unsealed: its trigger, which reads the seals, refuses the others.
GRANT SELECT, INSERT ON journal_seals, seal_batches, sealed_balances, sealed_hours TO background_worker;
GRANT UPDATE (balance_minor, position) ON sealed_balances TO background_worker;
GRANT UPDATE (moved_minor) ON sealed_hours TO background_worker;
GRANT SELECT, DELETE ON journal_unsealed TO background_worker;
-- The hold audit opens exceptions.
GRANT SELECT, INSERT (payment_id, kind, origin, detail) ON exceptions TO background_worker;
GRANT SELECT ON submissions, returns, statement_lines, statement_cursors, running_workflows TO background_worker;
-- Gauges.
GRANT SELECT ON alerts, recalls, reconciliation_runs, processed_events, parked_deliveries TO background_worker;

-- notifier: consumes events, notifies customers, delivers outbound webhooks. It reads no payment and no account.

-- Consumed events. Its marks are deleted after their retention, unless the outbox still has the event.
GRANT SELECT, INSERT, DELETE ON processed_events, consumer_positions, parked_deliveries TO notifier;
GRANT UPDATE (processed_at) ON processed_events TO notifier;
GRANT UPDATE (last_sequence, updated_at) ON consumer_positions TO notifier;
GRANT SELECT (event_id) ON outbox TO notifier;
GRANT INSERT ON notifications TO notifier;
-- Outbound webhooks. It disables endpoints that fail or are gone, and changes no endpoint's address, events or secret.
GRANT SELECT, DELETE ON webhook_endpoints TO notifier;
GRANT UPDATE (status, disabled_reason, failing_since) ON webhook_endpoints TO notifier;
GRANT SELECT, INSERT, DELETE ON webhook_deliveries, webhook_attempts TO notifier;
GRANT UPDATE (state, failed_attempts, next_attempt_at, lease, ended_at) ON webhook_deliveries TO notifier;

-- payctl: what operators read at a terminal. It changes nothing, and reads nothing by which somebody logs in or signs. What operators
-- change they change in a session of operator-api.

GRANT SELECT ON payments, switch_profiles, timeline, submissions, switch_callbacks, inbox, returns, recalls, alerts, exceptions, decisions,
    notifications TO payctl;
GRANT SELECT ON accounts, journal, operations, holds, claims, limits, limit_days, limit_uses, kill_switches TO payctl;
GRANT SELECT ON journal_unsealed, journal_seals, seal_batches, sealed_balances, sealed_hours TO payctl;
GRANT SELECT ON statement_lines, statement_cursors, reconciliation_runs, running_workflows, temporal_namespaces TO payctl;
GRANT SELECT ON outbox, outbox_keys, processed_events, consumer_positions, parked_deliveries TO payctl;
GRANT SELECT (endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version, old_secret_until, failing_since,
    created_at, rotated_at) ON webhook_endpoints TO payctl;
GRANT SELECT ON webhook_deliveries, webhook_attempts TO payctl;

-- payctl reconcile and restore-check, a role of their own: they store the lines of the switches' statements, open an exception for each drift,
-- and mark open payments after lost commits (0019). They leave the returns that a statement lists to payment-worker's runs.

-- What is compared.
GRANT SELECT ON payments, switch_profiles, submissions, switch_callbacks, inbox, returns, recalls, exceptions, decisions, accounts, journal,
    operations, holds, claims TO payctl_reconcile;
GRANT SELECT ON journal_unsealed, journal_seals, seal_batches, sealed_balances, sealed_hours TO payctl_reconcile;
-- A run, and the statements as read, at the time at which they are.
GRANT SELECT ON statement_lines, statement_cursors, reconciliation_runs TO payctl_reconcile;
GRANT INSERT (switch, cursor, transfer_id, reference, status, return_id, amount_minor, currency, finished_at) ON statement_lines
    TO payctl_reconcile;
GRANT INSERT (switch, cursor), UPDATE (cursor, read_at) ON statement_cursors TO payctl_reconcile;
GRANT INSERT (window_began_at), UPDATE (finished_at, report) ON reconciliation_runs TO payctl_reconcile;
GRANT SELECT, INSERT, DELETE ON running_workflows, reconciled_payments TO payctl_reconcile;
GRANT INSERT (payment_id, kind, origin, detail) ON exceptions TO payctl_reconcile;
-- The marks.
GRANT UPDATE (attempts_uncertain, rail_id) ON payments TO payctl_reconcile;
GRANT INSERT (payment_id, state, detail, is_internal) ON timeline TO payctl_reconcile;

-- payment-worker records the first Temporal namespace; operators accept another one.
CREATE FUNCTION refuse_later_namespace() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the role % may record the first Temporal namespace only', current_user USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER temporal_namespaces_first_of_role BEFORE INSERT ON temporal_namespaces FOR EACH ROW
    WHEN (current_user = 'payment_worker' AND NEW.number <> 1) EXECUTE FUNCTION refuse_later_namespace();

-- Each process posts the kinds of journal entries that its steps post, and payments-api records the operations of these alone. The
-- database's owner posts the others: to fund an account, and the corrections of two operators. Another role posts none, such as a login
-- that has the rights of a process without being its role.
CREATE FUNCTION refuse_kind() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the role % may not write this into %: %', current_user, TG_TABLE_NAME, NEW.operation_key
        USING ERRCODE = 'insufficient_privilege';
END
$$;

DO $$
BEGIN
    EXECUTE format(
        'CREATE TRIGGER journal_kind_of_role BEFORE INSERT ON journal FOR EACH ROW
            WHEN (CASE current_user
                      WHEN ''payments_api'' THEN NEW.kind <> ''return''
                      WHEN ''background_worker'' THEN NEW.kind NOT IN (''advance'', ''release'')
                      WHEN ''payment_worker'' THEN
                          NEW.kind NOT IN (''reserve'', ''debit'', ''release'', ''advance'', ''collect'', ''return'', ''late_debit'')
                      WHEN ''operator_api'' THEN
                          NEW.kind NOT IN (''late_debit'', ''collect'', ''return'', ''return_credit'', ''write_off'')
                      ELSE NOT pg_has_role(current_user, %L, ''USAGE'')
                  END)
            EXECUTE FUNCTION refuse_kind()', current_user);
END
$$;

CREATE TRIGGER operations_kind_of_role BEFORE INSERT ON operations FOR EACH ROW
    WHEN (current_user = 'payments_api' AND NEW.operation_key NOT LIKE '%:return:%')
    EXECUTE FUNCTION refuse_kind();
