//! Where and when something was measured.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};

use crate::repository;

/// What a reader needs to judge a figure, or to repeat it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// As typed, from `scripts/bench.sh` on.
    pub command: String,
    /// UTC, to the minute.
    pub date: String,
    /// Of the repository; `-dirty` behind it when files differed from it.
    pub commit: String,
    /// The machine.
    pub machine: Machine,
}

/// A machine; what cannot be found out is empty or 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the first processor.
    pub processor: String,
    /// Hardware threads this process may use.
    pub threads: usize,
    /// Main memory in MiB.
    pub memory_mib: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Load average of the minute before: above 0.1 a thread, others were at work, too.
    pub load: f64,
}

impl Provenance {
    /// Of a run with these `arguments` that begins now.
    pub fn now(arguments: impl Iterator<Item = String>) -> Self {
        let command: Vec<String> = std::iter::once("scripts/bench.sh".to_owned())
            .chain(arguments)
            .collect();
        Self {
            command: command.join(" "),
            date: said("date", &["-u", "+%Y-%m-%d %H:%M"]),
            commit: said("git", &["describe", "--always", "--dirty", "--abbrev=10"]),
            machine: Machine::here(),
        }
    }

    /// One line for the report.
    pub fn line(&self) -> String {
        let Machine {
            processor,
            threads,
            memory_mib,
            kernel,
            load,
        } = &self.machine;
        format!(
            "`{}`, {} UTC, commit {}; {processor}, {threads} threads, {:.0} GiB, {kernel}; load average before: {load:.2}.",
            self.command,
            self.date,
            self.commit,
            *memory_mib as f64 / 1024.0,
        )
    }
}

impl Machine {
    /// This one, now.
    pub fn here() -> Self {
        let first = |file: &str, key: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let kib = first("/proc/meminfo", "MemTotal");
        Self {
            processor: first("/proc/cpuinfo", "model name"),
            threads: available_parallelism().map_or(0, usize::from),
            memory_mib: number(&kib).unwrap_or(0) / 1024,
            kernel: said("uname", &["-sr"]),
            load: number(&load).unwrap_or(0.0),
        }
    }
}

/// The number a text begins with.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.split_whitespace().next()?.parse().ok()
}

/// The first line a command prints, in the repository; empty when it fails.
fn said(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command)
        .args(arguments)
        .current_dir(repository::root())
        .output();
    let Ok(output) = output else {
        return String::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_says_where_and_how_it_came_about() {
        let provenance = Provenance::now(["quality".to_owned(), "--quick".to_owned()].into_iter());
        assert_eq!(provenance.command, "scripts/bench.sh quality --quick");
        let machine = &provenance.machine;
        assert!(machine.threads > 0 && machine.memory_mib > 0, "{machine:?}");
        assert!(provenance.date.starts_with("20"), "{provenance:?}");
        assert!(provenance.line().contains(&provenance.command));
    }
}
