-- Messages to and from the switches.

-- Every submit attempt, written before it is sent.
CREATE TABLE submissions (
    payment_id  text        NOT NULL REFERENCES payments,
    attempt     integer     NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    -- Of the call that recorded it, by which the call finds it after a COMMIT without an answer. NULL: recorded again after it was lost.
    token       uuid,
    outcome     text,
    detail      text,
    answered_at timestamptz,
    -- A switch without references is queried by these two: the newest transfer to the account before this attempt, and the
    -- switch's id of this transfer once it is known.
    marker      text,
    transfer_id text,
    PRIMARY KEY (payment_id, attempt),
    CONSTRAINT submissions_outcome_known CHECK (outcome IN ('accepted', 'refused', 'unknown')),
    CONSTRAINT submissions_outcome_has_a_time CHECK ((outcome IS NULL) = (answered_at IS NULL))
);

CREATE INDEX submissions_by_transfer ON submissions (transfer_id) WHERE transfer_id IS NOT NULL;

-- Every authentic callback, as received.
CREATE TABLE switch_callbacks (
    switch        text        NOT NULL,
    event_id      text        NOT NULL,
    -- NULL if no payment has the reference.
    payment_id    text        REFERENCES payments,
    reference     text        NOT NULL,
    status        text        NOT NULL,
    amount_minor  bigint      NOT NULL,
    currency      text        NOT NULL,
    reason        text,
    -- Of a FAILURE, if the switch's rejects have codes.
    reason_code   text,
    body          bytea       NOT NULL,
    received_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (switch, event_id),
    CONSTRAINT switch_callbacks_status_known CHECK (status IN ('SUCCESS', 'FAILURE', 'RETURNED', 'RETURN', 'POSTING', 'RECALL'))
);

CREATE INDEX switch_callbacks_by_payment ON switch_callbacks (payment_id);
CREATE INDEX switch_callbacks_unmatched ON switch_callbacks (switch, event_id) WHERE payment_id IS NULL;

-- Returns of settled transfers by messages of their own, each once, whichever message carried it.
CREATE TABLE returns (
    switch       text        NOT NULL,
    return_id    text        NOT NULL,
    payment_id   text        NOT NULL REFERENCES payments,
    amount_minor bigint      NOT NULL,
    currency     text        NOT NULL,
    reason       text,
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- NULL: not booked, because nothing was charged, or it does not fit the payment.
    booked_at    timestamptz,
    PRIMARY KEY (switch, return_id)
);

CREATE INDEX returns_by_payment ON returns (payment_id, received_at);

-- Recalls that go on after the end of their payment, one each. Their answers move no money: what comes back is a return.
CREATE TABLE recalls (
    payment_id      text        PRIMARY KEY REFERENCES payments,
    switch          text        NOT NULL,
    status          text        NOT NULL DEFAULT 'due',
    -- The last answer in words.
    detail          text,
    attempts        integer     NOT NULL DEFAULT 0,
    -- Of the call that recorded the last attempt: where its COMMIT got no answer, it finds its own attempt by it.
    attempt_token   uuid,
    requested_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- NULL: it is not sent any more.
    next_attempt_at timestamptz DEFAULT clock_timestamp(),
    -- Until when the switch has to acknowledge it, then the receiving bank to answer it, then the money to come back.
    answer_due_at   timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT recalls_status_known
        CHECK (status IN ('due', 'sent', 'pending', 'promised', 'refused', 'unsupported', 'closed')),
    CONSTRAINT recalls_sent_while_unanswered CHECK (next_attempt_at IS NULL OR status IN ('due', 'sent'))
);

CREATE INDEX recalls_to_send ON recalls (switch, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX recalls_finished ON recalls (updated_at) WHERE status IN ('refused', 'unsupported', 'closed');
CREATE INDEX recalls_unfinished ON recalls (switch, answer_due_at) WHERE status IN ('due', 'sent', 'pending', 'promised');
