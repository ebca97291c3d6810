//! What every plugin is: a type with a name, parameters and a description, and objects of it.

use std::rc::Rc;

use super::filter::Filter;
use super::picker::Picker;
use super::producer::Producer;
use super::profile_handler::{Decider, ProfileHandler};
use super::registry::Setup;
use super::scorer::Scorer;
use crate::config::{ConfigError, Fields, KeyDoc, LaterKey, Rows};

/// One kind of plugin: what a configuration names by `type`. The documentation shows all of it.
#[derive(Clone, Copy, Debug)]
pub struct PluginType {
    /// What a configuration calls it.
    pub name: &'static str,
    /// What it is for.
    pub role: Role,
    /// llm-d has one of this name; else it is this module's alone.
    pub is_llmd: bool,
    /// Its parameters, in the form of the key list, with their paths inside `parameters`.
    pub parameters: &'static [KeyDoc],
    /// What it does: a formula, or a condition.
    pub effect: &'static str,
    /// The range of its score; empty where it gives none.
    pub range: &'static str,
    /// What it makes of an endpoint of which it knows nothing.
    pub missing: &'static str,
    pub(crate) later: &'static [LaterKey],
    pub(crate) build: Build,
}

/// Makes a plugin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Build {
    /// Of nothing.
    Plain(fn() -> Plugin),
    /// Of its parameters.
    Reads(fn(&Fields<'_>, &mut Setup<'_>) -> Result<Plugin, ConfigError>),
}

/// What a plugin is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Attaches attributes to endpoints.
    Producer,
    /// Reads requests.
    Parser,
    /// Writes headers for a sidecar.
    HeaderWriter,
    /// Decides about a second profile.
    Decider,
    /// Drops endpoints.
    Filter,
    /// Weighs endpoints.
    Scorer,
    /// Chooses among weighed endpoints.
    Picker,
    /// Says which profiles run.
    ProfileHandler,
}

impl Role {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Parser => "parser",
            Self::HeaderWriter => "header writer",
            Self::Decider => "decider",
            Self::Filter => "filter",
            Self::Scorer => "scorer",
            Self::Picker => "picker",
            Self::ProfileHandler => "profile handler",
        }
    }
}

/// An object of a plugin type. Profiles that name the same one share it.
#[derive(Clone, Debug)]
pub(crate) enum Plugin {
    Producer(Rc<dyn Producer>),
    /// What it is for happens without it.
    Passive,
    Decider(Rc<dyn Decider>),
    Filter(Rc<dyn Filter>),
    Scorer(Rc<dyn Scorer>),
    Picker(Rc<dyn Picker>),
    ProfileHandler(Rc<dyn ProfileHandler>),
}

impl Plugin {
    pub(crate) fn filter(filter: impl Filter + 'static) -> Self {
        Self::Filter(Rc::new(filter))
    }

    pub(crate) fn scorer(scorer: impl Scorer + 'static) -> Self {
        Self::Scorer(Rc::new(scorer))
    }

    pub(crate) fn picker(picker: impl Picker + 'static) -> Self {
        Self::Picker(Rc::new(picker))
    }
}

impl PluginType {
    /// A filter of llm-d.
    pub(crate) const fn filter(name: &'static str, build: Build) -> Self {
        Self::new(name, Role::Filter, build)
    }

    /// A filter of this module.
    pub(crate) const fn own_filter(name: &'static str, build: Build) -> Self {
        Self::new(name, Role::Filter, build).own()
    }

    /// A scorer of llm-d, with scores from 0 to 1.
    pub(crate) const fn scorer(name: &'static str, build: Build) -> Self {
        let mut scorer = Self::new(name, Role::Scorer, build);
        scorer.range = "0 to 1";
        scorer
    }

    /// A scorer of this module, with scores from 0 to 1.
    pub(crate) const fn own_scorer(name: &'static str, build: Build) -> Self {
        Self::scorer(name, build).own()
    }

    /// Any plugin of llm-d, without parameters.
    pub(crate) const fn new(name: &'static str, role: Role, build: Build) -> Self {
        Self {
            name,
            role,
            is_llmd: true,
            parameters: &[],
            effect: "",
            range: "",
            missing: "–",
            later: &[],
            build,
        }
    }

    pub(crate) const fn own(mut self) -> Self {
        self.is_llmd = false;
        self
    }

    pub(crate) const fn rows(&self) -> Rows {
        Rows {
            keys: self.parameters,
            later: self.later,
        }
    }
}
