//! `payctl temporal-namespace`.

use crate::staff::Staff;

#[tokio::test]
async fn payctl_accepts_another_temporal_namespace_by_two_operators() {
    let staff = Staff::open().await;
    let accept = ["temporal-namespace", "accept", "01a2065e-02a1", "--reason", "a restore"];
    let accepted = async || -> Vec<String> {
        let all = "SELECT concat_ws(' ', namespace_id, accepted_by) FROM temporal_namespaces ORDER BY number";
        sqlx::query_scalar(all).fetch_all(&staff.pool).await.unwrap()
    };
    staff.both(&accept).await;
    assert_eq!(accepted().await, ["01a2065e-02a1 bob"]);
    let again = staff.ann(&accept).await.refused();
    assert!(again.contains("is the accepted one already"), "{again}");
    let empty = staff.ann(&["temporal-namespace", "accept", "", "--reason", "r"]).await.refused();
    assert!(empty.contains("a value is required"), "{empty}");
    let other = ["temporal-namespace", "accept", "02", "--reason", "a restore"];
    staff.ann(&other).await.success();
    assert_eq!(accepted().await.len(), 1, "nothing is accepted by one operator");
}
