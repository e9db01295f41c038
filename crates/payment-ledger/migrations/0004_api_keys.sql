-- Who may call the API, for which tenant and client. Keys are stored hashed (SHA-256).
CREATE TABLE api_keys (
    key_hash   bytea       PRIMARY KEY,
    prefix     text        NOT NULL,
    tenant_id  text        NOT NULL,
    client_id  text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);
