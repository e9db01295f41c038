//! The behaviour that applies to one reference, field by field: its own, its
//! sandbox amount's, the default one.

use sqlx::PgExecutor;
use sqlx::types::Json;

use super::{Behaviour, CallbackBehaviour, Outcome, Script};
use crate::book::Status;
use crate::sandbox;

/// The reference under which the behaviour for all is kept.
pub(crate) const DEFAULT: &str = "default";

/// Behaviours in the order in which they are asked, each with the id that
/// tells where its script stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    layers: Vec<(i64, Behaviour)>,
}

/// How an accepted transfer will end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settlement {
    /// From now, in milliseconds; `None` waits until told.
    pub(crate) after_ms: Option<i64>,
    pub(crate) status: Status,
    pub(crate) reason: Option<String>,
}

impl Plan {
    fn first<T>(&self, field: impl Fn(&Behaviour) -> Option<T>) -> Option<T> {
        self.layers.iter().find_map(|(_, behaviour)| field(behaviour))
    }

    /// The script of one operation and the id of the behaviour it stands in.
    pub(crate) fn script<F>(
        &self,
        field: impl Fn(&Behaviour) -> Option<&Script<F>>,
    ) -> Option<(i64, &Script<F>)> {
        self.layers.iter().find_map(|(id, behaviour)| Some((*id, field(behaviour)?)))
    }

    /// When and how an accepted transfer ends, after `configured_ms` if nothing says otherwise.
    pub(crate) fn settlement(&self, configured_ms: u64) -> Settlement {
        let after_ms = self.first(|behaviour| behaviour.settle_after_ms).unwrap_or(configured_ms);
        let after_ms = i64::try_from(after_ms).unwrap_or(i64::MAX);
        match self.first(|behaviour| behaviour.outcome).unwrap_or(Outcome::Settle) {
            Outcome::Settle => Settlement { after_ms: Some(after_ms), status: Status::Settled, reason: None },
            Outcome::Reject => Settlement {
                after_ms: Some(after_ms),
                status: Status::Rejected,
                reason: Some(self.reject_reason()),
            },
            Outcome::Hold => Settlement { after_ms: None, status: Status::Settled, reason: None },
        }
    }

    /// The reason given with a rejection or a refusal.
    pub(crate) fn reject_reason(&self) -> String {
        self.first(|behaviour| behaviour.reject_reason.clone())
            .unwrap_or_else(|| "rejected_by_script".to_owned())
    }

    /// What becomes of the callback.
    pub(crate) fn callback(&self) -> CallbackBehaviour {
        self.first(|behaviour| behaviour.callback.clone()).unwrap_or_default()
    }
}

/// The plan of one reference. Without an amount, the one in the book counts.
pub(crate) async fn load(
    db: impl PgExecutor<'_>,
    reference: &str,
    amount_minor: Option<i64>,
    sandboxed: bool,
) -> Result<Plan, sqlx::Error> {
    let plans = load_many(db, &[reference.to_owned()], &[amount_minor], sandboxed).await?;
    Ok(plans.into_iter().next().unwrap_or_default())
}

/// The plans of many references, in their order, in one statement.
pub(crate) async fn load_many(
    db: impl PgExecutor<'_>,
    references: &[String],
    amounts_minor: &[Option<i64>],
    sandboxed: bool,
) -> Result<Vec<Plan>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT asked.place AS "place!",
                  coalesce(asked.amount_minor, (SELECT t.amount_minor FROM transfers t
                      WHERE t.reference = asked.reference AND NOT t.tombstone
                      ORDER BY t.id DESC LIMIT 1)) AS amount_minor,
                  own.id AS "own_id?", own.behaviour AS "own?: Json<Behaviour>",
                  common.id AS "common_id?", common.behaviour AS "common?: Json<Behaviour>"
           FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY
                AS asked (reference, amount_minor, place)
           LEFT JOIN behaviours own ON own.reference = asked.reference
           LEFT JOIN behaviours common ON common.reference = $3
           ORDER BY asked.place"#,
        references,
        amounts_minor as _,
        DEFAULT,
    )
    .fetch_all(db)
    .await?;
    let plan = |own: Option<(i64, Behaviour)>, amount: Option<i64>, common| {
        let of_amount = amount
            .filter(|_| sandboxed)
            .and_then(sandbox::find)
            // Behaviours in the table have ids above zero.
            .map(|entry| (-entry.code, (entry.behaviour)()));
        Plan { layers: [own, of_amount, common].into_iter().flatten().collect() }
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
