use super::*;
use crate::{envoy, repository};

fn canonical() -> Bootstrap {
    Bootstrap::load(repository::path(envoy::CANONICAL)).expect("the shipped file is YAML")
}

fn endpoints() -> [SocketAddr; 2] {
    [
        "127.0.0.1:1".parse().expect("IPv4"),
        "[::1]:2".parse().expect("IPv6"),
    ]
}

#[test]
fn endpoints_are_replaced_in_the_cluster_and_in_the_pool() {
    let mut bootstrap = canonical();
    bootstrap.set_endpoints(&endpoints());
    let text = bootstrap.to_json();
    assert!(!text.contains("8101"), "{text}");
    let hosts = &bootstrap.tree["static_resources"]["clusters"][0]["load_assignment"]["endpoints"];
    assert_eq!(hosts[0]["lb_endpoints"][1], lb_endpoint(&endpoints()[1]));
    let pools = &bootstrap.wasm_filters()[0]["configuration"]["value"]["pools"];
    assert_eq!(pools[0]["endpoints"], json!(["127.0.0.1:1", "[::1]:2"]));
}

#[test]
fn no_port_of_the_file_is_left() {
    let mut bootstrap = canonical();
    bootstrap.set_dynamic_ports();
    let text = bootstrap.to_json();
    assert!(!text.contains("8080") && !text.contains("9901"), "{text}");
}

#[test]
fn the_plugin_configuration_can_be_a_struct_or_text() {
    let mut bootstrap = canonical();
    bootstrap
        .edit_plugin(|plugin| plugin["debugHeaders"] = json!(true))
        .expect("has the module");
    let configuration = bootstrap.wasm_filters()[0]["configuration"].clone();
    assert_eq!(configuration["@type"], STRUCT);

    bootstrap.use_plugin_text().expect("has the module");
    let text = bootstrap.wasm_filters()[0]["configuration"].clone();
    assert_eq!(text["@type"], STRING_VALUE);
    let value: Value = serde_json::from_str(text["value"].as_str().expect("text")).expect("JSON");
    assert_eq!(value, configuration["value"]);
}

#[test]
fn a_plugin_patch_without_a_module_is_an_error() {
    let path = repository::path(envoy::NO_FILTER);
    let mut bootstrap = Bootstrap::load(path).expect("the shipped file is YAML");
    assert!(!bootstrap.has_module());
    assert!(bootstrap.edit_plugin(|_| ()).is_err());
}

#[test]
fn the_shipped_file_names_the_module_where_the_build_puts_it() {
    let mut bootstrap = canonical();
    let code = &bootstrap.wasm_filters()[0]["vm_config"]["code"];
    assert_eq!(
        code["local"]["filename"],
        "target/wasm32-wasip1/release/inline_epp.wasm"
    );
}
