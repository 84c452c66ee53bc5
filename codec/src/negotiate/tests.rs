use super::*;
use Encoding::{Cbor, Json, Protobuf, Yaml};
use MetaVersion::{V1Beta1, V1};

const OBJECT: Offer = Offer::builtin(Shape::Object);
const LIST: Offer = Offer::builtin(Shape::List);
const WATCH: Offer = Offer::builtin(Shape::Watch);
const CUSTOM: Offer = Offer::custom(Shape::Object);
const CUSTOM_LIST: Offer = Offer::custom(Shape::List);
const REVIEW: Offer = Offer { shape: Shape::Object, protobuf: true, tables: false };
const DISCOVERY: Offer = Offer::builtin(Shape::Discovery);
const PLAIN: Offer = Offer::builtin(Shape::Plain);

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[test]
fn accept_picks() {
    use Transform::*;
    let cases: &[(&str, Offer, Encoding, Transform)] = &[
        ("", OBJECT, Json, None),
        ("application/json", OBJECT, Json, None),
        ("application/yaml", OBJECT, Yaml, None),
        ("application/cbor", OBJECT, Cbor, None),
        ("application/vnd.kubernetes.protobuf", OBJECT, Protobuf, None),
        ("Application/YAML", OBJECT, Yaml, None),
        ("*/*", OBJECT, Json, None),
        ("*", OBJECT, Json, None),
        ("application/*", OBJECT, Json, None),
        (" application/yaml ; charset=\"a,b;c\" ", OBJECT, Yaml, None),
        // Browsers.
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", OBJECT, Json, None),
        // Weights, then specificity, then order.
        ("application/json;q=0.5,application/yaml;q=0.9", OBJECT, Yaml, None),
        ("application/yaml;q=0.5,*/*;q=0.4", OBJECT, Yaml, None),
        ("*/*,application/yaml", OBJECT, Yaml, None),
        ("application/*,application/cbor", OBJECT, Cbor, None),
        ("application/yaml,application/json", OBJECT, Yaml, None),
        ("application/json;q=nonsense,application/yaml;q=0.1", OBJECT, Yaml, None),
        ("application/json;q=nonsense", OBJECT, Json, None),
        // A refusal, also against a wildcard.
        ("application/json;q=0,*/*", OBJECT, Yaml, None),
        ("application/json;q=0.000, application/yaml;q=0.001", OBJECT, Yaml, None),
        // Media types that cannot be served are skipped.
        ("application/vnd.kubernetes.protobuf,application/json", CUSTOM, Json, None),
        ("application/vnd.kubernetes.protobuf, application/yaml;q=0.1", CUSTOM_LIST, Yaml, None),
        ("text/plain,application/yaml", OBJECT, Yaml, None),
        ("application/json;sv=v2,application/yaml;sv=v1", OBJECT, Yaml, None),
        ("nonsense,a/b/c,/,application/yaml", OBJECT, Yaml, None),
        // Tables.
        (TABLE, LIST, Json, Table(V1)),
        (TABLE, WATCH, Json, Table(V1)),
        ("application/yaml;as=Table;g=meta.k8s.io;v=v1beta1", OBJECT, Yaml, Table(V1Beta1)),
        ("application/*;as=Table;g=meta.k8s.io;v=v1", CUSTOM, Json, Table(V1)),
        (
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json",
            LIST,
            Json,
            None,
        ),
        ("application/json;as=Table;g=meta.k8s.io;v=v1,application/yaml", REVIEW, Yaml, None),
        ("application/json;as=Table;g=meta.k8s.io;v=v2,application/json", LIST, Json, None),
        ("application/json;as=Table,application/yaml", LIST, Yaml, None),
        ("application/json;g=meta.k8s.io;v=v1,application/yaml", LIST, Yaml, None),
        ("application/json;as=Scale;g=meta.k8s.io;v=v1,application/yaml", LIST, Yaml, None),
        // Parameters without a value are none at all.
        ("application/json;as=;g=;v=", LIST, Json, None),
        // Metadata, which exists in protobuf for custom resources too.
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            CUSTOM_LIST,
            Protobuf,
            PartialObjectMetadataList(V1),
        ),
        (
            "application/cbor;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1",
            OBJECT,
            Cbor,
            PartialObjectMetadata(V1Beta1),
        ),
        (
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            WATCH,
            Json,
            PartialObjectMetadata(V1),
        ),
        // Watches.
        ("application/json;stream=watch", WATCH, Json, None),
        ("application/vnd.kubernetes.protobuf;stream=watch", WATCH, Protobuf, None),
        ("application/cbor-seq", WATCH, Cbor, None),
        ("application/yaml;stream=watch,application/json", WATCH, Json, None),
        ("application/json;stream=other,application/cbor", WATCH, Cbor, None),
        ("*/*;stream=watch", WATCH, Json, None),
        // Discovery: the aggregated document first, whatever its weight.
        (
            "application/json,application/yaml;q=0.1;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2",
            DISCOVERY,
            Yaml,
            AggregatedDiscovery,
        ),
        (
            "application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2beta1,application/json",
            DISCOVERY,
            Json,
            None,
        ),
        (
            "application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2,application/yaml",
            PLAIN,
            Yaml,
            None,
        ),
    ];
    for &(header, offer, encoding, transform) in cases {
        let accepted = accept(Some(header), &offer).unwrap_or_else(|e| panic!("{header:?}: {e}"));
        assert_eq!((accepted.encoding, accepted.transform), (encoding, transform), "{header:?} {offer:?}");
    }
    assert_eq!(accept(Option::None, &OBJECT), Ok(Accepted::JSON));
    assert!(accept(Some("application/json;pretty=1"), &OBJECT).unwrap().pretty);
    assert!(!accept(Some("application/json;pretty=true"), &OBJECT).unwrap().pretty);
}

#[test]
fn accept_refuses() {
    use NotAcceptable::*;
    let cases: &[(&str, Offer, NotAcceptable)] = &[
        ("text/html", OBJECT, Unknown { watchable: false }),
        ("text/html", WATCH, Unknown { watchable: true }),
        ("text/html", CUSTOM, MediaType),
        (",", OBJECT, Unknown { watchable: false }),
        ("application", OBJECT, Unknown { watchable: false }),
        ("application/json;q=0", OBJECT, MediaType),
        ("application/*;q=0", OBJECT, MediaType),
        ("application/vnd.kubernetes.protobuf", CUSTOM, MediaType),
        ("application/vnd.kubernetes.protobuf", Offer::custom(Shape::Watch), MediaType),
        ("application/cbor-seq", LIST, Unknown { watchable: true }),
        (TABLE, REVIEW, MediaType),
        (TABLE, PLAIN, MediaType),
        (TABLE, DISCOVERY, MediaType),
        ("application/cbor;as=Table;g=meta.k8s.io;v=v1", LIST, MediaType),
        ("application/yaml;stream=watch", WATCH, MediaType),
        // A watch in YAML is refused even with an alternative behind it.
        ("application/yaml,application/json", WATCH, WatchMediaType),
        ("application/yaml;as=Table;g=meta.k8s.io;v=v1", WATCH, WatchMediaType),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", LIST, ListAsObject),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", OBJECT, ObjectAsList),
    ];
    for &(header, offer, refusal) in cases {
        assert_eq!(accept(Some(header), &offer), Err(refusal), "{header:?} {offer:?}");
    }
    assert!(Unknown { watchable: true }.to_string().starts_with(
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf, application/cbor, application/json;stream=watch, "
    ));
    assert_eq!(
        WatchMediaType.to_string(),
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq"
    );
}

#[test]
fn errors_always_have_an_encoding() {
    assert_eq!(accept_for_error(Some("application/vnd.kubernetes.protobuf")).encoding, Protobuf);
    assert_eq!(accept_for_error(Some("application/yaml, application/json")).encoding, Yaml);
    let fallback = accept_for_error(Some(TABLE));
    assert_eq!((fallback.encoding, fallback.pretty), (Json, true));
    assert_eq!(accept_for_error(Some(&format!("{TABLE},application/json"))), Accepted::JSON);
}

#[test]
fn content_types_of_answers() {
    let of = |header, offer: Offer| accept(Some(header), &offer).unwrap().content_type(offer.shape);
    assert_eq!(of("application/json", WATCH), "application/json");
    assert_eq!(
        of("application/vnd.kubernetes.protobuf", WATCH),
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
    assert_eq!(of("application/cbor", WATCH), "application/cbor-seq");
    assert_eq!(of(TABLE, LIST), "application/json");
    assert_eq!(
        of("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", DISCOVERY),
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
}

#[test]
fn pretty_is_for_people_who_read_json() {
    let yaml = Accepted { encoding: Yaml, ..Accepted::JSON };
    let asked = Accepted { pretty: true, ..Accepted::JSON };
    assert!(wants_pretty(&Accepted::JSON, Some("true"), None));
    assert!(wants_pretty(&Accepted::JSON, None, Some("curl/8.5.0")));
    assert!(wants_pretty(&Accepted::JSON, Some(""), Some("Mozilla/5.0 (X11)")));
    assert!(wants_pretty(&asked, Some("false"), None));
    assert!(!wants_pretty(&Accepted::JSON, Some("false"), Some("curl/8.5.0")));
    assert!(!wants_pretty(&Accepted::JSON, Some("yes"), None));
    assert!(!wants_pretty(&Accepted::JSON, None, Some("kubectl/v1.36.0")));
    assert!(!wants_pretty(&yaml, Some("1"), Some("curl/8.5.0")));
}

#[test]
fn gzip_by_weight() {
    let cases = [
        ("gzip", true),
        ("gzip, deflate, br", true),
        ("deflate, gzip;q=1.0", true),
        ("br;q=1, x-gzip;q=0.2", true),
        ("GZIP", true),
        ("gzip;q=0", false),
        ("gzip;q=0.5, identity;q=0.6", false),
        ("identity;q=0, gzip;q=0.001", true),
        ("*", false),
        ("deflate", false),
        ("", false),
    ];
    for (header, expected) in cases {
        assert_eq!(gzip(Some(header)), expected, "{header:?}");
    }
    assert!(!gzip(None));
}

#[test]
fn choose_among_plain_media_types() {
    let offered = ["application/json", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"];
    assert_eq!(choose(None, &offered), Some(0));
    assert_eq!(choose(Some("application/com.github.proto-openapi.spec.v2@v1.0+protobuf"), &offered), Some(1));
    assert_eq!(choose(Some("text/html, */*;q=0.1"), &offered), Some(0));
    assert_eq!(choose(Some("text/html"), &offered), None);
    assert_eq!(choose(Some("application/json;q=0"), &offered), None);
}

#[test]
fn content_type_of_bodies() {
    use ContentType::*;
    let cases: &[(&str, Accepts, ContentType)] = &[
        ("", Accepts::Object, Object(Json)),
        ("application/json; charset=utf-8", Accepts::Object, Object(Json)),
        ("application/json;", Accepts::Object, Object(Json)),
        ("APPLICATION/JSON", Accepts::CustomObject, Object(Json)),
        ("application/yaml", Accepts::CustomObject, Object(Yaml)),
        ("application/cbor", Accepts::CustomObject, Object(Cbor)),
        ("application/vnd.kubernetes.protobuf", Accepts::Object, Object(Protobuf)),
        ("application/json-patch+json", Accepts::Patch, JsonPatch),
        ("application/merge-patch+json;charset=utf-8", Accepts::CustomPatch, MergePatch),
        ("application/strategic-merge-patch+json", Accepts::Patch, StrategicMergePatch),
        ("application/apply-patch+yaml", Accepts::CustomPatch, ApplyYaml),
        ("application/apply-patch+cbor", Accepts::Patch, ApplyCbor),
    ];
    for &(header, accepts, expected) in cases {
        assert_eq!(content_type(Some(header), accepts), Ok(expected), "{header:?} {accepts:?}");
    }
    assert_eq!(content_type(None, Accepts::Object), Ok(Object(Json)));
    let refused: &[(&str, Accepts)] = &[
        ("text/plain", Accepts::Object),
        ("application/json; charset", Accepts::Object),
        ("application/vnd.kubernetes.protobuf", Accepts::CustomObject),
        ("application/json-patch+json", Accepts::Object),
        ("application/json", Accepts::Patch),
        ("", Accepts::Patch),
        ("application/strategic-merge-patch+json", Accepts::CustomPatch),
    ];
    for &(header, accepts) in refused {
        assert_eq!(content_type(Some(header), accepts), Err(UnsupportedMediaType(accepts)), "{header:?}");
    }
    assert_eq!(
        UnsupportedMediaType(Accepts::CustomPatch).to_string(),
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, \
         application/apply-patch+cbor"
    );
}

#[test]
fn long_headers_cost_one_pass() {
    // 20,000 clauses would take minutes in quadratic time.
    let header = "application/x;q=0.5;as=Table,".repeat(20_000) + "application/yaml";
    assert_eq!(accept(Some(&header), &OBJECT).unwrap().encoding, Yaml);
}
