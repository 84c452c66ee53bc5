//! A row per warning.

use plinth_codec::Value;

use super::{
    parse, strategy, Resource, CAPACITIES, CLAIMS, CRON_JOBS, CSI_DRIVERS, DEPLOYMENTS, DISRUPTION_BUDGETS,
    ENDPOINTS, ENDPOINT_SLICES, INGRESSES, JOBS, NETWORK_POLICIES, NODES, PODS, QUOTAS, RESOURCE_SLICES,
    RUNTIME_CLASSES, SECRETS, SERVICES, SERVICE_ACCOUNTS, STATEFUL_SETS, STORAGE_CLASSES, VOLUMES,
};
use crate::warnings::MAX_WARNINGS;

fn warnings(resource: Resource, new: &Value, old: Option<&Value>) -> Vec<String> {
    (strategy(resource).warnings)(new, old)
}

#[test]
fn one_row_per_warning() {
    // resource, object, starts of the warnings
    let rows: &[(Resource, &str, &[&str])] = &[
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"nodeSelector":{"beta.kubernetes.io/os":"linux"}}}"#, &["spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"topologySpreadConstraints":[{"topologyKey":"a"}]}}"#, &["spec.topologySpreadConstraints[0].labelSelector: a null"]),
        (PODS, r#"{"metadata":{"name":"a","annotations":{"scheduler.alpha.kubernetes.io/critical-pod":""}}}"#, &["metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"volumes":[{"name":"a","gitRepo":{}},{"name":"b","storageos":{}}]}}"#, &["spec.volumes[0].gitRepo: deprecated in v1.11, and", "spec.volumes[1].storageOS: deprecated"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"hostAliases":[{"ip":"1.1.1.1"},{"ip":"1.1.1.1"}]}}"#, &["spec.hostAliases[1].ip: duplicate ip \"1.1.1.1\""]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"imagePullSecrets":[{"name":""}]}}"#, &["spec.imagePullSecrets[0].name: invalid empty name"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"containers":[{"resources":{"limits":{"memory":"1500m"}}}]}}"#, &["spec.containers[0].resources.limits[memory]: fractional byte value \"1500m\""]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"containers":[{"env":[{"name":"A","value":"x"},{"name":"A","value":"y"}]}]}}"#, &["spec.containers[0].env[1]: hides previous definition of \"A\""]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"containers":[{"env":[{"name":"A","value":"x"},{"name":"A","value":"$(A)y"}]}]}}"#, &[]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"containers":[{"ports":[{"containerPort":80,"protocol":"TCP"}]},{"ports":[{"containerPort":80,"protocol":"TCP"}]}]}}"#, &["spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"containers":[{"ports":[{"containerPort":80,"protocol":"TCP","hostPort":80},{"containerPort":80,"protocol":"TCP"}]}]}}"#, &["spec.containers[0].ports[1]: overlapping port definition"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"containers":[{"ports":[{"name":"a","containerPort":80}]},{"ports":[{"name":"a","containerPort":81}]}]}}"#, &["spec.containers[1].ports[0]: duplicate port name \"a\""]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"terminationGracePeriodSeconds":-1}}"#, &["spec.terminationGracePeriodSeconds: must be >= 0"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"podAffinityTerm":{}}]}}}}"#, &["spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector"]),
        (DEPLOYMENTS, r#"{"metadata":{"name":"a"},"spec":{"template":{"spec":{"terminationGracePeriodSeconds":-1}}}}"#, &["spec.template.spec.terminationGracePeriodSeconds"]),
        (CRON_JOBS, r#"{"metadata":{"name":"a"},"spec":{"jobTemplate":{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":-1}}}}}}"#, &["spec.jobTemplate.spec.template.spec.terminationGracePeriodSeconds"]),
        (VOLUMES, r#"{"spec":{"persistentVolumeReclaimPolicy":"Recycle","cephfs":{}}}"#, &["spec.persistentVolumeReclaimPolicy: The Recycle", "spec.cephfs: deprecated in v1.28"]),
        (SERVICES, r#"{"spec":{"type":"ClusterIP","externalIPs":["1.1.1.1"],"trafficDistribution":"PreferClose"}}"#, &["spec.externalIPs is deprecated", "spec.trafficDistribution: \"PreferClose\""]),
        (SERVICES, r#"{"spec":{"type":"ClusterIP","externalName":"a.b"}}"#, &["spec.externalName is ignored"]),
        (SECRETS, r#"{"type":"kubernetes.io/tls","data":{"tls.crt":"eHg=","tls.key":"eHg="}}"#, &["tls: failed to find any PEM data in certificate input"]),
        (SECRETS, r#"{"type":"kubernetes.io/tls","data":{"tls.crt":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=","tls.key":"eHg="}}"#, &["tls: failed to find any PEM data in key input"]),
        (CSI_DRIVERS, r#"{"spec":{"tokenRequests":[{"audience":"a"}]}}"#, &["spec.serviceAccountTokenInSecrets is unset"]),
        (CSI_DRIVERS, r#"{"spec":{"tokenRequests":[{"audience":"a"}],"serviceAccountTokenInSecrets":false}}"#, &[]),
        (PODS, r#"{"metadata":{"name":"a.b"}}"#, &["metadata.name: this is used in the Pod's hostname"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"nodeSelector":{"node-role.kubernetes.io/master":""}}}"#, &["spec.nodeSelector[node-role.kubernetes.io/master]: use \"node-role"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"preference":{"matchExpressions":[{"key":"beta.kubernetes.io/os","values":["ok","-x"]}]}}]}}}}"#, &["spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: beta", "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[1]: -x is invalid"]),
        (PODS, r#"{"metadata":{"name":"a","annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined"}},"spec":{"containers":[{"name":"c","securityContext":{"appArmorProfile":{"type":"Unconfined"}}}]}}"#, &["metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30"]),
        (DEPLOYMENTS, r#"{"metadata":{"name":"a"},"spec":{"template":{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined"}},"spec":{"containers":[{"name":"c"}]}}}}"#, &["spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30"]),
        (DEPLOYMENTS, r#"{"metadata":{"name":"a"},"spec":{"template":{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined"}},"spec":{"securityContext":{"appArmorProfile":{"type":"Unconfined"}},"containers":[{"name":"c"}]}}}}"#, &[]),
        (PODS, r#"{"metadata":{"name":"a","annotations":{"seccomp.security.alpha.kubernetes.io/pod":"unconfined"}}}"#, &["metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"TCP","hostIP":"1.2.3.4"}]}]}}"#, &["spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"dnsConfig":{"nameservers":["2001:0db8::1"]},"hostAliases":[{"ip":"010.0.0.1"},{"ip":"::ffff:1.2.3.4"}]}}"#, &["spec.dnsConfig.nameservers[0]: IPv6 address \"2001:0db8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")", "spec.hostAliases[0].ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"", "spec.hostAliases[1].ip: non-standard IP address \"::ffff:1.2.3.4\" is invalid: use \"1.2.3.4\""]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"volumes":[{"name":"v","configMap":{"name":"m","items":[{"path":"a"},{"path":"ab"},{"path":"a/b"}]}}]}}"#, &["volume \"v\" (ConfigMap \"m\"): overlapping paths: \"a/b\" with \"a\""]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"volumes":[{"name":"v","projected":{"sources":[{},{"serviceAccountToken":{"path":"t"}},{"secret":{"name":"s","items":[{"path":"t/"}]}}]}}]}}"#, &["volume \"v\" (Projected) has no sources provided", "volume \"v\" (Projected): overlapping paths: \"t\" (Secret \"s\") with \"t\" (ServiceAccountToken)"]),
        (PODS, r#"{"metadata":{"name":"a"},"spec":{"volumes":[{"name":"v","ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"100m"}}}}}}]}}"#, &["spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value \"100m\""]),
        (JOBS, r#"{"spec":{"completionMode":"Indexed","completions":100001,"parallelism":10001}}"#, &["metadata.name: this is used in Pod names", "spec: In Indexed Jobs"]),
        (STATEFUL_SETS, r#"{"spec":{"revisionHistoryLimit":-1,"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":"100m"}}}}]}}"#, &["spec.volumeClaimTemplates[0].resources.requests[storage]: fractional", "spec.revisionHistoryLimit: a negative value"]),
        (VOLUMES, r#"{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"x","volume.beta.kubernetes.io/mount-options":"y"}}}"#, &["metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8", "metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31"]),
        (CLAIMS, r#"{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"x"}},"spec":{"resources":{"requests":{"storage":"1500m"}}}}"#, &["metadata.annotations[volume.beta.kubernetes.io/storage-class]", "spec.resources.requests[storage]: fractional"]),
        (STORAGE_CLASSES, r#"{"allowedTopologies":[{"matchLabelExpressions":[{"key":"failure-domain.beta.kubernetes.io/zone"}]}]}"#, &["allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.17"]),
        (CAPACITIES, r#"{"nodeTopology":{"matchLabels":{"beta.kubernetes.io/os":"x"},"matchExpressions":[{"key":"beta.kubernetes.io/arch"}]}}"#, &["nodeTopology.matchExpressions[0].key: beta.kubernetes.io/arch is deprecated", "nodeTopology.matchLabels.beta.kubernetes.io/os: deprecated"]),
        (NODES, r#"{"spec":{"externalID":"x","podCIDRs":["10.0.0.1/24","010.0.0.0/8","2001:DB8::/32","::ffff:10.0.0.0/104"]}}"#, &["spec.externalID: this field is deprecated", "spec.podCIDRs[0]: CIDR value \"10.0.0.1/24\" is ambiguous in this context (should be \"10.0.0.0/24\" or \"10.0.0.1/32\"?)", "spec.podCIDRs[1]: non-standard CIDR value \"010.0.0.0/8\" is invalid: use \"10.0.0.0/8\"", "spec.podCIDRs[2]: IPv6 CIDR value", "spec.podCIDRs[3]: non-standard CIDR value \"::ffff:10.0.0.0/104\" is invalid: use \"10.0.0.0/8\""]),
        (RUNTIME_CLASSES, r#"{"scheduling":{"nodeSelector":{"beta.kubernetes.io/os":"x"}}}"#, &["scheduling.nodeSelector: deprecated since v1.14"]),
        (SERVICE_ACCOUNTS, r#"{"metadata":{"annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}}}"#, &["metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+"]),
        (RESOURCE_SLICES, r#"{"spec":{"driver":"A.b"}}"#, &["spec.driver: driver names should be lowercase; \"A.b\""]),
        (("admissionregistration.k8s.io", "validatingadmissionpolicies"), r#"{"metadata":{"name":"a.static.k8s.io"}}"#, &["metadata.name: names ending with \".static.k8s.io\" are reserved"]),
        (DISRUPTION_BUDGETS, r#"{"metadata":{"name":"a.static.k8s.io"}}"#, &[]),
        (INGRESSES, r#"{"metadata":{"annotations":{"kubernetes.io/ingress.class":"x"}}}"#, &["annotation \"kubernetes.io/ingress.class\" is deprecated"]),
        (NETWORK_POLICIES, r#"{"spec":{"ingress":[{"from":[{"ipBlock":{"cidr":"2001:DB8::/32","except":["10.1.0.0/8"]}}]}]}}"#, &["spec.ingress[0].from[0].ipBlock.cidr: IPv6 CIDR value", "spec.ingress[0].from[0].ipBlock.except[0]: CIDR value"]),
        (ENDPOINT_SLICES, r#"{"addressType":"FQDN"}"#, &["spec.addressType: FQDN endpoints are deprecated"]),
        (ENDPOINT_SLICES, r#"{"addressType":"IPv4","endpoints":[{"addresses":["01.2.3.4"]}]}"#, &["endpoints[0].addresses[0]: non-standard IP address"]),
        (ENDPOINT_SLICES, r#"{"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}},"endpoints":[{"addresses":["01.2.3.4"]}]}"#, &[]),
        (ENDPOINTS, r#"{"subsets":[{"addresses":[{"ip":"2001:DB8::1"}],"notReadyAddresses":[{"ip":"01.2.3.4"}]}]}"#, &["subsets[0].addresses[0].ip: IPv6 address", "subsets[0].notReadyAddresses[0].ip: non-standard"]),
        (SECRETS, r#"{"type":"kubernetes.io/tls","data":{"tls.crt":"LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCkFBQUEKLS0tLS1FTkQgRUMgUFJJVkFURSBLRVktLS0tLQo=","tls.key":""}}"#, &["tls: failed to find certificate PEM data in certificate input, but did find a private key"]),
        (SECRETS, r#"{"type":"kubernetes.io/tls","data":{"tls.crt":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=","tls.key":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="}}"#, &["tls: found a certificate rather than a key"]),
        (QUOTAS, r#"{"spec":{"hard":{"requests.cpu":"2","limits.cpu":"1"}}}"#, &["ResourceQuota requests.cpu (2) should be less than limits.cpu (1)"]),
    ];
    for (resource, object, starts) in rows {
        let found = warnings(*resource, &parse(object), None);
        assert_eq!(found.len(), starts.len(), "{object}: {found:?}");
        for (found, start) in found.iter().zip(*starts) {
            assert!(found.starts_with(start), "{found}");
        }
    }
}

#[test]
fn unchanged_objects_get_no_warnings() {
    let pod_object = parse(r#"{"spec":{"terminationGracePeriodSeconds":-1}}"#);
    assert_eq!(warnings(PODS, &pod_object, Some(&pod_object)), Vec::<String>::new());
    let set = parse(
        r#"{"metadata":{"name":"a","generation":2},"spec":{"template":{"spec":{"terminationGracePeriodSeconds":-1}}}}"#,
    );
    assert_eq!(warnings(DEPLOYMENTS, &set, Some(&set)), Vec::<String>::new());
    let before = parse(r#"{"metadata":{"generation":1}}"#);
    assert_eq!(warnings(DEPLOYMENTS, &set, Some(&before)).len(), 1);
}

#[test]
fn comparisons_of_ports_are_bounded() {
    let port = r#"{"containerPort":80,"protocol":"TCP"}"#;
    let ports = vec![port; 50_000].join(",");
    let found = warnings(
        PODS,
        &parse(&format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"containers":[{{"ports":[{ports}]}}]}}}}"#)),
        None,
    );
    assert_eq!(found.len(), MAX_WARNINGS);
}

#[test]
fn certificates_and_keys_belong_together() {
    let pair = || rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let (one, other) = (pair(), pair());
    let of = |certificate: &str, key: &str| {
        use base64::engine::general_purpose::STANDARD;
        use base64::Engine as _;
        let (certificate, key) = (STANDARD.encode(certificate), STANDARD.encode(key));
        let text = format!(
            r#"{{"type":"kubernetes.io/tls","data":{{"tls.crt":"{certificate}","tls.key":"{key}"}}}}"#
        );
        warnings(SECRETS, &parse(&text), None)
    };
    let (certificate, key) = (one.cert.pem(), one.signing_key.serialize_pem());
    assert_eq!(of(&certificate, &key), Vec::<String>::new());
    // What stands before the key is stepped over.
    assert_eq!(of(&certificate, &format!("{certificate}{key}")), Vec::<String>::new());
    let foreign = other.signing_key.serialize_pem();
    assert_eq!(of(&certificate, &foreign), ["tls: private key does not match public key"]);
    let rsa = include_str!("../../../pki/src/jwt/testdata/rsa-pkcs8.pem");
    assert_eq!(of(&certificate, rsa), ["tls: private key type does not match public key type"]);
}

#[test]
fn addresses_in_the_status_get_warnings() {
    let odd = parse(
        r#"{"status":{"podIPs":[{"ip":"2001:DB8::1"}],"hostIPs":[{"ip":"1.2.3.4"}],"loadBalancer":{"ingress":[{"hostname":"a"},{"ip":"01.2.3.4"}]}}}"#,
    );
    assert_eq!((strategy(PODS).status_warnings)(&odd).len(), 1);
    let found = (strategy(SERVICES).status_warnings)(&odd);
    assert_eq!(
        found,
        ["status.loadBalancer.ingress[1]: non-standard IP address \"01.2.3.4\" is invalid: use \"1.2.3.4\""]
    );
}
