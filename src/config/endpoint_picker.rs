//! llm-d's `EndpointPickerConfig`: the envelope, and what can be said of it without knowing any
//! plugin.
//!
//! Names, defaults and the words of errors are llm-d's, so that what is known of one holds for the
//! other. What a plugin's parameters mean is the plugin's business.

use std::collections::BTreeSet;

use super::error::ConfigError;
use super::fields::{Fields, Item};
use super::json::{Value, quoted};
use super::keys::{KeyDoc, LaterKey, Rows, WEIGHT, choice, key, later, required, section};
use super::kind::Kind;
use super::parameters::Parameters;
use super::text::{self, TextRule};

/// An llm-d `EndpointPickerConfig`.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointPickerConfig {
    /// Where it stands, such as `pools[0].endpointPickerConfig`.
    pub path: String,
    /// The declared plugins; names are unique.
    pub plugins: Vec<PluginConfig>,
    /// The profiles; names are unique.
    pub profiles: Vec<ProfileConfig>,
    /// Parsers of requests, as they are referred to.
    pub parsers: Vec<PluginRef>,
    /// Sources of endpoints' data and their extractors, as they are referred to.
    pub sources: Vec<PluginRef>,
    /// Whether the endpoints' metrics are read without being asked for.
    pub inject_defaults: bool,
    /// There is a `flowControl` section, which does not count.
    pub has_flow_control: bool,
    /// The pool's `scoring` holds a preset, weights or `maxQueue`, which do not count.
    pub is_beside_scoring: bool,
}

/// One declared plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginConfig {
    /// Where it stands.
    pub path: String,
    /// What it is referred to by.
    pub name: String,
    /// Which plugin it is.
    pub type_name: String,
    /// As written.
    pub parameters: Parameters,
}

/// One profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileConfig {
    /// Where it stands.
    pub path: String,
    /// What it is referred to by.
    pub name: String,
    /// In their order.
    pub plugins: Vec<PluginRef>,
}

/// A reference to a declared plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginRef {
    /// Where it stands.
    pub path: String,
    /// The plugin's name.
    pub name: String,
    /// What a scorer counts, at least 0.
    pub weight: f64,
}

/// Every key of an `EndpointPickerConfig` that is accepted, in the order of the documentation.
pub fn picker_keys() -> &'static [KeyDoc] {
    ROWS.keys
}

const PLUGIN_NAME: TextRule = TextRule {
    what: "text of 1 to 128 bytes without control characters",
    fits: |text| text.len() <= 128 && (text::LABEL.fits)(text) && !text.is_empty(),
};

/// Each plugin of a profile runs for each request.
const PLUGINS: Kind = Kind::List {
    min: 0,
    max: 64,
    of: "plugins",
};
/// Each may run for each request.
const PROFILES: Kind = Kind::List {
    min: 0,
    max: 16,
    of: "profiles",
};
const REFERENCES: Kind = Kind::List {
    min: 0,
    max: 64,
    of: "references",
};
const GATES: Kind = Kind::List {
    min: 0,
    max: 16,
    of: "gates, each \"name\" or \"name=true\"",
};
const REFERENCE: Kind = Kind::Text(&PLUGIN_NAME);

const API_VERSIONS: Kind = choice(&[
    "llm-d.ai/v1alpha1",
    "inference.networking.x-k8s.io/v1alpha1",
]);

const ROWS: Rows = Rows {
    keys: KEYS,
    later: LATER_KEYS,
};

#[rustfmt::skip]
const KEYS: &[KeyDoc] = &[
    required("apiVersion", API_VERSIONS, "The second is the older name of the first."),
    required("kind", choice(&["EndpointPickerConfig"]), "What it is."),
    key("featureGates", GATES, "[]", "`flowControl` can only be off; `haPopulateNonLeaderDatastore` says nothing here."),
    key("plugins", PLUGINS, "[]", "The plugins; without any and without profiles: queue, KV cache and prefix scorers of weights 2, 2 and 3."),
    key("plugins[].name", Kind::Text(&PLUGIN_NAME), "null", "What it is referred to by; absent: its type."),
    required("plugins[].type", Kind::Text(&PLUGIN_NAME), "Which plugin."),
    key("plugins[].parameters", Kind::Object { of: "an object of the plugin's own parameters" }, "null", "As the plugin's row says."),
    key("schedulingProfiles", PROFILES, "[]", "The profiles; without any: one, `default`, of every declared filter, scorer and picker, in their order."),
    required("schedulingProfiles[].name", Kind::Text(&PLUGIN_NAME), "What it is referred to by."),
    key("schedulingProfiles[].plugins", REFERENCES, "[]", "Filters run in their order, all scorers count, one picker chooses; without one: the first declared, else `max-score-picker`."),
    required("schedulingProfiles[].plugins[].pluginRef", REFERENCE, "Name of a declared plugin."),
    key("schedulingProfiles[].plugins[].weight", WEIGHT, "1", "What a scorer counts; of other plugins it says nothing."),
    section("requestHandler", "How requests are read: by their path, always."),
    key("requestHandler.parsers", REFERENCES, "[]", "Accepted; every known path is read."),
    required("requestHandler.parsers[].pluginRef", REFERENCE, "Name of a parser."),
    key("parser", Kind::Section, "null", "The older form of `requestHandler.parsers`."),
    required("parser.pluginRef", REFERENCE, "Name of a parser."),
    section("dataLayer", "What is read of the endpoints."),
    key("dataLayer.injectDefaults", Kind::Flag, "true", "Read the endpoints' metrics without being asked to."),
    key("dataLayer.sources", REFERENCES, "[]", "What else is read."),
    required("dataLayer.sources[].pluginRef", REFERENCE, "Name of a declared source."),
    key("dataLayer.sources[].extractors", REFERENCES, "[]", "What is taken from it."),
    required("dataLayer.sources[].extractors[].pluginRef", REFERENCE, "Name of a declared extractor."),
    key("flowControl", Kind::Object { of: "an object" }, "null", "Accepted with a warning: without its gate it does not count in llm-d either."),
];

#[rustfmt::skip]
const LATER_KEYS: &[LaterKey] = &[
    later("saturationDetector", "limit queues with a queue-limit-filter in the profile"),
    later("dataLayer.discovery", "list the endpoints under the pool's endpoints, or have them from Envoy with its discovery"),
    later("dataLayer.peerDiscovery", "leave it out: the workers of one Envoy are all there is"),
    later("dataLayer.crossReplicaSyncerPluginRef", "leave it out: the workers of one Envoy are all there is"),
    later("dataLayer.crossReplicaSyncInterval", "leave it out: the workers of one Envoy are all there is"),
];

impl EndpointPickerConfig {
    /// The one under `name` of `pool`, if any.
    pub(super) fn read(pool: &Fields<'_>, name: &str) -> Result<Option<Self>, ConfigError> {
        let Some(value) = pool.given(name) else {
            return Ok(None);
        };
        let path = pool.path_of(name);
        let fields = Fields::of_document(&path, ROWS, value, "an llm-d EndpointPickerConfig")?;
        Self::read_document(&fields, path.clone()).map(Some)
    }

    /// What is accepted and does not count, one line each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let path = &self.path;
        let unused = [
            (
                self.is_beside_scoring,
                format!(
                    "{path}: the preset, weights and maxQueue of scoring do not count beside it"
                ),
            ),
            (
                self.has_flow_control,
                format!("{path}.flowControl: does not count"),
            ),
        ];
        let unused = unused.into_iter().filter(|(is_unused, _)| *is_unused);
        unused.map(|(_, line)| line).collect()
    }

    fn read_document(fields: &Fields<'_>, path: String) -> Result<Self, ConfigError> {
        fields.choice("apiVersion", &[(), ()])?;
        fields.choice("kind", &[()])?;
        let has_flow_control = fields.given("flowControl").is_some();
        read_gates(fields)?;
        let plugins = read_plugins(fields)?;
        let known = Known(&plugins);
        let (inject_defaults, sources) = fields.section("dataLayer", |layer| {
            let sources = read_sources(layer, &known)?;
            Ok((layer.flag("injectDefaults")?, sources))
        })?;
        Ok(Self {
            profiles: read_profiles(fields, &known)?,
            parsers: read_parsers(fields)?,
            sources,
            inject_defaults,
            has_flow_control,
            is_beside_scoring: false,
            plugins,
            path,
        })
    }
}

impl PluginConfig {
    /// The plugin of the type `type_name` that is there without being declared at `path`.
    pub(crate) fn of_type(path: &str, type_name: &str) -> Self {
        Self {
            path: path.to_owned(),
            name: type_name.to_owned(),
            type_name: type_name.to_owned(),
            parameters: Parameters::new(path.to_owned(), None),
        }
    }
}

/// Refuses what is no gate, and the one that cannot be opened.
fn read_gates(fields: &Fields<'_>) -> Result<(), ConfigError> {
    fields.list("featureGates", |item| {
        let text = item.value.text();
        let text = text.ok_or_else(|| item.expected("\"name\" or \"name=true\""))?;
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        let is_open = match value {
            "true" => true,
            "false" => false,
            _ => return Err(item.expected("a gate that is =true or =false")),
        };
        match name {
            "flowControl" if is_open => {
                let instead = "limit queues with a queue-limit-filter, and requests in Envoy with \
                               circuit breakers or a rate limit";
                Err(ConfigError::later(&item.path, "flowControl", instead))
            }
            "flowControl" | "haPopulateNonLeaderDatastore" => Ok(()),
            name => Err(ConfigError::other(
                &item.path,
                format!("feature gate {} is unknown or unregistered", quoted(name)),
            )),
        }
    })?;
    Ok(())
}

fn read_plugins(fields: &Fields<'_>) -> Result<Vec<PluginConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    fields.list("plugins", |item| {
        let fields = item.fields("an object with type, name and parameters")?;
        let name = fields.optional_text("name")?;
        let Some(type_name) = fields.optional_text("type")? else {
            let name = name.unwrap_or_default();
            let what = format!("plugin {} is missing a type", quoted(&name));
            return Err(ConfigError::other(&fields.path_of("type"), what));
        };
        let name = name.unwrap_or_else(|| type_name.clone());
        if !names.insert(name.clone()) {
            let what = format!("duplicate plugin name {}", quoted(&name));
            return Err(ConfigError::other(&fields.path_of("name"), what));
        }
        let parameters = fields.path_of("parameters");
        let parameters = Parameters::new(parameters, fields.given("parameters"));
        Ok(PluginConfig {
            path: item.path.clone(),
            name,
            type_name,
            parameters,
        })
    })
}

/// The declared plugins, for references to them.
struct Known<'a>(&'a [PluginConfig]);

impl Known<'_> {
    /// The reference in `fields`, to a declared plugin.
    fn reference(&self, fields: &Fields<'_>) -> Result<PluginRef, ConfigError> {
        let found = reference(fields)?;
        if self.0.iter().any(|plugin| plugin.name == found.name) {
            return Ok(found);
        }
        let what = format!("references undefined plugin {}", quoted(&found.name));
        Err(ConfigError::other(&found.path, what))
    }
}

/// The reference in `fields`, to whatever plugin.
fn reference(fields: &Fields<'_>) -> Result<PluginRef, ConfigError> {
    let path = fields.path_of("pluginRef");
    let Some(name) = fields.optional_text("pluginRef")? else {
        return Err(ConfigError::other(&path, "missing a 'pluginRef'"));
    };
    Ok(PluginRef {
        path,
        name,
        weight: 1.0,
    })
}

fn read_profiles(
    fields: &Fields<'_>,
    known: &Known<'_>,
) -> Result<Vec<ProfileConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    fields.list("schedulingProfiles", |item| {
        let fields = item.fields("an object with name and plugins")?;
        let Some(name) = fields.optional_text("name")? else {
            let what = "the profile is missing a name";
            return Err(ConfigError::other(&fields.path_of("name"), what));
        };
        if !names.insert(name.clone()) {
            let what = format!("duplicate profile name {}", quoted(&name));
            return Err(ConfigError::other(&fields.path_of("name"), what));
        }
        let plugins = fields.list("plugins", |item| {
            let fields = reference_fields(&item)?;
            let weight = fields.number("weight")?;
            let found = known.reference(&fields)?;
            Ok(PluginRef { weight, ..found })
        })?;
        Ok(ProfileConfig {
            path: item.path.clone(),
            name,
            plugins,
        })
    })
}

/// A parser that is not declared is one by its type.
fn read_parsers(fields: &Fields<'_>) -> Result<Vec<PluginRef>, ConfigError> {
    let older = fields.optional_section("parser", reference)?;
    let parsers = fields.section("requestHandler", |handler| {
        handler.list("parsers", |item| reference(&reference_fields(&item)?))
    })?;
    Ok(parsers.into_iter().chain(older).collect())
}

/// The sources and their extractors.
fn read_sources(layer: &Fields<'_>, known: &Known<'_>) -> Result<Vec<PluginRef>, ConfigError> {
    let sources = layer.list("sources", |item| {
        let fields = reference_fields(&item)?;
        let mut all = vec![known.reference(&fields)?];
        all.extend(fields.list("extractors", |item| {
            known.reference(&reference_fields(&item)?)
        })?);
        Ok(all)
    })?;
    Ok(sources.into_iter().flatten().collect())
}

fn reference_fields<'a>(item: &Item<'a>) -> Result<Fields<'a>, ConfigError> {
    if let Value::Null = item.value {
        return Err(ConfigError::other(&item.path, "missing a 'pluginRef'"));
    }
    item.fields("an object with pluginRef")
}
