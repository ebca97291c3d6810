//! What processes used: processor time and memory, from `/proc`.

use std::fs;

/// Ticks a second in `/proc`, on every Linux.
const TICKS: f64 = 100.0;

/// Processor time of the processes `pids` so far, in seconds; those that are gone count nothing.
pub fn seconds(pids: &[u32]) -> f64 {
    let ticks = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything.
        let fields = stat.rsplit_once(')')?.1;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        // The 14th and 15th fields of the line are the 12th and 13th after the name.
        Some(field(11)? + field(12)?)
    };
    pids.iter().filter_map(ticks).sum::<u64>() as f64 / TICKS
}

/// Resident memory of the processes `pids`, in MiB.
pub fn resident(pids: &[u32]) -> f64 {
    let kib = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    pids.iter().filter_map(kib).sum::<u64>() as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_time_and_memory() {
        let me = [std::process::id()];
        let before = seconds(&me);
        let mut sum = 0_u64;
        while seconds(&me) < before + 0.03 {
            sum = (0..100_000).fold(sum, |sum, at| std::hint::black_box(sum ^ at));
        }
        assert!(resident(&me) > 1.0);
        assert!(seconds(&[u32::MAX]).abs() < f64::EPSILON, "nobody's");
    }
}
