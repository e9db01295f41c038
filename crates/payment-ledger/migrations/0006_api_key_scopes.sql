-- What a key may do, until when, and which key took its place. A key has an id, which is no secret: it is how people and logs
-- name it, and a key made from now on begins with it.
ALTER TABLE api_keys ADD COLUMN id text, ADD COLUMN scopes text[], ADD COLUMN expires_at timestamptz,
    ADD COLUMN rotated_to text;

-- Keys from before may do everything, as they could.
UPDATE api_keys SET id = 'pk_' || left(replace(gen_random_uuid()::text, '-', ''), 12), scopes = '{pay,read,webhooks,operate}';

ALTER TABLE api_keys ALTER COLUMN id SET NOT NULL, ALTER COLUMN scopes SET NOT NULL;
ALTER TABLE api_keys
    ADD CONSTRAINT api_keys_id_unique UNIQUE (id),
    ADD CONSTRAINT api_keys_id_readable CHECK (id ~ '^pk_[0-9a-f]{12}$'),
    ADD CONSTRAINT api_keys_scopes_known CHECK (scopes <@ '{pay,read,webhooks,operate}'),
    ADD CONSTRAINT api_keys_scopes_some CHECK (cardinality(scopes) > 0),
    ADD CONSTRAINT api_keys_rotated_to_another CHECK (rotated_to <> id),
    -- Its last hour is known.
    ADD CONSTRAINT api_keys_rotated_expires CHECK (rotated_to IS NULL OR expires_at IS NOT NULL),
    ADD CONSTRAINT api_keys_rotated_to_a_key FOREIGN KEY (rotated_to) REFERENCES api_keys (id);

CREATE INDEX api_keys_by_client ON api_keys (tenant_id, client_id, created_at);

-- Whose a key is and what it may do never changes; a revocation is the last word; an end comes nearer, never further away.
CREATE FUNCTION keep_api_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.key_hash, NEW.id, NEW.prefix, NEW.tenant_id, NEW.client_id, NEW.scopes, NEW.created_at)
       IS DISTINCT FROM
       (OLD.key_hash, OLD.id, OLD.prefix, OLD.tenant_id, OLD.client_id, OLD.scopes, OLD.created_at) THEN
        RAISE EXCEPTION 'key % stays its client''s, with its scopes', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.revoked_at IS NOT NULL THEN
        RAISE EXCEPTION 'key % is revoked', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.expires_at IS NOT NULL AND coalesce(NEW.expires_at, 'infinity') > OLD.expires_at THEN
        RAISE EXCEPTION 'key % would live longer', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.rotated_to IS NOT NULL AND NEW.rotated_to IS DISTINCT FROM OLD.rotated_to THEN
        RAISE EXCEPTION 'key % was rotated', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER api_keys_are_kept BEFORE UPDATE ON api_keys FOR EACH ROW EXECUTE FUNCTION keep_api_key();
-- A key that is deleted could be made anew, and its revocation retention_expired.
CREATE TRIGGER api_keys_are_not_deleted BEFORE DELETE ON api_keys FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER api_keys_are_not_truncated BEFORE TRUNCATE ON api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
