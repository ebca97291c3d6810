//! The report: one section a part, from whatever results there are.

use std::fmt::Write;
use std::path::Path;

use super::results::plot_file;
use super::{BenchError, Figures, Results, calibration, overhead, quality, scale};

/// Its file in the run's folder.
pub const FILE: &str = "report.md";

/// The whole report, from the results in `folder`.
pub fn write(folder: &Path) -> Result<String, BenchError> {
    let sections = sections(folder)?;
    Ok(format!("# Measured\n\n{}", sections.join("\n")))
}

/// The sections of all parts that were measured, in the report's order.
pub fn sections(folder: &Path) -> Result<Vec<String>, BenchError> {
    let sections = [
        section::<overhead::Overhead>(folder)?,
        section::<scale::ScaleFigures>(folder)?,
        section::<quality::Quality>(folder)?,
        section::<calibration::Calibration>(folder)?,
    ];
    Ok(sections.into_iter().flatten().collect())
}

fn section<F: Figures>(folder: &Path) -> Result<Option<String>, BenchError> {
    let Some(Results {
        provenance,
        figures,
    }) = Results::<F>::read(folder)?
    else {
        return Ok(None);
    };
    let mut text = format!("## {}\n\n{}\n\n", F::TITLE, provenance.line());
    text.push_str(&figures.markdown());
    for (name, _) in figures.plots()? {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n![{name}]({})", plot_file::<F>(name));
    }
    Ok(Some(text))
}

/// A Markdown table; the first column is text, the others are figures.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let rule = head.iter().enumerate().map(|(at, _)| match at {
        0 => "---".to_owned(),
        _ => "--:".to_owned(),
    });
    let mut text = line(&head) + &line(&rule.collect::<Vec<_>>());
    text.extend(rows.iter().map(|row| line(row)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_rule_and_a_line_for_each_row() {
        let text = table(&["router", "hits"], &[vec!["one".into(), "0.5".into()]]);
        assert_eq!(text, "| router | hits |\n| --- | --: |\n| one | 0.5 |\n");
    }
}
