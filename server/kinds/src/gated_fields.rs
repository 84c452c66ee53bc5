//! Fields that belong to a feature gate. While it is off they are dropped from what is written, unless the
//! stored object uses them (`dropDisabledFields` of kubernetes' registry strategies).

use plinth_codec::Value;

/// Removes the fields from a part of the object; `old` is that part of the stored one.
type DropFields = fn(new: &mut Value, old: Option<&Value>);

/// Fields of a part of the object that belong to a gate.
#[derive(Clone, Copy, Debug)]
pub struct GatedFields {
    /// Name of the feature gate.
    pub gate: &'static str,
    /// The path of the part; empty for the object itself.
    part: &'static [&'static str],
    drop: DropFields,
}

impl GatedFields {
    pub(crate) const fn new(gate: &'static str, part: &'static [&'static str], drop: DropFields) -> Self {
        GatedFields { gate, part, drop }
    }

    /// Removes the fields unless the stored object uses them.
    pub(crate) fn drop(&self, new: &mut Value, old: Option<&Value>) {
        let mut target = Some(new);
        for key in self.part {
            target = target.and_then(|value| value.get_mut(key));
        }
        if let Some(target) = target {
            (self.drop)(target, old.and_then(|old| old.at(self.part)));
        }
    }
}

/// Removes a field that the stored part does not have.
pub(crate) fn drop_field(new: &mut Value, old: Option<&Value>, field: &str) {
    let is_used = old.and_then(|old| old.get(field)).is_some_and(|value| !value.is_null());
    if let Some(new) = new.as_object_mut().filter(|_| !is_used) {
        new.remove(field);
    }
}

/// Those of the pod spec at a path.
pub(crate) const fn of_pods(spec: &'static [&'static str]) -> [GatedFields; 3] {
    [
        GatedFields::new("ClusterTrustBundleProjection", spec, |new, old| {
            drop_projections(new, old, "clusterTrustBundle");
        }),
        GatedFields::new("PodCertificateRequest", spec, |new, old| {
            drop_projections(new, old, "podCertificate");
        }),
        GatedFields::new("GenericWorkload", spec, |new, old| drop_field(new, old, "schedulingGroup")),
    ]
}

/// The path of pod templates of most workloads.
pub(crate) const TEMPLATE: &[&str] = &["spec", "template", "spec"];

/// Removes that source from projected volumes of a pod spec, unless the stored one has such a source.
fn drop_projections(new: &mut Value, old: Option<&Value>, source: &str) {
    const SOURCES: [&str; 2] = ["projected", "sources"];
    let is_used = |spec: &Value| {
        let mut sources = spec.list_at(&["volumes"]).iter().flat_map(|volume| volume.list_at(&SOURCES));
        sources.any(|projection| projection.get(source).is_some_and(|value| !value.is_null()))
    };
    if old.is_some_and(is_used) {
        return;
    }
    let volumes = new.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        let sources = volume.get_mut("projected").and_then(|projected| projected.get_mut("sources"));
        let sources = sources.and_then(Value::as_array_mut).into_iter().flatten();
        sources.filter_map(Value::as_object_mut).for_each(|projection| drop(projection.remove(source)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    fn pod(source: &str) -> Value {
        let mut projection = Value::object();
        projection.as_object_mut().unwrap().insert(source, tree!({ "signerName": "example.com/s" }));
        let sources = tree!({ "sources": tree!([projection]) });
        let volume = tree!({ "name": "v", "projected": sources });
        tree!({ "spec": tree!({ "volumes": tree!([volume]) }) })
    }

    #[test]
    fn fields_of_a_gate_that_is_off_are_dropped_unless_they_are_stored() {
        let strategy = crate::of("", "pods");
        let written = |new: &Value, old: Option<&Value>, is_on: bool| {
            let mut new = new.clone();
            strategy.drop_disabled(&mut new, old, |_| is_on);
            new
        };
        let empty = tree!({ "spec": tree!({ "volumes": tree!([tree!({ "name": "v",
            "projected": tree!({ "sources": tree!([tree!({})]) }) })]) }) });
        for (source, other) in
            [("podCertificate", "clusterTrustBundle"), ("clusterTrustBundle", "podCertificate")]
        {
            let [new, other] = [source, other].map(pod);
            assert_eq!(written(&new, None, false), empty);
            assert_eq!(written(&new, Some(&other), false), empty);
            assert_eq!(written(&new, Some(&new), false), new);
            assert_eq!(written(&new, None, true), new);
        }
        let [plain, group] = [tree!({}), tree!({ "schedulingGroup": tree!({ "podGroupName": "g" }) })]
            .map(|spec| tree!({ "spec": spec }));
        assert_eq!(written(&group, None, false), plain);
        assert_eq!(written(&group, Some(&plain), false), plain);
        assert_eq!(written(&group, Some(&group), false), group);
        assert_eq!(written(&group, None, true), group);
        let token = pod("serviceAccountToken");
        assert_eq!(written(&token, None, false), token);
    }

    #[test]
    fn every_pod_spec_has_them() {
        let gates = |group, plural| {
            let gated: Vec<&str> = crate::of(group, plural).gated_fields.iter().map(|f| f.gate).collect();
            gated.join(" ")
        };
        let of_pods = gates("", "pods");
        for (group, plural) in [
            ("", "podtemplates"),
            ("", "replicationcontrollers"),
            ("apps", "daemonsets"),
            ("apps", "deployments"),
            ("apps", "replicasets"),
            ("apps", "statefulsets"),
            ("batch", "cronjobs"),
            ("batch", "jobs"),
        ] {
            assert_eq!(gates(group, plural), of_pods, "{plural}");
        }
    }
}
