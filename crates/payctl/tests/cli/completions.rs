//! Completion scripts.

use crate::run::payctl;

#[tokio::test]
async fn each_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = payctl(&["completions", shell]).await.done();
        for command in ["decide", "late-debit", "probe", "stuck"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    let said = payctl(&["completions", "tcsh"]).await.refused();
    assert!(said.contains("bash, zsh, fish"), "{said}");
}
