//! An endpoint's labels.

use std::collections::BTreeMap;
use std::rc::Rc;

/// Labels of one endpoint by name, as on a pod. A copy shares them, so that every request's view of
/// every endpoint can have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// `None` without any.
    values: Option<Rc<BTreeMap<String, String>>>,
}

impl Labels {
    /// The value of the label `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.as_ref()?.get(name).map(String::as_str)
    }

    /// Name and value of each, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let values = self.values.iter().flat_map(|values| values.iter());
        values.map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromIterator<(String, String)> for Labels {
    /// Of equal names the last one's value stays.
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        let values: BTreeMap<String, String> = labels.into_iter().collect();
        Self {
            values: (!values.is_empty()).then(|| Rc::new(values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_names_the_last_value_stays() {
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let labels: Labels = [label("zone", "a"), label("gpu", "l4"), label("zone", "b")]
            .into_iter()
            .collect();
        assert_eq!(labels.get("zone"), Some("b"));
        assert_eq!(labels.get("rack"), None);
        assert_eq!(
            labels.iter().collect::<Vec<_>>(),
            [("gpu", "l4"), ("zone", "b")]
        );
        assert_eq!(labels.clone(), labels);
    }
}
