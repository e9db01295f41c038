-- What the services may do with the tables of events, of what customers were told, and of reconciliation.

GRANT SELECT, INSERT, UPDATE, DELETE ON outbox, outbox_keys, processed_events, consumed_keys, parked_deliveries TO payments_service;
GRANT SELECT, INSERT ON notifications, statement_lines TO payments_service;
GRANT SELECT, INSERT, UPDATE ON statement_places TO payments_service;
GRANT SELECT, INSERT ON reconciliations TO payments_service;
GRANT UPDATE (finished_at, report) ON reconciliations TO payments_service;
GRANT SELECT, INSERT, DELETE ON running_workflows TO payments_service;
