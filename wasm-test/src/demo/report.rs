//! The demo's words.

use std::fmt::{self, Display, Write};

use clap::ValueEnum;
use console::style;

use super::figures::Figures;
use super::verdict::Check;
use super::{Comparison, Options, WORKERS};

/// Terminal colours of the servers, by index; they begin again after the last.
const COLOURS: [u8; 8] = [39, 208, 77, 170, 220, 51, 203, 147];

/// Width of the first column.
const LABEL: usize = 32;

/// What is compared, and under which conditions.
pub fn heading(options: &Options) -> String {
    let Options {
        servers,
        conversations,
        turns,
        in_flight,
        seed,
        time_scale,
        ..
    } = options;
    let preset = options.preset.to_possible_value();
    let preset = preset.as_ref().map_or("", |value| value.get_name());
    format!(
        "inline-epp demo: {conversations} conversations × {turns} turns, {in_flight} in flight, \
         seed {seed}; {servers} model servers behind a real Envoy.\n\
         The servers are simulated, and so are all times: preset {preset}, {time_scale} times as fast.\n\
         Envoy runs with {WORKERS} workers, which share what they know.\n"
    )
}

/// One workload: where its turns went and what that gave.
pub fn comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, comparison);
    text
}

/// What was to be shown, one line each.
pub fn verdict(checks: &[Check]) -> String {
    let mut text = String::new();
    for Check { what, held } in checks {
        let mark = if *held {
            style("ok    ").green()
        } else {
            style("FAILED").red().bold()
        };
        let _ = writeln!(text, "{mark}  {what}");
    }
    text
}

fn write(out: &mut String, comparison: &Comparison) -> fmt::Result {
    let Comparison {
        workload,
        ideal_hit_ratio,
        round_robin,
        inline_epp,
    } = comparison;
    let title = format!(
        "Conversations with {workload} (inline-epp's preset: {})",
        workload.scoring_preset()
    );
    writeln!(out, "{}\n", style(title).bold())?;
    grids(out, round_robin, inline_epp)?;
    let mut row = |label: &str, figure: &dyn Fn(&Figures) -> String| {
        let figures = [figure(round_robin), figure(inline_epp)];
        writeln!(out, "{label:LABEL$}{:>14}{:>14}", figures[0], figures[1])
    };
    row("", &|figures| {
        let first = std::ptr::eq(figures, round_robin);
        if first { "round robin" } else { "inline-epp" }.to_owned()
    })?;
    for server in 0..round_robin.turns_per_server.len() {
        let label = format!("turns on server {}", letter(server));
        row(&label, &|figures| share(figures, server))?;
    }
    row("hit ratio, servers' counters", &|figures| {
        format!("{:.3}", figures.hit_ratio)
    })?;
    row("hit ratio, the module's forecast", &|figures| {
        figures
            .predicted_hit_ratio
            .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"))
    })?;
    row("prompt tokens computed", &|figures| {
        figures.cache.prefilled().to_string()
    })?;
    row("time to first token, mean", &|figures| {
        format!("{:.0} ms", figures.ttft_mean_ms)
    })?;
    row("time to first token, p99", &|figures| {
        format!("{:.0} ms", figures.ttft_p99_ms)
    })?;
    row("errors", &|figures| figures.errors.to_string())?;
    savings(out, comparison, *ideal_hit_ratio)
}

fn savings(out: &mut String, comparison: &Comparison, ideal: f64) -> fmt::Result {
    let Comparison {
        round_robin,
        inline_epp,
        ..
    } = comparison;
    let tokens = times(
        round_robin.cache.prefilled() as f64,
        inline_epp.cache.prefilled() as f64,
    );
    let wait = times(round_robin.ttft_mean_ms, inline_epp.ttft_mean_ms);
    writeln!(
        out,
        "\nThe best any routing can do here is a hit ratio of {ideal:.3}.\n\
         Saved: the GPUs compute {tokens} fewer prompt tokens, the first token comes {wait} sooner.\n",
    )
}

/// Both grids side by side, a row for each conversation.
fn grids(out: &mut String, left: &Figures, right: &Figures) -> fmt::Result {
    let width = left.grid.first().map_or(0, |row| row.len() * 2).max(12) + 2;
    writeln!(
        out,
        "where each turn went  {:width$}inline-epp",
        "round robin"
    )?;
    for (at, (left, right)) in left.grid.iter().zip(&right.grid).enumerate() {
        let padding = width - left.len() * 2;
        write!(out, "  conversation {:<7}", at + 1)?;
        cells(out, left)?;
        write!(out, "{:padding$}", "")?;
        cells(out, right)?;
        writeln!(out)?;
    }
    writeln!(out)
}

fn cells(out: &mut String, row: &[Option<usize>]) -> fmt::Result {
    for cell in row {
        match cell {
            Some(server) => {
                let colour = COLOURS[server % COLOURS.len()];
                write!(out, "{} ", style(letter(*server)).color256(colour))?;
            }
            None => write!(out, "! ")?,
        }
    }
    Ok(())
}

/// A for the first server.
fn letter(server: usize) -> impl Display {
    char::from(b'A' + (server % 26) as u8)
}

fn share(figures: &Figures, server: usize) -> String {
    let turns = figures.turns_per_server[server];
    let percent = 100.0 * turns as f64 / figures.answered().max(1) as f64;
    format!("{turns} ({percent:.0} %)")
}

/// `before` as a multiple of `after`.
fn times(before: f64, after: f64) -> String {
    if after > 0.0 {
        format!("{:.1} times", before / after)
    } else {
        "infinitely".to_owned()
    }
}
