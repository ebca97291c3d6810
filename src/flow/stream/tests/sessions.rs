//! Picks that a session filter reads.

use super::*;

const HEADER: &str = "x-gateway-destination-endpoint";

/// One pool of two endpoints and one model, whose picks go to the session filter.
fn sessions() -> Router {
    router(
        r#"{"pools":[{"name":"p","cluster":"c","match":{"pathPrefix":"/v1","models":["m"]},
            "endpoints":["10.0.0.1:80","10.0.0.2:80"]}],
            "overrideHost":{"mode":"statefulSession","fallbacks":2}}"#,
    )
}

fn strips(step: &Step) -> bool {
    step.commands
        .contains(&Command::RemoveResponseHeader(HEADER.into()))
}

#[test]
fn the_pick_alone_is_named_in_base64() {
    let mut router = sessions();
    let (_, sent) = chat(&mut router);
    let named = destination(&sent).unwrap();
    // 10.0.0.1:80 or 10.0.0.2:80
    assert!(
        ["MTAuMC4wLjE6ODA=", "MTAuMC4wLjI6ODA="].contains(&named.as_str()),
        "{named}"
    );
}

#[test]
fn who_was_not_named_has_not_failed() {
    let mut router = sessions();
    let (mut stream, _) = chat(&mut router);
    let first = in_flight(&router)[0] == 1;
    let (picked, other) = if first { (0, 1) } else { (1, 0) };
    // Three attempts, and who else was tried nobody knows.
    let event = Event::ResponseHeaders {
        status: 503,
        by_upstream: false,
        upstream: None,
        failed_attempts: 3,
        content_length: None,
    };
    stream.handle(&mut router, event, at(3));
    router.pool_mut(0).unwrap().take_outcomes(at(3));
    let health = |id| router.pools()[0].health(EndpointId::new(id), at(3));
    assert!(health(picked) < health(other));
    let unused = sessions();
    assert!(health(other) >= unused.pools()[0].health(EndpointId::new(other), at(3)));
}

#[test]
fn every_response_to_what_fits_a_pool_loses_the_header() {
    let mut router = sessions();
    let (mut picked, _) = chat(&mut router);
    assert!(strips(&answer(&mut picked, &mut router, "10.0.0.1:80")));
    let other = CHAT.replace("\"m\"", "\"another model\"");
    let (mut not_ours, step) = send(&mut router, "/v1/chat/completions", &other);
    assert_eq!(counts(&step), [] as [&Count; 0]);
    assert!(strips(&answer(&mut not_ours, &mut router, "10.0.0.1:80")));
    let (mut elsewhere, _) = send(&mut router, "/other", CHAT);
    let step = answer(&mut elsewhere, &mut router, "10.0.0.1:80");
    assert_eq!(step, Step::default());
    // The policy of a cluster tells nobody.
    let mut router = one_pool("");
    let (mut picked, _) = chat(&mut router);
    assert!(!strips(&answer(&mut picked, &mut router, "10.0.0.1:80")));
}
