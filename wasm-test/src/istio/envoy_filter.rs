//! An `EnvoyFilter` as istiod applies it to a gateway.

use serde::Deserialize;
use serde_json::Value;

use super::merge::{merge, merge_packed};
use super::{ApplyError, Gateway, MANAGER, ROUTER, insert_before_router, items, managers};

/// The part of an `EnvoyFilter` that the manifests use.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EnvoyFilter {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "metadata")]
    _metadata: Value,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    workload_selector: Selector,
    config_patches: Vec<ConfigPatch>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Selector {
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ConfigPatch {
    apply_to: ApplyTo,
    #[serde(rename = "match")]
    matches: Match,
    patch: Patch,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ApplyTo {
    ExtensionConfig,
    HttpFilter,
    Listener,
    NetworkFilter,
    VirtualHost,
    HttpRoute,
    Cluster,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Match {
    #[serde(rename = "context")]
    _context: Context,
    listener: Option<ListenerMatch>,
    route_configuration: Option<RouteConfigurationMatch>,
    cluster: Option<ClusterMatch>,
}

#[derive(Debug, Deserialize)]
enum Context {
    #[serde(rename = "GATEWAY")]
    Gateway,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ListenerMatch {
    filter_chain: FilterChainMatch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterChainMatch {
    filter: FilterMatch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FilterMatch {
    name: String,
    sub_filter: Option<Named>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteConfigurationMatch {
    #[serde(rename = "vhost")]
    _vhost: VirtualHostMatch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VirtualHostMatch {
    #[serde(rename = "route")]
    _route: RouteMatch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteMatch {
    #[serde(rename = "action")]
    _action: RouteAction,
}

/// Routes that lead somewhere; others answer or redirect.
#[derive(Debug, Deserialize)]
enum RouteAction {
    #[serde(rename = "ROUTE")]
    Route,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ClusterMatch {
    service: String,
    port_number: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    operation: Operation,
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Operation {
    Add,
    Merge,
    InsertBefore,
}

impl EnvoyFilter {
    /// Applies every patch to `gateway`, in the manifest's order.
    ///
    /// # Errors
    /// When the manifest has anything that is not understood, or a patch that fits nothing.
    pub fn apply(manifest: &Value, gateway: &mut Gateway) -> Result<(), ApplyError> {
        let filter: Self = serde_json::from_value(manifest.clone())?;
        let selected = &filter.spec.workload_selector.labels;
        let of_a_gateway = selected.contains_key("gateway.networking.k8s.io/gateway-name");
        for (at, patch) in filter.spec.config_patches.iter().enumerate() {
            let failed = |problem: &str| ApplyError::Patch {
                at,
                kind: format!("{:?}", patch.apply_to),
                problem: problem.to_owned(),
            };
            if !of_a_gateway {
                return Err(failed("selects no gateway"));
            }
            if patch.apply(gateway).map_err(failed)? == 0 {
                return Err(failed("fits nothing"));
            }
        }
        Ok(())
    }
}

impl ConfigPatch {
    /// How many things it fitted.
    fn apply(&self, gateway: &mut Gateway) -> Result<usize, &'static str> {
        use Operation::{Add, InsertBefore, Merge};
        let value = &self.patch.value;
        let bootstrap = &mut gateway.bootstrap;
        let Match {
            listener,
            route_configuration: routes,
            cluster,
            ..
        } = &self.matches;
        let patch = (self.apply_to, self.patch.operation);
        match (patch, listener, routes, cluster) {
            ((ApplyTo::ExtensionConfig, Add), None, None, None) => {
                let name = value["name"].as_str().ok_or("has no name")?;
                let earlier = gateway.extensions.insert(name.to_owned(), value.clone());
                earlier.map_or(Ok(1), |_| Err("exists already"))
            }
            ((ApplyTo::HttpFilter, InsertBefore), Some(listener), None, None)
                if listener.is(Some(ROUTER)) =>
            {
                Ok(insert_before_router(bootstrap, value))
            }
            ((ApplyTo::NetworkFilter, Merge), Some(listener), None, None) if listener.is(None) => {
                merge_managers(bootstrap, value)
            }
            ((ApplyTo::Listener, Merge), None, None, None) => {
                let listeners = items(&mut bootstrap["static_resources"]["listeners"]);
                Ok(merge_all(listeners, value))
            }
            ((ApplyTo::VirtualHost, Merge), None, None, None) => {
                Ok(merge_all(virtual_hosts(bootstrap), value))
            }
            ((ApplyTo::HttpRoute, Merge), None, Some(_), None) => {
                let all = virtual_hosts(bootstrap).flat_map(|host| items(&mut host["routes"]));
                let leading = all.filter(|route| route.get("route").is_some());
                Ok(merge_all(leading, value))
            }
            ((ApplyTo::Cluster, Merge), None, None, Some(cluster)) => {
                let name = format!("outbound|{}||{}", cluster.port_number, cluster.service);
                let clusters = items(&mut bootstrap["static_resources"]["clusters"]);
                Ok(merge_all(
                    clusters.filter(|one| one["name"] == *name),
                    value,
                ))
            }
            _ => Err("this operation or match is not understood here"),
        }
    }
}

impl ListenerMatch {
    /// Whether it asks for the HTTP connection manager, and there for `filter`.
    fn is(&self, filter: Option<&str>) -> bool {
        let wanted = &self.filter_chain.filter;
        let sub_filter = wanted.sub_filter.as_ref().map(|named| &*named.name);
        wanted.name == MANAGER && sub_filter == filter
    }
}

/// Merges the connection manager in `value` into every one.
fn merge_managers(bootstrap: &mut Value, value: &Value) -> Result<usize, &'static str> {
    let fields = value.as_object().ok_or("is no object")?;
    let packed = &value["typed_config"];
    if fields.len() != 1 || !packed.is_object() {
        return Err("merges more than typed_config");
    }
    let mut merged = 0;
    for manager in managers(bootstrap) {
        if !merge_packed(manager, packed) {
            return Err("has another type than the filter");
        }
        merged += 1;
    }
    Ok(merged)
}

fn virtual_hosts(bootstrap: &mut Value) -> impl Iterator<Item = &mut Value> {
    managers(bootstrap).flat_map(|manager| items(&mut manager["route_config"]["virtual_hosts"]))
}

fn merge_all<'a>(targets: impl Iterator<Item = &'a mut Value>, value: &Value) -> usize {
    targets.map(|target| merge(target, value)).count()
}
