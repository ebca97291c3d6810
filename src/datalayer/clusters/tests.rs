use super::*;

/// An answer of Envoy 1.40 to `/clusters?format=json`, of which counters other than two are cut out.
const ANSWER: &str = r#"{
 "cluster_statuses": [
  {
   "name": "other",
   "host_statuses": [
    {"address": {"pipe": {"path": "/run/x"}}, "health_status": {"eds_health_status": "HEALTHY"}},
    {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 8000}},
     "health_status": {"eds_health_status": "DEGRADED"}}
   ]
  },
  {
   "name": "outbound|8000||model.svc",
   "added_via_api": true,
   "host_statuses": [
    {
     "address": {"socket_address": {"address": "10.0.0.1", "port_value": 8000}},
     "stats": [{"name": "cx_total", "value": "9"}, {"type": "GAUGE", "name": "rq_active", "value": "7"}],
     "health_status": {"eds_health_status": "HEALTHY"},
     "weight": 1, "locality": {}
    },
    {
     "address": {"socket_address": {"address": "10.0.0.1", "port_value": 8001}},
     "stats": [{"name": "cx_total"}, {"type": "GAUGE", "name": "rq_active"}],
     "health_status": {"failed_active_health_check": true, "eds_health_status": "HEALTHY"}
    },
    {
     "address": {"socket_address": {"address": "fd00::1", "port_value": 8000}},
     "health_status": {"eds_health_status": "HEALTHY"},
     "priority": 1, "hostname": "x"
    }
   ]
  }
 ]
}"#;

const CLUSTER: &str = "outbound|8000||model.svc";

fn list(sources: &[&str]) -> Vec<(String, HostStatus)> {
    let hosts = read(ANSWER.as_bytes(), sources).unwrap().into_iter();
    hosts
        .map(|host| (host.address.to_string(), host.status))
        .collect()
}

/// The status of one host whose `health_status` is `flags`.
fn status(flags: &str) -> HostStatus {
    let answer = format!(
        r#"{{"cluster_statuses":[{{"name":"c","host_statuses":[{{
            "address":{{"socket_address":{{"address":"10.0.0.1","port_value":1}}}},
            "health_status":{{{flags}}}}}]}}]}}"#
    );
    read(answer.as_bytes(), &["c"]).unwrap()[0].status
}

#[test]
fn hosts_come_with_their_priority_and_open_requests() {
    let expected = [
        ("10.0.0.1:8000", Condition::USABLE, 0, 7),
        (
            "10.0.0.1:8001",
            Condition::USABLE.with(Unusable::FailedHealthCheck, true),
            0,
            0,
        ),
        ("[fd00::1]:8000", Condition::USABLE, 2, 0),
    ];
    let expected = expected.map(|(name, condition, tier, active)| {
        let status = HostStatus {
            condition,
            tier,
            sources: 1,
            active,
        };
        (name.to_owned(), status)
    });
    assert_eq!(list(&[CLUSTER]), expected);
}

#[test]
fn a_host_of_several_sources_has_the_worst_that_any_says() {
    let hosts = list(&["other", CLUSTER]);
    let sources: Vec<u32> = hosts.iter().map(|(_, status)| status.sources).collect();
    assert_eq!(sources, [0b11, 0b10, 0b10]);
    assert_eq!((hosts[0].1.tier, hosts[0].1.active), (1, 7));
}

#[test]
fn every_flag_says_what_it_means() {
    for (flag, cause) in [
        ("failed_active_health_check", Unusable::FailedHealthCheck),
        ("pending_active_hc", Unusable::FailedHealthCheck),
        ("active_hc_timeout", Unusable::FailedHealthCheck),
        (
            "excluded_via_immediate_hc_fail",
            Unusable::FailedHealthCheck,
        ),
        ("failed_outlier_check", Unusable::Ejected),
        ("pending_dynamic_removal", Unusable::Draining),
    ] {
        let found = status(&format!(r#""{flag}":true,"eds_health_status":"HEALTHY""#));
        assert!(found.condition.causes().eq([cause]), "{flag}");
        let found = status(&format!(r#""{flag}":false"#));
        assert!(found.condition.is_usable(), "{flag} is off");
    }
    let word = |word: &str| status(&format!(r#""eds_health_status":"{word}""#));
    for (given, cause) in [
        ("UNHEALTHY", Some(Unusable::FailedHealthCheck)),
        ("TIMEOUT", Some(Unusable::FailedHealthCheck)),
        ("DRAINING", Some(Unusable::Draining)),
        ("DEGRADED", None),
        ("UNKNOWN", None),
        ("HEALTHY", None),
    ] {
        assert!(word(given).condition.causes().eq(cause), "{given}");
    }
    let degraded = status(r#""failed_active_degraded_check":true"#);
    assert_eq!((degraded.tier, word("DEGRADED").tier), (1, 1));
}

#[test]
fn a_cluster_envoy_does_not_know_is_no_empty_list() {
    let unknown = read(ANSWER.as_bytes(), &["other", "nobody"]);
    assert_eq!(unknown, Err(ClustersError::NoSuchCluster(1)));
    let empty = br#"{"cluster_statuses":[{"name":"c"}]}"#;
    assert_eq!(read(empty, &["c"]), Ok(Vec::new()));
}

#[test]
fn what_is_no_host_list_is_unreadable() {
    let cut = ANSWER.get(..ANSWER.len() - 10).unwrap();
    for text in ["", "OK", "not json", cut, r#"{"cluster_statuses":7}"#] {
        assert_eq!(
            read(text.as_bytes(), &["c"]),
            Err(ClustersError::Unreadable),
            "{text}"
        );
    }
}

#[test]
fn the_query_asks_for_these_clusters_alone() {
    assert_eq!(
        path(&["outbound|8000||a.b", "c"]),
        "/clusters?format=json&filter=%5E%28outbound%5C%7C8000%5C%7C%5C%7Ca%5C.b%7Cc%29%24"
    );
}
