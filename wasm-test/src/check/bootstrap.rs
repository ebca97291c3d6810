//! An Envoy bootstrap, and where the module is in it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

/// A bootstrap.
#[derive(Debug)]
pub struct Bootstrap<'a> {
    tree: &'a Value,
}

/// The module as one filter.
#[derive(Debug, Clone)]
pub struct Plugin<'a> {
    /// JSON path of the filter's `PluginConfig`.
    pub at: String,
    /// The `PluginConfig`.
    pub settings: &'a Value,
    /// What is in front of it.
    pub front: Front<'a>,
}

/// The listener and the HTTP connection manager around a filter.
#[derive(Debug, Clone, Default)]
pub struct Front<'a> {
    listener: Option<&'a Value>,
    /// Its path and itself.
    manager: Option<(String, &'a Value)>,
}

/// A route to one or more clusters.
#[derive(Debug, Clone)]
pub struct Route<'a> {
    /// Its JSON path.
    pub at: String,
    value: &'a Value,
    host: &'a Value,
}

/// Objects that stand at the top of a bootstrap, or of a file of discovered resources.
const BOOTSTRAP_KEYS: [&str; 5] = [
    "static_resources",
    "dynamic_resources",
    "admin",
    "node",
    "resources",
];

impl<'a> Bootstrap<'a> {
    /// `tree` as a bootstrap; `None` when it has no key of one.
    pub fn of(tree: &'a Value) -> Option<Self> {
        let is_bootstrap = BOOTSTRAP_KEYS.iter().any(|key| tree.get(key).is_some());
        is_bootstrap.then_some(Self { tree })
    }

    /// Every inline-epp filter, wherever it stands.
    pub fn plugins(&self) -> Vec<Plugin<'a>> {
        let mut found = Vec::new();
        collect(self.tree, "", &Front::default(), &mut found);
        found
    }

    /// The static cluster `name`, with its JSON path.
    pub fn cluster(&self, name: &str) -> Option<(String, &'a Value)> {
        let clusters = items(&self.tree["static_resources"]["clusters"]);
        let found = clusters
            .enumerate()
            .find(|(_, cluster)| cluster["name"] == name);
        found.map(|(at, cluster)| (format!("static_resources.clusters[{at}]"), cluster))
    }

    /// Whether clusters may come from elsewhere.
    pub fn has_dynamic_clusters(&self) -> bool {
        self.tree.get("static_resources").is_none()
            || self.tree["dynamic_resources"].get("cds_config").is_some()
    }
}

impl Plugin<'_> {
    /// The module's configuration as text, with its JSON path.
    pub fn configuration(&self) -> Option<(String, String)> {
        let configuration = &self.settings["configuration"];
        let value = configuration.get("value")?;
        let text = match value {
            Value::String(text) if is_type(configuration, "protobuf.StringValue") => text.clone(),
            Value::Object(_) if is_type(configuration, "protobuf.Struct") => value.to_string(),
            _ => return None,
        };
        Some((format!("{}.configuration.value", self.at), text))
    }
}

impl<'a> Front<'a> {
    /// The listener's buffer limit, in bytes.
    pub fn connection_limit(&self) -> Option<u64> {
        whole(&self.listener?["per_connection_buffer_limit_bytes"])
    }

    /// The headers that session filters behind the filter at `at` read, in lower case; `None` where
    /// its connection manager is not there.
    pub fn session_headers_behind(&self, at: &str) -> Option<Vec<String>> {
        let (_, manager) = self.manager.as_ref()?;
        let filters = items(&manager["http_filters"]).enumerate();
        let place = at
            .rsplit_once(".http_filters[")
            .and_then(|(_, rest)| rest.split_once(']'));
        let place: Option<usize> = place.and_then(|(number, _)| number.parse().ok());
        let behind = filters.filter(|(number, _)| place.is_some_and(|ours| *number > ours));
        let headers = behind
            .map(|(_, filter)| &filter["typed_config"])
            .filter(|filter| is_type(filter, "stateful_session.v3.StatefulSession"))
            .filter_map(|filter| filter["session_state"]["typed_config"]["name"].as_str())
            .map(str::to_ascii_lowercase)
            .collect();
        Some(headers)
    }

    /// Routes of the connection manager itself that may lead to `cluster`.
    pub fn routes_to(&self, cluster: &str) -> Vec<Route<'a>> {
        let Some((at, manager)) = &self.manager else {
            return Vec::new();
        };
        let hosts = items(&manager["route_config"]["virtual_hosts"]).enumerate();
        let routes = hosts.flat_map(|(number, host)| {
            let at = format!("{at}.route_config.virtual_hosts[{number}]");
            let routes = items(&host["routes"]).enumerate();
            routes.map(move |(number, route)| Route {
                at: format!("{at}.routes[{number}]"),
                value: route,
                host,
            })
        });
        routes.filter(|route| route.leads_to(cluster)).collect()
    }
}

impl Route<'_> {
    fn leads_to(&self, cluster: &str) -> bool {
        let action = &self.value["route"];
        action["cluster"] == cluster
            || items(&action["weighted_clusters"]["clusters"]).any(|one| one["name"] == cluster)
    }

    /// The route's body buffer limit, or its virtual host's, in bytes.
    pub fn body_limit(&self) -> Option<u64> {
        let limit = |level: &Value| whole(&level["request_body_buffer_limit"]);
        limit(self.value).or_else(|| limit(self.host))
    }

    /// Retries of one request: Envoy's default is one, where there is a policy.
    pub fn retries(&self) -> u64 {
        let policy = |level: &Value| {
            let policy = level.get("retry_policy")?;
            Some(whole(&policy["num_retries"]).unwrap_or(1))
        };
        policy(&self.value["route"])
            .or_else(|| policy(self.host))
            .unwrap_or(0)
    }
}

/// The addresses a cluster lists; `None` when it finds them elsewhere or by name.
pub fn addresses(cluster: &Value) -> Option<BTreeSet<SocketAddr>> {
    if !matches!(cluster["type"].as_str(), None | Some("STATIC")) {
        return None;
    }
    let localities = items(&cluster["load_assignment"]["endpoints"]);
    let hosts = localities.flat_map(|locality| items(&locality["lb_endpoints"]));
    hosts
        .map(|host| {
            let address = &host["endpoint"]["address"]["socket_address"];
            let ip: IpAddr = address["address"].as_str()?.parse().ok()?;
            let port = whole(&address["port_value"])?;
            Some(SocketAddr::new(ip, u16::try_from(port).ok()?))
        })
        .collect()
}

/// The headers that a cluster's `override_host` policies read, in lower case.
pub fn override_headers(cluster: &Value) -> Vec<String> {
    let policies = items(&cluster["load_balancing_policy"]["policies"]);
    let policies = policies.map(|policy| &policy["typed_extension_config"]["typed_config"]);
    policies
        .filter(|policy| is_type(policy, "override_host.v3.OverrideHost"))
        .flat_map(|policy| items(&policy["override_host_sources"]))
        .filter_map(|source| Some(source["header"].as_str()?.to_ascii_lowercase()))
        .collect()
}

/// Walks `value`, which stands at `at` behind `front`.
fn collect<'a>(value: &'a Value, at: &str, front: &Front<'a>, found: &mut Vec<Plugin<'a>>) {
    match value {
        Value::Object(fields) => {
            let mut front = front.clone();
            if fields.contains_key("filter_chains") || fields.contains_key("default_filter_chain") {
                front.listener = Some(value);
            }
            if is_type(value, "HttpConnectionManager") {
                front.manager = Some((at.to_owned(), value));
            }
            if is_type(value, "filters.http.wasm.v3.Wasm") && is_inline_epp(&value["config"]) {
                found.push(Plugin {
                    at: format!("{at}.config"),
                    settings: &value["config"],
                    front: front.clone(),
                });
            }
            for (name, field) in fields {
                let dot = if at.is_empty() { "" } else { "." };
                collect(field, &format!("{at}{dot}{name}"), &front, found);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                collect(item, &format!("{at}[{number}]"), front, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a `PluginConfig` is this module's, by its names, its file or its configuration's shape.
fn is_inline_epp(settings: &Value) -> bool {
    let machine = &settings["vm_config"];
    let names = [
        &settings["name"],
        &settings["root_id"],
        &machine["vm_id"],
        &machine["code"]["local"]["filename"],
        &machine["code"]["remote"]["http_uri"]["uri"],
    ];
    let is_named = names
        .iter()
        .filter_map(|name| name.as_str())
        .any(|name| name.contains("inline-epp") || name.contains("inline_epp"));
    is_named || settings["configuration"]["value"].get("pools").is_some()
}

fn is_type(value: &Value, suffix: &str) -> bool {
    let kind = value.get("@type").and_then(Value::as_str);
    kind.is_some_and(|kind| kind.ends_with(suffix))
}

fn items(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

/// A whole number, which protobuf's JSON also writes as text.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}
