//! How Istio merges a patch into what it generated: as protobuf merges messages.

use serde_json::Value;

/// Merges `patch` into `target`: messages field by field, lists by appending, everything else by
/// replacing. A packed message (`Any`) is replaced as a whole, and so is each entry of a map of
/// them.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) if !patch.contains_key("@type") => {
            for (name, value) in patch {
                match target.get_mut(name) {
                    Some(field) => merge(field, value),
                    None => {
                        target.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(target), Value::Array(patch)) => target.extend(patch.iter().cloned()),
        (target, patch) => *target = patch.clone(),
    }
}

/// The same with `patch` being a packed message of the same type, which Istio unpacks for the filter
/// that is patched. False when the types differ.
pub(super) fn merge_packed(target: &mut Value, patch: &Value) -> bool {
    if target["@type"] != patch["@type"] {
        return false;
    }
    let Value::Object(mut patch) = patch.clone() else {
        return false;
    };
    patch.remove("@type");
    merge(target, &Value::Object(patch));
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_merge_lists_append_and_packed_messages_are_replaced() {
        let mut target = json!({
            "a": { "b": 1, "c": [1] },
            "options": { "x": { "@type": "t", "old": true } },
        });
        let patch = json!({
            "a": { "b": 2, "c": [2], "d": 3 },
            "options": { "x": { "@type": "t", "new": true } },
        });
        merge(&mut target, &patch);
        assert_eq!(
            target,
            json!({
                "a": { "b": 2, "c": [1, 2], "d": 3 },
                "options": { "x": { "@type": "t", "new": true } },
            })
        );
    }

    #[test]
    fn a_packed_message_merges_into_its_own_type_only() {
        let mut target = json!({ "@type": "t", "old": true });
        assert!(merge_packed(
            &mut target,
            &json!({ "@type": "t", "new": true })
        ));
        assert_eq!(target, json!({ "@type": "t", "old": true, "new": true }));
        assert!(!merge_packed(&mut target, &json!({ "@type": "u" })));
    }
}
