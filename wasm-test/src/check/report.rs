//! A report as text.

use std::fmt;

use inline_epp::config::{Capacity, Config, OverrideMode, Pattern, PoolConfig, PoolMatch};
use inline_epp::prefix::BYTES_PER_ENTRY;

use super::{Checked, Report};

/// Bytes an open request keeps for each block of its prompt.
const BYTES_PER_OPEN_BLOCK: u64 = 8;
/// A body while it is decided, and up to twice as much for texts that JSON escapes and their list.
const COPIES_OF_A_BODY: u64 = 3;

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for plugin in &self.plugins {
            let colon = if plugin.at.is_empty() { "" } else { ": " };
            writeln!(out, "{}{colon}{}", self.path.display(), plugin.at)?;
            write!(out, "{plugin}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (pool, profiles) in self.config.pools.iter().zip(&self.profiles) {
            write_pool(out, pool, profiles)?;
        }
        write_whole(out, &self.config)?;
        if self.warnings.is_empty() {
            return writeln!(out, "  no warnings");
        }
        for warning in &self.warnings {
            writeln!(out, "  warning: {warning}")?;
        }
        Ok(())
    }
}

fn write_pool(out: &mut fmt::Formatter<'_>, pool: &PoolConfig, profiles: &[String]) -> fmt::Result {
    let scoring = &pool.scoring;
    let endpoints: Vec<String> = pool
        .endpoints
        .iter()
        .map(|endpoint| match endpoint.max_running {
            None => endpoint.address.to_string(),
            Some(limit) => format!("{} (maxRunning {limit})", endpoint.address),
        })
        .collect();
    writeln!(out, "  pool {}, cluster {}", pool.name, pool.cluster)?;
    writeln!(out, "    takes {}", requests(&pool.matcher))?;
    if let Some(discovery) = &pool.discovery {
        let sources = discovery.sources.iter();
        let sources: Vec<&str> = sources.map(|source| source.cluster.as_str()).collect();
        let sources = match sources.as_slice() {
            [] => pool.cluster.clone(),
            sources => sources.join(", "),
        };
        writeln!(
            out,
            "    endpoints from Envoy's host list of {sources}, read through {}",
            discovery.admin_cluster
        )?;
    }
    if pool.discovery.is_none() || !endpoints.is_empty() {
        writeln!(
            out,
            "    {} endpoints: {}",
            endpoints.len(),
            endpoints.join(", ")
        )?;
    }
    let max_queue = if pool.endpoint_picker.is_some() {
        for profile in profiles {
            writeln!(out, "    {profile}")?;
        }
        String::new()
    } else {
        writeln!(out, "    weights: {}", scoring.weights.normalised())?;
        format!("maxQueue {}, ", scoring.max_queue)
    };
    writeln!(
        out,
        "    limits: {max_queue}maxRunning {}, minHealth {}, guardFloor {}, guardRatio {}, tieBand {}",
        scoring.max_running,
        scoring.min_health,
        scoring.guard_floor,
        scoring.guard_ratio,
        scoring.tie_band,
    )?;
    let capacity = match pool.prefix.capacity_blocks {
        Capacity::Auto => "auto".to_owned(),
        Capacity::Blocks(blocks) => format!("{blocks} blocks"),
    };
    writeln!(
        out,
        "    prefix: blockTokens {}, maxTokens {}, capacity {capacity}",
        pool.prefix.block_tokens, pool.prefix.max_tokens,
    )
}

/// Which requests a pool takes.
fn requests(matcher: &PoolMatch) -> String {
    let list = |name: &str, patterns: &[Pattern]| {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        (!patterns.is_empty()).then(|| format!("{name} {}", patterns.join(" ")))
    };
    let path = matcher.path_prefix.as_ref();
    let parts = [
        list("hosts", &matcher.hosts),
        path.map(|path| format!("paths under {path}")),
        list("models", &matcher.models),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "every request".to_owned();
    }
    parts.join(", ")
}

fn write_whole(out: &mut fmt::Formatter<'_>, config: &Config) -> fmt::Result {
    let host = &config.override_host;
    let reader = match host.mode {
        OverrideMode::Header => format!("fallbacks {}", host.fallbacks),
        OverrideMode::StatefulSession => "statefulSession".to_owned(),
    };
    let (header, mode) = (&host.header, config.failure_mode);
    writeln!(out, "  header {header}, {reader}, {mode:?}")?;
    let index = config.limits.index_bytes as u64;
    let open = open_request_bytes(config);
    let body = config.max_buffered_bytes as u64;
    writeln!(
        out,
        "  memory of one worker: indexes {}, at most {} entries; an open request {}; a request \
         while it is decided {}",
        size(index),
        config.limits.index_bytes / BYTES_PER_ENTRY,
        size(open),
        size(COPIES_OF_A_BODY * body),
    )?;
    writeln!(out, "  memory of Envoy: a held body {}", size(body))
}

/// Bound of what one open request keeps, in bytes.
fn open_request_bytes(config: &Config) -> u64 {
    let blocks = config
        .pools
        .iter()
        .map(|pool| u64::from(pool.prefix.max_tokens / pool.prefix.block_tokens));
    BYTES_PER_OPEN_BLOCK * blocks.max().unwrap_or(0)
}

/// Bytes in the largest unit that needs no fraction.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 2] = [(1 << 20, "MiB"), (1 << 10, "KiB")];
    let fitting = UNITS
        .iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    fitting.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, name)| format!("{} {name}", bytes / unit),
    )
}
