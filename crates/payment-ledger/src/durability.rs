//! Whether the server's settings allow a commit that it confirmed to be lost.
//!
//! A lost commit leaves a record that is older than the truth. Temporal's history shows most of the missing records, and the switch is asked
//! (decision 0020); what neither shows is found by reconciliation only. No check of ours can notice the loss before it happens, so the
//! settings are reported.

use std::pin::Pin;

use crate::{Ledger, LedgerError};

/// A way in which a confirmed commit can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitLossReason {
    /// `fsync` is off.
    FsyncOff,
    /// `full_page_writes` is off.
    FullPageWritesOff,
    /// `synchronous_commit` is off.
    SynchronousCommitOff,
    /// The server has standbys, and commits do not wait for any.
    StandbyNotAwaited,
    /// Commits wait until a standby has received them, not until they are on its disk.
    StandbyDiskNotAwaited,
}

impl CommitLossReason {
    /// Every reason.
    pub const ALL: &[Self] = &[
        Self::FsyncOff,
        Self::FullPageWritesOff,
        Self::SynchronousCommitOff,
        Self::StandbyNotAwaited,
        Self::StandbyDiskNotAwaited,
    ];

    /// The reason as a metric's label has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FsyncOff => "fsync_off",
            Self::FullPageWritesOff => "full_page_writes_off",
            Self::SynchronousCommitOff => "synchronous_commit_off",
            Self::StandbyNotAwaited => "standby_not_awaited",
            Self::StandbyDiskNotAwaited => "standby_disk_not_awaited",
        }
    }

    /// The setting, and what makes it lose a commit.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        match self {
            Self::FsyncOff => "fsync is off (a crash of the operating system)",
            Self::FullPageWritesOff => "full_page_writes is off (a crash of the operating system)",
            Self::SynchronousCommitOff => "synchronous_commit is off (a crash of the server)",
            Self::StandbyNotAwaited => {
                "commits do not wait for the standbys: synchronous_standby_names is empty or synchronous_commit is local \
                 (a standby is promoted)"
            }
            Self::StandbyDiskNotAwaited => {
                "synchronous_commit is remote_write (a standby is promoted after its operating system crashed)"
            }
        }
    }
}

/// The settings that decide whether a confirmed commit survives, as they are in a session of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitSettings {
    /// `fsync`.
    pub fsync: bool,
    /// `full_page_writes`.
    pub full_page_writes: bool,
    /// `synchronous_commit`.
    pub synchronous_commit: String,
    /// Whether `synchronous_standby_names` names a standby.
    pub names_standbys: bool,
    /// Whether a standby is connected or has a replication slot. Logical replication does not count: its receivers are not
    /// promoted.
    pub has_standbys: bool,
}

impl CommitSettings {
    /// How a confirmed commit can be lost under these settings; empty if it cannot.
    #[must_use]
    pub fn commit_loss_reasons(&self) -> Vec<CommitLossReason> {
        let level = self.synchronous_commit.as_str();
        let awaits_standbys = self.names_standbys && !matches!(level, "off" | "local");
        // A named standby that is away now may be promoted, too.
        let may_promote = self.has_standbys || self.names_standbys;
        let applies = |reason: &CommitLossReason| match reason {
            CommitLossReason::FsyncOff => !self.fsync,
            CommitLossReason::FullPageWritesOff => !self.full_page_writes,
            CommitLossReason::SynchronousCommitOff => level == "off",
            CommitLossReason::StandbyNotAwaited => may_promote && !awaits_standbys,
            CommitLossReason::StandbyDiskNotAwaited => awaits_standbys && level == "remote_write",
        };
        CommitLossReason::ALL.iter().copied().filter(applies).collect()
    }
}

/// A readiness check: its warnings, or why the process is not ready.
pub type ReadinessFuture = Pin<Box<dyn Future<Output = Result<Vec<String>, String>> + Send>>;

impl Ledger {
    /// The settings of the server and of this session. Needs no privilege.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn commit_settings(&self) -> Result<CommitSettings, LedgerError> {
        // Without a privilege, only the process ids of pg_stat_replication are visible.
        let row = sqlx::query_as!(
            CommitSettings,
            r#"SELECT current_setting('fsync')::boolean AS "fsync!",
                      current_setting('full_page_writes')::boolean AS "full_page_writes!",
                      current_setting('synchronous_commit') AS "synchronous_commit!",
                      current_setting('synchronous_standby_names') <> '' AS "names_standbys!",
                      (EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical')
                       OR EXISTS (SELECT FROM pg_stat_replication s
                                  WHERE NOT EXISTS (SELECT FROM pg_replication_slots l
                                                    WHERE l.active_pid = s.pid AND l.slot_type = 'logical')))
                          AS "has_standbys!""#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(row)
    }

    /// The readiness check of every process: the database answers. It warns if the server may lose a confirmed commit.
    pub fn readiness(&self) -> impl Fn() -> ReadinessFuture + Clone + Send + Sync + 'static {
        let ledger = self.clone();
        move || {
            let ledger = ledger.clone();
            Box::pin(async move {
                let settings = ledger.commit_settings().await.map_err(|error| error.to_string())?;
                Ok(warning(&settings.commit_loss_reasons()).into_iter().collect())
            })
        }
    }
}

/// One sentence for all reasons.
fn warning(reasons: &[CommitLossReason]) -> Option<String> {
    if reasons.is_empty() {
        return None;
    }
    let reasons: Vec<_> = reasons.iter().map(|reason| reason.explanation()).collect();
    Some(format!(
        "PostgreSQL may lose a commit that it confirmed, and money could leave twice or without a record: {}; \
         see the section Durability of deploy/README.md",
        reasons.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::CommitLossReason::{
        FsyncOff, FullPageWritesOff, StandbyDiskNotAwaited, StandbyNotAwaited, SynchronousCommitOff,
    };
    use super::*;

    fn settings(level: &str, names_standbys: bool, has_standbys: bool) -> CommitSettings {
        CommitSettings {
            fsync: true,
            full_page_writes: true,
            synchronous_commit: level.to_owned(),
            names_standbys,
            has_standbys,
        }
    }

    /// Each level of `synchronous_commit`, with and without named standbys and standbys.
    #[test]
    fn the_reasons_of_each_setting_are_those_of_its_row() {
        let [no, yes] = [false, true];
        let expected: &[(&str, bool, bool, &[CommitLossReason])] = &[
            ("off", no, no, &[SynchronousCommitOff]),
            ("off", no, yes, &[SynchronousCommitOff, StandbyNotAwaited]),
            ("off", yes, no, &[SynchronousCommitOff, StandbyNotAwaited]),
            ("off", yes, yes, &[SynchronousCommitOff, StandbyNotAwaited]),
            // Without named standbys PostgreSQL treats local, remote_write, remote_apply and on alike.
            ("local", no, no, &[]),
            ("local", no, yes, &[StandbyNotAwaited]),
            ("local", yes, no, &[StandbyNotAwaited]),
            ("local", yes, yes, &[StandbyNotAwaited]),
            ("remote_write", no, no, &[]),
            ("remote_write", no, yes, &[StandbyNotAwaited]),
            ("remote_write", yes, no, &[StandbyDiskNotAwaited]),
            ("remote_write", yes, yes, &[StandbyDiskNotAwaited]),
            ("on", no, no, &[]),
            ("on", no, yes, &[StandbyNotAwaited]),
            ("on", yes, no, &[]),
            ("on", yes, yes, &[]),
            ("remote_apply", no, no, &[]),
            ("remote_apply", no, yes, &[StandbyNotAwaited]),
            ("remote_apply", yes, no, &[]),
            ("remote_apply", yes, yes, &[]),
        ];
        for (level, names_standbys, has_standbys, reasons) in expected {
            let sound = settings(level, *names_standbys, *has_standbys);
            assert_eq!(sound.commit_loss_reasons(), *reasons, "{sound:?}");
            let without_fsync = CommitSettings { fsync: false, ..sound.clone() };
            assert_eq!(without_fsync.commit_loss_reasons(), [&[FsyncOff], *reasons].concat());
            let torn_pages = CommitSettings { full_page_writes: false, ..sound };
            assert_eq!(torn_pages.commit_loss_reasons(), [&[FullPageWritesOff], *reasons].concat());
        }
    }

    #[test]
    fn all_reasons_make_one_warning_of_one_line() {
        assert_eq!(warning(&[]), None);
        let all = warning(CommitLossReason::ALL).unwrap_or_default();
        assert!(CommitLossReason::ALL.iter().all(|reason| all.contains(reason.explanation())), "{all}");
        assert!(!all.contains('\n'), "{all}");
    }
}
