#!/bin/sh
# The PostgreSQL image runs this once, on an empty data folder. It creates one role per party, which owns only its own
# databases, and a role and a login for each process of the bank, which own nothing. Each switch is another company: neither a switch
# nor the bank may read another's database.
set -eu

psql -X -v ON_ERROR_STOP=1 -U "${POSTGRES_USER:-postgres}" -d postgres <<'SQL'
\getenv payments PAYMENTS_DB_PASSWORD
\getenv payments_api PAYMENTS_API_DB_PASSWORD
\getenv payment_worker PAYMENT_WORKER_DB_PASSWORD
\getenv background_worker BACKGROUND_WORKER_DB_PASSWORD
\getenv notifier NOTIFIER_DB_PASSWORD
\getenv operator_api OPERATOR_API_DB_PASSWORD
\getenv payctl PAYCTL_DB_PASSWORD
\getenv payctl_reconcile PAYCTL_RECONCILE_DB_PASSWORD
\getenv switch SWITCH_DB_PASSWORD
\getenv sepa SEPA_SWITCH_DB_PASSWORD
\getenv temporal TEMPORAL_DB_PASSWORD
CREATE ROLE payments LOGIN PASSWORD :'payments';
-- Roles of the bank's processes. The migrations, which the owner runs, grant their rights. A login runs as its role and has no rights of
-- its own: NOINHERIT.
CREATE ROLE payments_api NOLOGIN;
CREATE ROLE payment_worker NOLOGIN;
CREATE ROLE background_worker NOLOGIN;
CREATE ROLE notifier NOLOGIN;
CREATE ROLE operator_api NOLOGIN;
CREATE ROLE payctl NOLOGIN;
CREATE ROLE payctl_reconcile NOLOGIN;
-- Owns the schema of idempotency keys, whose partitions background-worker drops.
CREATE ROLE idempotency_keys NOLOGIN;
GRANT idempotency_keys TO background_worker, payments;
CREATE ROLE payments_api_login LOGIN NOINHERIT PASSWORD :'payments_api' IN ROLE payments_api;
CREATE ROLE payment_worker_login LOGIN NOINHERIT PASSWORD :'payment_worker' IN ROLE payment_worker;
CREATE ROLE background_worker_login LOGIN NOINHERIT PASSWORD :'background_worker' IN ROLE background_worker;
CREATE ROLE notifier_login LOGIN NOINHERIT PASSWORD :'notifier' IN ROLE notifier;
CREATE ROLE operator_api_login LOGIN NOINHERIT PASSWORD :'operator_api' IN ROLE operator_api;
CREATE ROLE payctl_login LOGIN NOINHERIT PASSWORD :'payctl' IN ROLE payctl;
CREATE ROLE payctl_reconcile_login LOGIN NOINHERIT PASSWORD :'payctl_reconcile' IN ROLE payctl_reconcile;
ALTER ROLE payments_api_login SET role = payments_api;
ALTER ROLE payment_worker_login SET role = payment_worker;
ALTER ROLE background_worker_login SET role = background_worker;
ALTER ROLE notifier_login SET role = notifier;
ALTER ROLE operator_api_login SET role = operator_api;
ALTER ROLE payctl_login SET role = payctl;
ALTER ROLE payctl_reconcile_login SET role = payctl_reconcile;
-- Of people: many, and some leave a session open.
ALTER ROLE payctl_login CONNECTION LIMIT 20;
ALTER ROLE payctl_login SET idle_in_transaction_session_timeout = '1min';
ALTER ROLE payctl_reconcile_login CONNECTION LIMIT 5;
ALTER ROLE payctl_reconcile_login SET idle_in_transaction_session_timeout = '1min';
CREATE ROLE mock_switch LOGIN PASSWORD :'switch';
CREATE ROLE mock_switch_sepa LOGIN PASSWORD :'sepa';
CREATE ROLE temporal LOGIN PASSWORD :'temporal';
CREATE DATABASE payments OWNER payments;
CREATE DATABASE mock_switch OWNER mock_switch;
CREATE DATABASE mock_switch_sepa OWNER mock_switch_sepa;
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
REVOKE CONNECT, TEMPORARY ON DATABASE payments, mock_switch, mock_switch_sepa, temporal, temporal_visibility FROM PUBLIC;
GRANT CONNECT ON DATABASE payments TO payments_api_login, payment_worker_login, background_worker_login, notifier_login, operator_api_login, payctl_login, payctl_reconcile_login;
SQL
