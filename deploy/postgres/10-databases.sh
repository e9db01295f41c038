#!/bin/sh
# Run once by the PostgreSQL image, on an empty data folder: one role per party, each the owner of its own databases and
# of nothing else, and a login for the bank's services, which owns none of the bank's books. The switch is another company: it must not be able to read the bank's book, nor the bank its.
set -eu

psql -X -v ON_ERROR_STOP=1 -U "${POSTGRES_USER:-postgres}" -d postgres <<'SQL'
\getenv payments PAYMENTS_DB_PASSWORD
\getenv service PAYMENTS_SERVICE_DB_PASSWORD
\getenv switch SWITCH_DB_PASSWORD
\getenv temporal TEMPORAL_DB_PASSWORD
CREATE ROLE payments LOGIN PASSWORD :'payments';
-- What the bank's services may do, and their login: the rights are given by the migrations, which the owner runs.
CREATE ROLE payments_service NOLOGIN;
GRANT payments_service TO payments;
CREATE ROLE payments_app LOGIN PASSWORD :'service' IN ROLE payments_service;
ALTER ROLE payments_app SET role = payments_service;
CREATE ROLE mock_switch LOGIN PASSWORD :'switch';
CREATE ROLE temporal LOGIN PASSWORD :'temporal';
CREATE DATABASE payments OWNER payments;
CREATE DATABASE mock_switch OWNER mock_switch;
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
REVOKE CONNECT ON DATABASE payments, mock_switch, temporal, temporal_visibility FROM PUBLIC;
GRANT CONNECT ON DATABASE payments TO payments_service;
SQL
