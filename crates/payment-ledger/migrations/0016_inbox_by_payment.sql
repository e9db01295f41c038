-- What was told to one payment's workflow, without reading the whole inbox.

CREATE INDEX inbox_by_payment ON inbox (payment_id);
