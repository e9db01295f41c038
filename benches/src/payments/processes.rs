//! CPU time and memory of processes, from the kernel (Linux).

use std::fs;

use anyhow::Context as _;

/// A process and what it is called in the figures.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(super) pid: u32,
}

/// What a process and its children have used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// User and system time, with that of ended children, in milliseconds.
    pub(crate) cpu_ms: f64,
    /// Resident memory. Shared memory counts once for each process that maps it.
    pub(crate) rss_bytes: u64,
}

/// Parses `NAME=PID`.
pub(super) fn parse(text: &str) -> Result<Process, String> {
    let (name, pid) = text.split_once('=').ok_or("write it as NAME=PID")?;
    let pid = pid.parse().map_err(|_| format!("{pid} is no process id"))?;
    Ok(Process { name: name.to_owned(), pid })
}

/// Fields of `/proc/PID/stat` behind the name, which may contain anything.
struct Stat {
    parent: u32,
    /// Of the process itself, in clock ticks.
    own_ticks: u64,
    /// Of its ended children, in clock ticks.
    children_ticks: u64,
    rss_pages: u64,
}

impl Stat {
    fn read(pid: u32) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("no process {pid}"))?;
        let (_, fields) = text.rsplit_once(')').context("an unreadable line in /proc")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // The numbers in proc(5) count from 1 and include the two fields before.
        let number = |n: usize| -> anyhow::Result<u64> {
            fields.get(n - 3).and_then(|field| field.parse().ok()).context("an unreadable field in /proc")
        };
        Ok(Self {
            parent: u32::try_from(number(4)?)?,
            own_ticks: number(14)? + number(15)?,
            children_ticks: number(16)? + number(17)?,
            rss_pages: number(24)?,
        })
    }
}

impl Process {
    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        let main = Stat::read(self.pid)?;
        let mut usage = Usage {
            cpu_ms: ticks_ms(main.own_ticks + main.children_ticks),
            rss_bytes: pages_bytes(main.rss_pages),
        };
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process may end meanwhile; then its parent has counted it, or will.
            let Ok(child) = Stat::read(pid) else { continue };
            if child.parent == self.pid {
                usage.cpu_ms += ticks_ms(child.own_ticks + child.children_ticks);
                usage.rss_bytes += pages_bytes(child.rss_pages);
            }
        }
        Ok(usage)
    }
}

/// CPU time of one process without its children, in milliseconds; 0 if it has ended.
pub(super) fn cpu_ms(pid: u32) -> f64 {
    Stat::read(pid).map_or(0.0, |stat| ticks_ms(stat.own_ticks))
}

/// CPU time of this program, in milliseconds.
pub(super) fn own_ms() -> anyhow::Result<f64> {
    Ok(ticks_ms(Stat::read(std::process::id())?.own_ticks))
}

/// Time of all cores since the start of the machine: busy, and in all, in milliseconds.
pub(super) fn machine_ms() -> anyhow::Result<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks.as_slice() else {
        anyhow::bail!("an unreadable line in /proc/stat");
    };
    let busy = user + nice + system + irq + softirq + steal;
    Ok((ticks_ms(busy), ticks_ms(busy + idle + iowait)))
}

/// The kernel counts in hundredths of a second for programs, whatever its own clock is.
fn ticks_ms(ticks: u64) -> f64 {
    ticks as f64 * 10.0
}

fn pages_bytes(pages: u64) -> u64 {
    pages * 4096
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_this_process_is_read() {
        let own = Process { name: "own".into(), pid: std::process::id() };
        assert!(own.usage().unwrap().rss_bytes > 1_000_000);
        assert!(parse("worker=12").is_ok_and(|process| process.name == "worker"));
        assert!(parse("worker").is_err() && parse("worker=x").is_err());
        let (busy, all) = machine_ms().unwrap();
        assert!(busy > 0.0 && busy <= all);
    }
}
