-- What was parked and will never be taken in, as a person has decided: kept as a record, and no longer called.

ALTER TABLE parked_deliveries
    ADD COLUMN discarded_at     timestamptz,
    ADD COLUMN discarded_by     text,
    ADD COLUMN discarded_reason text,
    ADD CONSTRAINT parked_deliveries_discarded_by_somebody
        CHECK ((discarded_at IS NULL) = (discarded_by IS NULL) AND (discarded_at IS NULL) = (discarded_reason IS NULL));
