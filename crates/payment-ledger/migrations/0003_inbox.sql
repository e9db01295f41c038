-- What comes in for payments, and what does not fit.

-- Every authentic callback, as it came.
CREATE TABLE switch_callbacks (
    switch        text        NOT NULL,
    event_id      text        NOT NULL,
    -- None when the reference is not of a payment of ours.
    payment_id    text        REFERENCES payments,
    reference     text        NOT NULL,
    status        text        NOT NULL,
    amount_minor  bigint      NOT NULL,
    currency      text        NOT NULL,
    reason        text,
    body          bytea       NOT NULL,
    received_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (switch, event_id),
    CONSTRAINT switch_callbacks_status_known CHECK (status IN ('SUCCESS', 'FAILURE'))
);

CREATE INDEX switch_callbacks_by_payment ON switch_callbacks (payment_id);

-- One inbox for callbacks, customers' cancels and verdicts that came while a person was waited for: what a payment's workflow must be told. The row
-- survives a loss of the workflow engine; a signal does not.
CREATE TABLE inbox (
    inbox_id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id   text        NOT NULL REFERENCES payments,
    kind         text        NOT NULL,
    switch       text,
    event_id     text,
    received_at  timestamptz NOT NULL DEFAULT now(),
    deliveries   integer     NOT NULL DEFAULT 0,
    deliver_at   timestamptz NOT NULL DEFAULT now(),
    delivered_at timestamptz,
    CONSTRAINT inbox_kind_known CHECK (kind IN ('callback', 'cancel', 'final_status')),
    CONSTRAINT inbox_callback_is_named CHECK ((kind = 'callback') = (switch IS NOT NULL AND event_id IS NOT NULL)),
    FOREIGN KEY (switch, event_id) REFERENCES switch_callbacks
);

CREATE INDEX inbox_undelivered ON inbox (deliver_at) WHERE delivered_at IS NULL;
CREATE UNIQUE INDEX inbox_one_cancel ON inbox (payment_id) WHERE kind = 'cancel';

-- What contradicts the books. Closed by a person's decision, never by itself.
CREATE TABLE exceptions (
    exception_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id   text        REFERENCES payments,
    kind         text        NOT NULL,
    -- What makes it the same exception when it is met again.
    origin       text        NOT NULL,
    detail       text        NOT NULL,
    opened_at    timestamptz NOT NULL DEFAULT now(),
    closed_at    timestamptz,
    UNIQUE (kind, origin),
    CONSTRAINT exceptions_kind_known CHECK (kind IN (
        'late_confirmation', 'contradictory_final_status', 'confirmation_mismatch', 'settled_without_attempt', 'callback_for_unknown_payment',
        'callback_from_other_switch', 'callback_event_id_reused'))
);

CREATE INDEX exceptions_open ON exceptions (opened_at) WHERE closed_at IS NULL;
CREATE INDEX exceptions_by_payment ON exceptions (payment_id);

-- What a person should see, once per payment and kind.
CREATE TABLE alerts (
    payment_id text        NOT NULL REFERENCES payments,
    kind       text        NOT NULL,
    detail     text        NOT NULL,
    raised_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (payment_id, kind)
);
