//! Appends the signed heads of the hash chains to a file, which belongs outside the reach of who may write the database.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use monitoring::background_task::BackgroundTask;
use payment_ledger::Ledger;
use payment_ledger::audit::seal::heads::HeadsKey;
use tokio_util::sync::CancellationToken;

use crate::periodic::{self, RoundOutcome};

/// Pause between two lines.
const INTERVAL: Duration = Duration::from_secs(900);

/// Where the heads go, and who signs them.
pub(crate) struct HeadsExport {
    pub(crate) path: PathBuf,
    pub(crate) key: HeadsKey,
}

/// Appends a line every 15 minutes until `stop`; without an export nothing is to be done.
pub(crate) async fn run(ledger: &Ledger, export: Option<&HeadsExport>, stop: &CancellationToken) {
    periodic::run(BackgroundTask::HeadsExport, INTERVAL, stop, async || {
        if let Some(HeadsExport { path, key }) = export {
            let line = key.sign(&ledger.chain_heads().await?)?;
            let path = path.clone();
            tokio::task::spawn_blocking(move || append(&path, &line)).await??;
        }
        Ok(RoundOutcome::Idle)
    })
    .await;
}

/// Appends a line and flushes it to the disk. A line that a crash cut off stays alone in its line.
fn append(path: &Path, line: &str) -> anyhow::Result<()> {
    let context = || format!("the chain heads could not be written to {}", path.display());
    let mut file = File::options().create(true).read(true).append(true).open(path).with_context(context)?;
    let is_cut_off = file.metadata().with_context(context)?.len() > 0 && {
        let mut last = [0];
        file.seek(SeekFrom::End(-1)).with_context(context)?;
        file.read_exact(&mut last).with_context(context)?;
        last != *b"\n"
    };
    let text = format!("{}{line}\n", if is_cut_off { "\n" } else { "" });
    file.write_all(text.as_bytes()).with_context(context)?;
    file.sync_data().with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_appended_also_behind_one_that_was_cut_off() {
        let path = std::env::temp_dir().join(format!("heads-{}", std::process::id()));
        append(&path, "one").unwrap();
        append(&path, "two").unwrap();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"thr").unwrap();
        append(&path, "four").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "one\ntwo\nthr\nfour\n");
        let error = append(Path::new("/nonexistent/heads"), "one").unwrap_err().to_string();
        assert!(error.contains("/nonexistent/heads"), "{error}");
    }
}
