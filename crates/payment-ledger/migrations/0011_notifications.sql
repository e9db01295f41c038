-- What customers were told. That each event is told once is kept by processed_events, in the transaction of the row.
CREATE TABLE notifications (
    notification_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id      text        NOT NULL REFERENCES payments,
    event_id        text        NOT NULL,
    kind            text        NOT NULL,
    message         text        NOT NULL,
    told_at         timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX notifications_by_payment ON notifications (payment_id, notification_id);
