//! The behaviour that applies to a reference, field by field: its own, its sandbox amount's, the default one.

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::behaviour::{Behaviour, CallbackBehaviour, Outcome, Script};
use crate::sandbox;
use crate::status::TransferStatus;

/// Reason of a transfer that a switch rejects by itself because nobody decided in time.
pub(crate) const NOT_DECIDED_IN_TIME: &str = "not_decided_in_time";

/// The mock switch stores under this reference the behaviour of every transfer without one of its own.
pub(crate) const DEFAULT: &str = "default";

/// Behaviours in order of precedence, each with the id under which the progress of its scripts is counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    layers: Vec<(i64, Behaviour)>,
}

/// When and how an accepted transfer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settlement {
    /// Delay from now, in milliseconds; `None` if only the admin API ends the transfer.
    pub(crate) after_ms: Option<i64>,
    pub(crate) status: TransferStatus,
    pub(crate) reason: Option<String>,
}

impl Plan {
    fn first<T>(&self, field: impl Fn(&Behaviour) -> Option<T>) -> Option<T> {
        self.layers.iter().find_map(|(_, behaviour)| field(behaviour))
    }

    /// The script of one operation, and the id of its behaviour.
    pub(crate) fn script<F>(
        &self,
        field: impl Fn(&Behaviour) -> Option<&Script<F>>,
    ) -> Option<(i64, &Script<F>)> {
        self.layers.iter().find_map(|(id, behaviour)| Some((*id, field(behaviour)?)))
    }

    /// When and how an accepted transfer ends; `configured_ms` is the delay without a behaviour. A switch that decides by itself
    /// rejects what has not settled within `decides_within_ms`; 0: it waits without end.
    pub(crate) fn settlement(&self, configured_ms: u64, decides_within_ms: u32) -> Settlement {
        let planned = self.planned_settlement(configured_ms);
        let bound_ms = i64::from(decides_within_ms);
        if bound_ms == 0 || planned.after_ms.is_some_and(|after_ms| after_ms < bound_ms) {
            return planned;
        }
        let reason = Some(NOT_DECIDED_IN_TIME.to_owned());
        Settlement { after_ms: Some(bound_ms), status: TransferStatus::Rejected, reason }
    }

    fn planned_settlement(&self, configured_ms: u64) -> Settlement {
        let after_ms = self.first(|behaviour| behaviour.settle_after_ms).unwrap_or(configured_ms);
        let after_ms = i64::try_from(after_ms).unwrap_or(i64::MAX);
        match self.first(|behaviour| behaviour.outcome).unwrap_or(Outcome::Settle) {
            Outcome::Settle => {
                Settlement { after_ms: Some(after_ms), status: TransferStatus::Settled, reason: None }
            }
            Outcome::Reject => Settlement {
                after_ms: Some(after_ms),
                status: TransferStatus::Rejected,
                reason: Some(self.reject_reason()),
            },
            Outcome::Hold => Settlement { after_ms: None, status: TransferStatus::Settled, reason: None },
        }
    }

    /// The reason of a rejection or a refusal.
    pub(crate) fn reject_reason(&self) -> String {
        self.first(|behaviour| behaviour.reject_reason.clone())
            .unwrap_or_else(|| "rejected_by_script".to_owned())
    }

    /// How the callback is sent.
    pub(crate) fn callback(&self) -> CallbackBehaviour {
        self.first(|behaviour| behaviour.callback.clone()).unwrap_or_default()
    }
}

/// The scripted behaviour of one transfer, by its reference. Without `amount_minor`, the amount in the book selects
/// the sandbox behaviour.
pub(crate) async fn load(
    db: impl PgExecutor<'_>,
    reference: &str,
    amount_minor: Option<i64>,
    sandboxed: bool,
) -> Result<Plan, sqlx::Error> {
    let plans = load_many(db, &[reference.to_owned()], &[amount_minor], sandboxed).await?;
    Ok(plans.into_iter().next().unwrap_or_default())
}

/// The scripted behaviours of several transfers, by their references and in their order, with one SQL statement.
pub(crate) async fn load_many(
    db: impl PgExecutor<'_>,
    references: &[String],
    amounts_minor: &[Option<i64>],
    sandboxed: bool,
) -> Result<Vec<Plan>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT requested.n AS "n!",
                  coalesce(requested.amount_minor, (SELECT t.amount_minor FROM transfers t
                      WHERE t.reference = requested.reference AND NOT t.tombstone
                      ORDER BY t.id DESC LIMIT 1)) AS amount_minor,
                  own.id AS "own_id?", own.behaviour AS "own?: Json<Behaviour>",
                  common.id AS "common_id?", common.behaviour AS "common?: Json<Behaviour>"
           FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY
                AS requested (reference, amount_minor, n)
           LEFT JOIN behaviours own ON own.reference = requested.reference
           LEFT JOIN behaviours common ON common.reference = $3
           ORDER BY requested.n"#,
        references,
        amounts_minor as _,
        DEFAULT,
    )
    .fetch_all(db)
    .await?;
    let plan = |own: Option<(i64, Behaviour)>, amount: Option<i64>, common| {
        let sandbox = amount
            .filter(|_| sandboxed)
            .and_then(sandbox::find)
            // Stored behaviours have ids above zero.
            .map(|entry| (-entry.code, (entry.behaviour)()));
        Plan { layers: [own, sandbox, common].into_iter().flatten().collect() }
    };
    Ok(rows
        .into_iter()
        .map(|row| {
            let own = row.own_id.zip(row.own.map(|Json(behaviour)| behaviour));
            let common = row.common_id.zip(row.common.map(|Json(behaviour)| behaviour));
            plan(own, row.amount_minor, common)
        })
        .collect())
}
