//! Roles and bindings.

#[test]
fn errors_by_table() {
    // resource, object, paths of the errors and their messages up to the first comma
    let rows: &[(&str, &str, &[(&str, &str)])] = &[
        (
            "roles",
            r#"{"rules":[{"verbs":["get"],"nonResourceURLs":["/x"],"resources":["pods"]}]}"#,
            &[
                ("rules[0].nonResourceURLs", "namespaced rules cannot apply to non-resource URLs"),
                (
                    "rules[0].nonResourceURLs",
                    "rules cannot apply to both regular resources and non-resource URLs",
                ),
            ],
        ),
        ("clusterroles", r#"{"rules":[{"verbs":["get"],"nonResourceURLs":["/x"]}]}"#, &[]),
        (
            "clusterroles",
            r#"{"rules":[{}]}"#,
            &[
                ("rules[0].verbs", "verbs must contain at least one value"),
                ("rules[0].apiGroups", "at least one api group"),
                ("rules[0].resources", "at least one resource"),
            ],
        ),
        (
            "clusterroles",
            r#"{"aggregationRule":{}}"#,
            &[("aggregationRule.clusterRoleSelectors", "at least one clusterRoleSelector required")],
        ),
        (
            "clusterroles",
            r#"{"aggregationRule":{"clusterRoleSelectors":[{"matchExpressions":[{"key":"a","operator":"In"}]}]}}"#,
            &[(
                "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values",
                "must be specified when `operator` is 'In' or 'NotIn'",
            )],
        ),
        (
            "rolebindings",
            r#"{"roleRef":{"apiGroup":"x","kind":"Y"},"subjects":[{"kind":"ServiceAccount","name":"a_b"},{"kind":"User","name":"u"},{"kind":"Z"}]}"#,
            &[
                ("roleRef.apiGroup", "Unsupported value: \"x\""),
                ("roleRef.kind", "supported values: \"Role\", \"ClusterRole\""),
                ("roleRef.name", "Required value"),
                ("subjects[0].name", "a lowercase RFC 1123 subdomain"),
                ("subjects[1].apiGroup", "Unsupported value: \"\""),
                ("subjects[2].name", "Required value"),
                ("subjects[2].kind", "\"ServiceAccount\", \"User\", \"Group\""),
            ],
        ),
        (
            "clusterrolebindings",
            r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"a/b"},"subjects":[{"kind":"ServiceAccount","name":"a","apiGroup":"x"}]}"#,
            &[
                ("roleRef.kind", "supported values: \"ClusterRole\""),
                ("roleRef.name", "may not contain '/'"),
                ("subjects[0].apiGroup", "Unsupported value: \"x\": supported values: \"\""),
                ("subjects[0].namespace", "Required value"),
            ],
        ),
    ];
    for (plural, object, expected) in rows {
        let object = plinth_codec::json::parse(object.as_bytes()).unwrap();
        let errors = crate::of("rbac.authorization.k8s.io", plural).errors(&object);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        let wanted: Vec<&str> = expected.iter().map(|(field, _)| *field).collect();
        assert_eq!(fields, wanted, "{plural}");
        for (error, (_, message)) in errors.iter().zip(*expected) {
            assert!(error.message.contains(message), "{:?} has no {message:?}", error.message);
        }
    }
}
