//! Devices: what can change, statuses of claims, messages, fields behind gates that are off.

use plinth_codec::Value;

use super::{parse, strategy, Resource, RESOURCE_SLICES};

const CLASSES: Resource = ("resource.k8s.io", "deviceclasses");
const DEVICE_CLAIMS: Resource = ("resource.k8s.io", "resourceclaims");
const TEMPLATES: Resource = ("resource.k8s.io", "resourceclaimtemplates");

/// Path and message of each error.
fn shown(errors: &[plinth_api::Cause]) -> Vec<String> {
    errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

#[test]
fn updates_of_devices() {
    let slice = |rest: &str| {
        format!(r#"{{"spec":{{"driver":"d","pool":{{"name":"p","resourceSliceCount":1}},{rest}}}}}"#)
    };
    let taints = |rest: &str| {
        slice(&format!(
            r#""nodeName":"n","devices":[{{"name":"a","taints":[{{"key":"a b","effect":"Later"}}{rest}]}}]"#
        ))
    };
    let class = |rest: &str| format!(r#"{{"spec":{{{rest}}}}}"#);
    let selector = r#""selectors":[{"cel":{"expression":"device.later()"}}]"#;
    let parameters = format!(
        r#""config":[{{"opaque":{{"driver":"d","parameters":{{"a":"{}"}}}}}}]"#,
        "x".repeat(11 << 10)
    );
    // resource, old, new, paths of the errors
    let rows: [(Resource, String, String, &[&str]); 14] = [
        (RESOURCE_SLICES, slice(r#""nodeName":"n""#), slice(r#""nodeName":"m""#), &["spec.nodeName"]),
        (RESOURCE_SLICES, slice(r#""nodeName":"n""#), slice(r#""allNodes":true"#), &["spec.nodeName"]),
        (
            RESOURCE_SLICES,
            slice(r#""nodeName":"n""#),
            slice(r#""nodeName":"n""#).replace(r#""p""#, r#""q""#).replace(r#""d""#, r#""e""#),
            &["spec.pool.name", "spec.driver"],
        ),
        // Taints of later versions may stay.
        (RESOURCE_SLICES, taints(""), taints(""), &[]),
        (
            RESOURCE_SLICES,
            taints(""),
            taints(r#",{"key":"k","effect":"None"}"#),
            &["spec.devices[0].taints[0].key", "spec.devices[0].taints[0].effect"],
        ),
        (CLASSES, class(selector), class(&format!(r#"{selector},"extendedResourceName":"x.io/g""#)), &[]),
        (
            CLASSES,
            class(selector),
            class(&selector.replace("]", r#",{"cel":{"expression":"true"}}]"#)),
            &["spec.selectors[0].cel.expression"],
        ),
        (
            CLASSES,
            class(&parameters),
            class(&format!("{parameters},{}", selector.replace("device.later()", "true"))),
            &[],
        ),
        (
            CLASSES,
            class(&parameters),
            class(&parameters.replace(r#""d""#, r#""e""#)),
            &["spec.config[0].opaque.parameters"],
        ),
        (
            DEVICE_CLAIMS,
            r#"{"spec":{"devices":{"requests":[{"name":"A"}]}}}"#.into(),
            r#"{"spec":{"devices":{"requests":[{"name":"B"}]}}}"#.into(),
            &["spec"],
        ),
        (
            DEVICE_CLAIMS,
            r#"{"spec":{"devices":{"requests":[{"name":"A"}]}}}"#.into(),
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"devices":{"requests":[{"name":"A"}]}}}"#.into(),
            &[],
        ),
        (TEMPLATES, "{}".into(), r#"{"spec":{"metadata":{"labels":{"a":"b"}}}}"#.into(), &["spec"]),
        (
            TEMPLATES,
            "{}".into(),
            r#"{"spec":{"metadata":{"name":"x"},"spec":{"devices":{"requests":[{"name":"r"}]}}}}"#.into(),
            &["spec.metadata.name", "spec.spec.devices.requests[0]", "spec"],
        ),
        (
            TEMPLATES,
            r#"{"spec":{"metadata":{"name":"x"}}}"#.into(),
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"metadata":{"name":"x"}}}"#.into(),
            &[],
        ),
    ];
    for (resource, old, new, paths) in rows {
        let (old, new) = (parse(&old), parse(&new));
        let strategy = strategy(resource);
        let errors = [strategy.changed_errors(&new, &old), strategy.update_errors(&new, &old)].concat();
        let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(found, paths, "{old:?}");
    }
}

const CLAIM: &str = r#"{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"d"}},
    {"name":"s","firstAvailable":[{"name":"a","deviceClassName":"d"}]}]}},"status":STATUS}"#;

fn claim(status: &str) -> Value {
    parse(&CLAIM.replace("STATUS", status))
}

#[test]
fn statuses_of_claims() {
    const ALLOCATED: &str =
        r#"{"allocation":{"devices":{"results":[{"request":"r","driver":"d.io","pool":"p","device":"x"}]}}}"#;
    let allocated = |rest: &str| ALLOCATED.replace("}]}}}", &format!("}}]}}}},{rest}}}"));
    let result = |rest: &str| ALLOCATED.replace(r#""x"}"#, &format!(r#""x",{rest}}}"#));
    let reported =
        |rest: &str| allocated(&format!(r#""devices":[{{"driver":"d.io","pool":"p","device":"x",{rest}}}]"#));
    let condition = |rest: &str| {
        reported(&format!(
            r#""conditions":[{{"type":"Ready","status":"True","reason":"Good","lastTransitionTime":"2020-01-01T00:00:00Z"{rest}}}]"#
        ))
    };
    const RESULT: &str = "status.allocation.devices.results[0].";
    const DEVICE: &str = "status.devices[0].";
    let none = "{}".to_owned();
    let uid = "0f9a1c3e-5b7d-4f20-8a6c-112233445566";
    // old, new, errors as `PATH REASON`
    let rows: Vec<(String, String, Vec<String>)> = vec![
        (none.clone(), ALLOCATED.into(), vec![]),
        (none.clone(), ALLOCATED.replace(r#""r""#, r#""s/a""#), vec![]),
        (
            none.clone(),
            r#"{"allocation":{"devices":{"results":[{}]}}}"#.into(),
            vec![
                format!("{RESULT}request Invalid"),
                format!("{RESULT}request Invalid"),
                format!("{RESULT}driver Required"),
                format!("{RESULT}pool Required"),
                format!("{RESULT}device Invalid"),
            ],
        ),
        (none.clone(), result(&format!(r#""shareID":"{uid}""#)), vec![]),
        (none.clone(), result(r#""shareID":"x""#), vec![format!("{RESULT}shareID Invalid")]),
        (
            none.clone(),
            result(r#""bindingConditions":["a"]"#),
            vec![format!("{RESULT}bindingFailureConditions Invalid")],
        ),
        (
            none.clone(),
            r#"{"allocation":{"devices":{"config":[{"source":"X","requests":["q"],"opaque":{"driver":"d","parameters":{}}},{}]}}}"#.into(),
            vec![
                "status.allocation.devices.config[0].source NotSupported".into(),
                "status.allocation.devices.config[0].requests[0] Invalid".into(),
                "status.allocation.devices.config[1].source Required".into(),
                "status.allocation.devices.config[1].opaque Required".into(),
            ],
        ),
        (
            none.clone(),
            r#"{"allocation":{"nodeSelector":{}}}"#.into(),
            vec!["status.allocation.nodeSelector.nodeSelectorTerms Required".into()],
        ),
        // What is stored is not looked at again, and does not change.
        (result(r#""shareID":"x""#), result(r#""shareID":"x""#), vec![]),
        (ALLOCATED.into(), result(r#""adminAccess":false"#), vec!["status.allocation Invalid".into()]),
        (
            none.clone(),
            r#"{"reservedFor":[{"resource":"pods","name":"p","uid":"u"}]}"#.into(),
            vec!["status.reservedFor Forbidden".into()],
        ),
        (
            ALLOCATED.into(),
            allocated(r#""reservedFor":[{},{"resource":"pods","name":"p","uid":"u"},{"resource":"pods","name":"q","uid":"u"}]"#),
            vec![
                "status.reservedFor[0].resource Required".into(),
                "status.reservedFor[0].name Required".into(),
                "status.reservedFor[0].uid Required".into(),
                "status.reservedFor[2] Duplicate".into(),
            ],
        ),
        (
            none.clone(),
            r#"{"devices":[{"driver":"d.io","pool":"p","device":"x"}]}"#.into(),
            vec!["status.devices[0] Invalid".into()],
        ),
        (
            ALLOCATED.into(),
            allocated(r#""devices":[{"driver":"d.io","pool":"p","device":"x"},{"driver":"d.io","pool":"p","device":"x"}]"#),
            vec!["status.devices[1] Duplicate".into()],
        ),
        (ALLOCATED.into(), condition(""), vec![]),
        (
            ALLOCATED.into(),
            reported(r#""conditions":[{"type":"a b","observedGeneration":-1},{"type":"a b","status":"X","reason":"9"}]"#),
            vec![
                format!("{DEVICE}conditions[0].type Invalid"),
                format!("{DEVICE}conditions[0].status NotSupported"),
                format!("{DEVICE}conditions[0].observedGeneration Invalid"),
                format!("{DEVICE}conditions[0].lastTransitionTime Required"),
                format!("{DEVICE}conditions[0].reason Required"),
                format!("{DEVICE}conditions[1].type Duplicate"),
                format!("{DEVICE}conditions[1].type Invalid"),
                format!("{DEVICE}conditions[1].status NotSupported"),
                format!("{DEVICE}conditions[1].lastTransitionTime Required"),
                format!("{DEVICE}conditions[1].reason Invalid"),
            ],
        ),
        (ALLOCATED.into(), reported(r#""data":{"a":1}"#), vec![]),
        (ALLOCATED.into(), reported(r#""data":[1]"#), vec![format!("{DEVICE}data Invalid")]),
        (
            ALLOCATED.into(),
            reported(&format!(r#""data":{{"a":"{}"}}"#, "x".repeat(11 << 10))),
            vec![format!("{DEVICE}data TooLong")],
        ),
        (
            ALLOCATED.into(),
            reported(&format!(
                r#""networkData":{{"interfaceName":"{}","hardwareAddress":"{}","ips":["10.0.0.1/8","10.0.0.1/8","10.0.0.1","2001:DB8::1/64"]}}"#,
                "i".repeat(257),
                "h".repeat(129)
            )),
            vec![
                format!("{DEVICE}networkData.interfaceName TooLong"),
                format!("{DEVICE}networkData.hardwareAddress TooLong"),
                format!("{DEVICE}networkData.ips[2] Invalid"),
                format!("{DEVICE}networkData.ips[3] Invalid"),
                format!("{DEVICE}networkData.ips[1] Duplicate"),
            ],
        ),
    ];
    for (old, new, expected) in rows {
        let errors = strategy(DEVICE_CLAIMS).status_errors(&claim(&new), &claim(&old));
        assert_eq!(short(&errors), expected, "{new}");
    }
    // A claim that is being deleted is reserved for nobody else.
    let reserved = |name: &str| {
        allocated(&format!(r#""reservedFor":[{{"resource":"pods","name":"{name}","uid":"{name}"}}]"#))
    };
    let mut deleted = claim(&reserved("b"));
    deleted.object_at_mut(&["metadata"]).unwrap().insert("deletionTimestamp", "2020-01-01T00:00:00Z");
    let errors = strategy(DEVICE_CLAIMS).status_errors(&deleted, &claim(&reserved("a")));
    assert_eq!(
        shown(&errors),
        ["status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"]
    );
    assert_eq!(strategy(DEVICE_CLAIMS).status_errors(&deleted, &claim(&reserved("b"))), []);
}

#[test]
fn messages_about_devices_are_those_of_upstream() {
    let slice = |device: &str| {
        format!(
            r#"{{"spec":{{"driver":"d","nodeName":"n","pool":{{"name":"p","resourceSliceCount":1}},"devices":[{{"name":"a",{device}}}]}}}}"#
        )
    };
    let capacity = |policy: &str| {
        slice(&format!(
            r#""allowMultipleAllocations":true,"capacity":{{"c":{{"value":"8Gi","requestPolicy":{policy}}}}}"#
        ))
    };
    let rows: [(Resource, String, &[&str]); 7] = [
        (
            RESOURCE_SLICES,
            slice(r#""attributes":{"a":{}}"#),
            &[r#"spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified"#],
        ),
        (
            RESOURCE_SLICES,
            slice(r#""bindingFailureConditions":["x"]"#),
            &["spec.devices[0].bindingConditions: Invalid value: null: bindingConditions are required to use bindingFailureConditions"],
        ),
        (
            RESOURCE_SLICES,
            slice(r#""nodeName":"x""#),
            &["spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"],
        ),
        (
            RESOURCE_SLICES,
            capacity(r#"{"default":"2Gi","validRange":{"min":"1Gi","max":"9Gi","step":"8Gi"}}"#),
            &[
                r#"spec.devices[0].capacity[c].requestPolicy.validRange.max: Invalid value: "9Gi": max is larger than capacity value: 8Gi"#,
                r#"spec.devices[0].capacity[c].requestPolicy.validRange.step: Invalid value: "8Gi": one step 9Gi is larger than capacity value: 8Gi"#,
                r#"spec.devices[0].capacity[c].requestPolicy.validRange.step: Invalid value: "2Gi": value is not a multiple of a given step (8Gi) from (1Gi)"#,
            ],
        ),
        (
            RESOURCE_SLICES,
            capacity(r#"{"default":"1Gi","validValues":["1Gi","1Gi"]}"#),
            &[r#"spec.devices[0].capacity[c].requestPolicy.validValues[1]: Duplicate value: "1073741824""#],
        ),
        (
            DEVICE_CLAIMS,
            r#"{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"d","selectors":[{"cel":{"expression":"device.driver"}}]},"firstAvailable":[]}],"constraints":[{}]}}}"#.into(),
            &[
                r#"spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "device.driver": must evaluate to bool or the unknown type, not string"#,
                r#"spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#,
            ],
        ),
        (
            CLASSES,
            r#"{"spec":{"selectors":[{"cel":{"expression":"device.name"}}],"config":[{"opaque":{"driver":"d","parameters":"x"}}]}}"#.into(),
            &[
                "spec.selectors[0].cel.expression: Invalid value: \"device.name\": compilation failed: ERROR: <input>:1:7: undefined field 'name'\n | device.name\n | ......^",
                r#"spec.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object"#,
            ],
        ),
    ];
    for (resource, object, expected) in rows {
        let mut object = parse(&object);
        strategy(resource).default(&mut object);
        assert_eq!(shown(&strategy(resource).create_errors(&object)), expected);
    }
    let status = r#"{"devices":[{"driver":"d.io","pool":"p","device":"x"}]}"#;
    assert_eq!(
        shown(&strategy(DEVICE_CLAIMS).status_errors(&claim(status), &claim("{}"))),
        [
            r#"status.devices[0]: Invalid value: {"Driver":"d.io","Pool":"p","Device":"x","ShareID":""}: must be an allocated device in the claim"#
        ]
    );
}

#[test]
fn fields_behind_gates_that_are_off_are_dropped_unless_they_are_stored() {
    const FULL: &str = r#"{"spec":{"devices":[{"attributes":{"a":{"strings":["x"]}},"nodeAllocatableResourceMappings":{"cpu":{}}}]}}"#;
    const BARE: &str = r#"{"spec":{"devices":[{"attributes":{"a":{}}}]}}"#;
    let strategy = strategy(RESOURCE_SLICES);
    let mut created = parse(FULL);
    (strategy.prepare_for_create)(&mut created);
    assert_eq!(created, parse(BARE));
    for (old, kept) in [(BARE, BARE), (FULL, FULL)] {
        let mut updated = parse(FULL);
        (strategy.prepare_for_update)(&mut updated, &parse(old));
        assert_eq!(updated, parse(kept));
    }
}

#[test]
fn taints_get_the_time_at_which_they_were_added() {
    let mut slice = parse(
        r#"{"spec":{"devices":[{"taints":[{"key":"a"},{"key":"b","timeAdded":"2020-01-01T00:00:00Z"}]}]}}"#,
    );
    strategy(RESOURCE_SLICES).default(&mut slice);
    let taints = slice.list_at(&["spec", "devices"])[0].list_at(&["taints"]);
    let times: Vec<&str> = taints.iter().filter_map(|taint| taint.str_at(&["timeAdded"])).collect();
    assert!(
        matches!(times[..], [now, "2020-01-01T00:00:00Z"] if now > "2026-01-01" && now.ends_with('Z')),
        "{times:?}"
    );
}

/// Errors as `PATH REASON`.
fn short(errors: &[plinth_api::Cause]) -> Vec<String> {
    let one = |error: &plinth_api::Cause| {
        format!("{} {}", error.field, error.reason.trim_start_matches("FieldValue"))
    };
    errors.iter().map(one).collect()
}

#[test]
fn rules_of_taints_keep_the_time_of_their_effect() {
    let rule = |effect: &str, time: &str| {
        parse(&format!(r#"{{"spec":{{"taint":{{"key":"k","effect":"{effect}","timeAdded":"{time}"}}}}}}"#))
    };
    const OLD: &str = "2020-01-01T00:00:00Z";
    const CHOSEN: &str = "2021-01-01T00:00:00Z";
    let rules = strategy(("resource.k8s.io", "devicetaintrules"));
    let updated = |effect: &str, time: &str| {
        let mut new = rule(effect, time);
        (rules.prepare_for_update)(&mut new, &rule("Later", OLD));
        assert_eq!(rules.changed_errors(&new, &rule("Later", OLD)), []);
        assert_eq!(rules.update_errors(&new, &rule("Later", OLD)), []);
        new.str_at(&["spec", "taint", "timeAdded"]).unwrap().to_owned()
    };
    // An effect of a later version may stay.
    assert_eq!(updated("Later", OLD), OLD);
    assert_eq!(updated("None", CHOSEN), CHOSEN);
    assert!(*updated("None", OLD) > *"2026-01-01");
    let status = parse(r#"{"status":{"conditions":[{"type":"a"}]}}"#);
    assert_eq!(
        short(&rules.status_errors(&status, &parse("{}"))),
        [
            "status.conditions[0].status NotSupported",
            "status.conditions[0].lastTransitionTime Required",
            "status.conditions[0].reason Required"
        ]
    );
}

#[test]
fn tolerations_of_allocations_have_the_defaults_of_requests() {
    let mut allocated = claim(
        r#"{"allocation":{"devices":{"results":[{"request":"r","driver":"d.io","pool":"p","device":"x",
            "tolerations":[{"key":"k","effect":"NoExecute"}]}]}}}"#,
    );
    strategy(DEVICE_CLAIMS).default(&mut allocated);
    let results = allocated.list_at(&["status", "allocation", "devices", "results"]);
    assert_eq!(results[0].list_at(&["tolerations"])[0].str_at(&["operator"]), Some("Equal"));
}

#[test]
fn requests_about_pools_are_answered_once() {
    let requests = strategy(("resource.k8s.io", "resourcepoolstatusrequests"));
    const SPEC: &str = r#"{"spec":{"driver":"d"}}"#;
    let answered = |status: &str| parse(&format!(r#"{{"spec":{{"driver":"d"}},"status":{status}}}"#));
    assert_eq!(
        shown(&requests.update_errors(&parse(r#"{"spec":{"driver":"e"}}"#), &parse(SPEC))),
        ["spec: Invalid value: null: field is immutable"]
    );
    let good = r#"{"poolCount":1,"pools":[{"driver":"d","poolName":"p","generation":1}]}"#;
    assert_eq!(requests.status_errors(&answered(good), &parse(SPEC)), []);
    assert_eq!(
        short(&requests.status_errors(&answered(r#"{"poolCount":2}"#), &answered(good))),
        ["status Invalid"]
    );
    // What declarative validation finds is reported beside that.
    let incomplete = r#"{"poolCount":1,"pools":[{"driver":"d","generation":1}]}"#;
    assert_eq!(
        short(&requests.status_errors(&answered(incomplete), &answered(good))),
        ["status Invalid", "status.pools[0].poolName Required"]
    );
    let gone = parse(SPEC);
    assert_eq!(short(&requests.status_errors(&gone, &answered(good))), ["status Invalid"]);
    let long = format!(
        r#"{{"poolCount":1,"pools":[{{"driver":"{name}","poolName":"{name}","nodeName":"{name}","generation":1}}]}}"#,
        name = "x".repeat(300)
    );
    let errors = shown(&requests.status_errors(&answered(&long), &parse(SPEC)));
    assert_eq!(errors.iter().filter(|error| error.ends_with("must be no more than 253 bytes")).count(), 3);
    let bad = r#"{"pools":[{"poolName":"a//b","generation":-1,"totalDevices":-1,"nodeName":"A"}]}"#;
    assert_eq!(
        short(&requests.status_errors(&answered(bad), &parse(SPEC))),
        [
            "status.poolCount Required",
            "status.pools[0].driver Required",
            "status.pools[0].poolName Invalid",
            "status.pools[0].generation Invalid",
            "status.pools[0].totalDevices Invalid",
            "status.pools[0].nodeName Invalid"
        ]
    );
}

#[test]
fn storage_versions_agree_with_themselves() {
    let versions = strategy(("internal.apiserver.k8s.io", "storageversions"));
    let server = |id: &str, encoding: &str, decodable: &str| {
        format!(
            r#"{{"apiServerID":"{id}","encodingVersion":"{encoding}","decodableVersions":[{decodable}]}}"#
        )
    };
    // status, errors
    let rows: [(String, &[&str]); 5] = [
        (format!(r#"{{"storageVersions":[{}],"commonEncodingVersion":"v1"}}"#, server("a", "v1", r#""v1""#)), &[]),
        (
            format!(r#"{{"storageVersions":[{},{}]}}"#, server("a", "v1", r#""v1""#), server("a", "v1", r#""v1""#)),
            &["status.storageVersions[1].apiServerID Duplicate", "status.commonEncodingVersion Invalid"],
        ),
        (
            format!(
                r#"{{"storageVersions":[{},{}],"commonEncodingVersion":"v1"}}"#,
                server("A", "a/b/c", r#""a/b/c""#),
                server("b", "", "").replace("]", r#""/"],"servedVersions":["v2"]"#)
            ),
            &[
                "status.storageVersions[0].apiServerID Invalid",
                "status.storageVersions[0].encodingVersion Invalid",
                "status.storageVersions[0].decodableVersions[0] Invalid",
                "status.storageVersions[1].encodingVersion Invalid",
                "status.storageVersions[1].decodableVersions[0] Invalid",
                "status.storageVersions[1].decodableVersions Invalid",
                "status.storageVersions[1].servedVersions[0] Invalid",
                "status.commonEncodingVersion Invalid",
            ],
        ),
        (r#"{"commonEncodingVersion":"v1"}"#.into(), &["status.commonEncodingVersion Invalid"]),
        (
            r#"{"conditions":[{"type":"a","status":"b","reason":"c","message":"d"},{"type":"a","status":"b"}]}"#.into(),
            &["status[1].type Invalid", "status[1].reason Required", "status[1].message Required"],
        ),
    ];
    for (status, expected) in rows {
        let object = parse(&format!(r#"{{"status":{status}}}"#));
        assert_eq!(short(&versions.status_errors(&object, &parse("{}"))), expected, "{status}");
    }
}
