//! Rows of kinds other than workloads: network, nodes, storage, access, server configuration, devices.

use super::columns::check;

#[test]
fn network_kinds() {
    check(
        "",
        "services",
        &[
            (
                r#"{"spec":{"type":"ClusterIP","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[{"port":443,"protocol":"TCP"}]}}"#,
                r#""n", "ClusterIP", "10.0.0.1", "<none>", "443/TCP", "24h", "<none>""#,
            ),
            (
                r#"{"spec":{"type":"NodePort","clusterIP":"None","externalIPs":["1.1.1.1","2.2.2.2"],"selector":{"a":"b"},"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"},{"port":53,"protocol":"UDP"}]}}"#,
                r#""n", "NodePort", "None", "1.1.1.1,2.2.2.2", "80:30080/TCP,53/UDP", "24h", "a=b""#,
            ),
            (
                r#"{"spec":{"type":"LoadBalancer"}}"#,
                r#""n", "LoadBalancer", "<none>", "<pending>", "<none>", "24h", "<none>""#,
            ),
            (
                r#"{"spec":{"type":"LoadBalancer","externalIPs":["9.9.9.9"]},"status":{"loadBalancer":{"ingress":[{"ip":"3.3.3.3"},{"hostname":"a.example"},{"ip":"3.3.3.3"}]}}}"#,
                r#""n", "LoadBalancer", "<none>", "3.3.3.3,a.example,9.9.9.9", "<none>", "24h", "<none>""#,
            ),
            (
                r#"{"spec":{"type":"ExternalName","externalName":"x.example"}}"#,
                r#""n", "ExternalName", "<none>", "x.example", "<none>", "24h", "<none>""#,
            ),
        ],
    );
    check(
        "",
        "endpoints",
        &[
            (r#"{"subsets":[]}"#, r#""n", "<none>", "24h""#),
            (
                r#"{"subsets":[{"addresses":[{"ip":"1.1.1.1"},{"ip":"::2"}],"ports":[{"port":80}]}]}"#,
                r#""n", "1.1.1.1:80,[::2]:80", "24h""#,
            ),
            (r#"{"subsets":[{"addresses":[{"ip":"1.1.1.1"}]}]}"#, r#""n", "1.1.1.1", "24h""#),
            (
                r#"{"subsets":[{"addresses":[{"ip":"1.1.1.1"},{"ip":"2.2.2.2"}],"ports":[{"port":80},{"port":443}]},{"addresses":[{"ip":"3.3.3.3"}]}]}"#,
                r#""n", "1.1.1.1:80,2.2.2.2:80,1.1.1.1:443 + 2 more...", "24h""#,
            ),
        ],
    );
    check(
        "discovery.k8s.io",
        "endpointslices",
        &[
            (r#"{"addressType":"IPv4"}"#, r#""n", "IPv4", "<unset>", "<unset>", "24h""#),
            (
                r#"{"addressType":"IPv4","ports":[{"name":"","port":80},{"name":"web"},{},{"port":1}],"endpoints":[{"addresses":["1.1.1.1","2.2.2.2"]},{"addresses":["3.3.3.3","4.4.4.4"]}]}"#,
                r#""n", "IPv4", "80,web,* + 1 more...", "1.1.1.1,2.2.2.2,3.3.3.3 + 1 more...", "24h""#,
            ),
        ],
    );
    check(
        "networking.k8s.io",
        "ingresses",
        &[
            (r#"{"spec":{"rules":[{}]}}"#, r#""n", "<none>", "*", "", "80", "24h""#),
            (
                r#"{"spec":{"ingressClassName":"nginx","tls":[{}],"rules":[{"host":"a"},{},{"host":"b"},{"host":"c"}]},"status":{"loadBalancer":{"ingress":[{"ip":"9.9.9.9"},{"hostname":"lb.example.org"}]}}}"#,
                r#""n", "nginx", "a,b,c", "9.9.9.9,lb.example.org", "80, 443", "24h""#,
            ),
            (
                r#"{"spec":{"rules":[{"host":"a"},{"host":"b"},{"host":"c"},{"host":"d"},{}]}}"#,
                r#""n", "<none>", "a,b,c + 2 more...", "", "80", "24h""#,
            ),
        ],
    );
    check(
        "networking.k8s.io",
        "ingressclasses",
        &[
            (
                r#"{"metadata":{"annotations":{"ingressclass.kubernetes.io/is-default-class":"true"}},"spec":{"controller":"c","parameters":{"apiGroup":"g","kind":"K","name":"p"}}}"#,
                r#""n (default)", "c", "K.g/p", "24h""#,
            ),
            (
                r#"{"spec":{"controller":"c","parameters":{"kind":"K","name":"p"}}}"#,
                r#""n", "c", "K/p", "24h""#,
            ),
            (r#"{"spec":{"controller":"c"}}"#, r#""n", "c", "<none>", "24h""#),
        ],
    );
    check(
        "networking.k8s.io",
        "ipaddresses",
        &[
            (
                r#"{"spec":{"parentRef":{"resource":"services","namespace":"default","name":"kubernetes"}}}"#,
                r#""n", "services/default/kubernetes""#,
            ),
            (
                r#"{"spec":{"parentRef":{"group":"G.io","resource":"Gateways","name":"x"}}}"#,
                r#""n", "gateways.g.io/x""#,
            ),
            (r#"{"spec":{}}"#, r#""n", "<none>""#),
        ],
    );
    check(
        "networking.k8s.io",
        "networkpolicies",
        &[
            (r#"{"spec":{"podSelector":{}}}"#, r#""n", "<none>", "24h""#),
            (r#"{"spec":{"podSelector":{"matchLabels":{"b":"2","a":"1"}}}}"#, r#""n", "a=1,b=2", "24h""#),
            (
                r#"{"spec":{"podSelector":{"matchExpressions":[{"key":"k","operator":"In"}]}}}"#,
                r#""n", "<error>", "24h""#,
            ),
        ],
    );
    check(
        "networking.k8s.io",
        "servicecidrs",
        &[(r#"{"spec":{"cidrs":["10.0.0.0/16","fd00::/108"]}}"#, r#""n", "10.0.0.0/16,fd00::/108", "24h""#)],
    );
}

#[test]
fn nodes_namespaces_and_events() {
    check(
        "",
        "nodes",
        &[
            (
                r#"{"metadata":{"labels":{"node-role.kubernetes.io/worker":"","node-role.kubernetes.io/":"","kubernetes.io/role":"master"}},"spec":{"unschedulable":true},"status":{"conditions":[{"type":"Ready","status":"True"}],"addresses":[{"type":"Hostname","address":"h"},{"type":"InternalIP","address":"10.0.0.2"}],"nodeInfo":{"kubeletVersion":"v1.36.0","osImage":"Debian","kernelVersion":"6.1","architecture":"amd64","containerRuntimeVersion":"containerd://2"}}}"#,
                r#""n", "Ready,SchedulingDisabled", "master,worker", "24h", "v1.36.0", "10.0.0.2", "<none>", "Debian", "6.1 (amd64)", "containerd://2""#,
            ),
            (
                r#"{"status":{"conditions":[{"type":"Ready","status":"Unknown"}],"addresses":[{"type":"ExternalIP","address":"9.9.9.9"}]}}"#,
                r#""n", "NotReady", "<none>", "24h", "", "<none>", "9.9.9.9", "<unknown>", "<unknown>", "<unknown>""#,
            ),
        ],
    );
    check("", "namespaces", &[(r#"{"status":{"phase":"Active"}}"#, r#""n", "Active", "24h""#)]);
    let event = r#"{"involvedObject":{"kind":"Pod","name":"p","fieldPath":"f"},"type":"Normal","reason":"R","message":" text\n""#;
    let cases = [
        (
            r#","source":{"component":"kubelet","host":"h"},"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T23:59:00Z","count":4}"#,
            r#""60s", "Normal", "R", "pod/p", "f", "kubelet, h", "text", "24h", 4, "n""#,
        ),
        (
            r#","reportingComponent":"c","reportingInstance":"i","eventTime":"2026-01-01T23:59:30.500000Z","firstTimestamp":null,"lastTimestamp":null}"#,
            r#""29s", "Normal", "R", "pod/p", "f", "c, i", "text", "29s", 1, "n""#,
        ),
        (
            r#","reportingComponent":"c","eventTime":"2026-01-01T00:00:00.000000Z","series":{"count":7,"lastObservedTime":"2026-01-01T23:59:58.000000Z"}}"#,
            r#""2s", "Normal", "R", "pod/p", "f", "c", "text", "24h", 7, "n""#,
        ),
    ];
    for (rest, expected) in cases {
        check("", "events", &[(&format!("{event}{rest}"), expected)]);
        check("events.k8s.io", "events", &[(&format!("{event}{rest}"), expected)]);
    }
}

#[test]
fn storage_kinds() {
    check(
        "",
        "persistentvolumes",
        &[
            (
                r#"{"spec":{"capacity":{"storage":"5Gi"},"accessModes":["ReadWriteMany","ReadWriteOnce","ReadWriteMany"],"persistentVolumeReclaimPolicy":"Retain","claimRef":{"namespace":"d","name":"c"},"storageClassName":"fast","volumeAttributesClassName":"gold","volumeMode":"Block"},"status":{"phase":"Bound","reason":"why"}}"#,
                r#""n", "5Gi", "RWO,RWX", "Retain", "Bound", "d/c", "fast", "gold", "why", "24h", "Block""#,
            ),
            (
                r#"{"metadata":{"deletionTimestamp":"2026-01-02T00:00:00Z","annotations":{"volume.beta.kubernetes.io/storage-class":"old"}},"spec":{"storageClassName":"new"},"status":{"phase":"Released"}}"#,
                r#""n", "0", "", "", "Terminating", "", "old", "<unset>", "", "24h", "<unset>""#,
            ),
        ],
    );
    check(
        "",
        "persistentvolumeclaims",
        &[
            (
                r#"{"spec":{"volumeName":"pv","storageClassName":"fast","volumeMode":"Filesystem"},"status":{"phase":"Bound","capacity":{"storage":"5Gi"},"accessModes":["ReadOnlyMany","ReadWriteOncePod"]}}"#,
                r#""n", "Bound", "pv", "5Gi", "ROX,RWOP", "fast", "<unset>", "24h", "Filesystem""#,
            ),
            (
                r#"{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Pending","capacity":{"storage":"5Gi"}}}"#,
                r#""n", "Pending", "", "", "", "", "<unset>", "24h", "<unset>""#,
            ),
            (r#"{"spec":{"volumeName":"pv"}}"#, r#""n", "", "pv", "0", "", "", "<unset>", "24h", "<unset>""#),
        ],
    );
    check(
        "storage.k8s.io",
        "storageclasses",
        &[
            (
                r#"{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"p","reclaimPolicy":"Retain","volumeBindingMode":"WaitForFirstConsumer","allowVolumeExpansion":true}"#,
                r#""n (default)", "p", "Retain", "WaitForFirstConsumer", true, "24h""#,
            ),
            (r#"{"provisioner":"p"}"#, r#""n", "p", "Delete", "Immediate", false, "24h""#),
        ],
    );
    check(
        "storage.k8s.io",
        "csidrivers",
        &[
            (r#"{"spec":{}}"#, r#""n", true, false, false, "<unset>", false, "<none>", "24h""#),
            (
                r#"{"spec":{"attachRequired":false,"podInfoOnMount":true,"storageCapacity":true,"requiresRepublish":true,"tokenRequests":[{"audience":"a"},{"audience":"b"}],"volumeLifecycleModes":["Persistent","Ephemeral"]}}"#,
                r#""n", false, true, true, "a,b", true, "Persistent,Ephemeral", "24h""#,
            ),
        ],
    );
    check("storage.k8s.io", "csinodes", &[(r#"{"spec":{"drivers":[{},{}]}}"#, r#""n", 2, "24h""#)]);
    check(
        "storage.k8s.io",
        "csistoragecapacities",
        &[(r#"{"capacity":"1Gi"}"#, r#""n", "2026-01-01T00:00:00Z""#)],
    );
    check(
        "storage.k8s.io",
        "volumeattachments",
        &[(
            r#"{"spec":{"attacher":"a","nodeName":"node","source":{"persistentVolumeName":"pv"}},"status":{"attached":true}}"#,
            r#""n", "a", "pv", "node", true, "24h""#,
        )],
    );
    check("storage.k8s.io", "volumeattributesclasses", &[(r#"{"driverName":"d"}"#, r#""n", "d", "24h""#)]);
}

#[test]
fn configuration_and_access() {
    check(
        "",
        "configmaps",
        &[(r#"{"data":{"a":"1","b":"2"},"binaryData":{"c":"eA=="}}"#, r#""n", 3, "24h""#)],
    );
    check("", "secrets", &[(r#"{"type":"Opaque","data":{"a":"eA=="}}"#, r#""n", "Opaque", 1, "24h""#)]);
    check("", "serviceaccounts", &[(r#"{"secrets":[{}]}"#, r#""n", "24h""#)]);
    check("", "limitranges", &[(r#"{"spec":{}}"#, r#""n", "2026-01-01T00:00:00Z""#)]);
    check(
        "",
        "resourcequotas",
        &[(
            r#"{"status":{"hard":{"pods":"5","limits.cpu":"2","requests.cpu":"1","limits.memory":"1Gi"},"used":{"pods":"1","limits.cpu":"500m"}}}"#,
            r#""n", "pods: 1/5, requests.cpu: 0/1", "limits.cpu: 500m/2, limits.memory: 0/1Gi", "24h""#,
        )],
    );
    let binding = r#"{"roleRef":{"kind":"ClusterRole","name":"admin"},"subjects":[{"kind":"User","name":"u"},{"kind":"Group","name":"g"},{"kind":"ServiceAccount","namespace":"s","name":"a"},{"kind":"User","name":"v"}]}"#;
    for resource in ["rolebindings", "clusterrolebindings"] {
        check(
            "rbac.authorization.k8s.io",
            resource,
            &[(binding, r#""n", "ClusterRole/admin", "24h", "u, v", "g", "s/a""#)],
        );
    }
    check("rbac.authorization.k8s.io", "roles", &[(r#"{"rules":[]}"#, r#""n", "2026-01-01T00:00:00Z""#)]);
    check(
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[
            (r#"{"spec":{"username":"u"}}"#, r#""n", "24h", "<none>", "u", "<none>", "Pending""#),
            (
                r#"{"spec":{"username":"u","signerName":"s","expirationSeconds":3600},"status":{"certificate":"eA==","conditions":[{"type":"Approved"},{"type":"Failed"}]}}"#,
                r#""n", "24h", "s", "u", "60m", "Approved,Failed,Issued""#,
            ),
            (
                r#"{"spec":{},"status":{"conditions":[{"type":"Approved"},{"type":"Denied"}]}}"#,
                r#""n", "24h", "<none>", "", "<none>", "Denied""#,
            ),
        ],
    );
    check("coordination.k8s.io", "leases", &[(r#"{"spec":{"holderIdentity":"h"}}"#, r#""n", "h", "24h""#)]);
    check("node.k8s.io", "runtimeclasses", &[(r#"{"handler":"runc"}"#, r#""n", "runc", "24h""#)]);
    check(
        "scheduling.k8s.io",
        "priorityclasses",
        &[(
            r#"{"value":2000000000,"preemptionPolicy":"PreemptLowerPriority"}"#,
            r#""n", 2000000000, false, "24h", "PreemptLowerPriority""#,
        )],
    );
}

#[test]
fn server_configuration() {
    check(
        "",
        "componentstatuses",
        &[
            (
                r#"{"conditions":[{"type":"Healthy","status":"True","message":"ok"}]}"#,
                r#""n", "Healthy", "ok", """#,
            ),
            (
                r#"{"conditions":[{"type":"Healthy","status":"False","error":"e"}]}"#,
                r#""n", "Unhealthy", "", "e""#,
            ),
            (r#"{"conditions":[{"type":"Other","status":"True"}]}"#, r#""n", "Unknown", "", """#),
        ],
    );
    check(
        "apiregistration.k8s.io",
        "apiservices",
        &[
            (
                r#"{"status":{"conditions":[{"type":"Available","status":"True","reason":"Local"}]}}"#,
                r#""n", "Local", "True", "24h""#,
            ),
            (
                r#"{"spec":{"service":{"namespace":"s","name":"x"}},"status":{"conditions":[{"type":"Available","status":"False","reason":"Missing"}]}}"#,
                r#""n", "s/x", "False (Missing)", "24h""#,
            ),
            (r#"{"spec":{}}"#, r#""n", "Local", "Unknown", "24h""#),
        ],
    );
    for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        check("admissionregistration.k8s.io", resource, &[(r#"{"webhooks":[{},{}]}"#, r#""n", 2, "24h""#)]);
    }
    for (resource, rules) in
        [("validatingadmissionpolicies", "validations"), ("mutatingadmissionpolicies", "mutations")]
    {
        check(
            "admissionregistration.k8s.io",
            resource,
            &[
                (
                    &format!(
                        r#"{{"spec":{{"{rules}":[{{}}],"paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}}}}}}"#
                    ),
                    r#""n", 1, "v1/ConfigMap", "24h""#,
                ),
                (r#"{"spec":{}}"#, r#""n", 0, "<unset>", "24h""#),
            ],
        );
    }
    for resource in ["validatingadmissionpolicybindings", "mutatingadmissionpolicybindings"] {
        check(
            "admissionregistration.k8s.io",
            resource,
            &[
                (r#"{"spec":{"policyName":"p"}}"#, r#""n", "p", "<unset>", "24h""#),
                (r#"{"spec":{"policyName":"p","paramRef":{"name":"x"}}}"#, r#""n", "p", "*/x", "24h""#),
                (
                    r#"{"spec":{"policyName":"p","paramRef":{"name":"x","namespace":"s"}}}"#,
                    r#""n", "p", "s/x", "24h""#,
                ),
                (
                    r#"{"spec":{"policyName":"p","paramRef":{"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"In","values":["x","y"]}]}}}}"#,
                    r#""n", "p", "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}", "24h""#,
                ),
            ],
        );
    }
    check(
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        &[
            (
                r#"{"spec":{"priorityLevelConfiguration":{"name":"exempt"},"matchingPrecedence":1},"status":{"conditions":[{"type":"Dangling","status":"False"}]}}"#,
                r#""n", "exempt", 1, "<none>", "24h", "False""#,
            ),
            (
                r#"{"spec":{"priorityLevelConfiguration":{"name":"x"},"matchingPrecedence":5,"distinguisherMethod":{"type":"ByUser"}}}"#,
                r#""n", "x", 5, "ByUser", "24h", "?""#,
            ),
        ],
    );
    check(
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        &[
            (
                r#"{"spec":{"type":"Exempt"}}"#,
                r#""n", "Exempt", "<none>", "<none>", "<none>", "<none>", "24h""#,
            ),
            (
                r#"{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":20,"limitResponse":{"type":"Queue","queuing":{"queues":128,"handSize":6,"queueLengthLimit":50}}}}}"#,
                r#""n", "Limited", 20, 128, 6, 50, "24h""#,
            ),
        ],
    );
}

#[test]
fn devices() {
    check("resource.k8s.io", "deviceclasses", &[(r#"{"spec":{}}"#, r#""n", "24h""#)]);
    check("resource.k8s.io", "resourceclaimtemplates", &[(r#"{"spec":{}}"#, r#""n", "24h""#)]);
    let deleted = r#"{"metadata":{"deletionTimestamp":"2026-01-02T00:00:00Z"},"status":{STATUS}}"#;
    let kept = r#"{"status":{STATUS}}"#;
    for (object, status, state) in [
        (kept, "", "pending"),
        (kept, r#""allocation":{}"#, "allocated"),
        (kept, r#""allocation":{},"reservedFor":[{}]"#, "allocated,reserved"),
        (deleted, "", "deleted"),
        (deleted, r#""allocation":{}"#, "deleted,allocated"),
        (deleted, r#""allocation":{},"reservedFor":[{}]"#, "deleted,allocated,reserved"),
    ] {
        check(
            "resource.k8s.io",
            "resourceclaims",
            &[(&object.replace("STATUS", status), &format!(r#""n", "{state}", "24h""#))],
        );
    }
    check(
        "resource.k8s.io",
        "resourceslices",
        &[(
            r#"{"spec":{"nodeName":"node","driver":"d","pool":{"name":"p"}}}"#,
            r#""n", "node", "d", "p", "24h""#,
        )],
    );
}
