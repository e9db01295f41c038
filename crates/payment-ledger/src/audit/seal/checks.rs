//! Consistency checks besides the chain. Each query lists violations as (subject, detail). A detail names the difference only,
//! which is stable while payments continue, so an unchanged violation stays the same finding.

/// Upper bound of violations listed per check.
pub(super) const VIOLATIONS_MAX: usize = 100;

/// Kind of the finding, and the query. `$1` is [`VIOLATIONS_MAX`], `$2` the entry after which entries are checked.
pub(super) const ENTRY_CHECKS: [(&str, &str); 5] = [
    (
        "entry_inserted",
        "SELECT 'entry ' || j.entry_id, j.kind || ' ' || j.operation_key || ' is neither sealed nor in journal_unsealed'
         FROM journal j
         WHERE NOT EXISTS (SELECT FROM journal_seals s WHERE s.entry_id = j.entry_id)
           AND NOT EXISTS (SELECT FROM journal_unsealed u WHERE u.entry_id = j.entry_id)
           AND j.entry_id > $2
         ORDER BY j.entry_id LIMIT $1",
    ),
    (
        "entry_missing",
        "SELECT 'entry ' || u.entry_id, 'in journal_unsealed, but not in the journal'
         FROM journal_unsealed u
         WHERE NOT EXISTS (SELECT FROM journal j WHERE j.entry_id = u.entry_id) AND u.entry_id > $2
         ORDER BY u.entry_id LIMIT $1",
    ),
    (
        "entry_waits_sealed",
        "SELECT 'entry ' || u.entry_id, 'in journal_unsealed, but sealed at position ' || s.position
         FROM journal_unsealed u JOIN journal_seals s USING (entry_id) WHERE u.entry_id > $2 ORDER BY u.entry_id LIMIT $1",
    ),
    (
        "seal_inserted",
        "SELECT 'position ' || s.position, 'the seal of entry ' || s.entry_id || ' is in no batch'
         FROM journal_seals s
         WHERE s.position NOT BETWEEN 1 AND (SELECT coalesce(max(last_position), 0) FROM seal_batches) AND s.entry_id > $2
         ORDER BY s.position LIMIT $1",
    ),
    (
        "operation_differs",
        "SELECT 'entry ' || j.entry_id,
                CASE WHEN o.outcome IS NULL THEN 'there is no operation ' || j.operation_key
                     WHEN o.outcome <> 'done' THEN 'operation ' || j.operation_key || ' was ' || o.outcome
                     ELSE 'operation ' || j.operation_key || ' belongs to payment ' || coalesce(o.payment_id, 'none') END
         FROM journal j LEFT JOIN operations o USING (operation_key)
         WHERE (o.outcome IS DISTINCT FROM 'done' OR o.payment_id IS DISTINCT FROM j.payment_id) AND j.entry_id > $2
         ORDER BY j.entry_id LIMIT $1",
    ),
];

/// The same over sums of all entries, without `$2`.
pub(super) const SUM_CHECKS: [(&str, &str); 6] = [
    (
        "sealed_balance_differs",
        "SELECT account_id, 'its sealed balance exceeds its sealed entries by ' || coalesce(b.balance_minor, 0) - coalesce(e.minor, 0)
         FROM sealed_balances b
         FULL JOIN (SELECT m.account_id, sum(m.minor) AS minor
                    FROM journal_seals s JOIN journal j USING (entry_id)
                    CROSS JOIN LATERAL (VALUES (j.credit_account, j.amount_minor), (j.debit_account, -j.amount_minor))
                        AS m (account_id, minor)
                    WHERE m.account_id LIKE 'internal:%' GROUP BY m.account_id) e USING (account_id)
         WHERE b.balance_minor IS DISTINCT FROM e.minor ORDER BY account_id LIMIT $1",
    ),
    (
        "sealed_hour_differs",
        "SELECT account_id || ' in the hour ' || hour,
                'its sealed hour is ' || coalesce(h.moved_minor, 0) || ', its sealed entries are ' || coalesce(e.minor, 0)
         FROM sealed_hours h
         FULL JOIN (SELECT m.account_id, date_trunc('hour', j.posted_at, 'UTC') AS hour, sum(m.minor) AS minor
                    FROM journal_seals s JOIN journal j USING (entry_id)
                    CROSS JOIN LATERAL (VALUES (j.credit_account, j.amount_minor), (j.debit_account, -j.amount_minor))
                        AS m (account_id, minor)
                    WHERE m.account_id LIKE 'internal:%' GROUP BY 1, 2) e USING (account_id, hour)
         WHERE h.moved_minor IS DISTINCT FROM e.minor ORDER BY account_id, hour LIMIT $1",
    ),
    (
        "balance_differs",
        "SELECT a.account_id, 'its balance exceeds its entries by ' || a.available_minor - coalesce(e.minor, 0)
         FROM accounts a
         LEFT JOIN (SELECT m.account_id, sum(m.minor) AS minor
                    FROM journal j
                    CROSS JOIN LATERAL (VALUES (j.credit_account, j.amount_minor), (j.debit_account, -j.amount_minor))
                        AS m (account_id, minor)
                    GROUP BY m.account_id) e USING (account_id)
         WHERE a.kind = 'customer' AND a.available_minor <> coalesce(e.minor, 0)
         ORDER BY a.account_id LIMIT $1",
    ),
    (
        "hold_differs",
        "SELECT payment_id, 'its hold is ' || coalesce(h.status || ' over ' || h.amount_minor, 'none') || ', its entries imply '
                || coalesce(e.implied, 'none')
         FROM holds h
         FULL JOIN (SELECT payment_id,
                           CASE max(kind) FILTER (WHERE kind <> 'reserve') WHEN 'debit' THEN 'debited' WHEN 'release'
                                THEN 'released' ELSE 'open' END || ' over ' || min(amount_minor) AS implied
                    FROM journal WHERE kind IN ('reserve', 'debit', 'release') GROUP BY payment_id) e USING (payment_id)
         WHERE h.status || ' over ' || h.amount_minor IS DISTINCT FROM e.implied ORDER BY payment_id LIMIT $1",
    ),
    (
        "holding_differs",
        "SELECT a.account_id, 'its balance exceeds the open holds by ' || coalesce(posted.minor, 0) - coalesce(open.minor, 0) || ' minor units'
         FROM accounts a
         LEFT JOIN (SELECT m.account_id, sum(m.minor) AS minor
                    FROM journal j
                    CROSS JOIN LATERAL (VALUES (j.credit_account, j.amount_minor), (j.debit_account, -j.amount_minor))
                        AS m (account_id, minor)
                    WHERE m.account_id LIKE 'internal:holding:%' GROUP BY m.account_id) posted USING (account_id)
         LEFT JOIN (SELECT currency, sum(amount_minor) AS minor FROM holds WHERE status = 'open' GROUP BY currency) open
             USING (currency)
         WHERE a.account_id LIKE 'internal:holding:%' AND coalesce(posted.minor, 0) <> coalesce(open.minor, 0)
         ORDER BY a.account_id LIMIT $1",
    ),
    (
        "currency_does_not_balance",
        "SELECT a.currency, 'debits and credits differ by ' || sum(m.minor)
         FROM journal j
         CROSS JOIN LATERAL (VALUES (j.credit_account, j.amount_minor), (j.debit_account, -j.amount_minor))
             AS m (account_id, minor)
         JOIN accounts a USING (account_id)
         GROUP BY a.currency HAVING sum(m.minor) <> 0 ORDER BY a.currency LIMIT $1",
    ),
];
