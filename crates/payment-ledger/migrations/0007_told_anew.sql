-- An exception that is open is not opened twice; one that was closed and is met again is opened anew: closing it must not
-- silence the switch.
ALTER TABLE exceptions DROP CONSTRAINT exceptions_kind_origin_key;
CREATE UNIQUE INDEX exceptions_open_once ON exceptions (kind, origin) WHERE closed_at IS NULL;

-- What the bank's own people decided, and why, is not for the customer.
ALTER TABLE timeline ADD COLUMN is_internal boolean NOT NULL DEFAULT false;
