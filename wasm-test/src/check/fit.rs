//! Whether a bootstrap fits the configuration of the module in it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use inline_epp::config::{Config, DiscoveryConfig, OverrideMode, PoolConfig};
use serde_json::Value;

use super::Warning;
use super::bootstrap::{Bootstrap, Plugin, addresses, override_headers};

/// Envoy's buffer limit of a connection that sets none, in bytes.
const ENVOY_LIMIT: u64 = 1 << 20;
/// What Envoy may add to a held body before it asks the module: one read, in bytes.
const ONE_READ: u64 = 1 << 20;

/// What does not fit.
pub fn warnings(bootstrap: &Bootstrap<'_>, plugin: &Plugin<'_>, config: &Config) -> Vec<Warning> {
    let mut warnings = filter(plugin);
    warnings.extend(session(plugin, config));
    for pool in &config.pools {
        warnings.extend(cluster(bootstrap, plugin, config, pool));
        warnings.extend(prefill_calls(bootstrap, plugin, config, pool));
        warnings.extend(routes(plugin, config, pool));
    }
    // Pools may share a cluster and its routes.
    let mut seen = BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.to_string()));
    warnings
}

fn warning(at: impl Into<String>, text: impl Into<String>) -> Warning {
    Warning {
        at: at.into(),
        text: text.into(),
    }
}

fn filter(plugin: &Plugin<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if plugin.settings["allow_on_headers_stop_iteration"] != true {
        warnings.push(warning(
            format!("{}.allow_on_headers_stop_iteration", plugin.at),
            "not true: holding the headers stops the body too, so no prompt can be read",
        ));
    }
    let policy = &plugin.settings["failure_policy"];
    if policy != "FAIL_RELOAD" {
        let found = policy.as_str().unwrap_or("unset");
        warnings.push(warning(
            format!("{}.failure_policy", plugin.at),
            format!("{found}, not FAIL_RELOAD: after a trap a worker does not recover by itself"),
        ));
    }
    warnings
}

/// Nobody behind the filter reads the session.
fn session(plugin: &Plugin<'_>, config: &Config) -> Option<Warning> {
    let header = &config.override_host.header;
    let read = plugin.front.session_headers_behind(&plugin.at)?;
    if config.override_host.mode != OverrideMode::StatefulSession || read.contains(header) {
        return None;
    }
    let text = format!("no stateful_session filter behind it reads {header}: picks are ignored");
    Some(warning(plugin.at.clone(), text))
}

fn cluster(
    bootstrap: &Bootstrap<'_>,
    plugin: &Plugin<'_>,
    config: &Config,
    pool: &PoolConfig,
) -> Vec<Warning> {
    let Some((at, cluster)) = bootstrap.cluster(&pool.cluster) else {
        if bootstrap.has_dynamic_clusters() {
            return Vec::new();
        }
        let text = format!("pool {}: no cluster {}", pool.name, pool.cluster);
        return vec![warning(plugin.at.clone(), text)];
    };
    let header = &config.override_host.header;
    let mut warnings = Vec::new();
    let by_policy = config.override_host.mode == OverrideMode::Header;
    if by_policy && !override_headers(cluster).contains(header) {
        let text = format!("no override_host policy reads {header}: picks are ignored");
        warnings.push(warning(format!("{at}.load_balancing_policy"), text));
    }
    match &pool.discovery {
        Some(discovery) => warnings.extend(unknown(bootstrap, plugin, pool, discovery)),
        None => warnings.extend(endpoints(&at, cluster, pool)),
    }
    warnings
}

/// Whether calls of prefill endpoints reach those that are picked.
fn prefill_calls(
    bootstrap: &Bootstrap<'_>,
    plugin: &Plugin<'_>,
    config: &Config,
    pool: &PoolConfig,
) -> Option<Warning> {
    let split = &pool.disaggregation;
    let name = split.cluster.as_ref().filter(|_| split.mode.is_inline())?;
    let Some((at, cluster)) = bootstrap.cluster(name) else {
        let text = format!("pool {}: disaggregation: no cluster {name}", pool.name);
        return (!bootstrap.has_dynamic_clusters()).then(|| warning(plugin.at.clone(), text));
    };
    let header = &config.override_host.header;
    (!override_headers(cluster).contains(header)).then(|| {
        let text = format!("no override_host policy reads {header}: prompts are computed anywhere");
        warning(format!("{at}.load_balancing_policy"), text)
    })
}

/// The clusters of `discovery` that the bootstrap does not have.
fn unknown(
    bootstrap: &Bootstrap<'_>,
    plugin: &Plugin<'_>,
    pool: &PoolConfig,
    discovery: &DiscoveryConfig,
) -> Vec<Warning> {
    if bootstrap.has_dynamic_clusters() {
        return Vec::new();
    }
    let sources = discovery.sources.iter().map(|source| &source.cluster);
    let needed = core::iter::once(&discovery.admin_cluster).chain(sources);
    let missing = needed.filter(|name| bootstrap.cluster(name).is_none());
    let text = |name| format!("pool {}: discovery: no cluster {name}", pool.name);
    missing
        .map(|name| warning(plugin.at.clone(), text(name)))
        .collect()
}

fn endpoints(at: &str, cluster: &Value, pool: &PoolConfig) -> Option<Warning> {
    let theirs = addresses(cluster)?;
    let ours: BTreeSet<SocketAddr> = pool
        .endpoints
        .iter()
        .map(|endpoint| endpoint.address)
        .collect();
    let only = |some: &BTreeSet<SocketAddr>, others: &BTreeSet<SocketAddr>, place: &str| {
        let only: Vec<String> = some.difference(others).map(ToString::to_string).collect();
        (!only.is_empty()).then(|| format!("only in {place}: {}", only.join(", ")))
    };
    let differences: Vec<String> = [
        only(&ours, &theirs, "the pool"),
        only(&theirs, &ours, "the cluster"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if differences.is_empty() {
        return None;
    }
    let text = format!(
        "other endpoints than pool {}: {}",
        pool.name,
        differences.join("; ")
    );
    Some(warning(format!("{at}.load_assignment"), text))
}

fn routes(plugin: &Plugin<'_>, config: &Config, pool: &PoolConfig) -> Vec<Warning> {
    let needed = config.max_buffered_bytes as u64 + ONE_READ;
    let fallbacks = u64::from(config.override_host.fallbacks);
    let by_policy = config.override_host.mode == OverrideMode::Header;
    let mut warnings = Vec::new();
    for route in plugin.front.routes_to(&pool.cluster) {
        let limit = route
            .body_limit()
            .or_else(|| plugin.front.connection_limit())
            .unwrap_or(ENVOY_LIMIT);
        if limit < needed {
            warnings.push(warning(
                format!("{}.request_body_buffer_limit", route.at),
                format!(
                    "{limit} bytes are in force, less than maxBufferedBytes and 1 MiB ({needed}): \
                     long prompts get 413"
                ),
            ));
        }
        let retries = route.retries();
        if by_policy && retries < fallbacks {
            warnings.push(warning(
                format!("{}.route.retry_policy.num_retries", route.at),
                format!(
                    "{retries}, less than overrideHost.fallbacks ({fallbacks}): the end of the \
                     list is never tried"
                ),
            ));
        }
    }
    warnings
}
