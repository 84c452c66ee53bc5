//! A small schema for the tests of patch and apply: a Deployment-like kind with every marker on it.

use crate::schema::{
    Field, ListType, MapType, Omit, PatchStrategy, Scalar, Schema, StructType, Type, TypeId, GVK,
};

/// Builds a schema by hand.
#[derive(Default)]
pub(crate) struct Builder {
    schema: Schema,
}

impl Builder {
    pub(crate) fn add(&mut self, t: Type) -> TypeId {
        self.schema.types.push(t);
        TypeId(self.schema.types.len() as u32 - 1)
    }

    pub(crate) fn scalar(&mut self, s: Scalar) -> TypeId {
        self.add(Type::Scalar(s))
    }

    pub(crate) fn list(&mut self, element: TypeId) -> TypeId {
        self.add(Type::List { element, message: false, merge: ListType::Atomic })
    }

    pub(crate) fn map(&mut self, value: TypeId) -> TypeId {
        self.add(Type::Map { value, atomic: false })
    }

    /// Fields with their markers: `merge`, `replace`, `retainKeys`, `key=K` for patches; `set`, `map=K,K`,
    /// `atomic` (of a map) and `default=V` for apply.
    pub(crate) fn structure(&mut self, name: &str, fields: &[(&str, TypeId, &str)]) -> TypeId {
        let fields: Vec<Field> = fields
            .iter()
            .map(|(name, type_id, marks)| {
                let mut field = Field {
                    name: (*name).into(),
                    number: 0,
                    embedded_in: 0,
                    type_id: *type_id,
                    omit: Omit::Empty,
                    // As in custom resources: unset fields are absent.
                    pointer: true,
                    required: false,
                    default: None,
                    patch: PatchStrategy::default(),
                    list: ListType::default(),
                    map: MapType::default(),
                };
                for mark in marks.split_whitespace() {
                    match mark.split_once('=').unwrap_or((mark, "")) {
                        ("merge", _) => field.patch.merge = true,
                        ("replace", _) => field.patch.replace = true,
                        ("retainKeys", _) => field.patch.retain_keys = true,
                        ("key", key) => field.patch.merge_key = Some(key.into()),
                        ("set", _) => field.list = ListType::Set,
                        ("map", keys) => {
                            field.list = ListType::Map(keys.split(',').map(Into::into).collect())
                        }
                        ("atomic", _) => field.map = MapType::Atomic,
                        ("default", value) => field.default = Some(value.into()),
                        (other, _) => panic!("unknown marker {other}"),
                    }
                }
                field
            })
            .collect();
        let structure = StructType { name: name.into(), fields, ..StructType::default() };

        self.add(Type::Struct(structure))
    }

    /// Names a type as the body of a kind, returns the schema.
    pub(crate) fn finish(mut self, kind: GVK, root: TypeId) -> (Schema, TypeId) {
        self.schema.kinds.insert(kind, root);
        self.schema.index();
        (self.schema, root)
    }
}

/// `test/v1 Deployment`.
pub(crate) fn deployment() -> (Schema, TypeId) {
    let mut b = Builder::default();
    let string = b.scalar(Scalar::String { values: Vec::new() });
    let int = b.scalar(Scalar::Int32);
    let boolean = b.scalar(Scalar::Bool);
    let any = b.scalar(Scalar::RawExtension);
    let quantity = b.scalar(Scalar::Quantity);
    let int_or_string = b.scalar(Scalar::IntOrString);
    let fields_v1 = b.scalar(Scalar::FieldsV1);
    let strings = b.list(string);
    let string_map = b.map(string);
    let quantities = b.map(quantity);
    let owner = b.structure("OwnerReference", &[("uid", string, ""), ("name", string, "")]);
    let owners = b.list(owner);
    let entry = b.structure(
        "ManagedFieldsEntry",
        &[
            ("manager", string, ""),
            ("operation", string, ""),
            ("apiVersion", string, ""),
            ("time", string, ""),
            ("fieldsType", string, ""),
            ("fieldsV1", fields_v1, ""),
            ("subresource", string, ""),
        ],
    );
    let entries = b.list(entry);
    let meta = b.structure(
        "io.test.ObjectMeta",
        &[
            ("name", string, ""),
            ("namespace", string, ""),
            ("uid", string, ""),
            ("resourceVersion", string, ""),
            ("generation", int, ""),
            ("creationTimestamp", string, ""),
            ("labels", string_map, ""),
            ("annotations", string_map, ""),
            ("finalizers", strings, "merge set"),
            ("ownerReferences", owners, "merge key=uid map=uid"),
            ("managedFields", entries, ""),
        ],
    );
    let port = b.structure(
        "io.test.ContainerPort",
        &[
            ("name", string, ""),
            ("containerPort", int, ""),
            ("protocol", string, "default=TCP"),
            ("hostPort", int, ""),
        ],
    );
    let ports = b.list(port);
    let env_source = b.structure("io.test.EnvVarSource", &[("key", string, ""), ("name", string, "")]);
    let env = b.structure(
        "io.test.EnvVar",
        &[("name", string, ""), ("value", string, ""), ("valueFrom", env_source, "atomic")],
    );
    let envs = b.list(env);
    let resources =
        b.structure("io.test.Resources", &[("limits", quantities, ""), ("requests", quantities, "")]);
    let container = b.structure(
        "io.test.Container",
        &[
            ("name", string, ""),
            ("image", string, ""),
            ("args", strings, ""),
            ("ports", ports, "merge key=containerPort map=containerPort,protocol"),
            ("env", envs, "merge key=name map=name"),
            ("resources", resources, ""),
        ],
    );
    let containers = b.list(container);
    let toleration = b.structure("io.test.Toleration", &[("key", string, ""), ("effect", string, "")]);
    let tolerations = b.list(toleration);
    let empty_dir = b.structure("io.test.EmptyDir", &[("medium", string, "")]);
    let host_path = b.structure("io.test.HostPath", &[("path", string, "")]);
    let volume = b.structure(
        "io.test.Volume",
        &[("name", string, ""), ("emptyDir", empty_dir, ""), ("hostPath", host_path, "")],
    );
    let volumes = b.list(volume);
    let pod = b.structure(
        "io.test.PodSpec",
        &[
            ("containers", containers, "merge key=name map=name"),
            ("volumes", volumes, "merge retainKeys key=name map=name"),
            ("tolerations", tolerations, ""),
            ("nodeSelector", string_map, "atomic"),
            ("hostNetwork", boolean, ""),
        ],
    );
    let rolling = b.structure("io.test.RollingUpdate", &[("maxSurge", int_or_string, "")]);
    let strategy = b.structure("io.test.Strategy", &[("type", string, ""), ("rollingUpdate", rolling, "")]);
    let lists = b.list(strings);
    let spec = b.structure(
        "io.test.DeploymentSpec",
        &[
            ("replicas", int, ""),
            ("selector", string_map, "replace"),
            ("strategy", strategy, "retainKeys"),
            ("template", pod, ""),
            ("paused", boolean, ""),
            ("data", any, ""),
            ("keyless", tolerations, "merge"),
            ("rows", lists, ""),
        ],
    );
    let condition = b.structure(
        "io.test.Condition",
        &[("type", string, ""), ("status", string, ""), ("message", string, "")],
    );
    let conditions = b.list(condition);
    let status = b.structure(
        "io.test.Status",
        &[("replicas", int, ""), ("conditions", conditions, "merge key=type map=type")],
    );
    let root = b.structure(
        "io.test.Deployment",
        &[
            ("apiVersion", string, ""),
            ("kind", string, ""),
            ("metadata", meta, ""),
            ("spec", spec, ""),
            ("status", status, ""),
        ],
    );
    b.finish(GVK::new("test", "v1", "Deployment"), root)
}

/// Parses JSON text; for tests that are easier to read so.
pub(crate) fn json(text: &str) -> crate::Value {
    fn convert(v: serde_json::Value) -> crate::Value {
        match v {
            serde_json::Value::Null => crate::Value::Null,
            serde_json::Value::Bool(b) => b.into(),
            serde_json::Value::Number(n) => match n.as_i64() {
                Some(i) => i.into(),
                None => crate::Value::Float(n.as_f64().unwrap()),
            },
            serde_json::Value::String(s) => s.into(),
            serde_json::Value::Array(a) => a.into_iter().map(convert).collect::<Vec<_>>().into(),
            serde_json::Value::Object(m) => {
                m.into_iter().map(|(k, v)| (k.into(), convert(v))).collect::<crate::Map>().into()
            }
        }
    }
    convert(serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}")))
}
