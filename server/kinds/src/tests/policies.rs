//! Admission policies, their bindings, and match conditions of webhooks.

use plinth_api::Cause;
use plinth_codec::{json, Value};

use super::{parse, strategy, Resource};
use crate::checks::ErrorList;

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: Resource = (GROUP, "validatingadmissionpolicies");
const BINDINGS: Resource = (GROUP, "validatingadmissionpolicybindings");
const MUTATING_POLICIES: Resource = (GROUP, "mutatingadmissionpolicies");
const MUTATING_BINDINGS: Resource = (GROUP, "mutatingadmissionpolicybindings");
const WEBHOOKS: Resource = (GROUP, "validatingwebhookconfigurations");

/// Path and reason of each error.
fn path_and_reason(errors: &[Cause]) -> Vec<(&str, &str)> {
    errors.iter().map(|f| (f.field.as_str(), f.reason.trim_start_matches("FieldValue"))).collect()
}

const MATCHING: &str = r#""matchConstraints":{"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},
        "resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}"#;

#[test]
fn policies_by_table() {
    let policy = |spec: &str| parse(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{{spec}}}}}"#));
    let whole = |more: &str| {
        format!(r#""failurePolicy":"Fail",{MATCHING},"validations":[{{"expression":"true"}}]{more}"#)
    };
    let rows: Vec<(String, Vec<(&str, &str)>)> = vec![
        (whole(""), vec![]),
        (
            String::new(),
            vec![
                ("spec.failurePolicy", "Required"),
                ("spec.matchConstraints", "Required"),
                ("spec.validations", "Required"),
                ("spec.auditAnnotations", "Required"),
            ],
        ),
        (whole("").replace("Fail", "Nope"), vec![("spec.failurePolicy", "NotSupported")]),
        (whole("").replace(r#""resourceRules":["#, r#""other":["#), vec![("spec.matchConstraints.resourceRules", "Required")]),
        (whole("").replace(r#"["CREATE"]"#, r#"["*","MAKE"]"#), vec![
            ("spec.matchConstraints.resourceRules[0].operations", "Invalid"),
            ("spec.matchConstraints.resourceRules[0].operations[1]", "NotSupported"),
        ]),
        (whole("").replace(r#"["pods"]"#, r#"["pods/*","pods/log","*","x"]"#), vec![
            ("spec.matchConstraints.resourceRules[0].resources[1]", "Invalid"),
            ("spec.matchConstraints.resourceRules[0].resources", "Invalid"),
        ]),
        (whole("").replace(r#"["v1"]"#, "[]"), vec![("spec.matchConstraints.resourceRules[0].apiVersions", "Required")]),
        (whole(r#","paramKind":{"apiVersion":"a/b/c","kind":""}"#), vec![
            ("spec.paramKind.apiVersion", "Invalid"),
            ("spec.paramKind.kind", "Required"),
        ]),
        (whole(r#","matchConditions":[{"name":"a","expression":"params.x"},{"name":"a","expression":" "}]"#), vec![
            ("spec.matchConditions[0].expression", "Invalid"),
            ("spec.matchConditions[1].expression", "Required"),
            ("spec.matchConditions[1].name", "Duplicate"),
        ]),
        (whole(r#","variables":[{"name":"a-b","expression":"1"},{"name":"c","expression":"variables.d"},{"name":"d","expression":"1"}]"#), vec![
            ("spec.variables[0].name", "Invalid"),
            ("spec.variables[1].expression", "Invalid"),
        ]),
        (
            whole("").replace(r#"{"expression":"true"}"#, r#"{"expression":"1"},{"expression":"object.a == 1","reason":"Gone","message":"a\nb","messageExpression":"authorizer.path('/').check('get').reason()"},{"expression":""}"#),
            vec![
                ("spec.validations[0].expression", "Invalid"),
                ("spec.validations[1].messageExpression", "Invalid"),
                ("spec.validations[1].message", "Invalid"),
                ("spec.validations[1].reason", "NotSupported"),
                ("spec.validations[2].expression", "Required"),
            ],
        ),
        (whole(r#","auditAnnotations":[{"key":"a","valueExpression":"'x'"},{"key":"a","valueExpression":"1"},{"key":"?","valueExpression":"null"}]"#), vec![
            ("spec.auditAnnotations[1].valueExpression", "Invalid"),
            ("spec.auditAnnotations[1].key", "Duplicate"),
            ("spec.auditAnnotations[2].key", "Invalid"),
        ]),
    ];
    for (spec, expected) in rows {
        let policy = policy(&spec);
        let errors = strategy(POLICIES).create_errors(&policy);
        assert_eq!(path_and_reason(&errors), expected, "{spec}\n{errors:?}");
    }
}

#[test]
fn mutating_policies_by_table() {
    let whole = |mutations: &str| {
        format!(r#""failurePolicy":"Fail","reinvocationPolicy":"Never",{MATCHING},"mutations":[{mutations}]"#)
    };
    let apply = |expression: &str| {
        let expression = Value::from(expression);
        let mut text = Vec::new();
        json::write_untyped(&expression, &mut text);
        let expression = String::from_utf8(text).unwrap();
        whole(&format!(
            r#"{{"patchType":"ApplyConfiguration","applyConfiguration":{{"expression":{expression}}}}}"#
        ))
    };
    let jsonpatch = r#"{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/a', value: variables.v}]"}}"#;
    // spec, errors
    let rows: Vec<(String, Vec<(&str, &str)>)> = vec![
        (apply("Object{metadata: Object.metadata{labels: {'a': 'b'}}}"), vec![]),
        (whole(jsonpatch) + r#","variables":[{"name":"v","expression":"1"}]"#, vec![]),
        (whole(jsonpatch), vec![("spec.mutations[0].jsonPatch.expression", "Invalid")]),
        (
            String::new(),
            vec![
                ("spec.failurePolicy", "Required"),
                ("spec.matchConstraints", "Required"),
                ("spec.mutations", "Required"),
                ("spec.reinvocationPolicy", "Required"),
            ],
        ),
        (apply("Object{}").replace("Never", "Often"), vec![("spec.reinvocationPolicy", "NotSupported")]),
        (
            apply("Object{}").replace(r#"["CREATE"]"#, r#"["CREATE","DELETE"]"#),
            vec![("spec.matchConstraints.resourceRules.operations", "NotSupported")],
        ),
        (apply(" "), vec![("spec.mutations[0].applyConfiguration.expression", "Required")]),
        (apply("Object.spec{}"), vec![("spec.mutations[0].applyConfiguration.expression", "Invalid")]),
        (whole("{}"), vec![("spec.mutations[0].patchType", "Required")]),
        (whole(r#"{"patchType":"Merge"}"#), vec![("spec.mutations[0].patchType", "NotSupported")]),
        (whole(r#"{"patchType":"JSONPatch"}"#), vec![("spec.mutations[0].jsonPatch", "Required")]),
        (
            whole(
                r#"{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"},"jsonPatch":{"expression":"[]"}}"#,
            ),
            vec![("spec.mutations[0].jsonPatch", "Invalid")],
        ),
        (
            apply("Object{}")
                + r#","matchConditions":[{"name":"a","expression":"Object{} == Object{}"}],"variables":[{"name":"v","expression":"Object{}"}]"#,
            vec![
                ("spec.matchConditions[0].expression", "Invalid"),
                ("spec.variables[0].expression", "Invalid"),
            ],
        ),
    ];
    for (spec, expected) in rows {
        let policy = parse(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{{spec}}}}}"#));
        let errors = strategy(MUTATING_POLICIES).create_errors(&policy);
        assert_eq!(path_and_reason(&errors), expected, "{spec}\n{errors:?}");
    }
    let binding = parse(
        r#"{"spec":{"policyName":"p","matchResources":{"matchPolicy":"Exact","namespaceSelector":{},"objectSelector":{},"resourceRules":[{"operations":["DELETE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}}}"#,
    );
    let errors = strategy(MUTATING_BINDINGS).errors(&binding);
    assert_eq!(path_and_reason(&errors), [("spec.matchResources.resourceRules.operations", "NotSupported")]);
}

#[test]
fn bindings_by_table() {
    // spec, errors
    let rows: [(&str, &[(&str, &str)]); 7] = [
        (r#""policyName":"p","validationActions":["Deny","Audit"]"#, &[]),
        ("", &[("spec.policyName", "Required"), ("spec.validationActions", "Required")]),
        (
            r#""policyName":"P","validationActions":["Deny","Warn","Deny","Tell"]"#,
            &[
                ("spec.policyName", "Invalid"),
                ("spec.validationActions[2]", "Duplicate"),
                ("spec.validationActions[3]", "NotSupported"),
                ("spec.validationActions", "Invalid"),
            ],
        ),
        (
            r#""policyName":"p","validationActions":["Deny"],"paramRef":{"name":"a","parameterNotFoundAction":"Allow"}"#,
            &[],
        ),
        (
            r#""policyName":"p","validationActions":["Deny"],"paramRef":{"name":"a","selector":{}}"#,
            &[
                ("spec.paramRef.name", "Forbidden"),
                ("spec.paramRef.selector", "Forbidden"),
                ("spec.paramRef.parameterNotFoundAction", "Required"),
            ],
        ),
        (
            r#""policyName":"p","validationActions":["Deny"],"paramRef":{"parameterNotFoundAction":"Ask"}"#,
            &[("spec.paramRef", "Required"), ("spec.paramRef.parameterNotFoundAction", "NotSupported")],
        ),
        (
            r#""policyName":"p","validationActions":["Deny"],"matchResources":{"matchPolicy":"Some"}"#,
            &[("spec.matchResources.matchPolicy", "NotSupported")],
        ),
    ];
    for (spec, expected) in rows {
        let binding = parse(&format!(r#"{{"spec":{{{spec}}}}}"#));
        let errors = strategy(BINDINGS).errors(&binding);
        assert_eq!(path_and_reason(&errors), expected, "{spec}");
    }
}

#[test]
fn unchanged_conditions_are_not_compiled_again() {
    let hooks = |expression: &str, timeout: i64| {
        parse(&format!(
            r#"{{"webhooks":[{{"timeoutSeconds":{timeout},"matchConditions":[{{"name":"a","expression":"{expression}"}}]}}]}}"#
        ))
    };
    let create = |object: &Value| ErrorList::of(object, strategy(WEBHOOKS).validate_create);
    let path = [("webhooks[0].matchConditions[0].expression", "Invalid")];
    assert_eq!(path_and_reason(&create(&hooks("request.name == 'x'", 1))), []);
    assert_eq!(path_and_reason(&create(&hooks("nope", 1))), path);
    assert_eq!(path_and_reason(&strategy(WEBHOOKS).update_errors(&hooks("nope", 2), &hooks("nope", 1))), []);
    assert_eq!(
        path_and_reason(&strategy(WEBHOOKS).update_errors(&hooks("nope", 1), &hooks("true", 1))),
        path
    );
}
