//! `payctl temporal-namespace`.

use crate::run::payctl;
use crate::scratch_database::ScratchDatabase;

#[tokio::test]
async fn payctl_accepts_another_temporal_namespace_once() {
    let scratch = ScratchDatabase::migrated().await;
    let accept = async |id: &str, by: &str| {
        let args = ["temporal-namespace", "accept", id, "--by", by, "--reason", "a restore"];
        payctl(&[&args[..], &["--database-url", scratch.url()]].concat()).await
    };
    let output = accept("01a2065e-02a1", "ann").await.success();
    assert!(output.starts_with("Temporal namespace 01a2065e-02a1 accepted: "), "{output}");
    let output = accept("01a2065e-02a1", "bob").await.success();
    assert!(output.starts_with("Temporal namespace 01a2065e-02a1 was accepted before: "), "{output}");
    for (id, by, expected) in
        [("", "ann", "a value is required"), ("01", " ", "the operator's name is missing")]
    {
        let error = accept(id, by).await.refused();
        assert!(error.contains(expected), "{error}");
    }
}
