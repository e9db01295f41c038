//! `payctl completions`.

use crate::run::payctl;

#[tokio::test]
async fn payctl_completion_scripts_of_each_shell_have_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = payctl(&["completions", shell]).await.success();
        for command in ["decide", "late-debit", "probe", "restore-check", "stuck", "worker"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    let error = payctl(&["completions", "tcsh"]).await.refused();
    assert!(error.contains("bash, zsh, fish"), "{error}");
}
