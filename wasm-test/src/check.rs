//! `epp-check`: a configuration judged without Envoy.
//!
//! A file is the plugin's configuration alone, or an Envoy bootstrap with the module in it. Of a
//! bootstrap, what the module cannot see of itself is compared as well: the filter's settings, the
//! routes in front and the clusters behind.

mod bootstrap;
mod fit;
mod report;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use inline_epp::config::{Config, ConfigError};
use inline_epp::flow::Router;
use inline_epp::requestcontrol::{Ledger, LedgerHandle, Pool};
use serde_json::Value;

use bootstrap::{Bootstrap, Plugin};

/// What is wrong with a file. One line each.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("{}: {source}", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: not valid YAML or JSON: {problem}", path.display())]
    Syntax { path: PathBuf, problem: String },
    #[error("{}: a bootstrap without an inline-epp filter", path.display())]
    NoPlugin { path: PathBuf },
    #[error("{}: {at}: expected a Struct or a StringValue", path.display())]
    NoConfiguration { path: PathBuf, at: String },
    #[error("{}: {}", path.display(), joined(at, source))]
    Configuration {
        path: PathBuf,
        /// JSON path of the configuration in the file; empty when it is the file.
        at: String,
        source: Box<ConfigError>,
    },
}

/// Every configuration of a file, valid, with what is probably not meant.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub path: PathBuf,
    /// At least one.
    pub plugins: Vec<Checked>,
}

/// One valid configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// JSON path of the configuration in the file; empty when it is the file.
    pub at: String,
    pub config: Config,
    /// The profiles of each pool, one line each.
    pub profiles: Vec<Vec<String>>,
    pub warnings: Vec<Warning>,
}

/// Something valid that is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// JSON path in the file; empty when the text names it.
    pub at: String,
    pub text: String,
}

/// Checks the file at `path`.
pub fn check(path: &Path) -> Result<Report, CheckError> {
    let path = path.to_owned();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(CheckError::Unreadable { path, source }),
    };
    let tree: Value = match serde_saphyr::from_str(&text) {
        Ok(tree) => tree,
        Err(error) => {
            let problem = first_line(&error.to_string());
            return Err(CheckError::Syntax { path, problem });
        }
    };
    let plugins = match Bootstrap::of(&tree) {
        None => vec![bare(&path, &tree)?],
        Some(bootstrap) => in_bootstrap(&path, &bootstrap)?,
    };
    Ok(Report { path, plugins })
}

fn bare(path: &Path, tree: &Value) -> Result<Checked, CheckError> {
    let (config, profiles) = parse(path, "", &tree.to_string())?;
    Ok(Checked {
        at: String::new(),
        warnings: own_warnings("", &config),
        config,
        profiles,
    })
}

fn in_bootstrap(path: &Path, bootstrap: &Bootstrap<'_>) -> Result<Vec<Checked>, CheckError> {
    let plugins = bootstrap.plugins();
    if plugins.is_empty() {
        return Err(CheckError::NoPlugin {
            path: path.to_owned(),
        });
    }
    plugins
        .iter()
        .map(|plugin| checked(path, bootstrap, plugin))
        .collect()
}

fn checked(
    path: &Path,
    bootstrap: &Bootstrap<'_>,
    plugin: &Plugin<'_>,
) -> Result<Checked, CheckError> {
    let Some((at, text)) = plugin.configuration() else {
        return Err(CheckError::NoConfiguration {
            path: path.to_owned(),
            at: format!("{}.configuration", plugin.at),
        });
    };
    let (config, profiles) = parse(path, &at, &text)?;
    let mut warnings = own_warnings(&at, &config);
    warnings.extend(fit::warnings(bootstrap, plugin, &config));
    Ok(Checked {
        at,
        config,
        profiles,
        warnings,
    })
}

/// A configuration, with its pools' profiles.
fn parse(path: &Path, at: &str, text: &str) -> Result<(Config, Vec<Vec<String>>), CheckError> {
    let ledger = LedgerHandle::new(Ledger::alone());
    let router = Config::parse(text.as_bytes()).and_then(|config| Router::new(config, &ledger));
    let router = router.map_err(|source| CheckError::Configuration {
        path: path.to_owned(),
        at: at.to_owned(),
        source: Box::new(source),
    })?;
    let profiles = router.pools().iter().map(Pool::profiles).collect();
    Ok((router.config().clone(), profiles))
}

/// The module's own warnings, which name a path within its configuration.
fn own_warnings(at: &str, config: &Config) -> Vec<Warning> {
    let warning = |line| Warning {
        at: at.to_owned(),
        text: line,
    };
    config.warnings().into_iter().map(warning).collect()
}

/// The error with its path in the file.
fn joined(at: &str, error: &ConfigError) -> String {
    match (at, error.path()) {
        ("", _) => error.to_string(),
        (at, "") => format!("{at}: {error}"),
        (at, _) => format!("{at}.{error}"),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.at.is_empty() {
            write!(out, "{}: ", self.at)?;
        }
        out.write_str(&self.text)
    }
}
