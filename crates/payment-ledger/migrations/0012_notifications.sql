-- Messages to customers. processed_events makes each event notify once: the notifier writes both in one transaction.
CREATE TABLE notifications (
    notification_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id      text        NOT NULL REFERENCES payments,
    event_id        text        NOT NULL,
    kind            text        NOT NULL,
    message         text        NOT NULL,
    notified_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX notifications_by_payment ON notifications (payment_id, notification_id);
