#!/bin/sh
# The PostgreSQL image runs this once, on an empty data folder. It creates one role per party, which owns only its own
# databases, and the login of the bank's services, which owns nothing. Each switch is another company: neither a switch nor
# the bank may read another's database.
set -eu

psql -X -v ON_ERROR_STOP=1 -U "${POSTGRES_USER:-postgres}" -d postgres <<'SQL'
\getenv payments PAYMENTS_DB_PASSWORD
\getenv service PAYMENTS_SERVICE_DB_PASSWORD
\getenv switch SWITCH_DB_PASSWORD
\getenv sepa SEPA_SWITCH_DB_PASSWORD
\getenv temporal TEMPORAL_DB_PASSWORD
CREATE ROLE payments LOGIN PASSWORD :'payments';
-- Role and login of the bank's services. The migrations, which the owner runs, grant the rights.
CREATE ROLE payments_service NOLOGIN;
GRANT payments_service TO payments;
CREATE ROLE payments_app LOGIN PASSWORD :'service' IN ROLE payments_service;
ALTER ROLE payments_app SET role = payments_service;
CREATE ROLE mock_switch LOGIN PASSWORD :'switch';
CREATE ROLE mock_switch_sepa LOGIN PASSWORD :'sepa';
CREATE ROLE temporal LOGIN PASSWORD :'temporal';
CREATE DATABASE payments OWNER payments;
CREATE DATABASE mock_switch OWNER mock_switch;
CREATE DATABASE mock_switch_sepa OWNER mock_switch_sepa;
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
REVOKE CONNECT ON DATABASE payments, mock_switch, mock_switch_sepa, temporal, temporal_visibility FROM PUBLIC;
GRANT CONNECT ON DATABASE payments TO payments_service;
SQL
