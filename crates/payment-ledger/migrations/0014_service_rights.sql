-- Database rights of the services: their login is granted the role payments_service. It can add to history and move a payment
-- on, and has no right to change or delete history. A table of a later migration has no rights until that migration grants
-- them. Roles belong to the cluster: the role is created here if the owner may create roles, and must exist otherwise.
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
        RAISE EXCEPTION 'role payments_service does not exist and this user may not create it: run CREATE ROLE payments_service NOLOGIN first'
            USING ERRCODE = 'insufficient_privilege';
END
$$;

GRANT USAGE ON SCHEMA public TO payments_service;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO payments_service;

-- Money and payments. Locking a row takes the right to update one of its columns.
GRANT INSERT ON journal, operations, payments, switch_profiles, timeline TO payments_service;
GRANT UPDATE (status) ON accounts TO payments_service;
GRANT UPDATE (state, workflow_id, resume_count, run_id, attempts, first_attempt_at, submit_deadline, rail_id, cause, cancelling_since,
    asks, last_asked_at, attempts_uncertain, final_status, final_status_source, money_reported_at, operator_reason, needs_operator_since, restored_at, has_unbooked_return, start_lease_until, start_postponed_until,
    start_rejections, started_at, updated_at, liveness_checked_at, ended_at) ON payments TO payments_service;

-- The first namespace.
GRANT INSERT ON temporal_namespaces TO payments_service;

-- The switch and the inbox.
GRANT INSERT ON submissions, switch_callbacks, inbox, returns, recalls TO payments_service;
GRANT UPDATE (status, detail, attempts, next_attempt_at, answer_due_at, updated_at) ON recalls TO payments_service;
GRANT UPDATE (booked_at) ON returns TO payments_service;
GRANT UPDATE (outcome, detail, answered_at, marker, transfer_id) ON submissions TO payments_service;
GRANT UPDATE (delivery_attempts, next_delivery_at, delivered_at) ON inbox TO payments_service;

-- Alerts, exceptions and decisions.
GRANT INSERT ON alerts, exceptions, decisions TO payments_service;
GRANT UPDATE (closed_at, closed_by) ON exceptions TO payments_service;
GRANT UPDATE (status, confirmed_by, confirmed_at, confirm_reason, outcome, detail, closed_at) ON decisions TO payments_service;

-- The seal. Only a sealed entry can be deleted from journal_unsealed: its trigger refuses the others.
GRANT INSERT ON journal_seals, seal_batches TO payments_service;
GRANT INSERT, UPDATE ON sealed_balances, sealed_hours TO payments_service;
GRANT DELETE ON journal_unsealed TO payments_service;

-- Limits and kill switches are set by operators; the services only count the use of limits.
GRANT INSERT ON limit_days, limit_uses TO payments_service;
GRANT UPDATE (used_minor, used_count) ON limit_days TO payments_service;
GRANT UPDATE (released_at) ON limit_uses TO payments_service;

-- Reconciliation.
GRANT INSERT ON statement_lines TO payments_service;
GRANT INSERT, UPDATE ON statement_cursors TO payments_service;
GRANT INSERT ON reconciliation_runs TO payments_service;
GRANT UPDATE (finished_at, report) ON reconciliation_runs TO payments_service;
GRANT INSERT, DELETE ON running_workflows, reconciled_payments TO payments_service;

-- Events and notifications.
GRANT INSERT, UPDATE, DELETE ON outbox, outbox_keys, processed_events, consumer_positions, parked_deliveries TO payments_service;
GRANT INSERT ON notifications TO payments_service;

-- Outbound webhooks. The tenant of an endpoint and the body of a delivery never change.
GRANT INSERT, DELETE ON webhook_endpoints, webhook_deliveries, webhook_attempts TO payments_service;
GRANT UPDATE (url, kinds, status, disabled_reason, disabled_note, secret_version, secret_check, old_secret_until, failing_since,
    rotated_at) ON webhook_endpoints TO payments_service;
GRANT UPDATE (state, failed_attempts, next_attempt_at, lease, ended_at) ON webhook_deliveries TO payments_service;
