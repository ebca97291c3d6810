//! Names that clients ask for, and what model servers are asked for instead.

use std::collections::BTreeSet;

use super::error::ConfigError;
use super::fields::Fields;
use super::json::quoted;

/// A model by a name of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// What clients ask for; unique in its pool.
    pub name: String,
    /// At least one.
    pub targets: Vec<ModelTarget>,
}

/// What a model server may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTarget {
    /// The server's name for it.
    pub model: String,
    /// Its share of the conversations, at least 1.
    pub weight: u32,
    /// It is an adapter, which a server may have to load first.
    pub adapter: bool,
}

impl ModelConfig {
    /// The target of the conversation that `key`, evenly distributed, stands for: each gets its
    /// weight's share of all conversations, and a conversation the same one every time.
    pub fn target(&self, key: u64) -> Option<&ModelTarget> {
        let weights = self.targets.iter().map(|target| u64::from(target.weight));
        let mut place = key.checked_rem(weights.sum())?;
        self.targets.iter().find(|target| {
            let weight = u64::from(target.weight);
            let is_here = place < weight;
            place = place.saturating_sub(weight);
            is_here
        })
    }
}

/// The models of the pool that `pool` holds.
pub(super) fn read_all(pool: &Fields<'_>) -> Result<Vec<ModelConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    pool.list("models", |item| {
        let fields = item.fields("an object with name and targets")?;
        let name = fields.text("name")?;
        if !names.insert(name.clone()) {
            let expected = "a name that no other model of the pool has";
            let found = format!("{} again", quoted(&name));
            return Err(ConfigError::expected(
                &fields.path_of("name"),
                expected,
                found,
            ));
        }
        let targets = fields.list("targets", |item| {
            let fields = item.fields("an object with model")?;
            Ok(ModelTarget {
                model: fields.text("model")?,
                weight: fields.whole("weight")?,
                adapter: fields.flag("adapter")?,
            })
        })?;
        Ok(ModelConfig { name, targets })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(weights: &[u32]) -> ModelConfig {
        let targets = weights
            .iter()
            .zip(b'a'..)
            .map(|(&weight, name)| ModelTarget {
                model: char::from(name).to_string(),
                weight,
                adapter: false,
            });
        ModelConfig {
            name: "logical".to_owned(),
            targets: targets.collect(),
        }
    }

    #[test]
    fn each_target_gets_its_weights_share() {
        let model = targets(&[90, 1, 9]);
        let mut counts = [0; 3];
        for key in 0..1_000 {
            let name = model.target(key).unwrap().model.as_bytes()[0];
            counts[usize::from(name - b'a')] += 1;
        }
        assert_eq!(counts, [900, 10, 90]);
        assert_eq!(targets(&[]).target(5), None);
    }
}
