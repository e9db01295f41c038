-- API keys: the tenant and client a key authenticates, and its scopes. The key itself is stored as SHA-256 only.

CREATE TABLE api_keys (
    key_hash   bytea       PRIMARY KEY,
    -- The public id, no secret: operators and logs name the key by it.
    id         text        NOT NULL,
    prefix     text        NOT NULL,
    tenant_id  text        NOT NULL,
    client_id  text        NOT NULL,
    scopes     text[]      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    -- The successor.
    rotated_to text,
    CONSTRAINT api_keys_id_unique UNIQUE (id),
    CONSTRAINT api_keys_id_format CHECK (id ~ '^pk_[0-9a-f]{12}$'),
    CONSTRAINT api_keys_scopes_known CHECK (scopes <@ '{pay,read,webhooks}'),
    CONSTRAINT api_keys_scopes_not_empty CHECK (cardinality(scopes) > 0),
    CONSTRAINT api_keys_rotated_to_another CHECK (rotated_to <> id),
    CONSTRAINT api_keys_rotated_expires CHECK (rotated_to IS NULL OR expires_at IS NOT NULL),
    CONSTRAINT api_keys_rotated_to_a_key FOREIGN KEY (rotated_to) REFERENCES api_keys (id)
);

CREATE INDEX api_keys_by_client ON api_keys (tenant_id, client_id, created_at);

-- A key's client and scopes never change, a revocation is final, and an expiry is only ever brought forward.
CREATE FUNCTION guard_api_key() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF (NEW.key_hash, NEW.id, NEW.prefix, NEW.tenant_id, NEW.client_id, NEW.scopes, NEW.created_at)
       IS DISTINCT FROM
       (OLD.key_hash, OLD.id, OLD.prefix, OLD.tenant_id, OLD.client_id, OLD.scopes, OLD.created_at) THEN
        RAISE EXCEPTION 'the client and scopes of API key % are final', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.revoked_at IS NOT NULL THEN
        RAISE EXCEPTION 'API key % is revoked', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.expires_at IS NOT NULL AND coalesce(NEW.expires_at, 'infinity') > OLD.expires_at THEN
        RAISE EXCEPTION 'the expiry of API key % cannot be extended', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.rotated_to IS NOT NULL AND NEW.rotated_to IS DISTINCT FROM OLD.rotated_to THEN
        RAISE EXCEPTION 'API key % was rotated to %', OLD.id, OLD.rotated_to USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER api_keys_guard_update BEFORE UPDATE ON api_keys FOR EACH ROW EXECUTE FUNCTION guard_api_key();
-- A deleted key could be inserted again without its revocation.
CREATE TRIGGER api_keys_no_delete BEFORE DELETE ON api_keys FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER api_keys_no_truncate BEFORE TRUNCATE ON api_keys FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
