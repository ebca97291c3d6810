//! Where the endpoints' metrics pages are.

use std::rc::Rc;

use super::Producer;
use crate::config::{
    ConfigError, Fields, KeyDoc, Kind, LaterKey, REQUEST_PATH, SCRAPE_INTERVAL, choice, key, later,
};
use crate::scheduling::Attribute;
use crate::scheduling::plugin::{Build, Plugin, PluginType, Role};
use crate::scheduling::registry::Setup;

pub(in crate::scheduling) const TYPE: PluginType = PluginType {
    parameters: PARAMETERS,
    effect: "sets path and interval of the pool's scrapes, in the place of `metrics`",
    later: LATER,
    ..PluginType::new("metrics-data-source", Role::Producer, Build::Reads(build))
};

#[rustfmt::skip]
const PARAMETERS: &[KeyDoc] = &[
    key("scheme", choice(&["http", "https"]), "\"http\"", "Accepted; Envoy's cluster says whether there is TLS."),
    key("path", Kind::Text(&REQUEST_PATH), "null", "Path of the metrics text; absent: `metrics.path`."),
    key("interval", SCRAPE_INTERVAL, "null", "Time between two scrapes; absent: `metrics.interval`."),
    key("insecureSkipVerify", Kind::Flag, "true", "Accepted; Envoy's cluster says what it trusts."),
];

const TLS: &str = "set up TLS in the Envoy cluster that the scrapes go through";
const LATER: &[LaterKey] = &[
    later(
        "port",
        "set the pool's metrics.port, and metrics.cluster to an Envoy cluster with that port",
    ),
    later("caCertPath", TLS),
    later("clientCertPath", TLS),
    later("clientKeyPath", TLS),
];

#[derive(Debug)]
struct MetricsSource;

fn build(fields: &Fields<'_>, setup: &mut Setup<'_>) -> Result<Plugin, ConfigError> {
    fields.choice("scheme", &[(), ()])?;
    fields.flag("insecureSkipVerify")?;
    let metrics = &mut setup.pool.metrics;
    if let Some(path) = fields.optional_text("path")? {
        metrics.path = path;
    }
    if fields.given("interval").is_some() {
        metrics.interval = fields.duration("interval")?;
    }
    Ok(Plugin::Producer(Rc::new(MetricsSource)))
}

impl Producer for MetricsSource {
    fn provides(&self) -> Vec<Attribute> {
        Vec::new()
    }
}
