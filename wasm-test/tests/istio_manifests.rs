//! The manifests in `envoy/istio` against the published schemas of their kinds, where no field is unknown.

use std::collections::BTreeMap;
use std::fs;

use jsonschema::Validator;
use manifests::{documents, root};
use serde_json::{Value, json};

#[path = "istio/manifests.rs"]
mod manifests;

/// What the manifests may hold; the schemas of custom resources leave the version open.
const KINDS: [(&str, &str); 7] = [
    ("ConfigMap", "v1"),
    ("Deployment", "apps/v1"),
    ("EnvoyFilter", "networking.istio.io/v1alpha3"),
    ("Gateway", "gateway.networking.k8s.io/v1"),
    ("HTTPRoute", "gateway.networking.k8s.io/v1"),
    ("Service", "v1"),
    ("WasmPlugin", "extensions.istio.io/v1alpha1"),
];

/// Parts whose fields are the user's own, by their last name, or not of Kubernetes.
const FREE: [&str; 8] = [
    "annotations",
    "data",
    "labels",
    "limits",
    "matchLabels",
    "pluginConfig",
    "requests",
    "value",
];

#[derive(Debug)]
struct Schemas(BTreeMap<&'static str, Validator>);

impl Schemas {
    fn load() -> Self {
        let folder = root().join("wasm-test/vectors/kubernetes");
        let load = |(kind, _): (&'static str, &str)| {
            let text = fs::read_to_string(folder.join(format!("{kind}.json"))).expect(kind);
            let schema: Value = serde_json::from_str(&text).expect(kind);
            (kind, jsonschema::validator_for(&schema).expect(kind))
        };
        Self(KINDS.into_iter().map(load).collect())
    }

    /// Everything wrong with `document`, one line each.
    fn problems(&self, document: &Value) -> Vec<String> {
        let kind = document["kind"].as_str().unwrap_or_default();
        let known = KINDS.iter().find(|(name, _)| *name == kind);
        let Some((_, version)) = known else {
            return vec![format!("unknown kind {kind:?}")];
        };
        if document["apiVersion"] != *version {
            return vec![format!("{kind} is {version}")];
        }
        let errors = self.0[kind].iter_errors(document);
        errors
            .map(|error| format!("{kind} {}: {error}", error.instance_path()))
            .collect()
    }
}

fn files() -> Vec<String> {
    let files = fs::read_dir(root().join("envoy/istio")).expect("the folder is there");
    let names = files.map(|file| file.expect("readable").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn every_manifest_fits_the_published_schema_of_its_kind() {
    let schemas = Schemas::load();
    let mut kinds = BTreeMap::<String, usize>::new();
    for file in files() {
        for document in documents(&file) {
            assert_eq!(schemas.problems(&document), [""; 0], "{file}");
            *kinds.entry(document["kind"].to_string()).or_default() += 1;
        }
    }
    assert_eq!(kinds.len(), KINDS.len(), "{kinds:?}");
}

/// JSON pointers of every object in `value` whose fields the schema knows.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.push(at.to_owned());
            // A Service's selector is labels, a Deployment's an object of its own.
            let free =
                |name: &str| FREE.contains(&name) || at.ends_with("/spec") && name == "selector";
            for (name, field) in fields.iter().filter(|(name, _)| !free(name)) {
                objects(field, &format!("{at}/{}", name.replace('/', "~1")), found);
            }
        }
        Value::Array(all) => {
            for (number, item) in all.iter().enumerate() {
                objects(item, &format!("{at}/{number}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_field_that_no_schema_knows_is_refused_wherever_it_stands() {
    let schemas = Schemas::load();
    let mut tried = 0;
    for document in files().iter().flat_map(|file| documents(file)) {
        let mut places = Vec::new();
        objects(&document, "", &mut places);
        for place in places {
            let mut broken = document.clone();
            broken.pointer_mut(&place).expect("an object")["nonsense"] = json!(1);
            assert!(
                !schemas.problems(&broken).is_empty(),
                "{} {place}",
                document["kind"]
            );
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn wrong_values_are_refused() {
    let schemas = Schemas::load();
    for (file, number, place, wrong) in [
        (
            "filter.yaml",
            0,
            "/spec/configPatches/0/applyTo",
            json!("EXTENSION"),
        ),
        (
            "filter.yaml",
            0,
            "/spec/configPatches/0/match/context",
            json!("EGRESS"),
        ),
        (
            "cluster-policy.yaml",
            0,
            "/spec/configPatches/0/match/cluster/portNumber",
            json!("8000"),
        ),
        (
            "wasmplugin.yaml",
            0,
            "/spec/failStrategy",
            json!("FAIL_OVER"),
        ),
        ("wasmplugin.yaml", 0, "/spec/targetRefs", json!({})),
        ("gateway.yaml", 0, "/spec/listeners/0/port", json!("http")),
        (
            "gateway.yaml",
            1,
            "/spec/rules/0/matches/0/path/type",
            json!("Prefix"),
        ),
        ("gateway.yaml", 2, "/data/deployment", json!({})),
        ("model-servers.yaml", 0, "/spec/ports/0/port", json!("http")),
        ("model-servers.yaml", 1, "/spec/replicas", json!("four")),
        (
            "model-servers.yaml",
            1,
            "/apiVersion",
            json!("apps/v1beta1"),
        ),
    ] {
        let mut document = documents(file).swap_remove(number);
        *document
            .pointer_mut(place)
            .unwrap_or_else(|| panic!("{file} {place}")) = wrong;
        assert_eq!(
            schemas.problems(&document).len(),
            1,
            "{file} {place}: {:?}",
            schemas.problems(&document)
        );
    }
}

/// What Istio merges into the gateway's Deployment is a Deployment in part.
#[test]
fn the_gateways_deployment_patch_fits_a_deployment() {
    let schemas = Schemas::load();
    let map = documents("gateway.yaml").swap_remove(2);
    let text = map["data"]["deployment"].as_str().expect("a patch");
    let patch: Value = serde_saphyr::from_str(text).expect("YAML");
    let mut deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "llm-istio" } });
    deployment["spec"] = patch["spec"].clone();
    deployment["spec"]["selector"] = json!({});
    assert_eq!(schemas.problems(&deployment), [""; 0]);
    deployment["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = json!([]);
    assert_eq!(schemas.problems(&deployment).len(), 1);

    // The file that its mount and its variable name is the one in the other ConfigMap.
    let container = &patch["spec"]["template"]["spec"]["containers"][0];
    let file = container["env"][0]["value"].as_str().expect("a path");
    let folder = container["volumeMounts"][0]["mountPath"]
        .as_str()
        .expect("a path");
    let name = file
        .strip_prefix(folder)
        .expect("in the mount")
        .trim_start_matches('/');
    let other = documents("gateway.yaml").swap_remove(3);
    assert!(other["data"].get(name).is_some(), "{name}");
    let volume = &patch["spec"]["template"]["spec"]["volumes"][0];
    assert_eq!(volume["configMap"]["name"], other["metadata"]["name"]);
}

/// Labels and buckets are those of the canonical file, which the tests of metrics read.
#[test]
fn the_bootstrap_override_is_the_stats_configuration_of_envoy_yaml() {
    let other = documents("gateway.yaml").swap_remove(3);
    let text = other["data"]["custom_bootstrap.json"]
        .as_str()
        .expect("JSON");
    let here: Value = serde_json::from_str(text).expect("JSON");
    let canonical = fs::read_to_string(root().join("envoy/envoy.yaml")).expect("readable");
    let canonical: Value = serde_saphyr::from_str(&canonical).expect("YAML");
    assert_eq!(here["stats_config"], canonical["stats_config"]);
}
