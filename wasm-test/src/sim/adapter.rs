//! An adapter as the command line names it.

use std::str::FromStr;

/// Rank of an adapter that names none.
const DEFAULT_RANK: u32 = 16;

/// A `LoRA` adapter: `name`, or `name=rank`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// Usable as a model.
    pub name: String,
    /// At least 1. Loading takes time in proportion to it.
    pub rank: u32,
}

impl From<&str> for Adapter {
    fn from(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rank: DEFAULT_RANK,
        }
    }
}

impl FromStr for Adapter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rank) = match text.split_once('=') {
            None => (text, DEFAULT_RANK),
            Some((name, rank)) => {
                let rank = rank.parse().ok().filter(|rank| *rank > 0);
                (name, rank.ok_or("a rank is a whole number above 0")?)
            }
        };
        if name.is_empty() {
            return Err("an adapter needs a name".to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            rank,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_may_follow_the_name() {
        let of = |text: &str| text.parse::<Adapter>();
        assert_eq!(of("a"), Ok(Adapter::from("a")));
        assert_eq!(
            of("a=64"),
            Ok(Adapter {
                name: "a".into(),
                rank: 64
            })
        );
        for wrong in ["", "=64", "a=", "a=0", "a=x", "a=-1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
