//! Selectable fields, owned fields and what else requests take from a strategy.

use plinth_codec::apply::Reset;
use plinth_codec::selector::FieldSelector;
use plinth_codec::{tree, Value};

fn fields(text: &str) -> FieldSelector {
    FieldSelector::parse(text).unwrap()
}

#[test]
fn resources_refuse_fields_in_their_own_words() {
    let refused = |group, resource| {
        fields("x=1").resolve(&crate::of(group, resource).selectable).unwrap_err().to_string()
    };
    let default = "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert_eq!(refused("", "pods"), "field label not supported: x");
    assert_eq!(refused("", "configmaps"), default);
    assert_eq!(refused("apps", "deployments"), default);
    assert_eq!(refused("batch", "jobs"), "field label \"x\" not supported for Job");
    assert_eq!(
        refused("resource.k8s.io", "resourceslices"),
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x"
    );
    assert!(fields("metadata.namespace=x").resolve(&crate::of("", "nodes").selectable).is_err());
    assert!(fields("metadata.namespace=x").resolve(&crate::of("", "configmaps").selectable).is_ok());
    assert!(fields("source=x").resolve(&crate::of("", "events").selectable).is_ok());
    assert!(fields("source=x").resolve(&crate::of("events.k8s.io", "events").selectable).is_err());
}

#[test]
fn labels_become_stored_names() {
    let resolved = |text, group, resource| {
        fields(text).resolve(&crate::of(group, resource).selectable).unwrap().to_string()
    };
    assert_eq!(resolved("spec.host=n", "", "pods"), "spec.nodeName=n");
    assert_eq!(
        resolved("regarding.name=n,reportingController!=c", "events.k8s.io", "events"),
        "involvedObject.name=n,reportingComponent!=c"
    );
    let names =
        |group, resource| crate::of(group, resource).selectable.stored().map(|f| f.name).collect::<Vec<_>>();
    assert_eq!(names("", "configmaps"), [""; 0]);
    assert_eq!(names("", "secrets"), ["type"]);
    assert!(!names("", "pods").contains(&"spec.host") && names("", "pods").contains(&"spec.nodeName"));
    // Every resolved field is stored in the header, or part of the key.
    for (group, resource) in [("", "pods"), ("", "events"), ("events.k8s.io", "events"), ("batch", "jobs")] {
        for field in crate::of(group, resource).selectable.fields {
            // Both versions of events are stored as core/v1.
            let stored = names(if group == "events.k8s.io" { "" } else { group }, resource);
            assert!(field.in_key() || stored.contains(&field.name), "{}", field.label);
        }
    }
}

#[test]
fn values_of_fields() {
    let value = |group, resource, label: &str, object: &Value| {
        let field = crate::of(group, resource).selectable.fields.iter().find(|f| f.label == label).unwrap();
        field.value(object).into_owned()
    };
    let empty = Value::object();
    let pod = tree!({
        "metadata": tree!({ "name": "p" }),
        "spec": tree!({ "hostNetwork": true, "serviceAccount": "old", "nodeName": "n" }),
        "status": tree!({ "podIPs": tree!([tree!({ "ip": "10.0.0.1" }), tree!({ "ip": "::1" })]) }),
    });
    let cases: &[(&str, &str, &str, &Value, &str)] = &[
        ("", "pods", "metadata.name", &pod, "p"),
        ("", "pods", "spec.host", &pod, "n"),
        ("", "pods", "spec.hostNetwork", &pod, "true"),
        ("", "pods", "spec.hostNetwork", &empty, "false"),
        ("", "pods", "spec.serviceAccountName", &pod, "old"),
        ("", "pods", "status.podIP", &pod, "10.0.0.1"),
        ("", "pods", "status.podIPs", &pod, ""),
        ("", "pods", "status.phase", &pod, ""),
        ("", "nodes", "spec.unschedulable", &empty, "false"),
        ("", "replicationcontrollers", "status.replicas", &empty, "0"),
        ("apps", "replicasets", "status.replicas", &tree!({ "status": tree!({ "replicas": 3i64 }) }), "3"),
        ("batch", "jobs", "status.successful", &tree!({ "status": tree!({ "succeeded": 2i64 }) }), "2"),
        ("", "events", "source", &tree!({ "source": tree!({ "component": "c" }) }), "c"),
        ("", "events", "source", &tree!({ "reportingComponent": "r", "source": tree!({}) }), "r"),
        (
            "events.k8s.io",
            "events",
            "regarding.kind",
            &tree!({ "regarding": tree!({ "kind": "Pod" }) }),
            "Pod",
        ),
    ];
    for &(group, resource, label, object, expected) in cases {
        assert_eq!(value(group, resource, label, object), expected, "{resource} {label}");
    }
}

#[test]
fn writes_own_what_the_server_does_not_reset() {
    let reset = |group, resource, subresource| crate::of(group, resource).reset(subresource, true);
    assert_eq!(reset("", "pods", ""), Reset::Except(&["status"]));
    assert_eq!(crate::of("", "configmaps").reset("", false), Reset::Nothing);
    assert_eq!(reset("", "services", "status"), Reset::Except(&["spec"]));
    assert_eq!(reset("", "pods", "ephemeralcontainers"), Reset::Only(&["spec.ephemeralContainers"]));
    assert_eq!(reset("", "pods", "binding"), Reset::Nothing);
    assert_eq!(reset("storage.k8s.io", "volumeattachments", "status"), Reset::Except(&["spec", "metadata"]));
    let requests = ("certificates.k8s.io", "certificatesigningrequests");
    assert_eq!(reset(requests.0, requests.1, ""), Reset::Except(&["spec", "status"]));
    assert_eq!(crate::CUSTOM.reset("status", true), Reset::Except(&["spec", "metadata"]));
    assert_eq!(crate::CUSTOM.reset("", true), Reset::Except(&["status"]));
    assert_eq!(crate::CUSTOM.reset("", false), Reset::Nothing);
    assert_eq!(crate::CUSTOM.reset("scale", true), Reset::Nothing);
}

#[test]
fn documents_name_the_kinds_whose_deletion_returns_the_object() {
    let documented: Vec<&str> = crate::rows::ROWS
        .iter()
        .filter(|(_, _, strategy)| strategy.documents_deleted_object())
        .map(|(_, plural, _)| *plural)
        .collect();
    let upstream =
        "persistentvolumeclaims persistentvolumes pods podtemplates resourcequotas serviceaccounts \
        services deviceclasses devicetaintrules resourceclaims resourceclaimtemplates \
        resourcepoolstatusrequests resourceslices csidrivers csinodes storageclasses \
        volumeattachments volumeattributesclasses";
    assert_eq!(documented.join(" "), upstream);
}

/// The order is that of the values in stored headers, so it is part of the format on disk.
#[test]
fn stored_fields_keep_their_order() {
    let pods =
        "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork \
        status.phase status.podIP status.podIPs status.nominatedNodeName";
    let events = "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid \
        involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason \
        reportingComponent source type";
    let stored = [
        ("", "events", events),
        ("", "namespaces", "status.phase"),
        ("", "nodes", "spec.unschedulable"),
        ("", "pods", pods),
        ("", "replicationcontrollers", "status.replicas"),
        ("", "secrets", "type"),
        ("", "services", "spec.clusterIP spec.type"),
        ("apps", "replicasets", "status.replicas"),
        ("batch", "jobs", "status.successful"),
        ("certificates.k8s.io", "certificatesigningrequests", "spec.signerName"),
        ("certificates.k8s.io", "clustertrustbundles", "spec.signerName"),
        ("certificates.k8s.io", "podcertificaterequests", "spec.signerName spec.podName spec.nodeName"),
        ("coordination.k8s.io", "leasecandidates", "spec.leaseName"),
        ("resource.k8s.io", "resourceslices", "spec.nodeName spec.driver"),
    ];
    // Events of the other group are stored as those of core/v1.
    for (group, plural, strategy) in crate::rows::ROWS.iter().filter(|row| row.0 != "events.k8s.io") {
        let names: Vec<_> = strategy.selectable.stored().map(|field| field.name).collect();
        let expected = stored.iter().find(|row| (row.0, row.1) == (*group, *plural)).map_or("", |row| row.2);
        assert_eq!(names.join(" "), expected, "{group} {plural}");
    }
}
