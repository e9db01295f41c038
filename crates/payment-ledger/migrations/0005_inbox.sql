-- Messages for a payment's workflow: callbacks, cancel requests, final statuses written while the payment needed an operator,
-- and confirmed decisions. A row survives the loss of a workflow; a signal does not.

CREATE TABLE inbox (
    inbox_id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id        text        NOT NULL REFERENCES payments,
    kind              text        NOT NULL,
    switch            text,
    event_id          text,
    decision_id       text        REFERENCES decisions,
    received_at       timestamptz NOT NULL DEFAULT now(),
    delivery_attempts integer     NOT NULL DEFAULT 0,
    next_delivery_at  timestamptz NOT NULL DEFAULT now(),
    delivered_at      timestamptz,
    CONSTRAINT inbox_kind_known CHECK (kind IN ('callback', 'cancel', 'final_status', 'decision')),
    CONSTRAINT inbox_callback_has_an_event CHECK ((kind = 'callback') = (switch IS NOT NULL AND event_id IS NOT NULL)),
    CONSTRAINT inbox_decision_has_an_id CHECK ((kind = 'decision') = (decision_id IS NOT NULL)),
    FOREIGN KEY (switch, event_id) REFERENCES switch_callbacks
);

CREATE INDEX inbox_undelivered ON inbox (next_delivery_at) WHERE delivered_at IS NULL;
CREATE INDEX inbox_by_payment ON inbox (payment_id);
CREATE UNIQUE INDEX inbox_one_cancel ON inbox (payment_id) WHERE kind = 'cancel';
CREATE UNIQUE INDEX inbox_decision_once ON inbox (decision_id) WHERE kind = 'decision';
