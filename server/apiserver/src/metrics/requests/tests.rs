use plinth_api::{parse_route, Route};
use plinth_registry::Registry as ResourceRegistry;

use super::*;

fn text(registry: &Registry) -> String {
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

#[test]
fn requests_have_upstreams_labels() {
    let (registry, resources) = (Registry::new(), ResourceRegistry::builtin());
    let metrics = Arc::new(RequestMetrics::new(&registry).unwrap());
    // method, path and query, content type, series
    let rows = [
        (Method::GET, "/api/v1/pods", "", r#"verb="LIST",version="v1""#, "pods,,cluster"),
        (Method::GET, "/api/v1/namespaces/a/pods", "", r#"verb="LIST""#, "pods,,namespace"),
        (Method::GET, "/api/v1/namespaces/a/pods/x", "", r#"verb="GET""#, "pods,,resource"),
        (Method::HEAD, "/api/v1/namespaces/a/pods/x", "", r#"verb="GET""#, "pods,,resource"),
        (Method::GET, "/api/v1/pods?watch=1", "", r#"verb="WATCH""#, "pods,,cluster"),
        (Method::POST, "/api/v1/namespaces/a/pods", "", r#"verb="POST""#, "pods,,resource"),
        (
            Method::PUT,
            "/apis/apps/v1/namespaces/a/deployments/x/scale",
            "",
            r#"verb="PUT""#,
            "deployments,scale,resource",
        ),
        (
            Method::PATCH,
            "/api/v1/nodes/x",
            "application/merge-patch+json",
            r#"verb="PATCH""#,
            "nodes,,resource",
        ),
        (
            Method::PATCH,
            "/api/v1/nodes/x",
            "application/apply-patch+yaml",
            r#"verb="APPLY""#,
            "nodes,,resource",
        ),
        (Method::DELETE, "/api/v1/namespaces/a/pods", "", r#"verb="DELETE""#, "pods,,namespace"),
        (Method::GET, "/api/v1/namespaces/a/pods/x/log", "", r#"verb="CONNECT""#, "pods,log,resource"),
    ];
    for (method, target, media, verb, rest) in rows {
        let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
        let route = parse_route(&method, path, query).unwrap();
        let Route::Resource(info) = &route else { panic!("{target}") };
        let resource = resources.get(&info.group, &info.version, &info.resource).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, media.parse().unwrap());
        let before = text(&registry);
        let metered = MeteredTarget::Resource(info, resource);
        let meter = metrics.meter(metered, (&method, &headers, query), Instant::now());
        let meter = meter.expect(target);
        meter.begin();
        drop(meter.answered(Response::new(Body::from(vec![0; 100]))));
        let after = text(&registry);
        let new: Vec<&str> = after
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{") && !before.contains(line))
            .collect();
        let [resource, part, scope] = rest.split(',').collect::<Vec<_>>()[..] else { panic!("{rest}") };
        let expected = [
            verb.to_owned(),
            format!("resource=\"{resource}\""),
            format!("scope=\"{scope}\",subresource=\"{part}\""),
            "code=\"200\",component=\"apiserver\",dry_run=\"\"".to_owned(),
        ];
        assert!(new.len() == 1 && expected.iter().all(|e| new[0].contains(e)), "{target}: {new:?}");
    }
    assert!(text(&registry).contains(
        "apiserver_longrunning_requests{component=\"apiserver\",group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"WATCH\",version=\"v1\"} 0"
    ));
}

#[test]
fn what_is_not_served_or_not_run_is_not_counted() {
    let (registry, resources) = (Registry::new(), ResourceRegistry::builtin());
    let metrics = Arc::new(RequestMetrics::new(&registry).unwrap());
    let meter = |path: &str| {
        let route = parse_route(&Method::GET, path, None).unwrap();
        let Route::Resource(info) = &route else { panic!("{path}") };
        let resource = resources.get(&info.group, &info.version, &info.resource)?;
        let target = MeteredTarget::Resource(info, resource);
        metrics.meter(target, (&Method::GET, &HeaderMap::new(), None), Instant::now())
    };
    assert!(meter("/api/v1/namespaces/a/pods/x/made-up").is_none());
    drop(meter("/api/v1/pods").expect("served"));
    let unrouted = meter("/api/v1/nodes").expect("served");
    unrouted.begin();
    unrouted.not_routed();
    drop(unrouted);
    assert!(!text(&registry).contains("apiserver_request_total{"));
}

#[test]
fn paths_have_their_labels_and_verbs() {
    let registry = Registry::new();
    let metrics = Arc::new(RequestMetrics::new(&registry).unwrap());
    for method in [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS] {
        let labels = PathLabels { subresource: "/livez", ..PathLabels::default() };
        let meter =
            metrics.meter(MeteredTarget::Path(labels), (&method, &HeaderMap::new(), None), Instant::now());
        meter.expect("counted").begin();
    }
    let text = text(&registry);
    for (verb, count) in [("GET", 2), ("POST", 1), ("other", 1)] {
        let rest = format!("scope=\"\",subresource=\"/livez\",verb=\"{verb}\",version=\"\"}} {count}");
        assert!(text.contains(&rest), "{text}");
    }
}

#[test]
fn dry_runs_by_table() {
    let rows = [
        (None, ""),
        (Some("limit=1"), ""),
        (Some("dryRun=All"), "All"),
        (Some("dryRun=All&dryRun=All"), "All"),
        (Some("dryRun=All&dryRun=x"), "invalid"),
        (Some("dryRun="), "invalid"),
        (Some("x=dryRun"), ""),
        (Some("dr%79Run=All"), "All"),
    ];
    for (query, expected) in rows {
        assert_eq!(DryRun::of(query).as_str(), expected, "{query:?}");
    }
}
