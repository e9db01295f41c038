//! Checks the consistency of the ledger in plain SQL. Shares no query and no type with the ledger, so that a mistake there is
//! not repeated here.

use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, PgPool};

/// Each check has a title and a query that returns the violations.
const CHECKS: &[(&str, &str)] = &[
    (
        "a customer's balance is not the sum of its entries",
        "SELECT a.account_id || ': balance ' || a.available_minor || ', entries ' || coalesce(sum(e.minor), 0)
         FROM accounts a
         LEFT JOIN (SELECT credit_account AS account_id, amount_minor AS minor FROM journal
                    UNION ALL SELECT debit_account, -amount_minor FROM journal) e USING (account_id)
         WHERE a.kind = 'customer'
         GROUP BY a.account_id, a.available_minor
         HAVING a.available_minor <> coalesce(sum(e.minor), 0)",
    ),
    (
        "customers + holding + escrow + claims + losses is not the funded amount",
        "SELECT a.currency || ': on the books ' || sum(e.minor)
         FROM accounts a
         JOIN (SELECT credit_account AS account_id, amount_minor AS minor FROM journal
               UNION ALL SELECT debit_account, -amount_minor FROM journal) e USING (account_id)
         WHERE a.account_id NOT LIKE 'internal:funding:%'
         GROUP BY a.currency
         HAVING sum(e.minor) <> (SELECT coalesce(sum(j.amount_minor), 0) FROM journal j
                                 WHERE j.kind = 'fund' AND j.currency = a.currency)",
    ),
    (
        "holding is not the sum of the open holds",
        "SELECT a.account_id || ': ' || held.minor || ' posted, ' || open.minor || ' open'
         FROM accounts a,
              LATERAL (SELECT coalesce(sum(CASE WHEN j.credit_account = a.account_id THEN j.amount_minor
                                                ELSE -j.amount_minor END), 0) AS minor
                       FROM journal j WHERE a.account_id IN (j.credit_account, j.debit_account)) held,
              LATERAL (SELECT coalesce(sum(h.amount_minor), 0) AS minor FROM holds h
                       WHERE h.status = 'open' AND h.currency = a.currency) open
         WHERE a.account_id LIKE 'internal:holding:%' AND held.minor <> open.minor",
    ),
    (
        "a hold and its entries differ",
        "SELECT p.payment_id || ': hold ' || coalesce(h.status, 'none') || ', entries ' || coalesce(j.kinds, 'none')
         FROM payments p
         LEFT JOIN holds h USING (payment_id)
         LEFT JOIN (SELECT payment_id, string_agg(kind, '+' ORDER BY entry_id) AS kinds
                    FROM journal WHERE kind IN ('reserve', 'debit', 'release') GROUP BY payment_id) j USING (payment_id)
         WHERE coalesce(j.kinds, 'none') <> CASE h.status WHEN 'open' THEN 'reserve' WHEN 'debited' THEN 'reserve+debit'
                                                          WHEN 'released' THEN 'reserve+release' ELSE 'none' END",
    ),
    (
        "an entry does not have the payment's accounts, amount and currency",
        "SELECT j.operation_key
         FROM journal j
         JOIN (SELECT *, 'internal:holding:' || currency AS holding, 'internal:escrow:' || currency AS escrow,
                      'internal:claims:' || currency AS claims, 'internal:losses:' || currency AS losses
               FROM payments) p USING (payment_id)
         WHERE j.currency <> p.currency OR j.amount_minor > p.amount_minor
            OR j.amount_minor <> p.amount_minor AND j.kind NOT IN ('return', 'return_credit', 'collect', 'write_off')
            OR (j.debit_account, j.credit_account) NOT IN (
                SELECT c.debit, c.credit
                FROM (VALUES ('reserve',       p.source_account, p.holding),
                             ('debit',        p.holding, p.escrow),
                             ('release',       p.holding, p.source_account),
                             ('release',       p.holding, p.claims),
                             ('advance',       p.claims, p.source_account),
                             ('collect',       p.source_account, p.claims),
                             ('late_debit',    p.source_account, p.escrow),
                             ('late_debit',    p.claims, p.escrow),
                             ('return',        p.escrow, p.source_account),
                             ('return',        p.escrow, p.claims),
                             ('return',        p.escrow, p.losses),
                             ('return_credit', p.escrow,                        p.source_account),
                             ('return_credit', p.escrow,                        p.claims),
                             ('return_credit', p.escrow,                        p.losses),
                             ('write_off',     p.losses, p.claims)) AS c (kind, debit, credit)
                WHERE c.kind = j.kind)",
    ),
    (
        "an entry is not in its accounts' currency",
        "SELECT j.operation_key
         FROM journal j JOIN accounts d ON d.account_id = j.debit_account JOIN accounts c ON c.account_id = j.credit_account
         WHERE j.currency <> d.currency OR j.currency <> c.currency",
    ),
    (
        "an entry has no operation, or one that was refused",
        "SELECT j.operation_key FROM journal j LEFT JOIN operations o USING (operation_key)
         WHERE o.outcome IS DISTINCT FROM 'done'",
    ),
    (
        "a final state and its hold differ",
        "SELECT p.payment_id || ' is ' || p.state || ', its hold ' || coalesce(h.status, 'none')
         FROM payments p LEFT JOIN holds h USING (payment_id)
         WHERE p.ended_at IS NOT NULL AND h.status = 'debited' AND p.state <> 'settled'
            OR p.ended_at IS NOT NULL AND h.status = 'open'
            OR p.ended_at IS NULL AND h.status <> 'open'",
    ),
    (
        "money moved against the final status",
        "SELECT p.payment_id || ': ' || h.status || ', final_status ' || coalesce(p.final_status, 'none')
         FROM payments p JOIN holds h USING (payment_id)
         WHERE h.status = 'debited' AND coalesce(p.final_status, 'none') NOT IN ('settled', 'returned')
            OR h.status = 'released' AND coalesce(p.final_status, 'none') NOT IN ('void', 'returned') AND p.attempts > 0
               AND NOT EXISTS (SELECT FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'late_debit')",
    ),
    (
        "a settled payment is not debited once, by its step or by a decision",
        "SELECT p.payment_id || ' is ' || p.state || ', debited ' || count(j.kind)
         FROM payments p
         LEFT JOIN journal j ON j.payment_id = p.payment_id AND j.kind IN ('debit', 'late_debit')
                            AND j.operation_key NOT LIKE p.tx_id || ':correct:%'
         GROUP BY p.payment_id HAVING (p.state = 'settled')::int <> count(j.kind)",
    ),
    (
        "debits, returns and claims of a payment do not add up",
        "SELECT p.payment_id || ': ' || j.kinds
         FROM payments p
         JOIN (SELECT payment_id, string_agg(kind, '+' ORDER BY entry_id) AS kinds,
                      coalesce(sum(amount_minor) FILTER (WHERE credit_account LIKE 'internal:escrow:%'), 0) AS charged,
                      coalesce(sum(amount_minor) FILTER (WHERE debit_account LIKE 'internal:escrow:%'), 0) AS returned,
                      coalesce(sum(amount_minor) FILTER (WHERE debit_account LIKE 'internal:claims:%'), 0) AS claimed,
                      coalesce(sum(amount_minor) FILTER (WHERE credit_account LIKE 'internal:claims:%'), 0) AS paid_back,
                      coalesce(sum(amount_minor) FILTER (WHERE debit_account LIKE 'internal:losses:%'), 0) AS lost,
                      coalesce(sum(amount_minor) FILTER (WHERE credit_account LIKE 'internal:losses:%'), 0) AS regained
               FROM journal GROUP BY payment_id) j USING (payment_id)
         WHERE charged > p.amount_minor OR returned > charged OR returned <> p.returned_minor
            OR paid_back > claimed OR regained > lost",
    ),
    (
        "a booked return and its entry differ",
        "SELECT coalesce(r.return_id, j.operation_key)
         FROM (SELECT * FROM returns WHERE booked_at IS NOT NULL) r
         FULL JOIN (SELECT j.*, p.tx_id FROM journal j JOIN payments p USING (payment_id) WHERE kind = 'return') j
              ON j.payment_id = r.payment_id AND j.operation_key = j.tx_id || ':return:' || r.return_id
         WHERE r.amount_minor IS DISTINCT FROM j.amount_minor",
    ),
    (
        "the claims account is not the sum of the open claims",
        "SELECT a.account_id || ': ' || paid.minor || ' paid, ' || open.minor || ' open'
         FROM accounts a,
              LATERAL (SELECT coalesce(sum(CASE WHEN j.debit_account = a.account_id THEN j.amount_minor
                                                ELSE -j.amount_minor END), 0) AS minor
                       FROM journal j WHERE a.account_id IN (j.credit_account, j.debit_account)) paid,
              LATERAL (SELECT coalesce(sum(c.open_minor), 0) AS minor FROM claims c
                       WHERE c.closed_at IS NULL AND c.currency = a.currency) open
         WHERE a.account_id LIKE 'internal:claims:%' AND paid.minor <> open.minor",
    ),
    (
        "a customer is charged more than once, paid, or charged for a payment that did not settle",
        "SELECT p.payment_id || ' is ' || p.state || ', charged ' || charged
         FROM payments p
         JOIN (SELECT p.payment_id, coalesce(sum(j.amount_minor) FILTER (WHERE j.debit_account = p.source_account), 0)
                                    - coalesce(sum(j.amount_minor) FILTER (WHERE j.credit_account = p.source_account), 0) AS charged
               FROM journal j JOIN payments p USING (payment_id) GROUP BY p.payment_id) c USING (payment_id)
         WHERE charged NOT BETWEEN 0 AND p.amount_minor
            OR charged > 0 AND p.state <> 'settled' AND p.ended_at IS NOT NULL
               AND NOT EXISTS (SELECT FROM journal j WHERE j.payment_id = p.payment_id AND j.kind IN ('late_debit', 'collect'))",
    ),
    (
        "an account was restored against its payment",
        "SELECT p.payment_id || ': hold ' || coalesce(h.status, 'none') || ', restored ' || (p.restored_at IS NOT NULL)
         FROM payments p LEFT JOIN holds h USING (payment_id)
         LEFT JOIN journal j ON j.payment_id = p.payment_id AND j.kind = 'advance'
         WHERE (p.restored_at IS NULL) <> (j.entry_id IS NULL)
            OR (j.entry_id IS NULL) <> (h.borne_by_bank_since IS NULL)
            OR j.entry_id IS NOT NULL AND p.cause IS NULL",
    ),
    (
        "an open claim of an ended payment has no exception",
        "SELECT c.payment_id FROM claims c JOIN payments p USING (payment_id)
         WHERE c.closed_at IS NULL AND p.ended_at IS NOT NULL
           AND NOT EXISTS (SELECT FROM exceptions e WHERE e.payment_id = c.payment_id AND e.kind = 'debited_to_claims')",
    ),
    (
        "money moved by a decision without two operators",
        "SELECT j.operation_key
         FROM journal j JOIN payments p USING (payment_id)
         LEFT JOIN decisions d ON d.payment_id = p.payment_id AND d.status = 'done'
               AND lower(btrim(d.proposed_by)) <> lower(btrim(d.confirmed_by))
               AND j.operation_key = p.tx_id || CASE WHEN d.action IN ('late_debit', 'return_credit', 'write_off') THEN ':correct:'
                                                     WHEN d.action = 'debit' AND j.kind <> 'release' THEN ':debit:'
                                                     ELSE ':comp-reserve:' END || d.decision_id
         WHERE (j.kind IN ('late_debit', 'return_credit', 'write_off') OR j.operation_key LIKE '%:dec_%') AND d.decision_id IS NULL
           AND NOT (j.kind = 'late_debit' AND j.operation_key = p.tx_id || ':debit')",
    ),
    (
        "the bank was charged instead of a barred account without a recall, or recalls what it was not charged for",
        "SELECT p.payment_id FROM payments p
         LEFT JOIN journal j ON j.payment_id = p.payment_id AND j.kind = 'late_debit' AND j.operation_key = p.tx_id || ':debit'
         LEFT JOIN recalls r ON r.payment_id = p.payment_id
         WHERE (j.entry_id IS NULL) <> (r.payment_id IS NULL)
            OR j.entry_id IS NOT NULL AND (j.debit_account NOT LIKE 'internal:claims:%' OR p.state <> 'settled')",
    ),
    (
        "a payment charged to claims has no exception",
        "SELECT j.operation_key FROM journal j
         WHERE j.kind = 'late_debit' AND j.debit_account LIKE 'internal:claims:%'
           AND NOT EXISTS (SELECT FROM exceptions e WHERE e.kind = 'debited_to_claims' AND e.origin = j.operation_key)",
    ),
    (
        "a decision about an ended payment is open",
        "SELECT d.decision_id FROM decisions d JOIN payments p USING (payment_id)
         WHERE p.ended_at IS NOT NULL AND d.closed_at IS NULL AND d.action IN ('retry_cancel', 'debit', 'release')",
    ),
    (
        "attempts and submissions differ",
        "SELECT p.payment_id FROM payments p
         WHERE p.attempts <> (SELECT count(*) FROM submissions s WHERE s.payment_id = p.payment_id)",
    ),
    (
        "the money of a debited payment came back, and no exception asks for the credit",
        "SELECT p.payment_id FROM payments p JOIN journal j ON j.payment_id = p.payment_id AND j.kind IN ('debit', 'late_debit')
         WHERE p.final_status = 'returned'
           AND p.returned_minor < p.amount_minor
           -- Or operators found that the switch had reported the return in error, and debited.
           AND NOT EXISTS (SELECT FROM exceptions e WHERE e.payment_id = p.payment_id
                             AND e.kind IN ('returned_after_debit', 'settled_not_debited', 'released_but_settled', 'opened_by_operator'))",
    ),
    (
        "a SUCCESS for a payment that is not settled has no exception",
        "SELECT c.event_id FROM switch_callbacks c JOIN payments p USING (payment_id)
         WHERE c.status = 'SUCCESS' AND coalesce(p.final_status, 'none') NOT IN ('settled', 'returned')
           AND NOT EXISTS (SELECT FROM exceptions e WHERE e.payment_id = p.payment_id)",
    ),
];

/// All checks as one statement, so that they read one snapshot.
static ALL_CHECKS: LazyLock<String> = LazyLock::new(|| {
    let checks: Vec<_> = CHECKS
        .iter()
        .map(|(title, query)| format!("SELECT $w${title}: $w$ || found FROM ({query}) AS violations (found)"))
        .collect();
    checks.join(" UNION ALL ")
});

/// Asserts that the ledger is consistent.
pub(crate) async fn audit(pool: &PgPool) {
    let violations: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(ALL_CHECKS.as_str())).fetch_all(pool).await.unwrap();
    assert!(violations.is_empty(), "the ledger is inconsistent: {violations:#?}");
}
