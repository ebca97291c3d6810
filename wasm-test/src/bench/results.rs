//! The folder of a run: one JSON file a part, its drawings beside it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::machine::Provenance;
use super::{BenchError, Figures, report};

/// One run of the command.
#[derive(Debug, Clone)]
pub struct Run {
    folder: PathBuf,
    /// Of everything this run measures.
    pub provenance: Provenance,
}

/// What is in a part's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results<F> {
    /// Of these figures; parts measured by different runs stand in one report.
    pub provenance: Provenance,
    /// What came out.
    pub figures: F,
}

impl Run {
    /// Begins a run that writes to `folder`, which need not be there.
    pub fn begin(folder: PathBuf, provenance: Provenance) -> Result<Self, BenchError> {
        fs::create_dir_all(&folder).map_err(|source| file(&folder, source))?;
        Ok(Self { folder, provenance })
    }

    /// Where everything goes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a part's results and drawings, and the report anew. Returns the report's path.
    pub fn keep<F: Figures>(&self, figures: F) -> Result<PathBuf, BenchError> {
        for (name, svg) in figures.plots()? {
            self.write(&plot_file::<F>(name), &svg)?;
        }
        let results = Results {
            provenance: self.provenance.clone(),
            figures,
        };
        let json = serde_json::to_string_pretty(&results)?;
        self.write(&results_file::<F>(), &json)?;
        self.write(report::FILE, &report::write(&self.folder)?)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|source| file(&path, source))?;
        Ok(path)
    }
}

impl<F: Figures> Results<F> {
    /// What `folder` holds of this part; `None` when it was never measured.
    pub fn read(folder: &Path) -> Result<Option<Self>, BenchError> {
        read(&folder.join(results_file::<F>()))
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, BenchError> {
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read(path).map_err(|source| file(path, source))?;
    let value = serde_json::from_slice(&text).map_err(|error| BenchError::Content {
        path: path.to_owned(),
        problem: format!("{error}; an older version's? Measure again"),
    })?;
    Ok(Some(value))
}

/// Name of the JSON file of a part.
pub fn results_file<F: Figures>() -> String {
    format!("{}.json", F::NAME)
}

/// Name of the file of a part's drawing.
pub fn plot_file<F: Figures>(name: &str) -> String {
    format!("{}-{name}.svg", F::NAME)
}

/// An error about `path`.
pub(super) fn file(path: &Path, source: std::io::Error) -> BenchError {
    BenchError::File {
        path: path.to_owned(),
        source,
    }
}
