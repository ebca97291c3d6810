//! Envoy's host list: the answer of its admin interface to `GET /clusters?format=json`.
//!
//! What the answer leaves out is 0 or false, and numbers of 64 bits are text. `eds_health_status`
//! is the control plane's word only: what Envoy found out itself are flags beside it.

use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};
use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Condition, HostStatus, Member, Unusable};

/// Why a host list cannot be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClustersError {
    /// The text is not such an answer.
    Unreadable,
    /// Envoy knows no cluster of the name at this place of the sources.
    NoSuchCluster(usize),
}

/// The hosts of the clusters named `sources`, in ascending order of address. One that several of
/// them list has the worst that any says of it. Hosts without an IP address and port are passed over:
/// no header can name them. Time and memory are linear in `text`.
pub fn read(text: &[u8], sources: &[&str]) -> Result<Vec<Member>, ClustersError> {
    let answer: Answer<'_> = serde_json::from_slice(text).map_err(|_| ClustersError::Unreadable)?;
    let mut hosts: BTreeMap<SocketAddr, HostStatus> = BTreeMap::new();
    for (place, source) in sources.iter().enumerate() {
        let mut clusters = answer.cluster_statuses.iter();
        let cluster = clusters
            .find(|cluster| cluster.name == *source)
            .ok_or(ClustersError::NoSuchCluster(place))?;
        for host in &cluster.host_statuses {
            let Some(address) = host
                .address
                .socket_address
                .as_ref()
                .and_then(Address::parse)
            else {
                continue;
            };
            let status = host.status(place);
            hosts
                .entry(address)
                .and_modify(|known| *known = worse(*known, status))
                .or_insert(status);
        }
    }
    let members = hosts.into_iter();
    Ok(members
        .map(|(address, status)| Member { address, status })
        .collect())
}

/// Path and query that ask for the clusters named `sources`. Envoy before 1.38 answers with all of
/// its clusters, newer ones with these alone.
pub fn path(sources: &[&str]) -> String {
    let mut path = "/clusters?format=json&filter=".to_owned();
    let names: Vec<String> = sources.iter().map(|name| escaped(name)).collect();
    for byte in format!("^({})$", names.join("|")).bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            path.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

/// `name` as a regular expression that nothing else matches.
fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for character in name.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn worse(one: HostStatus, other: HostStatus) -> HostStatus {
    HostStatus {
        condition: one.condition.union(other.condition),
        tier: one.tier.max(other.tier),
        sources: one.sources | other.sources,
        active: one.active.max(other.active),
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    cluster_statuses: Vec<Cluster<'a>>,
}

#[derive(Deserialize)]
struct Cluster<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    host_statuses: Vec<Host<'a>>,
}

#[derive(Deserialize)]
struct Host<'a> {
    #[serde(borrow, default)]
    address: HostAddress<'a>,
    #[serde(borrow, default)]
    stats: Vec<Stat<'a>>,
    #[serde(borrow, default)]
    health_status: HealthStatus<'a>,
    #[serde(default)]
    priority: u32,
}

#[derive(Default, Deserialize)]
struct HostAddress<'a> {
    #[serde(borrow, default)]
    socket_address: Option<Address<'a>>,
}

#[derive(Deserialize)]
struct Address<'a> {
    #[serde(borrow)]
    address: Cow<'a, str>,
    #[serde(default)]
    port_value: u16,
}

#[derive(Deserialize)]
struct Stat<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "as Envoy writes it")]
struct HealthStatus<'a> {
    #[serde(borrow, rename = "eds_health_status")]
    control_plane: Cow<'a, str>,
    failed_active_health_check: bool,
    pending_active_hc: bool,
    active_hc_timeout: bool,
    excluded_via_immediate_hc_fail: bool,
    failed_outlier_check: bool,
    failed_active_degraded_check: bool,
    pending_dynamic_removal: bool,
}

impl Address<'_> {
    fn parse(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.address.parse().ok()?;
        (self.port_value != 0).then_some(SocketAddr::new(ip, self.port_value))
    }
}

impl Host<'_> {
    /// What the source at `place` says of it.
    fn status(&self, place: usize) -> HostStatus {
        let active = self.stats.iter().find(|stat| stat.name == "rq_active");
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        HostStatus {
            condition: self.health_status.condition(),
            tier: tier(self.priority, self.health_status.is_degraded()),
            sources: 1_u32.checked_shl(place).unwrap_or(0),
            active: active.and_then(|stat| stat.value.parse().ok()).unwrap_or(0),
        }
    }
}

impl HealthStatus<'_> {
    fn condition(&self) -> Condition {
        let unhealthy = self.failed_active_health_check
            || self.pending_active_hc
            || self.active_hc_timeout
            || self.excluded_via_immediate_hc_fail
            || matches!(&*self.control_plane, "UNHEALTHY" | "TIMEOUT");
        let draining = self.pending_dynamic_removal || self.control_plane == "DRAINING";
        Condition::USABLE
            .with(Unusable::FailedHealthCheck, unhealthy)
            .with(Unusable::Ejected, self.failed_outlier_check)
            .with(Unusable::Draining, draining)
    }

    fn is_degraded(&self) -> bool {
        self.failed_active_degraded_check || self.control_plane == "DEGRADED"
    }
}

/// Envoy has priorities up to 127.
fn tier(priority: u32, degraded: bool) -> u8 {
    let priority = u8::try_from(priority).unwrap_or(u8::MAX).min(127);
    priority
        .saturating_mul(2)
        .saturating_add(u8::from(degraded))
}

#[cfg(test)]
mod tests;
