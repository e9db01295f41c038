//! Sets and shows behaviours. `default` applies to every reference without a behaviour of its own.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use service_kit::problem::{Json, Path, Problem};
use sqlx::types::Json as Column;

use crate::behaviour::Behaviour;
use crate::error::RequestError;
use crate::plan::DEFAULT;
use crate::routes::input;
use crate::state::SharedSwitch;

/// Upper bound of behaviours in one response.
const LIST_LIMIT: i64 = 1000;

#[derive(Serialize)]
struct BehaviourRow {
    reference: String,
    behaviour: Column<Behaviour>,
}

#[derive(Serialize)]
pub(super) struct BehavioursBody {
    behaviours: Vec<BehaviourRow>,
}

/// `PUT /admin/behaviours/{reference}`: replaces the behaviour and restarts its scripts.
pub(super) async fn set(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
    Json(behaviour): Json<Behaviour>,
) -> Result<Json<Behaviour>, RequestError> {
    if reference != DEFAULT {
        input::reference(&reference)?;
    }
    behaviour.check()?;
    sqlx::query!(
        "INSERT INTO behaviours (reference, behaviour) VALUES ($1, $2)
         ON CONFLICT (reference) DO UPDATE SET id = excluded.id, behaviour = excluded.behaviour",
        reference,
        Column(&behaviour) as _,
    )
    .execute(&switch.pool)
    .await?;
    Ok(Json(behaviour))
}

/// `GET /admin/behaviours/{reference}`
pub(super) async fn show(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
) -> Result<Json<Column<Behaviour>>, RequestError> {
    let behaviour = sqlx::query_scalar!(
        r#"SELECT behaviour AS "behaviour: Column<Behaviour>" FROM behaviours WHERE reference = $1"#,
        reference,
    )
    .fetch_optional(&switch.pool)
    .await?;
    let missing = || {
        Problem::missing(
            "no_behaviour",
            "this reference has no behaviour of its own; set one or read the behaviour of default",
        )
    };
    Ok(Json(behaviour.ok_or_else(missing)?))
}

/// `DELETE /admin/behaviours/{reference}`: succeeds even if the reference has no behaviour.
pub(super) async fn remove(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
) -> Result<StatusCode, RequestError> {
    sqlx::query!("DELETE FROM behaviours WHERE reference = $1", reference).execute(&switch.pool).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /admin/behaviours`
pub(super) async fn list(State(switch): State<SharedSwitch>) -> Result<Json<BehavioursBody>, RequestError> {
    let behaviours = sqlx::query_as!(
        BehaviourRow,
        r#"SELECT reference, behaviour AS "behaviour: Column<Behaviour>"
           FROM behaviours ORDER BY reference LIMIT $1"#,
        LIST_LIMIT,
    )
    .fetch_all(&switch.pool)
    .await?;
    Ok(Json(BehavioursBody { behaviours }))
}
