//! How far a long run is: a bar on a terminal, a line every tenth of the way elsewhere.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// Counts steps on standard error.
#[derive(Debug)]
pub struct Progress {
    total: usize,
    done: usize,
    /// What a step is called, in the plural.
    unit: &'static str,
    /// What is being done.
    label: String,
    /// Absent where standard error is no terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Expects `total` steps, called `unit` in the plural.
    pub fn new(total: usize, unit: &'static str) -> Self {
        Self {
            total,
            done: 0,
            unit,
            label: String::new(),
            bar: stderr().is_terminal().then(|| bar(total, unit)),
        }
    }

    /// Names what comes next.
    pub fn announce(&mut self, label: &str) {
        label.clone_into(&mut self.label);
        if let Some(bar) = &self.bar {
            bar.set_message(self.label.clone());
        }
    }

    /// One more step is over.
    pub fn step(&mut self) {
        let before = self.tenths();
        self.done += 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.tenths() > before => eprintln!("{}", self.line()),
            None => {}
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn tenths(&self) -> usize {
        self.done * 10 / self.total.max(1)
    }

    fn line(&self) -> String {
        let Self {
            total,
            done,
            unit,
            label,
            ..
        } = self;
        format!(
            "{:3} %  {done} of {total} {unit}; {label}",
            self.tenths() * 10
        )
    }
}

fn bar(total: usize, unit: &str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}}/{{len}} {unit}, {{elapsed}}; {{msg}}");
    let style = ProgressStyle::with_template(&template);
    let bar = ProgressBar::new(total as u64);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_every_tenth_of_the_way() {
        let mut progress = Progress {
            total: 156,
            done: 0,
            unit: "turns",
            label: "round robin".to_owned(),
            bar: None,
        };
        let mut lines = Vec::new();
        for _ in 0..156 {
            let before = progress.tenths();
            progress.step();
            if progress.tenths() > before {
                lines.push(progress.line());
            }
        }
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[0], " 10 %  16 of 156 turns; round robin");
        assert_eq!(lines[9], "100 %  156 of 156 turns; round robin");
    }
}
