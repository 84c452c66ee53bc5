use super::*;
use crate::{tree, Value};
use proptest::prelude::*;

fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
    let selector = LabelSelector::parse(selector).unwrap_or_else(|e| panic!("{selector:?}: {e}"));
    let looked_up = selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v));
    assert_eq!(selector.matches_sorted(labels.iter().copied()), looked_up, "{selector} on {labels:?}");
    looked_up
}

#[test]
fn label_selectors_match() {
    let labels = [("a", "1"), ("app", "web"), ("in", "notin"), ("p.io/x", ""), ("size", "20")];
    let yes = [
        "",
        "  ",
        "app",
        "app=web",
        "app==web",
        " app = web , a in ( 1 ) ",
        "app!=db",
        "none!=db",
        "app in (db,web)",
        "app in (,web)",
        "app notin (db)",
        "none notin (db)",
        "!none",
        "! none",
        "p.io/x",
        "p.io/x=",
        "p.io/x in ()",
        "p.io/x in (,)",
        "p.io/x in (a,)",
        "p.io/x in (a,,b)",
        "in in (notin)",
        "in = notin",
        "in notin (in)",
        "size > 19",
        "size<21,size>0",
        "app=web,app!=db,app",
        "app\0=web",
        "\0app=db",
    ];
    for selector in yes {
        assert!(matches(selector, &labels), "{selector:?}");
    }
    let no = [
        "app=db",
        "app!=web",
        "app in (db,x)",
        "none in (x)",
        "none=",
        "none",
        "!app",
        "app notin (web)",
        "p.io/x!=",
        "size>20",
        "size<20",
        "app>1",
        "none<1",
        "app=web,app=db",
    ];
    for selector in no {
        assert!(!matches(selector, &labels), "{selector:?}");
    }
}

#[test]
fn label_selector_errors_have_upstreams_text() {
    let cases = [
        ("x=y=z", "found '=', expected: ',' or 'end of string'"),
        ("x,", "found '', expected: identifier after ','"),
        ("x,,y", "found ',', expected: identifier after ','"),
        (",x", "found ',', expected: !, identifier, or 'end of string'"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!!x", "unable to parse requirement: found '!', expected: identifier"),
        ("!x=y", "found '=', expected: ',' or 'end of string'"),
        ("x y", "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt"),
        ("x=(y)", "unable to parse requirement: found '(', expected: identifier"),
        ("x>=5", "unable to parse requirement: found '=', expected: identifier"),
        ("x in", "unable to parse requirement: found '' expected: '('"),
        ("x in y", "unable to parse requirement: found 'y' expected: '('"),
        ("x in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("x in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("x in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
        ("x in (a,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("x in (a,!", "unable to parse requirement: found '!', expected: ',', or identifier"),
        (
            "x>y",
            "unable to parse requirement: values[0]: Invalid value: \"y\": for 'Gt', 'Lt' operators, the value \
             must be an integer",
        ),
        (
            "x<-5",
            "unable to parse requirement: values[0][x]: Invalid value: \"-5\": a valid label must be an empty \
             string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            "a$=b",
            "unable to parse requirement: <nil>: Invalid value: \"a$\": name part must consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  \
             or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "UP/a",
            "unable to parse requirement: <nil>: Invalid value: \"UP/a\": prefix part a lowercase RFC 1123 \
             subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
             with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
    ];
    for (text, message) in cases {
        let error = LabelSelector::parse(text).expect_err(text).to_string();
        assert_eq!(error, message, "{text:?}");
    }
    let long = "a".repeat(64);
    let error = LabelSelector::parse(&format!("x={long}")).unwrap_err().to_string();
    assert!(
        error.ends_with(&format!("values[0][x]: Invalid value: \"{long}\": must be no more than 63 bytes"))
    );
    let error = LabelSelector::parse("/a").unwrap_err().to_string();
    assert!(error.ends_with("Invalid value: \"/a\": prefix part must be non-empty"));
    let error = LabelSelector::parse("a/b/c").unwrap_err().to_string();
    assert!(error.contains("\"a/b/c\": a valid label key must consist of"));
    let error = LabelSelector::parse("é\u{1}=").unwrap_err().to_string();
    assert!(error.contains(r#"Invalid value: "é\x01": name part must"#), "{error}");
}

#[test]
fn label_selectors_print_like_upstream() {
    let cases = [
        ("b , a", "a,b"),
        ("x notin ( b,a,a ), y=1,z==2", "x notin (a,b),y=1,z==2"),
        ("x in ()", "x in ()"),
        ("!q,n>5,m<6,k!=v,l=", "k!=v,l=,m<6,n>5,!q"),
    ];
    for (text, printed) in cases {
        assert_eq!(LabelSelector::parse(text).unwrap().to_string(), printed);
    }
}

#[test]
fn selector_objects() {
    let expression = |operator: &str, values: &[&str]| {
        let values: Vec<Value> = values.iter().map(|v| (*v).into()).collect();
        tree!({ "key": "tier", "operator": operator, "values": values })
    };
    let object = tree!({
        "matchLabels": tree!({ "app": "web" }),
        "matchExpressions": tree!([expression("In", &["a", "b"]), expression("Exists", &[])]),
    });
    let selector = LabelSelector::from_object(Some(&object)).unwrap();
    assert_eq!(selector.to_string(), "app=web,tier in (a,b),tier");
    assert!(LabelSelector::from_object(Some(&Value::object())).unwrap().is_everything());

    let nothing = LabelSelector::from_object(None).unwrap();
    assert!(!nothing.matches(|_| None) && !nothing.matches_sorted([]) && !nothing.is_everything());

    let of = |operator, values: &[&str]| {
        let object = tree!({ "matchExpressions": tree!([expression(operator, values)]) });
        LabelSelector::from_object(Some(&object)).unwrap_err().to_string()
    };
    assert_eq!(of("in", &[]), "\"in\" is not a valid label selector operator");
    assert_eq!(
        of("In", &[]),
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
    );
    assert_eq!(
        of("Exists", &["v"]),
        "values: Invalid value: [\"v\"]: values set must be empty for exists and does not exist"
    );
    let two = of("In", &["-", "_"]);
    assert!(two.starts_with("[values[0][tier]: Invalid value: \"-\": ") && two.ends_with("')]"), "{two}");
    assert!(LabelSelector::from_object(Some(&tree!({ "matchLabels": 5i64 }))).is_err());
}

fn fields(text: &str) -> FieldSelector {
    FieldSelector::parse(text).unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

#[test]
fn field_selectors_match() {
    let lookup = |field: &str| match field {
        "a" => "1",
        "odd" => r"x,y=z\",
        _ => "",
    };
    for text in ["", ",,", "a=1", "a==1", "a!=2", "none=", "none==", "none!=x", r"odd=x\,y\=z\\", "a=1,none="]
    {
        assert!(fields(text).matches(lookup), "{text:?}");
    }
    for text in ["a=2", "a!=1", "none=x", "none!=", "a=1,a=2", "a= 1"] {
        assert!(!fields(text).matches(lookup), "{text:?}");
    }
    assert_eq!(fields("metadata.name=x,a!=1").exact("metadata.name"), Some("x"));
    assert_eq!(fields("metadata.name!=x").exact("metadata.name"), None);
    assert_eq!(FieldSelector::name("x"), fields("metadata.name=x"));
    assert_eq!(fields(r"b=\\\,,a==1,c!=\=").to_string(), r"a=1,b=\\\,,c!=\=");
}

#[test]
fn field_selector_errors_have_upstreams_text() {
    let cases = [
        ("b,a=1", "invalid selector: 'b,a=1'; can't understand 'b'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        (r"a=x\", r"invalid field selector: invalid escape sequence: \"),
    ];
    for (text, message) in cases {
        assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), message, "{text:?}");
    }
}

const FIELDS: Selectable = Selectable::new(&[
    SelectableField::NAME,
    SelectableField::new("spec.node"),
    SelectableField::new("spec.host").stored_as("spec.node").at("spec.node"),
    SelectableField::new("spec.account").or("spec.oldAccount"),
    SelectableField::new("spec.on").absent("false"),
    SelectableField::new("status.ip").or("status.ips.0.ip"),
    SelectableField::new("status.ips").at(""),
]);

#[test]
fn labels_become_stored_names() {
    assert_eq!(fields("spec.host=n").resolve(&FIELDS).unwrap().to_string(), "spec.node=n");
    let refused = |selectable| fields("x=1").resolve(selectable).unwrap_err().to_string();
    assert_eq!(refused(&FIELDS), "field label not supported: x");
    assert_eq!(
        refused(&Selectable::METADATA),
        "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    assert!(fields("metadata.namespace=x").resolve(&FIELDS).is_err());
    assert!(fields("metadata.namespace=x").resolve(&Selectable::METADATA).is_ok());
    let names: Vec<_> = FIELDS.stored().map(|field| field.name).collect();
    assert_eq!(names, ["spec.node", "spec.account", "spec.on", "status.ip", "status.ips"]);
    assert_eq!(Selectable::METADATA.stored().count(), 0);
}

#[test]
fn values_of_fields() {
    let ips = tree!([tree!({ "ip": "10.0.0.1" }), tree!({ "ip": "::1" })]);
    let full = tree!({
        "metadata": tree!({ "name": "p" }),
        "spec": tree!({ "on": true, "oldAccount": "old", "node": "n" }),
        "status": tree!({ "ips": ips }),
    });
    let values = |object: &Value| -> Vec<String> {
        FIELDS.fields.iter().map(|field| field.value(object).into_owned()).collect()
    };
    assert_eq!(values(&full), ["p", "n", "n", "old", "true", "10.0.0.1", ""]);
    assert_eq!(values(&Value::object()), ["", "", "", "", "false", "", ""]);
}

#[test]
fn custom_resources() {
    let custom = CustomFields::new(true, [".spec.color", ".spec.size"]);
    assert!(fields("spec.color=red,metadata.namespace=x").resolve_custom(&custom).is_ok());
    let error = fields("spec.shape=x").resolve_custom(&custom).unwrap_err();
    assert_eq!(error.to_string(), "field label not supported: spec.shape");
    assert!(fields("metadata.namespace=x").resolve_custom(&CustomFields::new(false, [])).is_err());
    let object = tree!({ "spec": tree!({ "size": 7i64 }) });
    let values: Vec<_> = custom.values(&object).map(|(path, value)| format!("{path}={value}")).collect();
    assert_eq!(values, ["spec.color=", "spec.size=7"]);
}

/// A requirement over a small alphabet, so that random labels meet it often.
fn requirement() -> impl Strategy<Value = Requirement> {
    let operators = prop::sample::select(vec![
        Operator::Equals,
        Operator::DoubleEquals,
        Operator::NotEquals,
        Operator::In,
        Operator::NotIn,
        Operator::Exists,
        Operator::DoesNotExist,
        Operator::GreaterThan,
        Operator::LessThan,
    ]);
    ("[ab]|x/in|notin", operators, prop::collection::vec("|[ab]|in|notin", 1..4), 0u8..4).prop_map(
        |(key, operator, mut values, number)| {
            match operator {
                Operator::Exists | Operator::DoesNotExist => values.clear(),
                Operator::GreaterThan | Operator::LessThan => values = vec![number.to_string()],
                Operator::In | Operator::NotIn => {}
                _ => values.truncate(1),
            }
            Requirement::new(key, operator, values).unwrap()
        },
    )
}

/// The semantics of a requirement, as a second implementation after the API documentation.
fn satisfied(requirement: &Requirement, labels: &std::collections::BTreeMap<String, String>) -> bool {
    let label = labels.get(requirement.key());
    let listed = label.is_some_and(|l| requirement.values().iter().any(|v| v == l));
    let compare = |wanted| {
        let bound: i64 = requirement.values()[0].parse().unwrap();
        label.and_then(|l| l.parse::<i64>().ok()).is_some_and(|l| l.cmp(&bound) == wanted)
    };
    match requirement.operator() {
        Operator::Equals | Operator::DoubleEquals | Operator::In => listed,
        Operator::NotEquals | Operator::NotIn => !listed,
        Operator::Exists => label.is_some(),
        Operator::DoesNotExist => label.is_none(),
        Operator::GreaterThan => compare(std::cmp::Ordering::Greater),
        Operator::LessThan => compare(std::cmp::Ordering::Less),
    }
}

proptest! {
    #[test]
    fn printed_label_selectors_parse_back(requirements in prop::collection::vec(requirement(), 0..5)) {
        let selector = LabelSelector::from_requirements(requirements);
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn both_ways_to_match_agree_with_the_documents(
        requirements in prop::collection::vec(requirement(), 0..4),
        labels in prop::collection::btree_map("[ab]|x/in|notin|z", "|[ab]|in|[0-3]", 0..5),
    ) {
        let selector = LabelSelector::from_requirements(requirements);
        let expected = selector.requirements().iter().all(|r| satisfied(r, &labels));
        prop_assert_eq!(selector.matches(|key| labels.get(key).map(String::as_str)), expected);
        let sorted = labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        prop_assert_eq!(selector.matches_sorted(sorted), expected);
    }

    #[test]
    fn printed_field_selectors_parse_back(terms in prop::collection::vec(("[a-c.]{1,5}", any::<bool>(), "[a,=\\\\!é]{0,4}"), 0..5)) {
        // Printing sorts nothing, parsing does: start from a parsed selector.
        let text: Vec<_> = terms.iter().map(|(field, equal, value)| {
            let value = value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
            format!("{field}{}{value}", if *equal { "=" } else { "!=" })
        }).collect();
        let selector = FieldSelector::parse(&text.join(",")).unwrap();
        prop_assert_eq!(selector.requirements().len(), terms.len());
        for (field, equal, value) in &terms {
            let found = selector.requirements().iter()
                .any(|r| r.field == field.as_str() && r.equal == *equal && r.value == value.as_str());
            prop_assert!(found, "{} {}", field, value);
        }
        let again = FieldSelector::parse(&selector.to_string()).unwrap();
        let sorted = |selector: &FieldSelector| {
            let mut requirements = selector.requirements().to_vec();
            requirements.sort();
            requirements
        };
        prop_assert_eq!(sorted(&again), sorted(&selector));
    }

    #[test]
    fn any_text_gives_a_selector_or_an_error(text in "[a-z/.=!<>(), \t\0é\\\\-]{0,40}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert!(FieldSelector::parse(&selector.to_string()).is_ok());
        }
    }
}
