//! Setting and showing scripts. `default` stands for every reference without
//! one of its own.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use service_kit::problem::{Json, Path, Problem};
use sqlx::types::Json as Column;

use crate::behaviour::{Behaviour, DEFAULT};
use crate::error::Failure;
use crate::routes::input;
use crate::switch::Shared;

/// Most behaviours shown at once.
const LIST_LIMIT: i64 = 1000;

#[derive(Serialize)]
struct Entry {
    reference: String,
    behaviour: Column<Behaviour>,
}

#[derive(Serialize)]
pub(super) struct List {
    behaviours: Vec<Entry>,
}

/// `PUT /admin/behaviours/{reference}`: replaces, and starts its scripts over.
pub(super) async fn set(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
    Json(behaviour): Json<Behaviour>,
) -> Result<Json<Behaviour>, Failure> {
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
    State(switch): State<Shared>,
    Path(reference): Path<String>,
) -> Result<Json<Column<Behaviour>>, Failure> {
    let behaviour = sqlx::query_scalar!(
        r#"SELECT behaviour AS "behaviour: Column<Behaviour>" FROM behaviours WHERE reference = $1"#,
        reference,
    )
    .fetch_optional(&switch.pool)
    .await?;
    let missing = || Problem::missing("no_behaviour", "this reference has no behaviour of its own");
    Ok(Json(behaviour.ok_or_else(missing)?))
}

/// `DELETE /admin/behaviours/{reference}`: deleting what is not there is no error.
pub(super) async fn remove(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
) -> Result<StatusCode, Failure> {
    sqlx::query!("DELETE FROM behaviours WHERE reference = $1", reference).execute(&switch.pool).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /admin/behaviours`
pub(super) async fn list(State(switch): State<Shared>) -> Result<Json<List>, Failure> {
    let behaviours = sqlx::query_as!(
        Entry,
        r#"SELECT reference, behaviour AS "behaviour: Column<Behaviour>"
           FROM behaviours ORDER BY reference LIMIT $1"#,
        LIST_LIMIT,
    )
    .fetch_all(&switch.pool)
    .await?;
    Ok(Json(List { behaviours }))
}
