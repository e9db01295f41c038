-- Limits and kill switches: both set by operators, with name and reason.

-- Limits of an account, or of all accounts of a tenant together, per currency. A limit is never changed: the newest row
-- applies, and a row without numbers lifts the limit. A day is a UTC day by the database's clock at the time of the hold.
CREATE TABLE limits (
    limit_id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope             text        NOT NULL,
    scope_id          text        NOT NULL,
    currency          text        NOT NULL,
    per_payment_minor bigint,
    per_day_minor     bigint,
    per_day_count     bigint,
    set_by            text        NOT NULL,
    reason            text        NOT NULL,
    set_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT limits_scope_known CHECK (scope IN ('account', 'tenant')),
    CONSTRAINT limits_not_negative CHECK (per_payment_minor >= 0 AND per_day_minor >= 0 AND per_day_count >= 0),
    CONSTRAINT limits_operator_and_reason_given CHECK (btrim(set_by) <> '' AND btrim(reason) <> '')
);

CREATE INDEX limits_newest ON limits (scope, scope_id, currency, limit_id DESC);
CREATE TRIGGER limits_append_only BEFORE UPDATE OR DELETE ON limits FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER limits_no_truncate BEFORE TRUNCATE ON limits FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Use of a daily limit. A row exists only where a limit applies.
CREATE TABLE limit_days (
    scope      text   NOT NULL,
    scope_id   text   NOT NULL,
    currency   text   NOT NULL,
    day        date   NOT NULL,
    used_minor bigint NOT NULL DEFAULT 0,
    used_count bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, scope_id, currency, day),
    CONSTRAINT limit_days_not_negative CHECK (used_minor >= 0 AND used_count >= 0)
);

-- The share of one payment in limit_days, given back when its hold is released.
CREATE TABLE limit_uses (
    payment_id   text        NOT NULL REFERENCES payments,
    scope        text        NOT NULL,
    scope_id     text        NOT NULL,
    currency     text        NOT NULL,
    day          date        NOT NULL,
    amount_minor bigint      NOT NULL,
    released_at  timestamptz,
    PRIMARY KEY (payment_id, scope)
);

-- A kill switch stops new payments of a switch or of a corridor (a currency and a prefix of the destination account).
CREATE TABLE kill_switches (
    kill_switch_id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    switch             text,
    currency           text,
    destination_prefix text,
    activated_by       text        NOT NULL,
    reason             text        NOT NULL,
    activated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    lifted_by          text,
    lift_reason        text,
    lifted_at          timestamptz,
    CONSTRAINT kill_switches_switch_or_corridor CHECK (
        (switch IS NULL) = (currency IS NOT NULL) AND (currency IS NULL) = (destination_prefix IS NULL)),
    CONSTRAINT kill_switches_operator_and_reason_given CHECK (
        btrim(activated_by) <> '' AND btrim(reason) <> '' AND btrim(lifted_by) <> '' AND btrim(lift_reason) <> ''),
    CONSTRAINT kill_switches_lift_complete CHECK (
        (lifted_at IS NULL) = (lifted_by IS NULL) AND (lifted_at IS NULL) = (lift_reason IS NULL))
);

CREATE UNIQUE INDEX kill_switches_active_once
    ON kill_switches (coalesce(switch, ''), coalesce(currency, ''), coalesce(destination_prefix, '')) WHERE lifted_at IS NULL;

CREATE FUNCTION guard_kill_switch() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF OLD.lifted_at IS NOT NULL
       OR (NEW.kill_switch_id, NEW.switch, NEW.currency, NEW.destination_prefix, NEW.activated_by, NEW.reason, NEW.activated_at)
          IS DISTINCT FROM
          (OLD.kill_switch_id, OLD.switch, OLD.currency, OLD.destination_prefix, OLD.activated_by, OLD.reason, OLD.activated_at) THEN
        RAISE EXCEPTION 'kill switch % can only be lifted, once', OLD.kill_switch_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER kill_switches_guard_update BEFORE UPDATE ON kill_switches FOR EACH ROW EXECUTE FUNCTION guard_kill_switch();
CREATE TRIGGER kill_switches_no_delete BEFORE DELETE ON kill_switches FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER kill_switches_no_truncate BEFORE TRUNCATE ON kill_switches FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
