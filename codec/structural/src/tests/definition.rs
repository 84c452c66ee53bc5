//! CustomResourceDefinitions as a whole.

use plinth_codec::tree;
use plinth_codec::value::{Map, Value};

use super::{texts, value};
use crate::definition::{validate, validate_status_update, validate_update, warnings};

/// A valid definition with one version.
const BASE: &str = "{
    metadata: {name: things.example.com},
    spec: {group: example.com, scope: Namespaced,
        names: {plural: things, singular: thing, kind: Thing, listKind: ThingList},
        conversion: {strategy: None},
        versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]},
    status: {storedVersions: [v1]}}";

/// Merges the members of one tree into another; lists and scalars are replaced.
fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over.iter() {
                overlay(base.entry(key), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

fn changed(base: &Value, over: &str) -> Value {
    let mut definition = base.clone();
    overlay(&mut definition, &value(over));
    without_nulls(definition)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let members = map.into_iter().filter(|(_, v)| !v.is_null());
            Value::Object(members.map(|(k, v)| (k, without_nulls(v))).collect::<Map>())
        }
        other => other,
    }
}

fn base() -> Value {
    value(BASE)
}

/// A definition whose one version has this schema.
fn with_schema(schema: &str) -> Value {
    let version = format!("{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}");
    changed(&base(), &format!("{{spec: {{versions: [{version}]}}}}"))
}

const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

#[test]
fn definitions_are_checked_in_the_words_of_upstream() {
    let two = "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}, {name: v2, served: true, schema: {openAPIV3Schema: {type: object, description: x}}}";
    let cases: Vec<(String, Vec<String>)> = vec![
        ("{}".into(), vec![]),
        ("{spec: {group: null}}".into(), vec![
            r#"metadata.name: Invalid value: "things.example.com": must be spec.names.plural+"."+spec.group"#.into(),
            "spec.group: Required value".into(),
        ]),
        ("{metadata: {name: things.x}, spec: {group: x}}".into(), vec![
            r#"spec.group: Invalid value: "x": should be a domain with at least one dot"#.into(),
        ]),
        ("{spec: {scope: World}}".into(), vec![
            r#"spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced""#.into(),
        ]),
        ("{spec: {scope: null, names: {singular: null, kind: null, listKind: null}}}".into(), vec![
            "spec.scope: Required value".into(),
            "spec.names.singular: Required value".into(),
            "spec.names.kind: Required value".into(),
            "spec.names.listKind: Required value".into(),
        ]),
        ("{spec: {names: {kind: Th_ing, listKind: Th_ing, shortNames: [t, T], categories: [all, '1']}}}".into(), vec![
            format!("spec.names.kind: Invalid value: \"Th_ing\": may have mixed case, but should otherwise match: {DNS_1035}"),
            format!("spec.names.listKind: Invalid value: \"Th_ing\": may have mixed case, but should otherwise match: {DNS_1035}"),
            format!("spec.names.shortNames[1]: Invalid value: \"T\": {DNS_1035}"),
            format!("spec.names.categories[1]: Invalid value: \"1\": {DNS_1035}"),
            "spec.names.listKind: Invalid value: \"Th_ing\": kind and listKind may not be the same".into(),
        ]),
        ("{spec: {versions: [{name: v1, served: true, storage: true}]}}".into(), vec![
            "spec.versions[0].schema.openAPIV3Schema: Required value".into(),
        ]),
        (format!("{{spec: {{versions: [{two}, {{name: v2, storage: true, schema: {{openAPIV3Schema: {{type: object, title: t}}}}}}]}}}}"), vec![
            "must contain unique version names".into(),
            "must have exactly one version marked as storage version".into(),
                "must have the storage version v2".into(),
        ]),
        ("{status: {storedVersions: [v0]}}".into(), vec![
            r#"status.storedVersions: Invalid value: ["v0"]: must have the storage version v1"#.into(),
            r#"status.storedVersions[0]: Invalid value: "v0": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions"#.into(),
        ]),
        ("{status: {storedVersions: []}}".into(), vec![
            "status.storedVersions: Invalid value: []: must have at least one stored version".into(),
        ]),
        ("{spec: {preserveUnknownFields: true}}".into(), vec![
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead".into(),
        ]),
        // Conversion.
        ("{spec: {conversion: {strategy: Magic}}}".into(), vec![
            r#"spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook""#.into(),
        ]),
        ("{spec: {conversion: {strategy: Webhook}}}".into(), vec![
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook".into(),
            "spec.conversion.conversionReviewVersions: Required value".into(),
        ]),
        ("{spec: {conversion: {strategy: None, webhook: {clientConfig: {url: x}, conversionReviewVersions: [v1]}}}}".into(), vec![
            "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook".into(),
            "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook".into(),
        ]),
        ("{spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {url: 'http://u@h/?q#f'}, conversionReviewVersions: [v7, v7, X]}}}}".into(), vec![
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#.into(),
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "u": user information is not permitted in the URL"#.into(),
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "f": fragments are not permitted in the URL"#.into(),
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "q": query parameters are not permitted in the URL"#.into(),
            r#"spec.conversion.conversionReviewVersions[1]: Invalid value: "v7": duplicate version"#.into(),
            format!("spec.conversion.conversionReviewVersions[2]: Invalid value: \"X\": {DNS_1035}"),
            r#"spec.conversion.conversionReviewVersions: Invalid value: ["v7","v7","X"]: must include at least one of v1, v1beta1"#.into(),
        ]),
        ("{spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {name: n, path: 'a//B', port: 0}}, conversionReviewVersions: [v1]}}}}".into(), vec![
            "spec.conversion.webhookClientConfig.service.namespace: Required value".into(),
            "spec.conversion.webhookClientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive".into(),
            r#"spec.conversion.webhookClientConfig.service.path: Invalid value: "a//B": must start with a '/'"#.into(),
            r#"spec.conversion.webhookClientConfig.service.path: Invalid value: "a//B": segment[0] may not be empty"#.into(),
            r#"spec.conversion.webhookClientConfig.service.path: Invalid value: "a//B": segment[1] may not be empty"#.into(),
            "segment[2]".into(),
        ]),
    ];
    for (over, expected) in cases {
        let errors = texts(&validate(&changed(&base(), &over)));
        // A few messages repeat all versions; of those the end is compared.
        let fits = |(error, expected): (&String, &String)| {
            error == expected || error.ends_with(expected.as_str()) || error.contains(expected.as_str())
        };
        assert_eq!(errors.len(), expected.len(), "{over}: {errors:#?}");
        assert!(errors.iter().zip(&expected).all(fits), "{over}: {errors:#?}");
    }
}

#[test]
fn parts_that_all_versions_have_alike_are_named_once() {
    let one = "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: string}}, \
        additionalPrinterColumns: [{name: '', type: odd, jsonPath: spec.a, format: f}, {name: n, type: date}], \
        subresources: {scale: {specReplicasPath: .status.r, statusReplicasPath: r, labelSelectorPath: .x}}, \
        selectableFields: [{jsonPath: .spec.a}, {}], deprecationWarning: w}";
    let errors = texts(&validate(&changed(&base(), &format!("{{spec: {{versions: [{one}]}}}}"))));
    let columns = "must be one of boolean,date,integer,number,string";
    assert_eq!(errors, [
        "spec.versions[0].deprecationWarning: Invalid value: \"w\": can only be set for deprecated versions".to_owned(),
        "spec.validation.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root".into(),
        "spec.subresources.scale.specReplicasPath: Invalid value: \".status.r\": should be a json path under .spec".into(),
        "spec.subresources.scale.statusReplicasPath: Invalid value: \"r\": must be a simple json path starting with .".into(),
        "spec.subresources.scale.labelSelectorPath: Invalid value: \".x\": should be a json path under either .spec or .status".into(),
        "spec.additionalPrinterColumns[0].name: Required value".into(),
        format!("spec.additionalPrinterColumns[0].type: Invalid value: \"odd\": {columns}"),
        "spec.additionalPrinterColumns[0].format: Invalid value: \"f\": must be one of byte,date,date-time,double,float,int32,int64,password".into(),
        "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec.a\": must be a simple json path starting with .".into(),
        "spec.additionalPrinterColumns[1].JSONPath: Required value".into(),
        "spec.selectableFields[0].jsonPath: Invalid value: \".spec.a\": is an invalid path: does not refer to a valid field".into(),
        "spec.selectableFields[1].jsonPath: Required value".into(),
    ]);
    let other = "{name: v2, served: true, schema: {openAPIV3Schema: {type: object}}}";
    let errors = texts(&validate(&changed(&base(), &format!("{{spec: {{versions: [{one}, {other}]}}}}"))));
    assert!(errors.contains(&"spec.versions[0].schema.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root".to_owned()), "{errors:#?}");
    assert!(
        errors.iter().any(|f| f.starts_with("spec.versions[0].additionalPrinterColumns[0].JSONPath")),
        "{errors:#?}"
    );
    assert!(
        errors.iter().any(|f| f.starts_with("spec.versions[0].subresources.scale.specReplicasPath")),
        "{errors:#?}"
    );
}

#[test]
fn keywords_of_schemas_are_checked() {
    let cases: &[(&str, &[&str])] = &[
        ("{type: object, nullable: true}", &["nullable: Forbidden: nullable cannot be true at the root"]),
        (
            "{type: object, properties: {a: {type: odd}, b: {type: 'null'}}}",
            &[
                r#"properties[a].type: Unsupported value: "odd": supported values: "array", "boolean", "integer", "number", "object", "string""#,
                r#"properties[b].type: Unsupported value: "null": supported values: "array", "boolean", "integer", "number", "object", "string""#,
                "properties[b].type: Forbidden: type cannot be set to null, use nullable as an alternative",
            ],
        ),
        (
            "{type: object, id: x, $ref: y, patternProperties: {a: {}}, definitions: {a: {}}, dependencies: {a: {}}, additionalItems: true}",
            &[
                "id: Forbidden: id is not supported",
                "additionalItems: Forbidden: additionalItems is not supported",
                "patternProperties: Forbidden: patternProperties is not supported",
                "definitions: Forbidden: definitions is not supported",
                "dependencies: Forbidden: dependencies is not supported",
                "$ref: Forbidden: $ref is not supported",
            ],
        ),
        ("{type: object, $schema: x}", &[": Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"]),
        (
            "{type: object, properties: {a: {type: array, items: [{type: string}]}}}",
            &["properties[a].items: Forbidden: items must be a schema object and not an array"],
        ),
        (
            "{type: object, properties: {a: {type: array, uniqueItems: true, items: {type: string}}}}",
            &["properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"],
        ),
        (
            "{type: object, properties: {a: {type: object, properties: {b: {type: string}}, additionalProperties: {type: string}}}}",
            &["properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
        ),
        ("{type: object, properties: {a: {type: object, properties: {b: {type: string}}, additionalProperties: true}}}", &[]),
        (
            "{type: object, properties: {metadata: {type: object, default: {}, properties: {name: {type: string, default: x}}}}}",
            &[
                "properties[metadata].default: Forbidden: must not be set in top-level metadata",
                "properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
            ],
        ),
        (
            "{type: object, properties: {a: {type: object, x-kubernetes-preserve-unknown-fields: false}}}",
            &["properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
        ),
        (
            "{type: object, properties: {a: {type: string, x-kubernetes-map-type: atomic}, b: {type: object, x-kubernetes-map-type: odd}}}",
            &[
                r#"properties[a].type: Invalid value: "string": must be object if x-kubernetes-map-type is specified"#,
                r#"properties[b].x-kubernetes-map-type: Unsupported value: "odd": supported values: "atomic", "granular""#,
            ],
        ),
        (
            "{type: object, properties: {a: {type: string, x-kubernetes-list-type: set}, b: {type: array, x-kubernetes-list-type: odd, items: {type: string}}}}",
            &[
                r#"properties[a].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
                r#"properties[b].x-kubernetes-list-type: Unsupported value: "odd": supported values: "atomic", "set", "map""#,
            ],
        ),
        (
            "{type: object, properties: {a: {type: array, x-kubernetes-list-type: set, items: {type: object}}, b: {type: array, x-kubernetes-list-type: set, items: {type: string, nullable: true}}}}",
            &[
                "properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
                "properties[b].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
            ],
        ),
        (
            "{type: object, properties: {a: {type: array, x-kubernetes-list-map-keys: [k], items: {type: object}}, b: {type: array, x-kubernetes-list-type: map, items: {type: string}}}}",
            &[
                "properties[a].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
                "properties[b].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
                r#"properties[b].items.type: Invalid value: "string": must be object if parent array's x-kubernetes-list-type is map"#,
            ],
        ),
        (
            "{type: object, properties: {a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [x, k, k, o], items: {type: object, properties: {k: {type: string, nullable: true}, o: {type: object}}, required: [o]}}}}",
            &[
                r#"properties[a].x-kubernetes-list-map-keys: Invalid value: ["x","k","k","o"]: entries must all be names of item properties"#,
                r#"properties[a].x-kubernetes-list-map-keys: Invalid value: ["x","k","k","o"]: must not contain duplicate entries"#,
                r#"properties[a].items.properties[o].type: Invalid value: "object": must be a scalar type if parent array's x-kubernetes-list-type is map"#,
                "properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "properties[a].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
                "properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "properties[a].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ],
        ),
    ];
    for (schema, expected) in cases {
        let errors = texts(&validate(&with_schema(schema)));
        let expected: Vec<String> = expected
            .iter()
            .map(|text| match text.strip_prefix(':') {
                Some(rest) => format!("spec.validation.openAPIV3Schema:{rest}"),
                None => format!("spec.validation.openAPIV3Schema.{text}"),
            })
            .collect();
        assert_eq!(errors, expected, "{schema}");
    }
}

#[test]
fn a_status_subresource_leaves_little_for_the_root() {
    let with_status = |schema: &str| {
        let version = format!(
            "{{name: v1, served: true, storage: true, subresources: {{status: {{}}}}, schema: {{openAPIV3Schema: {schema}}}}}"
        );
        texts(&validate(&changed(&base(), &format!("{{spec: {{versions: [{version}]}}}}"))))
    };
    assert_eq!(
        with_status("{type: object, description: d, required: [spec], properties: {spec: {type: object}}}"),
        [""; 0]
    );
    let errors = with_status("{type: object, maxProperties: 3}");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("spec.validation.openAPIV3Schema: Invalid value: {\"maxProperties\":3"),
        "{errors:?}"
    );
    assert!(errors[0].contains("only [Description Type Format Title Maximum"), "{errors:?}");
}

#[test]
fn selectable_fields_are_scalars_of_the_schema() {
    let with_fields = |fields: &str| {
        let version = format!(
            "{{name: v1, served: true, storage: true, selectableFields: [{fields}], schema: {{openAPIV3Schema: {{type: object, \
             properties: {{metadata: {{type: object, properties: {{name: {{type: string}}}}}}, spec: {{type: object, properties: {{a: {{type: string}}, \
             o: {{type: object}}, l: {{type: array, items: {{type: string}}}}, m: {{type: object, additionalProperties: {{type: string}}}}}}}}}}}}}}}}"
        );
        texts(&validate(&changed(&base(), &format!("{{spec: {{versions: [{version}]}}}}"))))
    };
    let must = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
    let at = |i: usize, rest: &str| format!("spec.selectableFields[{i}].jsonPath: {rest}");
    assert_eq!(with_fields("{jsonPath: .spec.a}, {jsonPath: .spec.m.k}"), [""; 0]);
    assert_eq!(
        with_fields("{jsonPath: .metadata.name}, {jsonPath: .spec.o}, {jsonPath: .spec.a}, {jsonPath: .spec.a}, {jsonPath: '.spec.l[0]'}, {jsonPath: spec}, {jsonPath: '.spec.'}"),
        [
            at(0, r#"Invalid value: ".metadata.name": must not point to fields in metadata"#),
            at(1, &format!("Invalid value: \".spec.o\": {must}")),
            at(3, r#"Duplicate value: ".spec.a""#),
            at(4, r#"Invalid value: ".spec.l[0]": is an invalid path: array notation is not allowed"#),
            at(5, r#"Invalid value: "spec": is an invalid path: expected [ or . but got: spec"#),
            at(6, r#"Invalid value: ".spec.": is an invalid path: unexpected end of JSON path"#),
        ]
    );
    let many: Vec<String> = (0..9).map(|i| format!("{{jsonPath: .spec.m.k{i}}}")).collect();
    assert_eq!(
        with_fields(&many.join(",")),
        ["spec.selectableFields: Too many: 9: must have at most 8 items"]
    );
}

#[test]
fn protected_groups_want_an_approval() {
    let approved = |annotation: &str| {
        let over = format!(
            "{{metadata: {{name: things.x.k8s.io, annotations: {{api-approved.kubernetes.io: '{annotation}'}}}}, spec: {{group: x.k8s.io}}}}"
        );
        changed(&base(), &over)
    };
    for good in ["https://github.com/kubernetes/kubernetes/pull/1", "unapproved, for now"] {
        assert_eq!(validate(&approved(good)), [], "{good}");
    }
    let must = r#"protected groups must have approval annotation "api-approved.kubernetes.io""#;
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    assert_eq!(
        texts(&validate(&approved(""))),
        [format!("metadata.annotations[api-approved.kubernetes.io]: Required value: {must}, {see}")]
    );
    let bad = texts(&validate(&approved("yes")));
    assert_eq!(bad, [format!("metadata.annotations[api-approved.kubernetes.io]: Invalid value: \"yes\": {must} with either a URL or a reason starting with \"unapproved\", {see}")]);
    assert_eq!(validate_update(&approved("no"), &approved("yes")), [], "as bad as before");
}

#[test]
fn updates_keep_names_and_may_keep_old_errors() {
    let old = base();
    let established = changed(&old, "{status: {conditions: [{type: Established, status: 'True'}]}}");
    let renamed = "{metadata: {name: things.example.com}, spec: {scope: Cluster, names: {kind: Other, listKind: OtherList}}}";
    assert_eq!(validate_update(&changed(&old, renamed), &old), []);
    assert_eq!(
        texts(&validate_update(&changed(&established, renamed), &established)),
        [
            r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
            r#"spec.names.kind: Invalid value: "Other": field is immutable"#,
        ]
    );
    assert_eq!(
        texts(&validate_update(&changed(&old, "{spec: {group: other.com}}"), &old)),
        [r#"spec.group: Invalid value: "other.com": field is immutable"#,]
    );

    // Each error of a schema that the old one had, too, passes; a new one does not.
    for (before, after) in [
        (
            "{type: object, properties: {a: {type: array, x-kubernetes-list-type: set, items: {type: object}}}}",
            "{type: object, properties: {a: {type: array, x-kubernetes-list-type: set, items: {type: object}}, b: {type: string}}}",
        ),
        (
            "{type: object, properties: {a: {type: object, default: {x: 1}, properties: {y: {type: string}}}}}",
            "{type: object, properties: {a: {type: object, default: {x: 2}, properties: {y: {type: string}}}}}",
        ),
        (
            "{type: object, properties: {a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, properties: {k: {type: string}}}}}}",
            "{type: object, properties: {a: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, properties: {k: {type: string}, l: {type: string}}}}}}",
        ),
    ] {
        assert_ne!(validate(&with_schema(after)), [], "{after}");
        assert_ne!(validate_update(&with_schema(after), &old), [], "{after}");
        assert_eq!(validate_update(&with_schema(after), &with_schema(before)), [], "{after}");
    }
    let names = changed(&old, "{status: {acceptedNames: {plural: X}}}");
    assert_eq!(
        texts(&validate_status_update(&names)),
        [format!("status.acceptedNames.plural: Invalid value: \"X\": {DNS_1035}")]
    );
}

#[test]
fn unknown_formats_are_warned_of_once() {
    let new = with_schema("{type: object, properties: {a: {type: string, format: date-time}, b: {type: string, format: odd}, c: {type: integer, format: odd}, d: {type: integer, format: uuid}}}");
    assert_eq!(warnings(&new, None), [r#"unrecognized format "odd""#, r#"unrecognized format "uuid""#]);
    let old = with_schema("{type: object, properties: {b: {type: string, format: odd}}}");
    assert_eq!(warnings(&new, Some(&old)), [r#"unrecognized format "uuid""#]);
}

#[test]
fn hostile_schemas_end_with_a_error() {
    let mut deep = tree!({ "type": "object" });
    for _ in 0..300 {
        deep = tree!({ "type": "object", "properties": tree!({ "a": deep }) });
    }
    let mut definition = base();
    let version = tree!({
        "name": "v1", "served": true, "storage": true, "schema": tree!({ "openAPIV3Schema": deep }),
    });
    definition.object_at_mut(&["spec"]).unwrap().insert("versions", tree!([version]));
    let errors = texts(&validate(&definition));
    assert_eq!(errors, ["spec.validation.openAPIV3Schema: Invalid value: \"\": schemas are nested more than 256 levels deep"]);
    assert_ne!(validate(&Value::Null), []);
    assert_ne!(validate(&value("{spec: 7, status: [], metadata: x}")), []);
    assert_ne!(validate(&value("{spec: {versions: [7, {schema: 7}], names: 7, group: 7}}")), []);
}

#[test]
fn rules_that_cost_too_much_may_stay_where_they_are() {
    let with_rule = |rule: &str, short_name: &str| {
        let schema = format!(
            "{{type: object, properties: {{spec: {{type: object, properties: {{l: {{type: array, items: {{type: string}}, \
             x-kubernetes-validations: [{{rule: \"{rule}\"}}]}}}}}}}}}}"
        );
        let versions =
            format!("[{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}]");
        changed(
            &value(BASE),
            &format!("{{spec: {{names: {{shortNames: [{short_name}]}}, versions: {versions}}}}}"),
        )
    };
    let too_costly = |errors: Vec<_>| {
        texts(&errors).iter().filter(|error| error.contains("estimated rule cost exceeds budget")).count()
    };
    let costly = "self.all(x, x.contains('abcdefghijklmnop'))";
    let old = with_rule(costly, "a");
    assert_eq!(too_costly(validate(&old)), 1);
    assert_eq!(too_costly(validate_update(&with_rule(costly, "b"), &old)), 0, "as it was");
    assert_eq!(too_costly(validate_update(&old, &with_rule("true", "a"))), 1, "new");
}
