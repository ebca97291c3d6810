//! From an `EndpointPickerConfig` to a scheduler: llm-d's defaults and checks.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::five_factor::standing_filters;
use super::picker::{Most, Picker, max_score};
use super::plugin::{Build, Plugin, Role};
use super::producer::core_metrics;
use super::profile::{Profile, Weighted};
use super::profile_handler::ProfileHandler;
use super::profile_handler::single::Single;
use super::registry::{self, Setup};
use super::{Attribute, Scheduler};
use crate::config::{
    ConfigError, EndpointPickerConfig, Fields, PluginConfig, PluginRef, PoolConfig, ProfileConfig,
    quoted,
};

/// What there is when nothing is declared.
const DEFAULT: [(&str, f64); 3] = [
    ("queue-scorer", 2.0),
    ("kv-cache-utilization-scorer", 2.0),
    ("prefix-cache-scorer", 3.0),
];

/// The name of the profile that is there when none is declared.
const DEFAULT_PROFILE: &str = "default";

/// The scheduler that `config` describes. Its producers change `pool`.
pub(super) fn scheduler(
    config: &EndpointPickerConfig,
    pool: &mut PoolConfig,
) -> Result<Scheduler, ConfigError> {
    let mut config = config.clone();
    add_default_plugins(&mut config);
    check_types(&config)?;
    let roles = roles(&config)?;
    if config.profiles.is_empty() {
        config.profiles.push(default_profile(&config, &roles));
    }
    let mut setup = Setup {
        pool,
        built: BTreeMap::new(),
        series: BTreeMap::new(),
        current: String::new(),
        prefix_producer: None,
    };
    make_plugins(&config, &roles, &mut setup)?;
    let assembly = Assembly {
        provided: provided(&config, &setup),
        config: &config,
        setup: &setup,
    };
    let mut profiles = Vec::new();
    for profile in &config.profiles {
        profiles.push(assembly.profile(profile)?);
    }
    let handler = assembly.handler()?;
    Ok(Scheduler::of(profiles, handler))
}

/// Without any plugin and any profile there is llm-d's default.
fn add_default_plugins(config: &mut EndpointPickerConfig) {
    if !config.plugins.is_empty() || !config.profiles.is_empty() {
        return;
    }
    let path = config.path.clone();
    let reference = |(name, weight): (&str, f64)| PluginRef {
        path: path.clone(),
        name: name.to_owned(),
        weight,
    };
    config.profiles.push(ProfileConfig {
        path: path.clone(),
        name: DEFAULT_PROFILE.to_owned(),
        plugins: DEFAULT.map(reference).to_vec(),
    });
    let plugins = DEFAULT.map(|(name, _)| PluginConfig::of_type(&path, name));
    config.plugins.extend(plugins);
}

/// Refuses unknown types, those of parsers included that are referred to without being declared.
fn check_types(config: &EndpointPickerConfig) -> Result<(), ConfigError> {
    for parser in &config.parsers {
        let declared = config.plugins.iter().find(|one| one.name == parser.name);
        let type_name = declared.map_or(&parser.name, |one| &one.type_name);
        let found = registry::find(type_name, &parser.path)?;
        if found.role != Role::Parser {
            let found = found.role.as_str();
            return Err(ConfigError::expected(&parser.path, "a parser", found));
        }
    }
    Ok(())
}

/// Roles of the plugins by their names.
fn roles(config: &EndpointPickerConfig) -> Result<BTreeMap<String, Role>, ConfigError> {
    let role = |plugin: &PluginConfig| {
        let path = format!("{}.type", plugin.path);
        let found = registry::find(&plugin.type_name, &path)?;
        Ok((plugin.name.clone(), found.role))
    };
    config.plugins.iter().map(role).collect()
}

/// Every declared filter, scorer and picker, in their order.
fn default_profile(config: &EndpointPickerConfig, roles: &BTreeMap<String, Role>) -> ProfileConfig {
    let belongs = |plugin: &&PluginConfig| {
        let role = roles.get(&plugin.name);
        matches!(role, Some(Role::Filter | Role::Scorer | Role::Picker))
    };
    let reference = |plugin: &PluginConfig| PluginRef {
        path: plugin.path.clone(),
        name: plugin.name.clone(),
        weight: 1.0,
    };
    let plugins = config.plugins.iter().filter(belongs);
    ProfileConfig {
        path: format!("{}.schedulingProfiles", config.path),
        name: DEFAULT_PROFILE.to_owned(),
        plugins: plugins.map(reference).collect(),
    }
}

/// Makes all plugins, those before the others that they may refer to.
fn make_plugins(
    config: &EndpointPickerConfig,
    roles: &BTreeMap<String, Role>,
    setup: &mut Setup<'_>,
) -> Result<(), ConfigError> {
    let mut ordered: Vec<&PluginConfig> = config.plugins.iter().collect();
    // Stable: plugins of one role stay in their order.
    ordered.sort_by_key(|plugin| roles.get(&plugin.name));
    for declared in ordered {
        let path = format!("{}.type", declared.path);
        let plugin_type = registry::find(&declared.type_name, &path)?;
        setup.current.clone_from(&declared.name);
        let fields: Fields<'_> = declared.parameters.fields(plugin_type.rows())?;
        let plugin = match plugin_type.build {
            Build::Plain(make) => make(),
            Build::Reads(make) => make(&fields, setup)?,
        };
        setup.built.insert(declared.name.clone(), plugin);
    }
    Ok(())
}

/// What is known of endpoints. Matches and open requests always are: their producers are there
/// without being declared, as llm-d's default ones.
fn provided(config: &EndpointPickerConfig, setup: &Setup<'_>) -> BTreeSet<Attribute> {
    let mut provided = BTreeSet::from([Attribute::PrefixMatch, Attribute::InFlight]);
    if config.inject_defaults {
        provided.insert(Attribute::Metrics);
    }
    // A declared extractor that no source feeds gives nothing, but for the one that is injected.
    let is_fed = |name: &str| {
        let is_injected = config.inject_defaults && name == core_metrics::TYPE_NAME;
        is_injected || config.sources.iter().any(|source| source.name == name)
    };
    for (name, plugin) in &setup.built {
        if let Plugin::Producer(producer) = plugin
            && is_fed(name)
        {
            provided.extend(producer.provides());
        }
    }
    provided
}

/// Everything that profiles are put together from.
struct Assembly<'a, 'p> {
    config: &'a EndpointPickerConfig,
    setup: &'a Setup<'p>,
    provided: BTreeSet<Attribute>,
}

impl Assembly<'_, '_> {
    fn profile(&self, profile: &ProfileConfig) -> Result<Profile, ConfigError> {
        let mut filters = standing_filters(&self.setup.pool.scoring);
        let mut scorers = Vec::new();
        let mut picker: Option<(&str, Rc<dyn Picker>)> = None;
        for reference in &profile.plugins {
            match self.setup.built.get(&reference.name) {
                Some(Plugin::Filter(filter)) => {
                    self.check_needs(reference, filter.needs())?;
                    filters.push(Rc::clone(filter));
                }
                Some(Plugin::Scorer(scorer)) => {
                    self.check_needs(reference, scorer.needs())?;
                    scorers.push(Weighted {
                        name: reference.name.clone(),
                        scorer: Rc::clone(scorer),
                        weight: reference.weight,
                    });
                }
                Some(Plugin::Picker(found)) => {
                    if let Some((first, _)) = &picker {
                        return Err(two_pickers(reference, first));
                    }
                    picker = Some((&reference.name, Rc::clone(found)));
                }
                _ => return Err(no_part(reference)),
            }
        }
        let picker = picker.map_or_else(|| self.default_picker(), |(_, picker)| picker);
        Ok(Profile::new(profile.name.clone(), filters, scorers, picker))
    }

    /// The first declared one, else the highest score.
    fn default_picker(&self) -> Rc<dyn Picker> {
        let declared = self.config.plugins.iter();
        let mut pickers = declared.filter_map(|one| match self.setup.built.get(&one.name) {
            Some(Plugin::Picker(picker)) => Some(Rc::clone(picker)),
            _ => None,
        });
        pickers.next().unwrap_or_else(|| {
            Rc::new(max_score::MaxScore {
                tie_band: self.setup.pool.scoring.tie_band,
                most: Most::default(),
            })
        })
    }

    fn handler(&self) -> Result<Rc<dyn ProfileHandler>, ConfigError> {
        let declared = self.config.plugins.iter();
        let mut handlers = declared.filter_map(|one| match self.setup.built.get(&one.name) {
            Some(Plugin::ProfileHandler(handler)) => Some((one, handler)),
            _ => None,
        });
        let names: Vec<&str> = self.config.profiles.iter().map(|one| &*one.name).collect();
        let Some((declared, handler)) = handlers.next() else {
            if names.len() > 1 {
                let path = format!("{}.plugins", self.config.path);
                return Err(ConfigError::other(&path, "no profile handler configured"));
            }
            return Ok(Rc::new(Single));
        };
        if let Some((second, _)) = handlers.next() {
            let what = format!(
                "multiple profile handlers found: after {}",
                quoted(&declared.name)
            );
            return Err(ConfigError::other(&second.path, what));
        }
        let checked = handler.check(&names);
        checked.map_err(|what| ConfigError::other(&declared.path, what))?;
        self.check_deciders()?;
        Ok(Rc::clone(handler))
    }

    fn check_deciders(&self) -> Result<(), ConfigError> {
        for declared in &self.config.plugins {
            if let Some(Plugin::Decider(decider)) = self.setup.built.get(&declared.name) {
                let reference = PluginRef {
                    path: declared.path.clone(),
                    name: declared.name.clone(),
                    weight: 1.0,
                };
                self.check_needs(&reference, decider.needs())?;
            }
        }
        Ok(())
    }

    /// Refuses a plugin that reads what nobody attaches. What a scorer had read itself is there.
    fn check_needs(&self, reference: &PluginRef, needs: Vec<Attribute>) -> Result<(), ConfigError> {
        for need in needs {
            let instead = match &need {
                Attribute::Series(name) if self.is_own_series(name) => continue,
                need if self.provided.contains(need) => continue,
                Attribute::Series(_) => {
                    "give a series that name under core-metrics-extractor's customMetrics"
                }
                Attribute::PrefixMatch | Attribute::InFlight | Attribute::Metrics => {
                    "leave dataLayer.injectDefaults on, or declare metrics-data-source and \
                     core-metrics-extractor and list them under dataLayer.sources"
                }
            };
            let name = quoted(&reference.name);
            let what = format!(
                "plugin {name} needs the attribute {need}, which no producer provides; {instead}"
            );
            return Err(ConfigError::other(&reference.path, what));
        }
        Ok(())
    }

    /// Whether a plugin other than a producer has the series `name` read.
    fn is_own_series(&self, name: &str) -> bool {
        let series = Attribute::Series(name.to_owned());
        let is_produced = |plugin: &Plugin| matches!(plugin, Plugin::Producer(producer) if producer.provides().contains(&series));
        self.setup.series.contains_key(name) && !self.setup.built.values().any(is_produced)
    }
}

fn two_pickers(reference: &PluginRef, first: &str) -> ConfigError {
    let what = format!(
        "failed to set {} as picker, already have a registered picker plugin {}",
        quoted(&reference.name),
        quoted(first)
    );
    ConfigError::other(&reference.path, what)
}

fn no_part(reference: &PluginRef) -> ConfigError {
    let expected = "a filter, a scorer or a picker";
    ConfigError::expected(&reference.path, expected, quoted(&reference.name))
}
