#!/bin/sh
# Run once by the PostgreSQL image, on an empty data folder: one role per party, each the owner of its own databases and
# of nothing else. The switch is another company: it must not be able to read the bank's book, nor the bank its.
set -eu

psql -X -v ON_ERROR_STOP=1 -U "${POSTGRES_USER:-postgres}" -d postgres <<'SQL'
\getenv payments PAYMENTS_DB_PASSWORD
\getenv switch SWITCH_DB_PASSWORD
\getenv temporal TEMPORAL_DB_PASSWORD
CREATE ROLE payments LOGIN PASSWORD :'payments';
CREATE ROLE mock_switch LOGIN PASSWORD :'switch';
CREATE ROLE temporal LOGIN PASSWORD :'temporal';
CREATE DATABASE payments OWNER payments;
CREATE DATABASE mock_switch OWNER mock_switch;
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
REVOKE CONNECT ON DATABASE payments, mock_switch, temporal, temporal_visibility FROM PUBLIC;
SQL
