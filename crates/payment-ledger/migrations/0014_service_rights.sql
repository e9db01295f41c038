-- What the services may do with the tables of events, of what customers were told, of reconciliation and of webhooks.

GRANT SELECT, INSERT, UPDATE, DELETE ON outbox, outbox_keys, processed_events, consumed_keys, parked_deliveries TO payments_service;
GRANT SELECT, INSERT ON notifications, statement_lines TO payments_service;
GRANT SELECT, INSERT, UPDATE ON statement_cursors TO payments_service;
GRANT SELECT, INSERT ON reconciliations TO payments_service;
GRANT UPDATE (finished_at, report) ON reconciliations TO payments_service;
GRANT SELECT, INSERT, DELETE ON running_workflows TO payments_service;
GRANT SELECT, INSERT, DELETE ON webhook_endpoints, webhook_deliveries, webhook_attempts TO payments_service;
-- Whose an endpoint is, and what is sent of an event, never changes.
GRANT UPDATE (url, kinds, status, disabled_for, disabled_note, secret_version, secret_check, old_secret_until, failing_since, rotated_at)
    ON webhook_endpoints TO payments_service;
GRANT UPDATE (state, tries, next_at, lease, ended_at) ON webhook_deliveries TO payments_service;
