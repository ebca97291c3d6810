//! What the module counts, read from Envoy.

use std::net::SocketAddr;

use super::{POOL, Testbed, eventually};
use crate::sim::SimServer;

impl Testbed {
    /// The sum over the series of a metric that carry `labels`; `None` when there is none. All of
    /// the module's counters and gauges are whole numbers.
    ///
    /// # Panics
    /// When Envoy's admin does not answer.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let value = self.envoy.prometheus_value(name, labels).await;
        value.expect("admin answers").map(|value| value as u64)
    }

    /// Requests routed by their prompt.
    pub async fn decisions(&self) -> u64 {
        let name = "epp_routing_decisions_total";
        self.metric(name, &[("pool", POOL)]).await.unwrap_or(0)
    }

    /// Requests routed without their prompt's help, for `reason`.
    ///
    /// # Panics
    /// When there is no such reason.
    pub async fn fallbacks(&self, reason: &str) -> u64 {
        let labels = [("pool", POOL), ("reason", reason)];
        let value = self.metric("epp_fallback_total", &labels).await;
        value.expect("every reason is exported from the start")
    }

    /// Requests routed without their prompt's help, for any reason.
    pub async fn all_fallbacks(&self) -> u64 {
        let value = self.metric("epp_fallback_total", &[("pool", POOL)]).await;
        value.expect("every reason is exported from the start")
    }

    /// The value of a metric with the labels `pool` and `pod`.
    ///
    /// # Panics
    /// When there is none.
    pub async fn of_pod(&self, name: &str, pod: SocketAddr) -> u64 {
        let pod = pod.to_string();
        let value = self.metric(name, &[("pool", POOL), ("pod", &pod)]).await;
        value.unwrap_or_else(|| panic!("no {name} of {pod}"))
    }

    /// Requests Envoy sent to each server that are not over.
    pub async fn in_flight(&self) -> Vec<u64> {
        let mut all = Vec::new();
        for server in &self.servers {
            all.push(self.of_pod("epp_inflight_requests", server.address()).await);
        }
        all
    }

    /// Waits until no request is in flight at any server.
    pub async fn nothing_in_flight(&self) {
        eventually("nothing in flight", async || {
            let in_flight = self.in_flight().await;
            in_flight.iter().all(|count| *count == 0).then_some(())
        })
        .await;
    }

    /// Waits until every running server was scraped, and the numbers had a scrape interval to reach
    /// every worker.
    pub async fn metrics_taken_over(&self) {
        let servers = self.servers.iter().filter(|server| server.is_running());
        // One may be under way that began too early; the third begins an interval after the second.
        let wanted: Vec<_> = servers
            .map(|server| (server, server.state().scrapes + 3))
            .collect();
        eventually("three scrapes of each server", async || {
            let reached = |(server, wanted): &(&SimServer, u64)| server.state().scrapes >= *wanted;
            wanted.iter().all(reached).then_some(())
        })
        .await;
    }
}
